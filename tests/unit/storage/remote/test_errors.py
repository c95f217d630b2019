"""What the texts of a storage's failures mean; the other end of :mod:`waltz.storage.errors`."""

import pytest

from waltz.storage.errors import ConcurrentUpdateError, PartitionNotAssignedError, StorageError, wire_text
from waltz.storage.node import session_rule
from waltz.storage.remote.errors import RemoteStorageError

REFUSED_AS_OLD = ConcurrentUpdateError("session id has changed to 3, but request context contains 2")
REFUSED_AS_OLD_OFFLINE = StorageError("partition last session id has changed to 3, but request context contains 2")


@pytest.mark.parametrize(
    ("error", "fenced"),
    [
        (REFUSED_AS_OLD, True),
        (REFUSED_AS_OLD_OFFLINE, True),
        (session_rule.disabled(3), False),
        (session_rule.overrun(3), False),
        (PartitionNotAssignedError(3), False),
        (StorageError("partition 3 is not assigned to storage node."), False),
        (StorageError("transaction out of order"), False),
        (OSError(28, "No space left on device"), False),
    ],
)
def test_whether_a_newer_session_has_spoken(error: Exception, fenced: bool) -> None:
    assert RemoteStorageError(wire_text(error)).is_session_fenced is fenced


def test_people_are_not_shown_the_name_of_the_class() -> None:
    remote = RemoteStorageError(wire_text(StorageError("transaction out of order")))
    assert str(remote) == "transaction out of order"
    assert remote.wire_text == "com.wepay.waltz.storage.exception.StorageException: transaction out of order"
