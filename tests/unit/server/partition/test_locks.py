"""The lock table against the published positions, the rules of the three kinds of locks, and a naive serial model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.server.partition.locks import LockTable, slot_positions

POSITIONS = [
    (3357067, (29688, 12513, 13942)),
    (3357064, (19425, 10134, 13015)),
    (0, (12345, 10782, 13775)),
    (-1177318867, (22914, 20499, 16848)),
    (-1177318868, (9493, 29706, 26539)),
    (3556598, (23047, 4612, 26477)),
    (-547234354, (10111, 19404, 17477)),
    (54959990, (4151, 12052, 16669)),
]


@pytest.mark.parametrize(("lock_hash", "expected"), POSITIONS)
def test_positions_of_the_specification(lock_hash: int, expected: tuple[int, int, int]) -> None:
    assert slot_positions(lock_hash, 30000) == expected


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1, 1 << 20))
def test_positions_are_three_steps_of_the_generator(lock_hash: int, size: int) -> None:
    expected = []
    state = lock_hash & 0xFFFFFFFF
    for _ in range(3):
        state = (state * 1103515245 + 12345) & 0xFFFFFFFF
        expected.append((state & 0x3FFFFFFF) % size)
    assert slot_positions(lock_hash, size) == tuple(expected)


def table() -> LockTable:
    return LockTable(30000, -1)


def test_estimate_of_a_write_lock_is_the_transaction_that_took_it() -> None:
    locks = table()
    assert locks.admit([1], [], [], -1, 7) is None
    assert locks.estimate([1], []) == 7
    assert locks.admit([1], [], [], 6, 8) == 7
    assert locks.admit([1], [], [], 7, 8) is None, "an equal mark is no conflict"


def test_a_read_lock_is_checked_and_records_nothing() -> None:
    locks = table()
    assert locks.admit([], [1], [], -1, 3) is None
    assert locks.estimate([], [1]) == -1
    assert locks.admit([1], [], [], -1, 4) is None
    assert locks.admit([], [1], [], 3, 5) == 4


def test_an_append_lock_is_not_checked_and_is_seen_by_readers_and_writers() -> None:
    locks = table()
    assert locks.admit([], [], [1], -1, 3) is None
    assert locks.admit([], [], [1], -1, 4) is None
    assert locks.admit([1], [], [], 3, 5) == 4
    assert locks.admit([], [1], [], 3, 5) == 4


def test_siblings_under_one_parent_do_not_conflict_and_a_writer_of_both_sees_the_newest() -> None:
    locks = table()
    parent, child, sibling = 10, 11, 12
    assert locks.admit([], [parent], [child], -1, 0) is None
    assert locks.admit([], [parent], [sibling], -1, 1) is None
    assert locks.admit([], [parent], [child], -1, 2) is None
    assert locks.admit([parent, child], [], [], 1, 3) == 2
    assert locks.admit([parent, sibling], [], [], 0, 3) == 1


def test_the_estimate_of_a_request_is_the_largest_of_its_locks() -> None:
    locks = table()
    locks.admit([1], [], [], -1, 5)
    locks.admit([2], [], [], -1, 9)
    assert locks.estimate([1], [2]) == 9
    assert locks.estimate([2], [1]) == 9
    assert locks.estimate([], []) == -1


def test_a_refused_request_records_nothing() -> None:
    locks = table()
    locks.admit([1], [], [], -1, 5)
    assert locks.admit([2, 1], [], [3], 0, 6) == 5
    assert locks.estimate([2, 3], []) == -1


def test_the_same_lock_twice_in_one_request_is_no_conflict() -> None:
    locks = table()
    assert locks.admit([1, 1], [1], [1], -1, 0) is None


@pytest.mark.parametrize("client_mark", [-1, -2, -(1 << 63)])
def test_an_empty_log_conflicts_with_nobody(client_mark: int) -> None:
    locks = table()
    assert locks.admit([], [], [], client_mark, 0) is None
    assert locks.admit([1], [], [], client_mark, 0) is None


def test_reset_assigns_also_downwards() -> None:
    locks = table()
    locks.admit([1], [], [], -1, 100)
    locks.reset(50)
    assert locks.estimate([1], []) == 50
    assert locks.estimate([2], []) == 50


def test_a_small_table_imagines_conflicts() -> None:
    locks = LockTable(300, -1)
    conflicts = [lock for lock in range(101) if locks.admit([lock], [], [], -1, lock) is not None]
    assert conflicts


def test_a_table_without_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        LockTable(0, -1)


hashes = st.lists(st.integers(-4, 4), max_size=3)
requests = st.lists(st.tuples(hashes, hashes, hashes, st.integers(-2, 40)), max_size=40)


@given(requests)
def test_exact_model(steps: list[tuple[list[int], list[int], list[int], int]]) -> None:
    """Few locks in a large table do not share all three slots, so the table equals an exact map of locks."""
    locks = LockTable(1 << 16, -1)
    exact: dict[int, int] = {}
    next_id = 0
    for write, read, append, mark in steps:
        estimate = max((exact.get(lock, -1) for lock in [*write, *read]), default=-1)
        conflict = locks.admit(write, read, append, mark, next_id)
        if estimate > max(mark, -1):
            assert conflict == estimate
        else:
            assert conflict is None
            exact.update(dict.fromkeys([*write, *append], next_id))
            next_id += 1


class SerialTable:
    """The naive table: marks are set when the transaction before has committed, slots found by stepping."""

    def __init__(self, size: int) -> None:
        self.slots = [-1] * size

    def positions(self, lock: int) -> list[int]:
        found, state = [], lock & 0xFFFFFFFF
        for _ in range(3):
            state = (state * 1103515245 + 12345) % (1 << 32)
            found.append((state & 0x3FFFFFFF) % len(self.slots))
        return found

    def estimate(self, locks: list[int]) -> int:
        return max((min(self.slots[p] for p in self.positions(lock)) for lock in locks), default=-1)

    def commit(self, locks: list[int], transaction_id: int) -> None:
        for lock in locks:
            for position in self.positions(lock):
                self.slots[position] = transaction_id


@given(requests, st.integers(1, 20))
def test_equal_to_the_serial_model_with_collisions(
    steps: list[tuple[list[int], list[int], list[int], int]], size: int
) -> None:
    """Raising at acceptance gives, request by request, what one-at-a-time execution gives."""
    locks, serial = LockTable(size, -1), SerialTable(size)
    next_id = 0
    for write, read, append, mark in steps:
        estimate = serial.estimate([*write, *read])
        conflict = locks.admit(write, read, append, mark, next_id)
        assert conflict == (estimate if estimate > max(mark, -1) else None)
        if conflict is None:
            serial.commit([*write, *append], next_id)
            next_id += 1
