"""Keys in order, in memory: chunks of neighbouring keys. Pure.

No step takes long, however many keys there are. Chunks are large, or the list of them would be long: a look of the
garbage collector at ten million keys in chunks of 50 takes longer than an event loop should be held. New keys wait
beside their chunk, which is made anew for several of them at once. Chunks are tuples, since the garbage collector
leaves tuples of bytes alone after its first look; in lists it would look at every key again and again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

CHUNK_KEYS = 512
"""Of a chunk that has just been cut, at least; it may grow to twice of that."""

WAITING_KEYS = 32
"""Number of new keys that may wait beside a chunk."""

_RELEASED_CHUNKS = 32


class SortedKeys:
    """A set of keys that knows their order."""

    def __init__(self) -> None:
        self._bounds = [b""]
        """For each chunk: none of its keys is less, and all keys of the chunk before it are."""
        self._chunks: list[tuple[bytes, ...]] = [()]
        self._waiting: list[tuple[bytes, ...]] = [()]
        """For each chunk, in order, the new keys that belong into it."""
        self.placed_keys = 0
        """Number of keys of all tuples that were made until now; a key counts again whenever its tuple is replaced."""

    def add(self, keys: Iterable[bytes]) -> None:
        """Put keys in their places. None of them is there already, and none is given twice."""
        in_order = sorted(keys)
        begin, count = 0, len(in_order)
        while begin < count:
            place, end = self._run(in_order, begin)
            waiting = tuple(sorted((*self._waiting[place], *in_order[begin:end])))
            if len(waiting) > WAITING_KEYS:
                self._replace(place, sorted(self._chunks[place] + waiting))
            else:
                self._waiting[place] = waiting
                self.placed_keys += len(waiting)
            begin = end

    def remove(self, keys: Iterable[bytes]) -> None:
        """Take out keys that are there, none of them twice."""
        in_order = sorted(keys)
        begin, count = 0, len(in_order)
        while begin < count:
            place, end = self._run(in_order, begin)
            gone = set(in_order[begin:end])
            self._replace(place, sorted([key for key in self._chunks[place] + self._waiting[place] if key not in gone]))
            begin = end

    def _run(self, in_order: list[bytes], begin: int) -> tuple[int, int]:
        """The place of the chunk of the key at ``begin``, and where the keys of that chunk end."""
        bounds = self._bounds
        place = bisect_right(bounds, in_order[begin]) - 1
        behind = bounds[place + 1] if place + 1 < len(bounds) else None
        return place, len(in_order) if behind is None else bisect_left(in_order, behind, begin)

    def _replace(self, place: int, keys: list[bytes]) -> None:
        """Put keys in order in the place of a chunk and of its new keys, in pieces if they are many.

        Few keys become part of the chunk before, and so does a chunk without keys.
        """
        first = place
        if place and len(self._chunks[place - 1]) + len(keys) <= CHUNK_KEYS:
            first = place - 1
            keys = sorted(self._chunks[first] + self._waiting[first]) + keys
        count = len(keys) // CHUNK_KEYS if len(keys) > 2 * CHUNK_KEYS else 1
        size = max(-(-len(keys) // count), 1)
        pieces = [tuple(keys[start : start + size]) for start in range(0, len(keys), size)] or [()]
        self._bounds[first : place + 1] = [self._bounds[first], *(piece[0] for piece in pieces[1:])]
        self._chunks[first : place + 1] = pieces
        self._waiting[first : place + 1] = [()] * len(pieces)
        self.placed_keys += len(keys)

    def release_page(self) -> bool:
        """Let some of the memory go, after which nothing else may be asked; whether there is more."""
        del self._chunks[-_RELEASED_CHUNKS:], self._waiting[-_RELEASED_CHUNKS:], self._bounds[-_RELEASED_CHUNKS:]
        return bool(self._chunks)

    def page(self, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False) -> list[bytes]:
        """The first, or in reverse the last, ``limit`` keys of [``start``, ``end``). ``None`` is open."""
        bounds = self._bounds
        first = bisect_right(bounds, start) - 1
        behind = len(bounds) if end is None else bisect_left(bounds, end)
        places = range(first, behind)
        found: list[bytes] = []
        for place in reversed(places) if reverse else places:
            wanted = limit - len(found)
            if wanted <= 0:
                break
            parts: list[bytes] = []
            for keys in (self._chunks[place], self._waiting[place]):
                low = bisect_left(keys, start)
                high = len(keys) if end is None else bisect_left(keys, end)
                parts += keys[max(low, high - wanted) : high] if reverse else keys[low : min(high, low + wanted)]
            parts.sort(reverse=reverse)
            found += parts[:wanted]
        return found
