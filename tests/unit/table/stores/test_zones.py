"""Zones beside a look at every row: none that holds something to sweep is passed by, and few others are looked at."""

import random

import pytest

from waltz.table.ages import NO_ROWS, Oldest, is_swept
from waltz.table.envelope import NO_BOUND, SweepMark
from waltz.table.errors import StoreDamagedError
from waltz.table.rows import pack_row, row_key, unpack_head
from waltz.table.stores.zones import FIRST, Zone, Zones, pack_zone, unpack_zone

ROWS_OF_A_ZONE = 5


def look(zones: Zones, rows: dict[bytes, bytes], mark: SweepMark | None) -> int:
    """Take out what the mark removes, zone by zone; returns how many rows were looked at."""
    reached, looked = b"", 0
    while (zone := zones.first(mark, reached)) is not None:
        start, end = zone
        inside = sorted(key for key in rows if start <= key and (end is None or key < end))
        behind = inside[ROWS_OF_A_ZONE] if len(inside) > ROWS_OF_A_ZONE else None
        oldest, kept = NO_ROWS, 0
        for key in inside[:ROWS_OF_A_ZONE]:
            head = unpack_head(rows[key])
            if mark is None or is_swept(head, mark):
                del rows[key]
            else:
                oldest, kept = oldest.beside(head), kept + 1
            looked += 1
        zones.take_over(zones.looked(start, behind, Zone(oldest, kept)))
        next_key = end if behind is None else behind
        if next_key is None:
            break
        reached = next_key
    return looked


@pytest.mark.parametrize("seed", range(8))
def test_a_sweep_finds_what_a_look_at_every_row_finds(seed: int) -> None:
    chance = random.Random(seed)
    zones, rows, stored = Zones(zone_rows=ROWS_OF_A_ZONE), {}, {FIRST: Zone()}
    for now_ms in range(100, 500):
        new: dict[bytes, bytes] = {}
        oldest = NO_ROWS
        for _ in range(chance.randrange(6)):
            timestamp_ms = now_ms if chance.random() < 0.7 else chance.randrange(now_ms)
            row = pack_row(timestamp_ms, now_ms, 0, now_ms, chance.random() < 0.3, None)
            new[row_key(b"", b"%d" % chance.randrange(80))] = row
            oldest = oldest.beside(unpack_head(row))
        lowered = zones.lowered(new)
        assert not (zones.cover(oldest) and lowered)
        zones.take_over(lowered)
        stored.update(lowered)
        rows.update(new)
        if chance.random() < 0.2:
            mark = SweepMark(
                0, *(NO_BOUND if chance.random() < 0.5 else chance.randrange(now_ms - 90, now_ms) for _ in range(4))
            )
            expected = {key: row for key, row in rows.items() if not is_swept(unpack_head(row), mark)}
            before = len(rows)
            looked = look(zones, rows, mark)
            assert rows == expected
            assert looked <= before
            assert look(zones, rows, mark) == 0, "the times are exact behind a look"
        if chance.random() < 0.01:
            look(zones, rows, None)
            assert not rows
            assert len(zones) == 1
        zones.settle()
        for head in map(unpack_head, rows.values()):
            assert zones.floor.beside(head) == zones.floor


def test_rows_that_are_not_older_than_those_of_any_zone_are_not_looked_at() -> None:
    zones = Zones([(FIRST, Zone(Oldest(10, 10, 10, 10), 3))])
    assert zones.cover(Oldest(10, 10, 10, 10))
    assert zones.cover(NO_ROWS)
    assert not zones.cover(Oldest(row_timestamp_ms=9, row_written_at_ms=20))
    row = pack_row(9, 1, 0, 20, False, None)
    assert zones.lowered({b"\x00\x01k": row}) == {FIRST: Zone(Oldest(10, 10, 9, 10), 3)}


def test_nothing_changes_before_it_is_taken_over() -> None:
    zones = Zones()
    row = pack_row(9, 1, 0, 20, True, None)
    lowered = zones.lowered({b"\x00\x01k": row})
    assert zones.floor == NO_ROWS
    zones.take_over(lowered)
    assert zones.floor == Oldest(9, 20, 9, 20)


def test_a_zone_that_is_none_is_damage() -> None:
    zone = Zone(Oldest(1, -2, 3, 4), 5)
    assert unpack_zone(pack_zone(zone)) == zone
    with pytest.raises(StoreDamagedError, match="39 bytes"):
        unpack_zone(bytes(39))
