"""Open descriptors of a partition's segments: pinned while in use, a few idle ones kept, the longest unused closed."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from waltz.storage.disk.files.files import File
from waltz.storage.disk.files.tail_file import TailFile
from waltz.storage.errors import StorageError


@dataclass(slots=True, frozen=True)
class SegmentFiles:
    """The two open files of a segment."""

    data: File
    index: TailFile

    def close(self) -> None:
        """Close both."""
        self.data.close()
        self.index.close()


class _Open:
    """Open files with a count of users; after :meth:`discard` the last user closes them."""

    __slots__ = ("files", "given_up", "pins")

    def __init__(self, files: SegmentFiles) -> None:
        self.files = files
        self.pins = 0
        self.given_up = False


class DescriptorCache:
    """Descriptors by segment. Reading threads and the writing thread use it at the same time.

    The files of the current segment are always open; the ``capacity`` counts the other segments only.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._mutex = threading.Lock()
        self._current: tuple[Hashable, _Open] | None = None
        self._idle: OrderedDict[Hashable, _Open] = OrderedDict()
        self._closed = False

    @property
    def open_count(self) -> int:
        """Number of segments with open files."""
        return len(self._idle) + (self._current is not None)

    def set_current(self, segment: Hashable, files: SegmentFiles) -> None:
        """Take the files of a new current segment; the former current segment becomes one of the others."""
        with self._mutex:
            if self._current is not None:
                self._idle[self._current[0]] = self._current[1]
            self._current = segment, _Open(files)
            self._evict()

    def make_current(self, segment: Hashable, opener: Callable[[], SegmentFiles]) -> SegmentFiles:
        """Make a known segment the current segment, and open it if needed; the former current segment was discarded."""
        with self._mutex:
            if self._current is not None and self._current[0] == segment:
                return self._current[1].files
            held = self._idle.pop(segment, None) or _Open(opener())
            self._current = segment, held
            return held.files

    def current_files(self, segment: Hashable) -> SegmentFiles:
        """The files of the current segment, without a pin. For the writing thread: no other thread changes the current
        segment.

        Raises ``StorageError`` after :meth:`close`.
        """
        current = self._current
        if current is None:
            raise StorageError("segment closed")
        assert current[0] == segment, "only the current segment is written"
        return current[1].files

    def discard(self, segment: Hashable) -> None:
        """Close the files of a segment before its deletion, when the last reader has released them."""
        with self._mutex:
            if self._current is not None and self._current[0] == segment:
                held, self._current = self._current[1], None
                _give_up(held)
            elif (idle := self._idle.pop(segment, None)) is not None:
                _give_up(idle)

    def pinned(self, segment: Hashable, opener: Callable[[], SegmentFiles]) -> "Pinned":
        """For ``with``: the files of a segment, opened if needed. They stay open inside the block.

        Entering raises ``StorageError`` after :meth:`close`, ``OSError`` when they cannot be opened.
        """
        return Pinned(self, segment, opener)

    def close(self) -> None:
        """Close all files; pinned files when they are released. Later pins fail."""
        with self._mutex:
            self._closed = True
            for held in self._idle.values():
                _give_up(held)
            self._idle.clear()
            if self._current is not None:
                _give_up(self._current[1])
                self._current = None

    def pin(self, segment: Hashable, opener: Callable[[], SegmentFiles]) -> _Open:
        """For :class:`Pinned`."""
        with self._mutex:
            if self._closed:
                raise StorageError("segment closed")
            if self._current is not None and self._current[0] == segment:
                held = self._current[1]
                held.pins += 1
                return held
            found = self._idle.get(segment)
            held = found if found is not None else _Open(opener())
            held.pins += 1
            self._idle[segment] = held
            self._idle.move_to_end(segment)
            self._evict()
            return held

    def unpin(self, held: _Open) -> None:
        """For :class:`Pinned`."""
        with self._mutex:
            held.pins -= 1
            if held.given_up and held.pins == 0:
                held.files.close()

    def _evict(self) -> None:
        while len(self._idle) > self._capacity:
            _segment, held = self._idle.popitem(last=False)
            _give_up(held)


class Pinned:
    """What :meth:`DescriptorCache.pinned` gives. Part of every append, so without a generator."""

    __slots__ = ("_cache", "_held", "_opener", "_segment")

    def __init__(self, cache: DescriptorCache, segment: Hashable, opener: Callable[[], SegmentFiles]) -> None:
        self._cache = cache
        self._segment = segment
        self._opener = opener

    def __enter__(self) -> SegmentFiles:
        self._held = self._cache.pin(self._segment, self._opener)
        return self._held.files

    def __exit__(self, *_exception: object) -> None:
        self._cache.unpin(self._held)


def _give_up(held: _Open) -> None:
    held.given_up = True
    if held.pins == 0:
        held.files.close()
