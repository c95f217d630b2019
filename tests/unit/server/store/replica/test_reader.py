"""Reading from the replicas of a session: who is asked, for how long, and what becomes of those who fail."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from waltz.common.errors import ConnectionClosedError, DeadlineExceededError
from waltz.common.records import Record, RecordHeader
from waltz.common.zk.znodes import ReplicaId
from waltz.server.store.connections import Lane, StorageConnections
from waltz.server.store.interface import ReadFailedError, StoreOptions
from waltz.server.store.replica.reader import ReplicaReader
from waltz.server.store.replica.replica import Replica

OPTIONS = StoreOptions()


class Storage:
    """One replica and the connection to it; ``answer`` is what it delivers, or raises."""

    def __init__(self, name: str, held: int = 100) -> None:
        self.storage = name
        self.replica_id = ReplicaId(0, name)
        self.held = held
        self.error: Exception | None = None
        self.delay_s = 0.001
        self.has_lost = False
        self.asked: list[float] = []
        """The time-outs of the questions."""

    def holds(self, transaction_id: int) -> bool:
        return transaction_id <= self.held

    async def records(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[Record]:
        self.asked.append(timeout_s)
        await asyncio.sleep(min(self.delay_s, timeout_s))
        if self.delay_s > timeout_s:
            raise DeadlineExceededError("nothing moved")
        if self.error is not None:
            raise self.error
        return [] if self.has_lost else [Record(first, bytes(16), 0, b"", 0)]

    async def record_headers(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[RecordHeader]:
        records = await self.records(session_id, partition_id, first, max_count, timeout_s=timeout_s)
        return [RecordHeader(*record[:3]) for record in records]


class Connections:
    def __init__(self, storages: list[Storage]) -> None:
        self.storages = {storage.storage: storage for storage in storages}

    async def client(self, storage: str, lane: Lane) -> Storage:
        assert lane is Lane.READ
        return self.storages[storage]


class Session:
    partition_id = 0
    session_id = 5
    options = OPTIONS

    def __init__(self, storages: list[Storage]) -> None:
        self.connections = cast("StorageConnections", Connections(storages))
        self.noticed_errors: list[Exception] = []
        self.is_fence: Callable[[Exception], bool] = lambda error: False

    def noticed(self, error: Exception) -> bool:
        self.noticed_errors.append(error)
        return self.is_fence(error)


class Setup:
    def __init__(self, *names: str) -> None:
        self.storages = [Storage(name) for name in names]
        self.session = Session(self.storages)
        self.reader = ReplicaReader(self.session, cast("list[Replica]", self.storages))


async def test_only_who_holds_the_record_is_asked() -> None:
    setup = Setup("a:1", "b:1")
    one, two = setup.storages
    one.held = 9
    for _ in range(5):
        assert [record.transaction_id for record in await setup.reader.records(10, 5)] == [10]
    assert (len(one.asked), len(two.asked)) == (0, 5)


@pytest.mark.parametrize("trouble", ["error", "timeout", "lost"])
async def test_the_next_one_is_asked_when_one_fails_and_that_one_seldom_again(trouble: str) -> None:
    setup = Setup("a:1", "b:1")
    one, two = setup.storages
    if trouble == "error":
        one.error = ConnectionClosedError("gone")
    elif trouble == "timeout":
        one.delay_s = 10 * OPTIONS.read_timeout_s
    else:
        one.has_lost = True
    for _ in range(20):
        assert [header.transaction_id for header in await setup.reader.headers(10, 5)] == [10]
    assert len(two.asked) == 20
    assert len(one.asked) <= 2
    assert (one.error in setup.session.noticed_errors) == (trouble == "error")


async def test_it_fails_when_nobody_can_deliver() -> None:
    setup = Setup("a:1", "b:1")
    for storage in setup.storages:
        storage.error = ConnectionClosedError("gone")
    with pytest.raises(ReadFailedError, match="no replica can deliver transaction 10"):
        await setup.reader.records(10, 5)
    assert [len(storage.asked) for storage in setup.storages] == [1, 1]


async def test_nobody_else_is_asked_once_a_newer_session_exists() -> None:
    setup = Setup("a:1", "b:1")
    setup.session.is_fence = lambda error: True
    for storage in setup.storages:
        storage.error = ConnectionClosedError("stands for a fence")
    with pytest.raises(ReadFailedError, match="stands for a fence"):
        await setup.reader.records(10, 5)
    assert sum(len(storage.asked) for storage in setup.storages) == 1


async def test_one_that_catches_up_is_not_asked_itself_and_waits_as_long_as_the_line_is_known_to_need() -> None:
    setup = Setup("a:1", "b:1")
    one, two = setup.storages
    two.delay_s = 0.6
    copied: list[Record] = []
    while not copied:
        try:
            copied = await setup.reader.records(10, 5, except_from=one.replica_id)
        except ReadFailedError:
            continue
    assert not one.asked
    first_s = OPTIONS.stall_timeout_s / 4
    assert two.asked == [first_s, 2 * first_s, 4 * first_s]
    await setup.reader.records(10, 5, except_from=one.replica_id)
    assert two.asked[-1] == pytest.approx(1.2)
