"""Batches of transactions in a database transaction, against a database in memory that fails where it is told to."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.client.databases.batches import DatabaseBatches, StoredMarkError
from waltz.client.transaction import Transaction
from waltz.common.ids import ReqId

T = TypeVar("T")

PARTITION = 3


class DownError(Exception):
    """The database's own error."""


class PoisonError(Exception):
    """The application's."""


@dataclass
class Store:
    """What is committed, and what is to go wrong."""

    mark: int | None = -1
    rows: list[int] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    """How many rows each commit added."""
    failures: dict[str, int] = field(default_factory=dict)
    """How many more times a step fails."""
    calls: list[str] = field(default_factory=list)

    def step(self, name: str) -> None:
        self.calls.append(name)
        if self.failures.get(name, 0):
            self.failures[name] -= 1
            raise DownError(name)


class Connection:
    """One database transaction."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.mark = store.mark
        self.rows: list[int] = []
        self.closed = False

    def commit(self) -> None:
        self.store.step("commit")
        self.store.mark = self.mark
        self.store.rows += self.rows
        self.store.commits.append(len(self.rows))

    def rollback(self) -> None:
        self.mark, self.rows = self.store.mark, []

    def close(self) -> None:
        self.closed = True


class MemoryDatabase:
    """The statements about marks."""

    errors: tuple[type[Exception], ...] = (DownError,)

    def __init__(self, store: Store) -> None:
        self.store = store

    def connect(self) -> Connection:
        self.store.step("connect")
        return Connection(self.store)

    def create_table(self, connection: Connection) -> None:
        raise AssertionError

    def read_mark(self, connection: Connection, partition_id: int) -> int | None:
        assert partition_id == PARTITION
        return connection.mark

    def insert_mark(self, connection: Connection, partition_id: int) -> None:
        connection.mark = -1

    def advance_mark(self, connection: Connection, partition_id: int, transaction_id: int) -> bool:
        self.store.step("advance")
        return self.move_mark(connection, partition_id, transaction_id - 1, transaction_id)

    def move_mark(self, connection: Connection, partition_id: int, before: int, after: int) -> bool:
        if after > before + 1:
            self.store.step("move")
        if connection.mark != before:
            return False
        connection.mark = after
        return True

    def guarded(self, connection: Connection) -> Connection:
        return connection


def entries(first: int, count: int) -> list[tuple[Transaction, bytes]]:
    return [
        (Transaction(ReqId.of(1, 0, PARTITION, number), number, 0, b"", None), b"%d" % number)
        for number in range(first, first + count)
    ]


async def at_once(work: Callable[[], T]) -> T:
    return work()


def batches_of(
    database: MemoryDatabase, apply: Callable[[Transaction, bytes, Connection], object], max_batch: int = 8, **more: Any
) -> DatabaseBatches[Connection]:
    return DatabaseBatches(database, apply, at_once, max_batch=max_batch, random_source=random.Random(0), **more)


def write(transaction: Transaction, data: bytes, connection: Connection) -> None:
    assert data == b"%d" % transaction.transaction_id
    connection.rows.append(transaction.transaction_id)


@pytest.fixture(autouse=True)
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays, none of which is waited for."""
    seen: list[float] = []

    async def sleep(delay_s: float) -> None:
        seen.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return seen


async def apply_all(batches: DatabaseBatches[Connection], count: int, reported: list[int]) -> None:
    """Apply all transactions as a face does: an error is noted, and the transaction is tried again."""
    while (done := batches.marks[PARTITION]) < count - 1:
        rest = entries(done + 1, min(batches.count(PARTITION), count - 1 - done))
        try:
            await batches.apply_first(rest)
        except PoisonError:
            reported.append(rest[0][0].transaction_id)


async def test_many_in_one_database_transaction() -> None:
    store = Store(mark=None)
    batches = batches_of(MemoryDatabase(store), write)
    assert (await batches.read_mark(PARTITION)).transaction_id == -1
    await apply_all(batches, 20, [])
    assert (store.rows, store.mark) == (list(range(20)), 19)
    assert [count for count in store.commits if count] == [8, 8, 4]


async def test_only_the_transaction_that_fails_by_itself_is_told() -> None:
    """Everything before the failing transaction is committed, and nothing of it; once it works the batches grow
    again."""
    poisoned = {11: 3}

    def apply(transaction: Transaction, data: bytes, connection: Connection) -> None:
        write(transaction, data, connection)
        if poisoned.get(transaction.transaction_id):
            if len(connection.rows) == 1:
                poisoned[transaction.transaction_id] -= 1
                assert store.rows == list(range(11))
            raise PoisonError

    store = Store()
    batches = batches_of(MemoryDatabase(store), apply)
    await batches.read_mark(PARTITION)
    reported: list[int] = []
    await apply_all(batches, 30, reported)
    assert reported == [11, 11], "at first it stood at the head of a batch, which is no proof"
    assert store.rows == list(range(30))
    assert store.commits == [8, 3, 1, 2, 4, 8, 4]


async def test_a_database_that_is_away_is_asked_less_and_less(delays: list[float]) -> None:
    store = Store(failures={"connect": 20})
    batches = batches_of(MemoryDatabase(store), write)
    batches.marks[PARTITION] = -1
    await batches.apply_first(entries(0, 8))
    assert store.calls.count("connect") == 21
    assert len(delays) == 20
    assert store.commits == [8], "it was not the fault of the batch"
    bounds_s = [min(0.01 * 2**attempt, 10.0) for attempt in range(20)]
    assert all(0.7 * bound_s <= delay_s <= bound_s for delay_s, bound_s in zip(delays, bounds_s, strict=True))


async def test_a_commit_that_fails_is_tried_with_fewer(delays: list[float]) -> None:
    store = Store(failures={"commit": 3})
    batches = batches_of(MemoryDatabase(store), write)
    batches.marks[PARTITION] = -1
    await batches.apply_first(entries(0, 8))
    assert (store.rows, store.commits) == ([0], [1])
    assert len(delays) == 3


async def test_a_batch_ends_when_it_has_taken_long() -> None:
    now_s = 0.0

    def slowly(transaction: Transaction, data: bytes, connection: Connection) -> None:
        nonlocal now_s
        now_s += 0.1
        write(transaction, data, connection)

    store = Store()
    batches = batches_of(MemoryDatabase(store), slowly, clock=lambda: now_s)
    await batches.read_mark(PARTITION)
    await apply_all(batches, 7, [])
    assert store.rows == list(range(7))
    assert store.commits == [3, 3, 1]


async def test_where_marks_are_moved_in_another_way_it_is_one_by_one() -> None:
    class Other(MemoryDatabase):
        def advance_mark(self, connection: Connection, partition_id: int, transaction_id: int) -> bool:
            return super().advance_mark(connection, partition_id, transaction_id)

    store = Store()
    batches = batches_of(Other(store), write)
    await batches.read_mark(PARTITION)
    await apply_all(batches, 5, [])
    assert store.commits == [1] * 5


async def test_a_mark_that_went_back_or_is_gone_is_told() -> None:
    for mark in (2, None):
        batches = batches_of(MemoryDatabase(Store(mark=mark)), write)
        batches.marks[PARTITION] = 6
        with pytest.raises(StoredMarkError, match="transaction 7 of partition 3 cannot be applied"):
            await batches.apply_first(entries(7, 5))


async def test_what_the_application_cancels_is_its_own() -> None:
    def apply(transaction: Transaction, data: bytes, connection: Connection) -> None:
        if transaction.transaction_id == 2:
            raise asyncio.CancelledError
        write(transaction, data, connection)

    store = Store()
    batches = batches_of(MemoryDatabase(store), apply)
    batches.marks[PARTITION] = -1
    await batches.apply_first(entries(0, 8))
    assert store.rows == [0, 1]
    with pytest.raises(asyncio.CancelledError):
        await batches.apply_first(entries(2, 8))


def test_a_batch_has_one_transaction_at_least() -> None:
    with pytest.raises(ValueError, match="max_batch must be at least 1, not 0"):
        batches_of(MemoryDatabase(Store()), write, 0)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 10),
    st.dictionaries(st.integers(0, 39), st.tuples(st.sampled_from([PoisonError, DownError]), st.integers(1, 12))),
    st.dictionaries(st.sampled_from(["connect", "advance", "move", "commit"]), st.integers(0, 6)),
    st.lists(st.integers(1, 6), max_size=6),
)
def test_exactly_once_whatever_fails(
    count: int,
    max_batch: int,
    failing: dict[int, tuple[type[Exception], int]],
    failures: dict[str, int],
    others: list[int],
) -> None:
    """Transactions and the database fail a few times, and another process applies some in between."""
    left = dict(failing)
    alone: list[int] = []

    def apply(transaction: Transaction, data: bytes, connection: Connection) -> None:
        number = transaction.transaction_id
        if number in left:
            kind, times = left[number]
            left[number] = kind, times - 1
            if times == 1:
                del left[number]
            if kind is PoisonError and not connection.rows:
                alone.append(number)
            connection.rows.append(-1)  # half of its work
            raise kind
        write(transaction, data, connection)

    class Shared(MemoryDatabase):
        def connect(self) -> Connection:
            if others and store.mark is not None:
                for number in range(store.mark + 1, min(store.mark + 1 + others.pop(), count)):
                    store.rows.append(number)
                    store.mark = number
            return super().connect()

        advance_mark = MemoryDatabase.advance_mark
        move_mark = MemoryDatabase.move_mark

    async def run() -> list[int]:
        batches = batches_of(Shared(store), apply, max_batch)
        await batches.read_mark(PARTITION)
        reported: list[int] = []
        await apply_all(batches, count, reported)
        return reported

    store = Store(failures=dict(failures))
    reported = asyncio.run(run())
    assert store.rows == list(range(count))
    assert store.mark == count - 1
    assert all(committed <= max_batch for committed in store.commits)
    assert {number for number in reported if failing[number][0] is not PoisonError} == set()
    assert set(reported) <= set(alone)
