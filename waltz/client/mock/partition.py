"""The log of one partition in memory; several drivers, on several loops and threads, may share it."""

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple, Self

from waltz.client.mock.nodes import MockNodes
from waltz.common.checksum import checksum
from waltz.common.consistency import Consistency, accepts, consistency_named, waits_for_all
from waltz.common.ids import NO_TRANSACTION, ReqId
from waltz.common.records import Record
from waltz.common.wall_clock import now_ms
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import LockFailure
from waltz.common.wire.consistency import ConsistencyRefusal, ConsistencyRefused
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.wire.write_sessions import NO_WRITE_SESSION, SessionFenced

_OTHERS_CLIENT_ID = -2


class Uncommitted(NamedTuple):
    """An append that a storage has, and no quorum."""

    commit: Callable[[], None]
    lose: Callable[[], None]


class MockServerPartition:
    """Commits at once. Locks are compared by their exact hash, without needless conflicts.

    Examples:
        ```python
        from waltz.client.mock import MockDriver, MockServerPartition

        partitions = MockServerPartition.create(2)
        partitions[0].add(b"of somebody else")
        async with waltz.connect(MockDriver(partitions)) as one, waltz.connect(MockDriver(partitions)) as other:
            await one.append(0, b"of one")
            assert await other.high_water_mark(0) == partitions[0].high_water_mark == 1
        ```
    """

    def __init__(self, partition_id: int, nodes: MockNodes | None = None) -> None:
        self.partition_id = partition_id
        self.nodes = nodes or MockNodes()
        """What the cluster of the partition keeps in ZooKeeper, where that counts: that of its first partition."""
        self.clock_ms: Callable[[], int] = now_ms
        """The time of commits, in milliseconds since the epoch; a test may replace it."""
        self._records: list[Record] = []
        self._times_ms: list[int] = []
        self._locks: dict[int, int] = {}
        self.write_session = 1
        """The number of the present write session."""
        self.session_holder: int | None = None
        """The client of an exclusive session; ``None`` if the session is not exclusive."""
        self.consistency = "leader_quorum"
        """What the partition demands of appends, like the property of that name."""
        self.require_consistency = True
        """Whether other appends are refused, like the property of that name."""
        self.storage_away = False
        """Whether a storage is known to be away, so that appends at ``leader_all`` are refused."""
        self._held_at: int | None = None
        self._uncommitted: list[Uncommitted] | None = None
        self._mutex = threading.Lock()
        self._listeners: list[Callable[[int], None]] = []

    @classmethod
    def create(cls, count: int) -> list[Self]:
        """Partitions 0 to ``count`` - 1, to be shared by several drivers."""
        nodes = MockNodes()
        return [cls(partition_id, nodes) for partition_id in range(count)]

    @property
    def high_water_mark(self) -> int:
        """Id of the last transaction; -1 when there is none."""
        return len(self._records) - 1

    @property
    def mark_of_all(self) -> int:
        """Id of the last transaction that all storages have."""
        return self.high_water_mark if self._held_at is None else self._held_at

    def hold_storage(self) -> None:
        """Have one storage take nothing from now on: appends at ``leader_all`` are committed, and not acknowledged."""
        self._held_at = self.high_water_mark

    def release_storage(self) -> None:
        """All storages have everything again."""
        self._held_at = None
        self._tell()

    def hold_commits(self) -> None:
        """Have a single storage take appends from now on: they are acknowledged at levels below the quorum, and not
        committed."""
        self._uncommitted = self._uncommitted or []

    def release_commits(self) -> None:
        """The other storages have everything again: commit what was held."""
        held, self._uncommitted = self._uncommitted or [], None
        for append in held:
            append.commit()

    def lose_uncommitted(self) -> None:
        """The partition goes on with the other storages: what was held is lost."""
        held, self._uncommitted = self._uncommitted or [], None
        for append in held:
            append.lose()

    def hold(self, append: Uncommitted) -> int | None:
        """Keep an append uncommitted if commits are held; its id."""
        if self._uncommitted is None:
            return None
        self._uncommitted.append(append)
        return self.high_water_mark + len(self._uncommitted)

    def refusal(self, request: AppendRequest, level: Consistency) -> ConsistencyRefused | None:
        """The reason against an append at a level."""
        demanded = consistency_named(self.consistency)
        if self.require_consistency and not accepts(demanded, level):
            text = f"the partition demands the consistency {demanded.word}, and the append has {level.word}"
            return ConsistencyRefused(request.req_id, ConsistencyRefusal.BELOW_PROPERTY, text)
        if self.storage_away and waits_for_all(level):
            text = f"an append at {level.word} needs all storages, and one is away by order of the test"
            return ConsistencyRefused(request.req_id, ConsistencyRefusal.STORAGE_MISSING, text)
        return None

    @property
    def transactions(self) -> list[Record]:
        """All committed transactions."""
        return list(self._records)

    def read(self, first_id: int, max_count: int) -> list[Record]:
        """Transactions from an id on."""
        return self._records[max(first_id, 0) : max(first_id + max_count, 0)]

    def add(self, data: bytes, header: int = 0) -> int:
        """Commit a transaction as if another client had appended it; returns its id."""
        with self._mutex:
            transaction_id = len(self._records)
            req_id = ReqId.of(_OTHERS_CLIENT_ID, 0, self.partition_id, transaction_id & 0x7FFF_FFFF)
            self._commit(Record(transaction_id, req_id, header, data, checksum(data)))
        self._tell()
        return transaction_id

    def time_entry(self, question: TimeQuestion, value: int) -> tuple[int, int]:
        """What a server would tell of the times of commits, to the millisecond; twice -1 when it is not known."""
        with self._mutex:
            times_ms = self._times_ms
            found = bisect_right(times_ms, value) - 1 if question is TimeQuestion.LAST_AT else value
            return (found, times_ms[found]) if 0 <= found < len(times_ms) else (NO_TRANSACTION, -1)

    def _commit(self, record: Record) -> None:
        self._records.append(record)
        self._times_ms.append(max([self.clock_ms(), *self._times_ms[-1:]]))

    def fence(self, holder: int | None = None, expected_session: int = NO_WRITE_SESSION) -> int | None:
        """Begin a new write session as if a client had, and return its number; exclusive for the client ``holder``.

        Returns ``None`` without a new session when the present session is not the expected one.
        """
        with self._mutex:
            if expected_session not in (NO_WRITE_SESSION, self.write_session):
                return None
            self.write_session += 1
            self.session_holder = holder
            return self.write_session

    def _admits(self, request: AppendRequest) -> bool:
        if request.write_session == NO_WRITE_SESSION:
            return self.session_holder is None
        client_id = ReqId(request.req_id).client_id
        return request.write_session == self.write_session and self.session_holder in (None, client_id)

    def append(self, request: AppendRequest) -> LockFailure | SessionFenced | None:
        """Commit ``request``, or return the reason against it."""
        with self._mutex:
            if not self._admits(request):
                return SessionFenced(request.req_id, self.high_water_mark, self.write_session)
            locks = self._locks
            conflict = max(
                (locks.get(lock, NO_TRANSACTION) for lock in (*request.write_locks, *request.read_locks)),
                default=NO_TRANSACTION,
            )
            if conflict > request.client_high_water_mark:
                return LockFailure(request.req_id, conflict)
            transaction_id = len(self._records)
            self._commit(Record(transaction_id, request.req_id, request.header, request.data, request.checksum))
            for lock in (*request.write_locks, *request.append_locks):
                locks[lock] = transaction_id
        self._tell()
        return None

    def listen(self, listener: Callable[[int], None]) -> None:
        """Have ``listener`` called with the id of this partition after each commit, on the thread of the commit."""
        self._listeners.append(listener)

    def forget(self, listener: Callable[[int], None]) -> None:
        """Remove a listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener(self.partition_id)
