"""Keys in order, in memory: chunks of neighbouring keys. Pure.

No step takes long, however many keys there are. The chunks are tuples, since the garbage collector leaves tuples of
bytes alone after its first look; in lists it would look at every key of the table again and again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

CHUNK_KEYS = 32
"""Of a chunk that has just been cut; it may grow to twice of that."""


class SortedKeys:
    """A set of keys that knows their order."""

    def __init__(self) -> None:
        self._chunks: list[tuple[bytes, ...]] = []
        self._firsts: list[bytes] = []
        self.placed_keys = 0
        """Number of keys of all chunks that were made until now; a key counts again whenever its chunk is replaced."""

    def add(self, keys: Iterable[bytes]) -> None:
        """Put keys in their places. None of them is there already, and none is given twice."""
        in_order = sorted(keys)
        firsts, chunks = self._firsts, self._chunks
        begin, count = 0, len(in_order)
        while begin < count:
            place = max(bisect_right(firsts, in_order[begin]) - 1, 0)
            chunk = chunks[place] if chunks else ()
            behind = firsts[place + 1] if place + 1 < len(firsts) else None
            if begin + 1 == count or (behind is not None and in_order[begin + 1] >= behind):
                end = begin + 1
                at = bisect_left(chunk, in_order[begin])
                chunk = chunk[:at] + (in_order[begin],) + chunk[at:]  # noqa: RUF005 - in half of the time
            else:
                end = count if behind is None else bisect_left(in_order, behind, begin)
                chunk = tuple(sorted((*chunk, *in_order[begin:end])))
            self.placed_keys += len(chunk)
            if len(chunk) <= 2 * CHUNK_KEYS and chunks:
                chunks[place], firsts[place] = chunk, chunk[0]
            else:
                self._cut(place, chunk)
            begin = end

    def remove(self, keys: Iterable[bytes]) -> None:
        """Take out keys that are there, none of them twice."""
        in_order = sorted(keys)
        firsts, chunks = self._firsts, self._chunks
        begin, count = 0, len(in_order)
        while begin < count:
            place = bisect_right(firsts, in_order[begin]) - 1
            behind = firsts[place + 1] if place + 1 < len(firsts) else None
            end = count if behind is None else bisect_left(in_order, behind, begin)
            gone = set(in_order[begin:end])
            chunk = tuple([key for key in chunks[place] if key not in gone])
            self.placed_keys += len(chunk)
            self._cut(place, chunk)
            begin = end

    def _cut(self, place: int, chunk: tuple[bytes, ...]) -> None:
        """In place of the chunk there, in pieces if it is large."""
        size = CHUNK_KEYS if len(chunk) > 2 * CHUNK_KEYS else 2 * CHUNK_KEYS
        pieces = [chunk[start : start + size] for start in range(0, len(chunk), size)]
        self._chunks[place : place + 1] = pieces
        self._firsts[place : place + 1] = [piece[0] for piece in pieces]

    def page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False) -> list[bytes]:
        """The first, or in reverse the last, ``limit`` keys of [``start``, ``end``). ``None`` is open."""
        if reverse:
            return self._last(start, end, limit)
        found: list[bytes] = []
        for place in range(max(bisect_right(self._firsts, start) - 1, 0), len(self._chunks)):
            chunk = self._chunks[place]
            low = bisect_left(chunk, start)
            high = len(chunk) if end is None else bisect_left(chunk, end)
            found += chunk[low : min(high, low + limit - len(found))]
            if len(found) >= limit or high < len(chunk):
                break
        return found

    def _last(self, start: bytes, end: bytes | None, limit: int) -> list[bytes]:
        found: list[bytes] = []
        last = len(self._chunks) if end is None else bisect_left(self._firsts, end)
        for place in range(last - 1, -1, -1):
            chunk = self._chunks[place]
            low = bisect_left(chunk, start)
            high = len(chunk) if end is None else bisect_left(chunk, end)
            found += chunk[max(low, high - limit + len(found)) : high][::-1]
            if len(found) >= limit or low > 0:
                break
        return found
