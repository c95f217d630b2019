"""Entries of the manifest: consecutive ranges on pages, and damage to them."""

import pytest

from tests.unit.archive.records import KEY, PARTITION
from waltz.archive import manifest
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.manifest import (
    ArchivedRange,
    check_consecutive,
    covering,
    decode_page,
    empty_page,
    encode_page,
    with_range,
)
from waltz.archive.object_format import ObjectName


def archived(first: int, last: int, time_ms: int | None = 5) -> ArchivedRange:
    return ArchivedRange(ObjectName(first, last, 0xDEADBEEF), 1000, 120, time_ms, time_ms)


def test_pages_hold_the_ranges_before_and_are_read_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "PAGE_RANGES", 3)
    page = empty_page(KEY, PARTITION)
    assert page.end == 0
    for number in range(8):
        page = with_range(page, archived(10 * number, 10 * number + 9, None if number % 2 else number))
        assert page.end == 10 * number + 10
        assert [each.first for each in page.ranges] == [*range(10 * (number - number % 3), 10 * number + 1, 10)]
        assert page.previous == (None if number < 3 else 10 * (number - number % 3) - 10)
        assert decode_page(encode_page(page), KEY, PARTITION, 10 * number, "it") == page


def test_damage_is_noticed() -> None:
    data = encode_page(with_range(empty_page(KEY, PARTITION), archived(0, 9)))
    for place in range(len(data)):
        for damaged in (data[:place], data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]):
            with pytest.raises(ArchiveDamagedError, match="^the entry "):
                decode_page(damaged, KEY, PARTITION, 0, "the entry")
    with pytest.raises(ArchiveDamagedError, match="written by a newer version of Waltz: upgrade this one"):
        decode_page(data.replace(b"archive 1 ", b"archive 2 "), KEY, PARTITION, 0, "it")
    with pytest.raises(ArchiveDamagedError, match="copied to a wrong place"):
        decode_page(data, KEY, 4, 0, "it")
    with pytest.raises(ArchiveDamagedError, match="does not begin at transaction 10"):
        decode_page(data, KEY, PARTITION, 10, "it")


@pytest.mark.parametrize("second", [archived(9, 12), archived(11, 12), archived(10, 9)])
def test_ranges_with_gaps_or_overlaps_are_refused(second: ArchivedRange) -> None:
    page = empty_page(KEY, PARTITION)._replace(ranges=(archived(0, 9), second))
    with pytest.raises(ArchiveDamagedError, match="in the place of the range from transaction 10 on"):
        decode_page(encode_page(page), KEY, PARTITION, second.first, "it")
    with pytest.raises(ArchiveDamagedError, match="in the place of the range from transaction 10 on"):
        check_consecutive(page.ranges, 0, "it")


def test_ranges_that_cover_others_are_found() -> None:
    ranges = [archived(0, 9), archived(10, 10), archived(11, 30)]
    for start in range(31):
        for end in range(start + 1, 32):
            wanted = {*range(start, end)}
            assert covering(ranges, start, end) == [each for each in ranges if wanted & {*range(each.first, each.end)}]
