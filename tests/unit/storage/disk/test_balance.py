"""The plan that evens out the disks of a node."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.storage.disk.balance import DiskUse, PlannedMove, plan_moves

THRESHOLD = 10
SIZES = st.dictionaries(st.integers(0, 50), st.integers(0, 100), max_size=20)


def test_the_largest_partition_that_makes_the_disks_more_even_moves() -> None:
    disks = [DiskUse("/full", 0, {1: 60, 2: 45, 3: 5}), DiskUse("/half", 50, {}), DiskUse("/empty", 100, {4: 1})]
    assert (
        plan_moves(disks, THRESHOLD)
        == [PlannedMove(2, "/full", "/empty", 45), PlannedMove(3, "/full", "/empty", 5)][:1]
    )


def test_even_disks_stay_as_they_are() -> None:
    assert plan_moves([DiskUse("/one", 0, {1: 3}), DiskUse("/two", THRESHOLD, {})], THRESHOLD) == []
    assert plan_moves([DiskUse("/one", 0, {1: 3})], THRESHOLD) == []
    assert plan_moves([], THRESHOLD) == []


@given(free=st.lists(st.integers(0, 1000), min_size=1, max_size=4), sizes=st.lists(SIZES, min_size=4, max_size=4))
def test_each_move_makes_the_disks_more_even(free: list[int], sizes: list[dict[int, int]]) -> None:
    disks = [
        DiskUse(str(at), each, {at * 100 + key: size for key, size in sizes[at].items()})
        for at, each in enumerate(free)
    ]
    known = {disk.directory: disk.free_bytes for disk in disks}
    moves = plan_moves(disks, THRESHOLD)
    assert len({move.partition_id for move in moves}) == len(moves)
    for move in moves:
        assert disks[int(move.source)].partitions[move.partition_id] == move.size_bytes
        before = sorted(known.values())
        assert known[move.to] - known[move.source] > THRESHOLD
        known[move.source] += move.size_bytes
        known[move.to] -= move.size_bytes
        assert known[move.source] < known[move.to]
        assert sum(value * value for value in known.values()) < sum(value * value for value in before)
