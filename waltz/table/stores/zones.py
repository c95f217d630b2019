"""Where in a table a sweep has something to remove: zones of neighbouring keys, each with the least times in it. Pure.

A sweep looks only into zones that hold a row older than one of its bounds. At first there is one zone; each look cuts
what it has seen into zones of at most :data:`ZONE_ROWS` rows, and knows their times exactly. Rows that are written may
lower the times of their zone; rows that are replaced leave them too low, until the next look.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from waltz.table.ages import NO_ROWS, Oldest, may_be_swept
from waltz.table.envelope import SweepMark
from waltz.table.errors import StoreDamagedError
from waltz.table.rows import unpack_head

ZONE_ROWS = 1000
"""As many rows are looked at in one step of a sweep, and are in a zone after it."""

FIRST = b"\x00"
"""The key at which the first zone begins: before all joined keys, and not empty, which LMDB refuses."""

_EXACTLY_KNOWN = 64
"""Up to this number of zones :attr:`Zones.ceiling` is made exact whenever one of them changes."""

_ZONE = struct.Struct(">5q")


class Zone(NamedTuple):
    """Neighbouring rows, up to where the next zone begins."""

    oldest: Oldest = NO_ROWS
    """No row of the zone is older, nor any tombstone."""
    rows: int = 0
    """How many there were at the last look."""


Changed = Mapping[bytes, Zone | None]
"""Zones by the keys at which they begin; ``None`` is one that has become part of the zone before it."""


def pack_zone(zone: Zone) -> bytes:
    """The zone as it is stored."""
    return _ZONE.pack(*zone.oldest, zone.rows)


def unpack_zone(stored: bytes) -> Zone:
    """The zone again. Raises :class:`~waltz.table.errors.StoreDamagedError`."""
    if len(stored) != _ZONE.size:
        raise StoreDamagedError(f"a zone of {len(stored)} bytes")
    *oldest, rows = _ZONE.unpack(stored)
    return Zone(Oldest(*oldest), rows)


class Zones:
    """All zones of a table. What is to change is worked out first, and taken over when it has been stored."""

    def __init__(self, stored: Iterable[tuple[bytes, Zone]] = (), zone_rows: int = ZONE_ROWS) -> None:
        """``stored``: zones by the keys at which they begin. ``zone_rows``: those of a zone when it was looked at."""
        self._zone_rows = zone_rows
        known = dict(stored)
        known.setdefault(FIRST, Zone())
        self._starts = sorted(known)
        self._zones = [known[start] for start in self._starts]
        self.settle()

    def settle(self) -> None:
        """Make :attr:`floor` and :attr:`ceiling` exact; a look at every zone."""
        columns = list(zip(*(zone.oldest for zone in self._zones), strict=True))
        self.floor = Oldest(*map(min, columns))
        """No row of the table is older, nor any tombstone."""
        self.ceiling = Oldest(*map(max, columns))
        """Rows that are not older lower the times of no zone."""

    def __len__(self) -> int:
        return len(self._zones)

    def cover(self, oldest: Oldest) -> bool:
        """Whether no zone changes when rows are written of which none is older than that."""
        return all(time_ms >= highest_ms for time_ms, highest_ms in zip(oldest, self.ceiling, strict=True))

    def lowered(self, rows: Mapping[bytes, bytes]) -> dict[bytes, Zone]:
        """The zones that change when rows are written."""
        lowered: dict[bytes, Zone] = {}
        for key, row in rows.items():
            place = bisect_right(self._starts, key) - 1
            start = self._starts[place]
            zone = lowered.get(start) or self._zones[place]
            least = zone.oldest.beside(unpack_head(row))
            if least != zone.oldest:
                lowered[start] = zone._replace(oldest=least)
        return lowered

    def first(self, mark: SweepMark | None, start: bytes) -> tuple[bytes, bytes | None] | None:
        """The first zone from one that begins at ``start`` on that may hold what a removal removes.

        Its begin, and that of the next zone, ``None`` behind the last one. ``None`` if there is none.
        """
        for place in range(bisect_left(self._starts, start), len(self._starts)):
            if mark is None or may_be_swept(self._zones[place].oldest, mark):
                return self._starts[place], self._starts[place + 1] if place + 1 < len(self._starts) else None
        return None

    def looked(self, start: bytes, behind: bytes | None, kept: Zone) -> dict[bytes, Zone | None]:
        """The zones that change with a look at the one from ``start`` on, which leaves ``kept`` of it.

        ``behind`` is the first key that was not looked at, ``None`` when the whole zone was.
        """
        place = bisect_left(self._starts, start)
        changed: dict[bytes, Zone | None] = {}
        if behind is not None:
            changed[behind] = Zone(self._zones[place].oldest, self._zone_rows)
        if place:
            before = self._zones[place - 1]
            if before.rows + kept.rows <= self._zone_rows:
                changed[self._starts[place - 1]] = Zone(before.oldest.and_(kept.oldest), before.rows + kept.rows)
                changed[start] = None
                return changed
        changed[start] = kept
        return changed

    def take_over(self, changed: Changed) -> None:
        """What was worked out has been stored."""
        for start, zone in changed.items():
            place = bisect_left(self._starts, start)
            is_known = place < len(self._starts) and self._starts[place] == start
            if zone is None:
                del self._starts[place], self._zones[place]
                continue
            if is_known:
                self._zones[place] = zone
            else:
                self._starts.insert(place, start)
                self._zones.insert(place, zone)
            self.floor = self.floor.and_(zone.oldest)
            self.ceiling = Oldest(*map(max, self.ceiling, zone.oldest))
        if changed and len(self._zones) <= _EXACTLY_KNOWN:
            self.settle()
