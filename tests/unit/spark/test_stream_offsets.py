import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.spark.errors import PlanningError
from waltz.spark.offsets import OffsetRange
from waltz.spark.stream_offsets import (
    advance,
    batch_ranges,
    check_partitions,
    end_offset,
    initial_offset,
    positions,
    reported_offset,
)


def stored(offset: dict[str, object]) -> dict[str, object]:
    """The offset as Spark brings it back from the checkpoint."""
    found = json.loads(json.dumps(offset))
    assert isinstance(found, dict)
    return found


def test_an_offset_is_the_next_id_of_every_partition_in_order() -> None:
    assert json.dumps(reported_offset({10: 5, 2: 0})) == '{"2": 0, "10": 5}'
    assert json.dumps(initial_offset({1: 5, 0: 0})) == '{"0": 0, "1": 5, "initial": true}'
    assert positions({"0": 3, "1": 4, "initial": True, "since": {"0": 1, "1": 1}}) == {0: 3, 1: 4}


def test_nothing_new_is_the_start_itself() -> None:
    start = stored(initial_offset({0: 5, 1: 7}))
    assert json.dumps(end_offset(start, {0: 5, 1: 7})) == json.dumps(start)
    later = stored(end_offset(start, {0: 6, 1: 7}))
    assert json.dumps(end_offset(later, {1: 7, 0: 6})) == json.dumps(later)


def test_a_batch_reads_from_start_to_end() -> None:
    assert batch_ranges({"0": 5, "1": 7}, {"0": 9, "1": 7}) == [OffsetRange(0, 5, 9), OffsetRange(1, 7, 7)]


def test_the_first_batch_can_be_repeated_although_its_start_is_not_stored() -> None:
    """Asked again for its initial offset, a stream that starts at the latest would begin later."""
    end = stored(end_offset(initial_offset({0: 5}), {0: 9}))
    assert end == {"0": 9, "since": {"0": 5}}
    assert batch_ranges(stored(initial_offset({0: 30})), end) == [OffsetRange(0, 5, 9)]


def test_a_first_batch_without_rows_stays_without() -> None:
    end = stored(end_offset(initial_offset({0: 5}), {0: 5}))
    assert batch_ranges(stored(initial_offset({0: 30})), end) == [OffsetRange(0, 5, 5)]
    assert batch_ranges(end, stored(end_offset(end, {0: 7}))) == [OffsetRange(0, 5, 7)]


def test_a_later_batch_begins_where_the_one_before_ended() -> None:
    first = stored(end_offset(initial_offset({0: 5}), {0: 9}))
    second = stored(end_offset(first, {0: 12}))
    assert second == {"0": 12}
    assert batch_ranges(first, second) == [OffsetRange(0, 9, 12)]


@pytest.mark.parametrize("offset", [{"x": 1}, {"0": "1"}, {"0": True}, {"0": -1}, {"-1": 1}, {"0": 1.5}])
def test_strange_offsets_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(PlanningError, match="not of this data source"):
        positions(offset)


def test_other_partitions_need_another_checkpoint() -> None:
    with pytest.raises(PlanningError, match=r"checkpoint is of partitions 0, 1, this query reads 0; use another"):
        check_partitions({"0": 1, "1": 1}, [0])
    with pytest.raises(PlanningError, match="this query reads 0, 1"):
        batch_ranges({"0": 1}, {"0": 1, "1": 1})
    check_partitions({"0": 1, "1": 1}, [0, 1])


def test_a_batch_never_goes_back() -> None:
    with pytest.raises(PlanningError, match="partition 0 would begin at 5 and end at 4"):
        batch_ranges({"0": 5}, {"0": 4})


def test_what_is_allowed_is_shared_in_proportion() -> None:
    assert advance({0: 0, 1: 0, 2: 7}, {0: 300, 1: 100, 2: 7}, 40) == {0: 30, 1: 10, 2: 7}
    assert advance({0: 0, 1: 0}, {0: 300, 1: 100}, None) == {0: 300, 1: 100}
    assert advance({0: 0, 1: 0}, {0: 1, 1: 1}, 1) == {0: 1, 1: 0}


POSITIONS = st.dictionaries(st.integers(0, 5), st.integers(0, 1000), min_size=1)


@given(POSITIONS, POSITIONS, st.one_of(st.none(), st.integers(1, 500)))
def test_advancing(start: dict[int, int], available: dict[int, int], max_rows: int | None) -> None:
    """Never back, never beyond what there is, as much as is allowed, and something whenever there is something."""
    end = advance(start, available, max_rows)
    assert end.keys() == start.keys()
    waiting = sum(max(0, available.get(partition_id, 0) - place) for partition_id, place in start.items())
    for partition_id, place in start.items():
        assert place <= end[partition_id] <= max(place, available.get(partition_id, 0))
    rows = sum(end.values()) - sum(start.values())
    assert rows == (waiting if max_rows is None else min(waiting, max_rows))
