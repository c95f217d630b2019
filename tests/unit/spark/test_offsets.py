import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.errors import ConfigError
from waltz.spark.errors import DataLossError, PlanningError
from waltz.spark.offsets import (
    EARLIEST,
    LATEST,
    Interval,
    OffsetRange,
    OffsetSpec,
    check_named_partitions,
    parse_offsets,
    parse_partitions,
    resolve_range,
    select_partitions,
    split_ranges,
)

ALL = OffsetSpec(EARLIEST, {}), OffsetSpec(LATEST, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (Interval(0, 0),)),
        ("0-3,7", (Interval(0, 3), Interval(7, 7))),
        (" 2 - 4 , 1 ", (Interval(2, 4), Interval(1, 1))),
    ],
)
def test_partitions_are_ids_and_intervals(text: str, expected: tuple[Interval, ...]) -> None:
    assert parse_partitions(text) == expected


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "1-", "3-1", "1.5", "\u0663", "9" * 5000])
def test_impossible_partitions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="option partitions"):
        parse_partitions(text)


def test_selection_is_sorted_and_without_doubles() -> None:
    assert select_partitions((Interval(3, 4), Interval(0, 3)), 5) == [0, 1, 2, 3, 4]
    assert select_partitions(None, 3) == [0, 1, 2]
    assert select_partitions(None, 0) == []


def test_unknown_partition_is_refused_before_the_interval_is_expanded() -> None:
    with pytest.raises(PlanningError, match="no partition 9999999999; the cluster has 3 .0 to 2."):
        select_partitions((Interval(0, 9_999_999_999),), 3)


def test_offsets_are_words_or_an_object() -> None:
    assert parse_offsets("startingOffsets", " Earliest ", LATEST) == OffsetSpec(EARLIEST, {})
    spec = parse_offsets("endingOffsets", '{"0": 5, "2": "latest", "3": "EARLIEST"}', LATEST)
    assert [spec.bound(partition_id) for partition_id in range(4)] == [5, LATEST, LATEST, EARLIEST]


@pytest.mark.parametrize(
    "text",
    [
        "newest",
        "5",
        "[1]",
        '{"0": -1}',
        '{"0": true}',
        '{"0": 1.5}',
        '{"x": 1}',
        '{"0": null}',
        '{"0": 1, "0": 2}',
        "{",
    ],
)
def test_impossible_offsets_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="option startingOffsets"):
        parse_offsets("startingOffsets", text, EARLIEST)


def test_offsets_for_partitions_that_are_not_read_are_refused() -> None:
    check_named_partitions("startingOffsets", OffsetSpec(EARLIEST, {1: 5}), [0, 1])
    with pytest.raises(PlanningError, match="startingOffsets names partition 2"):
        check_named_partitions("startingOffsets", OffsetSpec(EARLIEST, {1: 5, 2: 5}), [0, 1])


def test_default_range_is_everything_committed() -> None:
    assert resolve_range(4, *ALL, high_water_mark=9) == OffsetRange(4, 0, 10)
    assert resolve_range(4, *ALL, high_water_mark=-1) == OffsetRange(4, 0, 0)


def test_start_is_included_and_end_excluded() -> None:
    starting, ending = OffsetSpec(EARLIEST, {0: 3}), OffsetSpec(LATEST, {0: 5})
    assert resolve_range(0, starting, ending, 9) == OffsetRange(0, 3, 5)
    assert resolve_range(0, OffsetSpec(LATEST, {}), OffsetSpec(LATEST, {}), 9) == OffsetRange(0, 10, 10)
    assert resolve_range(0, OffsetSpec(EARLIEST, {0: 10}), OffsetSpec(LATEST, {0: 10}), 9) == OffsetRange(0, 10, 10)


@pytest.mark.parametrize(
    ("starting", "ending", "complaint"),
    [
        (11, LATEST, "startingOffsets: 11 is beyond partition 0.*end before 10"),
        (0, 11, "endingOffsets: 11 is beyond partition 0.*end before 10"),
        (6, 5, "endingOffsets: partition 0 would end at 5, before its start at 6"),
        (LATEST, EARLIEST, "would end at 0, before its start at 10"),
    ],
)
def test_nothing_is_clipped(starting: int | str, ending: int | str, complaint: str) -> None:
    with pytest.raises(PlanningError, match=complaint):
        resolve_range(0, OffsetSpec(EARLIEST, {0: starting}), OffsetSpec(LATEST, {0: ending}), 9)


RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), max_size=6).map(
    lambda pairs: [OffsetRange(index, start, start + rows) for index, (start, rows) in enumerate(pairs)]
)


@given(RANGES, st.integers(1, 50), st.integers(1, 30))
def test_splits_tile_the_ranges(ranges: list[OffsetRange], max_rows: int, min_partitions: int) -> None:
    pieces = split_ranges(ranges, max_rows, min_partitions)
    for whole in ranges:
        ids = [
            transaction_id
            for piece in pieces
            if piece.partition_id == whole.partition_id
            for transaction_id in range(piece.start, piece.end)
        ]
        assert ids == list(range(whole.start, whole.end))
    assert all(0 < piece.end - piece.start <= max_rows for piece in pieces)
    assert len(pieces) >= min(min_partitions, sum(whole.end - whole.start for whole in ranges))


def test_splits_are_even() -> None:
    pieces = split_ranges([OffsetRange(0, 0, 10)], 4, 1)
    assert [piece.end - piece.start for piece in pieces] == [3, 3, 4]


def test_what_is_gone_can_be_passed_over() -> None:
    starting, ending = OffsetSpec(EARLIEST, {0: 15}), OffsetSpec(LATEST, {0: 20})
    with pytest.raises(DataLossError, match="startingOffsets: 15 is beyond partition 0"):
        resolve_range(0, starting, ending, 9)
    assert resolve_range(0, starting, ending, 9, fail_on_data_loss=False) == OffsetRange(0, 10, 10)
    assert resolve_range(0, OffsetSpec(EARLIEST, {}), ending, 9, fail_on_data_loss=False) == OffsetRange(0, 0, 10)
