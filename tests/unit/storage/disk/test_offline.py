"""Offline tools know the key of the cluster also after a failed write of the header of the control file."""

import contextlib
from pathlib import Path

import pytest

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.disk.test_draining import contents, journaled, open_directory, synced
from tests.unit.storage.log_testing import KEY
from waltz.storage.disk.draining import drain
from waltz.storage.disk.inspection import inspect_control_file
from waltz.storage.errors import StorageError

CONTROL_FILE = "/waltz-storage.ctl"


def half_inverted(size_bytes: int, *, unguarding: bool, without: tuple[str, ...]) -> CrashFiles:
    """A crashed node: only this number of bytes was written of a header that guards the control file, or the reverse.

    Files of which the path contains a text of ``without`` are removed.
    """
    files = journaled()
    marked = files.contents(CONTROL_FILE)
    plain = marked[:12] + KEY.bytes + marked[28:32] + bytes(16) + marked[48:]
    new, old = (plain, marked) if unguarding else (marked, plain)
    files.overwrite(CONTROL_FILE, new[:size_bytes] + old[size_bytes:])
    for path in ("/waltz-storage.fence", *(f"/journal/{name}" for name in files.list_directory("/journal"))):
        if any(text in path for text in without):
            files.remove(path)
    return files


@pytest.mark.parametrize("size_bytes", [13, 20, 27, 28, 31, 32, 33, 40, 47])
@pytest.mark.parametrize("unguarding", [True, False])
@pytest.mark.parametrize("without", [(), ("fence",), ("journal",)])
def test_a_key_inverted_in_part_is_known_from_the_fence_file_or_the_journal(
    size_bytes: int, unguarding: bool, without: tuple[str, ...]
) -> None:
    files = half_inverted(size_bytes, unguarding=unguarding, without=without)
    before = files.contents(CONTROL_FILE)
    guarded = size_bytes < 28 or not unguarding
    expected = pytest.raises(StorageError, match="run waltz disk drain") if guarded else contextlib.nullcontext()
    with expected, inspect_control_file(files, Path(CONTROL_FILE)) as control_file:
        assert control_file.cluster_key == KEY
    assert files.contents(CONTROL_FILE) == before
    if guarded and "journal" in without:
        with pytest.raises(StorageError, match="start the node again, and repair partitions 0"):
            drain(files, "/")
        return
    drained = drain(files, "/")
    assert (drained is not None) == guarded
    if guarded:
        assert contents(files) == contents(synced())
    with inspect_control_file(files, Path(CONTROL_FILE)) as control_file:
        assert control_file.cluster_key == KEY
    assert not open_directory(files).control_file.guarded


@pytest.mark.parametrize("content", [b"short", bytes(200)])
def test_a_damaged_fence_file_does_not_tell_the_key(content: bytes) -> None:
    files = half_inverted(20, unguarding=False, without=())
    files.overwrite("/waltz-storage.fence", content)
    with pytest.raises(StorageError, match="run waltz disk drain"), inspect_control_file(files, Path(CONTROL_FILE)):
        pass


@pytest.mark.parametrize(("size_bytes", "unguarding"), [(20, True), (28, True), (47, True), (33, False), (48, False)])
def test_without_fence_file_and_journal_the_key_of_a_guarded_file_is_not_certain(
    size_bytes: int, unguarding: bool
) -> None:
    files = half_inverted(size_bytes, unguarding=unguarding, without=("fence", "journal"))
    before = files.contents(CONTROL_FILE)
    reason = (
        "the cluster key in /waltz-storage.ctl is not certain: some of its bytes may be inverted, and neither the "
        r"fence file \(waltz-storage.fence\) nor the journal \(journal/\*.jnl\) beside it has the key"
    )
    with pytest.raises(StorageError, match=reason):
        drain(files, "/")
    with pytest.raises(StorageError, match=reason), inspect_control_file(files, Path(CONTROL_FILE)):
        pass
    assert files.contents(CONTROL_FILE) == before
    assert files.open_files == 0
