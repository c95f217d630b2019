"""One replica in one session, its storage and its session played by the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from waltz.common.errors import ConnectionClosedError
from waltz.common.records import Record, encode_records
from waltz.common.replica_states import ReplicaStatus
from waltz.common.wire.structures import SessionInfo
from waltz.common.zk.znodes import ReplicaId
from waltz.server.store.connections import Lane, StorageConnections, StorageRpc
from waltz.server.store.interface import Append, ReadFailedError, StoreOptions
from waltz.server.store.recovery.recovery import RecoveryMachine
from waltz.server.store.recovery.recovery_effects import (
    Compare,
    Effect,
    GetMaximum,
    Join,
    Refuse,
    ReplicaEffect,
    SetLowWaterMark,
    Truncate,
)
from waltz.server.store.replica.replica import MAX_IN_FLIGHT_REQUESTS, Replica
from waltz.server.store.ring import BatchRing
from waltz.storage.remote.errors import RemoteStorageError
from waltz.storage.remote.owed_answers import Transfer

ID = ReplicaId(0, "a:1")
OTHER = ReplicaId(0, "b:1")
BATCH_BYTES = len(encode_records([Record(0, bytes(16), 0, b"", 0)]))
FENCE = (
    "com.wepay.waltz.storage.exception.ConcurrentUpdateException: "
    "session id has changed to 6, but request context contains 5"
)


class Rpc:
    """A connection whose appends are answered when the test says so."""

    closed = False

    def __init__(self) -> None:
        self.writable = True
        self.appended: list[Callable[[Exception | None], None]] = []
        self.copied: list[int] = []
        self.change_error: Exception | None = None

    async def last_session_info(self, session_id: int, partition_id: int, *, timeout_s: float) -> SessionInfo:
        return SessionInfo(-1, -1, -1)

    async def max_transaction_id(self, session_id: int, partition_id: int, *, timeout_s: float) -> int:
        return 7

    async def truncate(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> int:
        if self.change_error is not None:
            raise self.change_error
        return transaction_id

    async def set_low_water_mark(self, session_id: int, partition_id: int, mark: int, *, timeout_s: float) -> None:
        if self.change_error is not None:
            raise self.change_error

    def append_encoded(
        self, session_id: int, partition_id: int, records: bytes, count: int, done: Callable[[Exception | None], None]
    ) -> int:
        self.appended.append(done)
        return len(self.appended)

    def transfer(self, position: int) -> Transfer:
        return Transfer(0, 0.0)


class Machine:
    """Gives one effect after the other, and remembers what it was told."""

    def __init__(self, effects: list[ReplicaEffect]) -> None:
        self.script = effects
        self.told: list[object] = []
        self.barred = False

    def replica_connected(
        self, replica_id: ReplicaId, session_id: int, low_water_mark: int, acknowledged: int
    ) -> list[ReplicaEffect]:
        self._rest = iter(self.script)
        return self._next()

    def maximum_known(self, replica_id: ReplicaId, maximum: int) -> list[ReplicaEffect]:
        self.told.append(maximum)
        return self._next()

    def low_water_mark_set(self, replica_id: ReplicaId) -> list[ReplicaEffect]:
        self.told.append("marked")
        return self._next()

    def compared(
        self, replica_id: ReplicaId, source: ReplicaId, transaction_id: int, *, same: bool
    ) -> list[ReplicaEffect]:
        self.told.append((source, transaction_id, same))
        return self._next()

    def comparison_failed(self, replica_id: ReplicaId, source: ReplicaId) -> list[ReplicaEffect]:
        self.told.append((source, "failed"))
        return self._next()

    def replica_lost(self, replica_id: ReplicaId, *, change_unanswered: bool) -> list[ReplicaEffect]:
        self.told.append("barred" if change_unanswered else "lost")
        return []

    def is_barred(self, replica_id: ReplicaId) -> bool:
        return self.barred

    def mark(self, replica_id: ReplicaId) -> int | None:
        return None

    def begin_of(self, replica_id: ReplicaId, source: ReplicaId, trim_point: int, *, compared: bool) -> int | None:
        return None

    def _next(self) -> list[ReplicaEffect]:
        effect = next(self._rest, None)
        return [] if effect is None else [effect]


class Reading:
    """A connection to a storage that holds one record."""

    def __init__(self, record: Record | None) -> None:
        self._record = record

    async def records(
        self, session_id: int, partition_id: int, first_id: int, count: int, *, timeout_s: float
    ) -> list[Record]:
        assert self._record is None or (first_id, count) == (self._record.transaction_id, 1)
        return [] if self._record is None else [self._record]


class Connections:
    def __init__(self) -> None:
        self.opened: list[Rpc] = []
        self.watchers: list[Callable[[Exception | None], None]] = []
        self.change_error: Exception | None = None
        self.records: dict[str, Record] = {}

    async def client(self, storage: str, lane: Lane = Lane.WRITE) -> Rpc | Reading:
        if lane is Lane.READ:
            return Reading(self.records.get(storage))
        rpc = Rpc()
        rpc.change_error = self.change_error
        self.opened.append(rpc)
        return rpc

    def watch(self, client: StorageRpc, watcher: Callable[[Exception | None], None]) -> Callable[[], None]:
        self.watchers.append(watcher)
        return lambda: None


class Session:
    """What the replica sees of its session."""

    partition_id = 0
    session_id = 5

    def __init__(self, effects: list[ReplicaEffect], options: StoreOptions) -> None:
        self.options = options
        self.fake_machine = Machine(effects)
        self.machine = cast("RecoveryMachine", self.fake_machine)
        self.storage = Connections()
        self.untimed: dict[str, int] = {}
        self.trim_point = self.trim_bound = 0
        self.connections = cast("StorageConnections", self.storage)
        self.ring: BatchRing | None = BatchRing(0, 1 << 20)
        self.high_water_mark = -1
        self.committed = asyncio.Event()
        self.committed.set()
        self.acknowledged_count = 0
        self.left_count = 0
        self.noticed_errors: list[Exception] = []
        self.joined_storages: list[str] = []
        self.replica = Replica(self, ID)

    def execute(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.replica.deliver(cast("ReplicaEffect", effect))

    def acknowledged(self) -> None:
        self.acknowledged_count += 1

    def replica_left(self) -> None:
        self.left_count += 1

    def noticed(self, error: Exception) -> bool:
        self.noticed_errors.append(error)
        return isinstance(error, RemoteStorageError) and error.is_session_fenced

    def barred_replica_reachable(self, storage: str) -> None:
        raise AssertionError

    def replica_joined(self, storage: str) -> None:
        self.joined_storages.append(storage)

    async def wait_committed(self, transaction_id: int) -> None:
        await self.committed.wait()

    async def read(self, first_id: int, max_count: int, *, except_from: ReplicaId) -> list[Record]:
        assert except_from == ID
        if first_id > self.high_water_mark:
            raise ReadFailedError("not committed")
        return [Record(first_id, bytes(16), 0, b"", 0)]

    def add_batches(self, count: int) -> None:
        assert self.ring is not None
        for _ in range(count):
            transaction_id = self.ring.next_id
            payload = encode_records([Record(transaction_id, bytes(16), 0, b"", 0)])
            self.ring.add(payload, [Append(bytes(16), 0, b"")])
        self.replica.pump()

    def is_at(self, status: ReplicaStatus) -> bool:
        return self.replica.view.status is status

    @property
    def rpc(self) -> Rpc:
        """The present connection."""
        return self.storage.opened[-1]


@asynccontextmanager
async def running(*effects: ReplicaEffect, **options: float) -> AsyncIterator[Session]:
    session = Session(list(effects), StoreOptions(**options))  # type: ignore[arg-type]  # sizes only
    task = asyncio.create_task(session.replica.run())
    await asyncio.sleep(0.01)
    yield session
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_effects_are_carried_out_one_after_the_other_until_the_replica_serves() -> None:
    effects: list[ReplicaEffect] = [GetMaximum(ID), Truncate(ID, 3), SetLowWaterMark(ID, 3), Join(ID, 3)]
    async with running(*effects) as session:
        assert session.fake_machine.told == [7, 3, "marked"]
        assert session.joined_storages == ["a:1"]
        assert session.replica.live
        assert session.replica.next_id == 4
        assert session.is_at(ReplicaStatus.CURRENT)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Record(7, bytes(16), 0, b"a", 1), (OTHER, 7, True)),
        (Record(7, bytes([1] * 16), 0, b"a", 1), (OTHER, 7, False)),
        (Record(7, bytes(16), 0, b"b", 2), (OTHER, 7, False)),
        (None, (OTHER, "failed")),
    ],
    ids=["the same", "another request id", "other data", "not there"],
)
async def test_a_record_is_compared_with_that_of_another_replica(other: Record | None, told: object) -> None:
    async with running(initial_retry_interval_s=0.001) as session:
        session.storage.records[ID.connect_string] = Record(7, bytes(16), 0, b"a", 1)
        if other is not None:
            session.storage.records[OTHER.connect_string] = other
        session.replica.deliver(Compare(ID, OTHER, 7))
        while not session.fake_machine.told:
            await asyncio.sleep(0.001)
        assert session.fake_machine.told == [told]
        assert len(session.noticed_errors) == (other is None)


async def test_a_storage_that_lacks_what_it_says_to_hold_begins_again() -> None:
    async with running() as session:
        session.replica.deliver(Compare(ID, OTHER, 7))
        while not session.fake_machine.told:
            await asyncio.sleep(0.001)
        assert session.fake_machine.told == ["lost"]


async def test_a_window_of_bytes_is_in_flight() -> None:
    async with running(Join(ID, -1), window_size_bytes=3 * BATCH_BYTES) as session:
        session.add_batches(5)
        assert len(session.rpc.appended) == 3
        session.rpc.appended[0](None)
        assert len(session.rpc.appended) == 4
        assert session.replica.acked == 0
        assert session.acknowledged_count == 1


async def test_no_more_requests_are_in_flight_than_a_storage_of_the_original_bears() -> None:
    async with running(Join(ID, -1)) as session:
        session.add_batches(MAX_IN_FLIGHT_REQUESTS + 1)
        assert len(session.rpc.appended) == MAX_IN_FLIGHT_REQUESTS


async def test_one_batch_is_in_flight_on_a_connection_with_much_unsent() -> None:
    async with running(Join(ID, -1)) as session:
        session.rpc.writable = False
        session.add_batches(3)
        assert len(session.rpc.appended) == 1
        session.rpc.appended[0](None)
        assert len(session.rpc.appended) == 2


async def test_nothing_is_sent_before_what_the_replica_holds_is_committed() -> None:
    async with running(Join(ID, 0)) as session:
        session.committed.clear()
        session.storage.watchers[-1](None)  # it joins again
        await asyncio.sleep(1)
        session.add_batches(2)
        assert session.replica.live
        assert not session.rpc.appended
        session.committed.set()
        await asyncio.sleep(0.01)
        assert len(session.rpc.appended) == 1


async def test_one_whose_batch_left_the_ring_copies_from_the_others_and_comes_back() -> None:
    async with running(Join(ID, -1)) as session:
        ring = session.ring
        assert ring is not None
        for _ in range(4):
            ring.add(b"x" * 10, [Append(bytes(16), 0, b"")])
        ring.commit(2)
        ring.trim(3)
        session.high_water_mark = 2
        session.replica.pump()
        assert session.is_at(ReplicaStatus.LAGGING)
        for _ in range(3):
            await asyncio.sleep(0.01)
            session.rpc.appended.pop()(None)
        await asyncio.sleep(0.01)
        assert session.is_at(ReplicaStatus.CURRENT)
        assert session.replica.acked == 2
        assert len(session.rpc.appended) == 1


async def test_an_acknowledgement_of_an_earlier_connection_counts_and_moves_no_window() -> None:
    async with running(Join(ID, -1), window_size_bytes=BATCH_BYTES) as session:
        session.add_batches(3)
        (late,) = session.rpc.appended
        session.storage.watchers[-1](ConnectionClosedError("broken"))
        assert session.is_at(ReplicaStatus.AWAY)
        assert session.left_count == 1
        await asyncio.sleep(1)
        assert session.is_at(ReplicaStatus.CURRENT)
        assert len(session.rpc.appended) == 1
        late(None)
        assert session.replica.acked == 0
        assert len(session.rpc.appended) == 1, "the window of the present connection is full"


async def test_a_fence_is_noticed_whenever_it_comes() -> None:
    async with running(Join(ID, -1)) as session:
        session.add_batches(1)
        session.rpc.appended[0](RemoteStorageError(FENCE))
        assert session.noticed_errors
        assert not session.replica.live


async def test_a_change_without_an_answer_bars_the_replica_and_a_refused_one_does_not() -> None:
    for error, outcome in (
        (ConnectionClosedError("broken"), "barred"),
        (RemoteStorageError("com.wepay.waltz.storage.exception.StorageException: no"), "lost"),
    ):
        for effect in (Truncate(ID, 3), SetLowWaterMark(ID, 3)):
            async with running() as session:
                session.storage.change_error = error
                session.fake_machine.script = [effect]
                session.storage.watchers[-1](None)
                await asyncio.sleep(1)
                assert session.fake_machine.told[:2] == ["lost", outcome]


async def test_one_that_is_refused_is_shown_to_operators() -> None:
    async with running(Refuse(ID, "holds what the metadata do not know")) as session:
        assert session.is_at(ReplicaStatus.REFUSED)
        assert not session.replica.live
