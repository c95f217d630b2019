"""Texts of failure replies."""

import errno

import pytest

from waltz.storage.errors import (
    ConcurrentUpdateError,
    CorruptionError,
    PartitionNotAssignedError,
    ReadOnlyError,
    StorageError,
    UnknownRequestError,
    wire_text,
)

STORAGE_EXCEPTION = "com.wepay.waltz.storage.exception.StorageException"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StorageError("transaction out of order"), f"{STORAGE_EXCEPTION}: transaction out of order"),
        (StorageError(""), STORAGE_EXCEPTION),
        (
            ConcurrentUpdateError("session id has changed to 2"),
            "com.wepay.waltz.storage.exception.ConcurrentUpdateException: session id has changed to 2",
        ),
        (PartitionNotAssignedError(-7), "java.lang.Exception: Partition:-7 is not assigned."),
        (UnknownRequestError(3), "java.lang.IllegalStateException: unknown message type: 3"),
        (ReadOnlyError("segment not writable"), f"{STORAGE_EXCEPTION}: segment not writable"),
        (
            CorruptionError(3, 17, "/d/3/0.seg", "bad"),
            f"{STORAGE_EXCEPTION}: corrupted: partition 3, transaction 17, file /d/3/0.seg: bad",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "java.io.IOException: No space left on device"),
        (OSError("odd"), "java.io.IOException: odd"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/d/x"), "java.nio.file.NoSuchFileException: /d/x"),
        (ValueError("odd"), "java.lang.RuntimeException: odd"),
    ],
)
def test_wire_text(error: Exception, text: str) -> None:
    assert wire_text(error) == text


def test_corruption_names_no_record_when_there_is_none() -> None:
    assert str(CorruptionError(1, None, "/f", "bad")) == "corrupted: partition 1, file /f: bad"
