"""Storages in memory with the session rules of the real ones, and every failure on command."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from waltz.common.errors import ConnectFailedError, ConnectionClosedError, DeadlineExceededError
from waltz.common.net.outbox import Outbox
from waltz.common.records import Record, RecordHeader, decode_records
from waltz.common.wire.storage_times import CommitTime, TimeQuestion
from waltz.common.wire.structures import SessionInfo
from waltz.server.store.interface import TimeEntry
from waltz.server.store.session.times import best_entry
from waltz.storage.remote.errors import RemoteStorageError
from waltz.storage.remote.owed_answers import Transfer

ResultT = TypeVar("ResultT")

SE = "com.wepay.waltz.storage.exception.StorageException: "
CUE = "com.wepay.waltz.storage.exception.ConcurrentUpdateException: "


TRIMMED = Record(-1, bytes(16), 0, b"", 0)
"""In the place of a record that was removed by a trim."""


@dataclass(slots=True)
class FakePartition:
    """Log and control record of one partition on one storage; ``records[i]`` has id ``i``."""

    session_id: int = -1
    low_water_mark: int = -1
    local_low_water_mark: int = -1
    fence: int = -1
    records: list[Record] = field(default_factory=list)
    times: list[TimeEntry] = field(default_factory=list)

    @property
    def maximum(self) -> int:
        return len(self.records) - 1

    def check(self, session_id: int) -> None:
        if session_id != self.fence:
            raise RemoteStorageError(
                f"{CUE}session id has changed to {self.fence}, but request context contains {session_id}"
            )

    def set_low_water_mark(self, session_id: int, mark: int) -> None:
        if self.maximum > mark:
            raise RemoteStorageError(f"{SE}low-water mark is lower than the max transaction id")
        if mark < self.low_water_mark:
            raise RemoteStorageError(f"{SE}unable to set low watermark to value {mark}")
        if self.maximum < self.local_low_water_mark:
            raise RemoteStorageError(f"{SE}unable to set local low watermark to value {self.maximum}")
        self.session_id, self.low_water_mark, self.local_low_water_mark = session_id, mark, self.maximum

    def truncate(self, transaction_id: int) -> int:
        del self.records[max(transaction_id + 1, self.first) :]
        return self.maximum

    @property
    def first(self) -> int:
        """The id of the first record that is left, or of the next one."""
        return next((i for i, record in enumerate(self.records) if record is not TRIMMED), len(self.records))

    def trim(self, transaction_id: int) -> int:
        if transaction_id > self.low_water_mark + 1:
            raise RemoteStorageError(f"{SE}the low-water mark is {self.low_water_mark}")
        if transaction_id > self.maximum + 1:
            raise RemoteStorageError(f"{SE}the log ends with transaction {self.maximum}")
        self.records[:transaction_id] = [TRIMMED] * transaction_id
        return self.first

    def begin(self, transaction_id: int) -> None:
        if self.maximum >= transaction_id:
            raise RemoteStorageError(f"{SE}the log has transactions up to {self.maximum}")
        self.records[:] = [TRIMMED] * transaction_id

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.transaction_id != self.maximum + 1:
                raise RemoteStorageError(f"{SE}transaction out of order")
            self.records.append(record)


class FakeStorage:
    """One storage. ``remembers_fence`` is false for those of the original: a restart forgets an unpersisted fence."""

    def __init__(self, name: str, remembers_fence: bool = True) -> None:
        self.name = name
        self.remembers_fence = remembers_fence
        self.up = True
        self.running = asyncio.Event()
        self.running.set()
        self.partitions: dict[int, FakePartition] = {0: FakePartition()}
        self.connections: set[FakeClient] = set()
        self.refuse_appends: str | None = None
        self.connect_count = 0
        self.keeps_times = True
        self.trims = True

    @property
    def partition(self) -> FakePartition:
        return self.partitions[0]

    def break_connections(self) -> None:
        for client in list(self.connections):
            client.break_now()

    def stop(self) -> None:
        """Kill the process; what it acknowledged stays."""
        self.up = False
        self.break_connections()
        for partition in self.partitions.values():
            if not self.remembers_fence:
                partition.fence = partition.session_id

    def start(self) -> None:
        self.up = True
        self.running.set()

    def pause(self) -> None:
        """Stop answering, as a stopped process does."""
        self.running.clear()

    def resume(self) -> None:
        self.running.set()


class FakeNetwork:
    """Storages by connect string and the way to them."""

    def __init__(self, storages: Sequence[str], seed: int = 0, *, remembers_fence: bool = True) -> None:
        self.random = random.Random(seed)
        self.storages = {name: FakeStorage(name, remembers_fence) for name in storages}
        self.latency_s: Callable[[], float] = lambda: 0.001
        self.late_execution = 0.0
        """Probability that a request is still executed, later, although its connection broke before."""
        self.tasks: set[asyncio.Task[None]] = set()

    def connector(self, reachable: Callable[[str], bool] = lambda name: True) -> "Connector":
        return Connector(self, reachable)

    def spawn(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Connector:
    """The connect function of one server; ``reachable`` cuts single storages off it."""

    def __init__(self, network: FakeNetwork, reachable: Callable[[str], bool]) -> None:
        self._network = network
        self._reachable = reachable

    async def __call__(self, name: str) -> "FakeClient":
        storage = self._network.storages.get(name)
        await asyncio.sleep(self._network.latency_s())
        if storage is None or not storage.up or not self._reachable(name):
            raise ConnectFailedError(f"{name}: connection refused")
        storage.connect_count += 1
        return FakeClient(self._network, storage)


@dataclass(slots=True)
class _Request:
    apply: Callable[[], object]
    done: Callable[[object, Exception | None], None]
    position: int


class FakeClient:
    """A connection: requests are executed one by one in their order, with latency before and after."""

    def __init__(self, network: FakeNetwork, storage: FakeStorage) -> None:
        self._network = network
        self._storage = storage
        self._loop = asyncio.get_running_loop()
        self._requests: list[_Request] = []
        self._unanswered: list[_Request] = []
        self._arrived = asyncio.Event()
        self._listeners: list[Callable[[Exception | None], None]] = []
        self.closed = False
        self.writable = True
        self.outbox: Outbox | None = None
        self._position = 0
        storage.connections.add(self)
        network.spawn(self._loop.create_task(self._work()))

    # The storage's side

    async def _work(self) -> None:
        network, storage = self._network, self._storage
        while True:
            while not self._requests:
                if self.closed:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            await asyncio.sleep(network.latency_s() * (network.random.uniform(1, 100) if self.closed else 1))
            await storage.running.wait()
            if self.closed and network.random.random() >= network.late_execution:
                return
            if not self._requests:
                continue
            request = self._requests.pop(0)
            if not storage.up:
                continue
            result: object = None
            error: Exception | None = None
            try:
                result = request.apply()
            except RemoteStorageError as failure:
                error = failure
            if not self.closed:
                network.spawn(self._loop.create_task(self._answer(request, result, error)))

    async def _answer(self, request: _Request, result: object, error: Exception | None) -> None:
        await asyncio.sleep(self._network.latency_s())
        # Answers arrive in the order of the requests, as on any connection.
        while not self.closed and self._unanswered and self._unanswered[0] is not request:
            await asyncio.sleep(0.0001)
        if not self.closed:
            self._unanswered.remove(request)
            request.done(result, error)

    def break_now(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._storage.connections.discard(self)
        self._arrived.set()
        error = ConnectionClosedError(f"the connection to {self._storage.name} broke")
        unanswered, self._unanswered = self._unanswered, []
        for request in unanswered:
            request.done(None, error)
        for listener in self._listeners:
            listener(error)

    # The client's side

    def add_close_listener(self, listener: Callable[[Exception | None], None]) -> None:
        if self.closed:
            self._loop.call_soon(listener, ConnectionClosedError("closed"))
        else:
            self._listeners.append(listener)

    async def close(self) -> None:
        self.break_now()

    def _send(self, apply: Callable[[], object], done: Callable[[object, Exception | None], None]) -> None:
        self._position += 1
        request = _Request(apply, done, self._position)
        self._requests.append(request)
        self._unanswered.append(request)
        self._arrived.set()

    def _checked(
        self, session_id: int, partition_id: int, action: Callable[[FakePartition], ResultT]
    ) -> Callable[[], ResultT]:
        def apply() -> ResultT:
            partition = self._storage.partitions.get(partition_id)
            if partition is None:
                raise RemoteStorageError(f"java.lang.Exception: Partition:{partition_id} is not assigned.")
            partition.fence = max(partition.fence, session_id)
            partition.check(session_id)
            return action(partition)

        return apply

    async def _call(
        self, session_id: int, partition_id: int, timeout_s: float, action: Callable[[FakePartition], ResultT]
    ) -> ResultT:
        if self.closed:
            raise ConnectionClosedError("closed")
        future: asyncio.Future[ResultT] = self._loop.create_future()

        def done(result: object, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # the result of this very action

        self._send(self._checked(session_id, partition_id, action), done)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise DeadlineExceededError(f"{self._storage.name} did not answer") from None

    def append_encoded(
        self,
        session_id: int,
        partition_id: int,
        records: bytes,
        count: int,
        done: Callable[[Exception | None], None],
    ) -> int:
        if self.closed:
            self._loop.call_soon(done, ConnectionClosedError("closed"))
            return 0
        decoded, _ = decode_records(count.to_bytes(4, "big") + records, 0, 4 + len(records))
        assert len(decoded) == count
        action = self._checked(session_id, partition_id, lambda partition: self._append(partition, decoded))
        self._send(action, lambda _result, error: done(error))
        return self._position

    def transfer(self, position: int) -> Transfer:
        return Transfer(-sum(1 for request in self._unanswered if request.position <= position), 0)

    def _append(self, partition: FakePartition, records: Sequence[Record]) -> None:
        if self._storage.refuse_appends is not None:
            raise RemoteStorageError(self._storage.refuse_appends)
        partition.append(records)

    async def append(self, session_id: int, partition_id: int, records: Sequence[Record], *, timeout_s: float) -> None:
        await self._call(session_id, partition_id, timeout_s, lambda p: self._append(p, records))

    async def last_session_info(self, session_id: int, partition_id: int, *, timeout_s: float) -> SessionInfo:
        return await self._call(
            session_id,
            partition_id,
            timeout_s,
            lambda p: SessionInfo(p.session_id, p.low_water_mark, p.local_low_water_mark),
        )

    async def set_low_water_mark(self, session_id: int, partition_id: int, mark: int, *, timeout_s: float) -> None:
        await self._call(session_id, partition_id, timeout_s, lambda p: p.set_low_water_mark(session_id, mark))

    async def truncate(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> int:
        return await self._call(session_id, partition_id, timeout_s, lambda p: p.truncate(transaction_id))

    async def max_transaction_id(self, session_id: int, partition_id: int, *, timeout_s: float) -> int:
        return await self._call(session_id, partition_id, timeout_s, lambda p: p.maximum)

    async def record_headers(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[RecordHeader]:
        records = await self.records(session_id, partition_id, first, max_count, timeout_s=timeout_s)
        return [RecordHeader(record.transaction_id, record.req_id, record.header) for record in records]

    async def records(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[Record]:
        def read(partition: FakePartition) -> list[Record]:
            return [] if first < partition.first else partition.records[first : first + max_count]

        return await self._call(session_id, partition_id, timeout_s, read)

    @property
    def trims(self) -> bool:
        return self._storage.trims

    async def trim(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> int:
        return await self._call(session_id, partition_id, timeout_s, lambda p: p.trim(transaction_id))

    async def begin(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> None:
        await self._call(session_id, partition_id, timeout_s, lambda p: p.begin(transaction_id))

    @property
    def keeps_times(self) -> bool:
        return self._storage.keeps_times

    def note_committed(self, session_id: int, partition_id: int, transaction_id: int, time_ms: int) -> None:
        entry = TimeEntry(transaction_id, time_ms)
        self._send(self._checked(session_id, partition_id, lambda p: p.times.append(entry)), lambda *_: None)

    async def time_entry(
        self, session_id: int, partition_id: int, question: TimeQuestion, value: int, *, timeout_s: float
    ) -> tuple[int, int] | None:
        return await self._call(session_id, partition_id, timeout_s, lambda p: best_entry(question, value, p.times))

    async def times(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[CommitTime]:
        def list_times(partition: FakePartition) -> list[CommitTime]:
            return [CommitTime(*entry) for entry in sorted(partition.times) if entry.transaction_id >= first][
                :max_count
            ]

        return await self._call(session_id, partition_id, timeout_s, list_times)

    async def enter_times(
        self, session_id: int, partition_id: int, times: Sequence[CommitTime], *, timeout_s: float
    ) -> CommitTime | None:
        def enter(partition: FakePartition) -> CommitTime | None:
            assert all(entry.transaction_id <= partition.maximum for entry in times)
            known = {entry.transaction_id for entry in partition.times}
            partition.times += [TimeEntry(*entry) for entry in times if entry.transaction_id not in known]
            partition.times.sort()
            return CommitTime(*partition.times[-1]) if partition.times else None

        return await self._call(session_id, partition_id, timeout_s, enter)
