"""Which transactions a directory lacks: beside sets of transactions."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.archive.manifest import ArchivedRange
from waltz.archive.object_format import ObjectName
from waltz.spark.parquet_pieces import Piece, committed_between, file_name, missing_pieces, parse_file_name

SMALL = st.integers(0, 40)
BOUNDS = st.lists(st.integers(1, 40), unique=True).map(lambda found: [0, *sorted(found)])
INTERVALS = st.lists(st.tuples(SMALL, SMALL).filter(lambda pair: pair[0] < pair[1]))


def archived(first: int, end: int, last_time_ms: int | None = None) -> ArchivedRange:
    return ArchivedRange(ObjectName(first, end - 1, 0), 1000, 100, last_time_ms, last_time_ms)


@given(BOUNDS, INTERVALS, SMALL, SMALL)
def test_exactly_what_is_missing_is_written_and_then_nothing(
    bounds: list[int], present: list[tuple[int, int]], start: int, end: int
) -> None:
    ranges = [archived(*pair) for pair in pairwise(bounds)]
    there = {each for begins, ends in present for each in range(begins, ends)}
    pieces = [*missing_pieces(ranges, present, start, end)]
    written = [each for piece in pieces for each in range(piece.start, piece.end)]
    assert written == [each for each in range(start, min(end, bounds[-1])) if each not in there]
    for piece in pieces:
        assert piece.source.first <= piece.start < piece.end <= piece.source.end
    assert not [*missing_pieces(ranges, [*present, *((piece.start, piece.end) for piece in pieces)], start, end)]


def test_whole_objects_are_whole_pieces() -> None:
    ranges = [archived(0, 10), archived(10, 14)]
    assert [*missing_pieces(ranges, [], 0, 14)] == [Piece(ranges[0], 0, 10), Piece(ranges[1], 10, 14)]


@given(st.integers(0, 2**62), st.integers(1, 2**60))
def test_names_of_files_are_read_back(start: int, count: int) -> None:
    assert parse_file_name(file_name(start, start + count)) == (start, start + count)


@pytest.mark.parametrize(
    "name", ["_part-" + file_name(0, 3), file_name(0, 3) + ".crc", file_name(4, 4), "0-3.parquet", "_SUCCESS", ""]
)
def test_other_names_are_passed_over(name: str) -> None:
    assert parse_file_name(name) is None


@given(st.lists(SMALL), st.lists(SMALL, min_size=1))
def test_each_object_is_of_one_interval_of_time(times_ms: list[int], bounds: list[int]) -> None:
    ranges = [archived(place, place + 1, time_ms) for place, time_ms in enumerate(times_ms)]
    edges = [None, *sorted(set(bounds)), None]
    parts = [committed_between(ranges, since_ms, until_ms) for since_ms, until_ms in pairwise(edges)]
    assert sorted(each for part in parts for each in part) == sorted(ranges)
    for (since_ms, until_ms), part in zip(pairwise(edges), parts, strict=True):
        for each in part:
            assert each.last_time_ms is not None
            assert since_ms is None or each.last_time_ms > since_ms
            assert until_ms is None or each.last_time_ms <= until_ms


def test_an_object_without_a_time_is_named() -> None:
    with pytest.raises(LookupError, match=str(archived(3, 5).name)):
        committed_between([archived(0, 3, 7), archived(3, 5)], 0, None)
