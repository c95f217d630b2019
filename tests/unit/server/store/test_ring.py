import pytest

from waltz.common.records import Record, encode_record
from waltz.server.store.interface import Append
from waltz.server.store.memory import MIN_SHARE_BYTES, MemoryAccount, MemoryBudget
from waltz.server.store.ring import BatchRing


def appends(first_id: int, count: int) -> list[Append]:
    made = [Append(bytes(16), 0, Append.encode_body(0, b"", 0)) for _ in range(count)]
    for transaction_id, append in enumerate(made, first_id):
        append.transaction_id = transaction_id
    return made


def test_batches_are_found_by_their_first_id_and_committed_in_order() -> None:
    ring = BatchRing(5, 1000)
    assert (ring.first_id, ring.next_id, ring.decision_wanted) == (5, 5, 5)
    first, second = appends(5, 3), appends(8, 1)
    ring.add(b"x" * 30, first, 1.5)
    ring.add(b"y" * 10, second, 2.5)
    assert (ring.first_id, ring.next_id, ring.decision_wanted) == (5, 9, 7)
    assert (ring.undecided_count, ring.undecided_bytes) == (2, 40)
    assert ring.get(4) is None
    assert ring.get(9) is None
    batch = ring.get(8)
    assert batch is not None
    assert (batch.payload, batch.count, batch.last_id) == (b"y" * 10, 1, 8)
    assert ring.undecided() == first + second
    assert ring.commit(6) is None
    assert ring.commit(7) == (first, [b"x" * 30], 1.5)
    assert ring.undecided() == second
    assert (ring.undecided_bytes, ring.kept_bytes, ring.decision_wanted) == (10, 30, 8)
    assert ring.commit(100) == (second, [b"y" * 10], 2.5)
    assert ring.undecided_count == 0


@pytest.mark.parametrize("committed", [False, True])
def test_the_rest_of_a_batch_is_found_by_any_of_its_ids(committed: bool) -> None:
    """A replica whose log ends within a batch: its disk has kept a part of a write."""
    records = [encode_record(Record(number, bytes(16), 0, bytes(number), 0)) for number in range(3, 9)]
    ring = BatchRing(3, 1000)
    ring.add(b"".join(records[:1]), appends(3, 1))
    ring.add(b"".join(records[1:5]), appends(4, 4))
    ring.add(b"".join(records[5:]), appends(8, 1))
    if committed:
        ring.commit(7)
    for first_id in (5, 6, 7):
        rest = ring.get(first_id)
        assert rest is not None
        assert (rest.first_id, rest.last_id, rest.count) == (first_id, 7, 8 - first_id)
        assert rest.payload == b"".join(records[first_id - 3 : 5])


def test_several_batches_commit_as_one() -> None:
    ring = BatchRing(0, 1000)
    given = [append for start in (0, 2, 4) for append in ring.add(b"..", appends(start, 2), start).appends]
    assert ring.commit(5) == (given, [b".."] * 3, 0), "since the first of them was given"


def test_committed_batches_go_when_nobody_needs_them_or_the_room_is_full() -> None:
    ring = BatchRing(0, 100)
    for transaction_id in range(10):
        ring.add(b"z" * 30, appends(transaction_id, 1))
    ring.trim(10)
    assert ring.first_id == 0, "undecided batches stay"
    ring.commit(5)
    ring.trim(2)
    assert (ring.first_id, ring.kept_bytes) == (3, 90), "two were not needed, one was too much"
    assert ring.get(2) is None
    ring.trim(0)
    assert ring.first_id == 3
    ring.commit(9)
    ring.trim(10)
    assert (ring.first_id, ring.kept_bytes) == (10, 0)


def kept(memory: MemoryAccount | None, count: int, size_bytes: int) -> BatchRing:
    """A ring with so many committed batches that a lagging replica still needs, as far as it may keep them."""
    ring = BatchRing(0, 8 << 20)
    ring.memory = memory
    for number in range(count):
        ring.add(bytes(size_bytes), [Append(bytes(16), 0, b"")])
        ring.commit(number)
        ring.trim(0)
    return ring


def test_a_ring_keeps_no_more_than_its_share_of_the_memory_and_tells_what_it_keeps() -> None:
    budget = MemoryBudget(9 << 20)
    account = budget.account(8)
    ring = kept(account, 100, 100_000)
    assert account.used_bytes == budget.used_bytes == ring.kept_bytes
    assert (900 << 10) < ring.kept_bytes <= (1 << 20)
    ring.trim(ring.next_id)
    assert budget.used_bytes == 0


def test_the_rings_of_many_partitions_stay_within_the_memory_and_leave_room() -> None:
    budget = MemoryBudget(256 << 20)
    rings = [kept(budget.account(8), 20, 100_000) for _ in range(1000)]
    assert sum(ring.kept_bytes for ring in rings) == budget.used_bytes < budget.limit_bytes
    assert budget.account(4).share_bytes > MIN_SHARE_BYTES, "for appends"


def test_a_small_ring_is_kept_even_if_others_use_everything() -> None:
    budget = MemoryBudget(0)
    ring = kept(budget.account(8), 100, 1000)
    assert ring.kept_bytes > MIN_SHARE_BYTES - 2000
