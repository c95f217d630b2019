"""The cache of open descriptors."""

import pytest

from tests.unit.storage.crash_files import CrashFiles
from waltz.storage.disk.files.descriptors import DescriptorCache, SegmentFiles
from waltz.storage.disk.files.tail_file import TailFile
from waltz.storage.errors import StorageError


class Opener:
    """Opens one segment's files and counts."""

    def __init__(self, files: CrashFiles, name: str) -> None:
        self.files, self.name, self.count = files, name, 0

    def __call__(self) -> SegmentFiles:
        self.count += 1
        return SegmentFiles(
            self.files.open(f"/{self.name}.seg", create=True),
            TailFile(self.files.open(f"/{self.name}.idx", create=True)),
        )


def test_longest_unused_is_closed() -> None:
    files = CrashFiles()
    cache = DescriptorCache(2)
    openers = {name: Opener(files, name) for name in "abc"}
    for name in "aba":
        with cache.pinned(name, openers[name]) as handles:
            assert handles.data.size() == 0
    assert files.open_files == 4
    with cache.pinned("c", openers["c"]):
        pass
    assert files.open_files == 4
    for name in "ac":
        with cache.pinned(name, openers[name]):
            pass
    with cache.pinned("b", openers["b"]):
        pass
    assert [openers[name].count for name in "abc"] == [1, 2, 1]
    assert cache.open_count == 2
    cache.close()
    assert files.open_files == 0


@pytest.mark.parametrize("capacity", [0, 1])
def test_pinned_files_stay_open_until_released(capacity: int) -> None:
    files = CrashFiles()
    cache = DescriptorCache(capacity)
    with cache.pinned("a", Opener(files, "a")) as first:
        with cache.pinned("b", Opener(files, "b")):
            assert files.open_files == 4
        assert first.data.size() == 0
        cache.close()
        assert first.index.size() == 0
        with pytest.raises(StorageError, match="^segment closed$"), cache.pinned("c", Opener(files, "c")):
            pass
    assert files.open_files == 0


def test_current_segment_is_not_evicted() -> None:
    files = CrashFiles()
    cache = DescriptorCache(1)
    cache.set_current("a", Opener(files, "a")())
    for name in "bcd":
        with cache.pinned(name, Opener(files, name)):
            pass
    never = Opener(files, "a")
    with cache.pinned("a", never):
        pass
    assert cache.make_current("a", never).data.size() == 0
    cache.set_current("e", Opener(files, "e")())
    with cache.pinned("a", never):
        pass
    assert never.count == 0
    assert files.open_files == 4
    cache.discard("e")
    cache.discard("unknown")
    assert files.open_files == 2
    cache.make_current("a", never)
    cache.discard("a")
    assert files.open_files == 0
    assert never.count == 0
    cache.make_current("b", Opener(files, "b"))
    assert cache.open_count == 1
