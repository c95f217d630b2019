"""One store session: the period in which one server, under one session id, writes one partition.

A session starts with a recovery (:mod:`waltz.server.store.recovery.recovery`). Then it takes batches and hands each
batch to all replicas; several batches may be in flight. Batches are committed in order, when a quorum of the *assigned*
replicas has made them durable. The failure of one replica does not affect the others. The session ends when a quorum
cannot be reached any more, when a storage reports a newer session (rule S2), or when the metadata have a newer session.
A session is never continued: the next session settles undecided appends (rule S5).
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from waltz.common.cluster.quorum import can_reach, committed_mark, quorum_of
from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.backoff import Backoff
from waltz.common.progress_timer import ProgressTimer
from waltz.common.records import Record, RecordHeader
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.zk.client import NoNodeError, ZooKeeperError
from waltz.common.zk.znodes import PartitionMetadata, ReplicaId
from waltz.server.store.connections import StorageConnections
from waltz.server.store.interface import (
    Append,
    ReadFailedError,
    SessionEndedError,
    StoreOptions,
    SupersededError,
    TimeEntry,
)
from waltz.server.store.metadata_node import MetadataNode
from waltz.server.store.recovery.recovery import RecoveryMachine
from waltz.server.store.recovery.recovery_effects import Abort, Effect, Open, Renew, WriteMetadata
from waltz.server.store.replica.reader import ReplicaReader
from waltz.server.store.replica.replica import Replica
from waltz.server.store.replica.replica_view import ReplicaView
from waltz.server.store.ring import BatchRing, Committed
from waltz.server.store.session.times import CommitTimes
from waltz.storage.remote.errors import RemoteStorageError

logger = logging.getLogger(__name__)

OPENING_REPORT_INTERVAL_S = 10.0
"""The interval of log lines about the obstacle of a long recovery."""


class SessionOwner(Protocol):
    """The calls of a session to its log. Every call is made in the event loop."""

    def session_committed(self, committed: Committed, high_water_mark: int) -> None:
        """The next batches, in order, are committed."""
        ...

    def session_stored(self) -> None:
        """A replica has acknowledged more, while :attr:`StoreSession.watched` is set."""
        ...

    def session_over(self) -> None:
        """The session has ended by itself; the reason is :attr:`StoreSession.ended`."""
        ...

    def renewal_wanted(self) -> None:
        """Another session should follow this one."""
        ...

    def readmission_wanted(self, storage: str) -> None:
        """Another session could admit the replica at a storage that this session must leave out."""
        ...

    def replica_joined(self, storage: str) -> None:
        """The replica at a storage follows the session."""
        ...


class StoreSession:
    """One session of one partition: :meth:`open` once, then :meth:`append`; :meth:`close` in any case."""

    # Without slots, an object with this number of attributes has a hash table of its own: a thousand of them miss the
    # caches.
    __slots__ = (
        "_assigned",
        "_confirmation",
        "_confirmed_s",
        "_dismissed",
        "_floor",
        "_high_water_mark",
        "_last_commit_s",
        "_looked_at",
        "_loop",
        "_low_water_mark",
        "_members",
        "_node",
        "_opening_is_late",
        "_owner",
        "_quorum",
        "_reader",
        "_replicas",
        "_ring",
        "_stall_timer",
        "_tasks",
        "_times",
        "_timings",
        "_told_below_floor",
        "_unconfirmed_s",
        "_waiters",
        "_writes",
        "connections",
        "ended",
        "generation",
        "machine",
        "options",
        "partition_id",
        "ring",
        "session_id",
        "storages",
        "trim_point",
        "untimed",
        "watched",
    )

    def __init__(
        self,
        partition_id: int,
        metadata: PartitionMetadata,
        version: int,
        replicas: Iterable[str],
        *,
        node: MetadataNode,
        connections: StorageConnections,
        owner: SessionOwner,
        options: StoreOptions,
        floor: int = NO_TRANSACTION,
        promised: Mapping[str, int] = MappingProxyType({}),
        untimed: dict[str, int] | None = None,
        trim_point: int = 0,
    ) -> None:
        """``metadata`` and ``version`` are those of the write that began the session; ``replicas`` are the connect
        strings of the assigned storages.

        ``floor`` is the highest id that the owner has reported as committed. ``promised`` has, for each storage, the
        highest of these ids that it has made durable in earlier sessions, as far as is known. ``untimed``, which
        outlives the session, has for each storage the first transaction that it has received as a copy, without the
        times of commits. ``trim_point`` is the first transaction that is not trimmed.
        """
        storages = frozenset(replicas)
        assigned = frozenset(ReplicaId(partition_id, storage) for storage in storages)
        self.partition_id = partition_id
        self.session_id = metadata.session_id
        self.generation = metadata.generation
        self.storages = storages
        """The connect strings of the storages whose quorum the session needs."""
        self.machine = RecoveryMachine(metadata, version, assigned, floor)
        self.connections = connections
        self.options = options
        self.untimed = {} if untimed is None else untimed
        self.trim_point = trim_point
        """The first transaction that is not trimmed."""
        self._timings = options.timings
        self.watched = False
        """Whether the owner wants to hear of every acknowledgement."""
        self.ended: SessionEndedError | None = None
        """The reason why the session has ended; ``None`` before its end."""
        self._floor = floor
        self._told_below_floor: int | None = None
        self._opening_is_late = False
        self._assigned = assigned
        self._quorum = quorum_of(len(assigned))
        self._node = node
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.ring: BatchRing | None = None
        """The batches; ``None`` before the session has opened and after its end."""
        self._ring: BatchRing | None = None
        self._high_water_mark: int | None = None
        self._low_water_mark = NO_TRANSACTION
        self._replicas = {
            replica_id: Replica(self, replica_id, promised.get(replica_id.connect_string, NO_TRANSACTION))
            for replica_id in self.machine.members
        }
        self._members = [self._replicas[replica_id] for replica_id in sorted(assigned)]
        self._reader = ReplicaReader(self, self._members)
        self._times = CommitTimes(self, self._members)
        self._writes: asyncio.Queue[WriteMetadata] = asyncio.Queue()
        self._tasks: dict[ReplicaId | None, asyncio.Task[None]] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._stall_timer = ProgressTimer(self._check_stall, options.stall_timeout_s / 4)
        self._last_commit_s = 0.0
        self._dismissed: set[asyncio.Task[None]] = set()
        self._confirmed_s = 0.0
        self._unconfirmed_s = -1.0
        self._looked_at = False
        self._confirmation: asyncio.Task[None] | None = None

    # State

    @property
    def high_water_mark(self) -> int:
        """The last committed transaction known to this session."""
        if self._high_water_mark is not None:
            return self._high_water_mark
        decided = self.machine.high_water_mark
        return NO_TRANSACTION if decided is None else decided

    @property
    def mark_of_all(self) -> int:
        """The last committed transaction that every assigned replica has made durable, with all before it."""
        return min(self.high_water_mark, min(replica.acked for replica in self._members))

    @property
    def marks(self) -> list[int]:
        """What each assigned replica has made durable in this session, with all before it; descending."""
        return sorted((replica.acked for replica in self._members), reverse=True)

    @property
    def missing_storages(self) -> list[str]:
        """The assigned storages that are known to be away."""
        return [replica.storage for replica in self._members if replica.missing]

    @property
    def low_water_mark(self) -> int:
        """The mark with which the session opened."""
        return self._low_water_mark

    @property
    def trim_bound(self) -> int:
        """The transaction before which the storages may remove everything: what is trimmed, and was certainly committed
        when the session opened."""
        return min(self.trim_point, self._low_water_mark + 1)

    @property
    def undecided_bytes(self) -> int:
        """Bytes of the batches that are not committed yet."""
        return 0 if self._ring is None else self._ring.undecided_bytes

    @property
    def undecided_batches(self) -> int:
        """Number of batches that are not committed yet."""
        return 0 if self._ring is None else self._ring.undecided_count

    @property
    def replica_views(self) -> tuple[ReplicaView, ...]:
        """The view of every assigned replica, in the order of the storages' names."""
        return tuple(replica.view for replica in self._members)

    @property
    def trouble(self) -> str | None:
        """The obstacle of a session that takes long to open; immediately if the obstacle is rule S10."""
        mark = self.machine.below_floor
        if self.ended is not None or self._high_water_mark is not None:
            return None
        if mark is None:
            return self._waits_for() if self._opening_is_late else None
        away = [replica.storage for replica in self._replicas.values() if self.machine.mark(replica.replica_id) is None]
        return (
            f"session {self.session_id} waits: the storages that answer prove committed transactions up to {mark}, and"
            f" clients have been told of {self._floor}. Bring back a storage that holds them"
            + (f" (not heard: {', '.join(away)})" if away else "")
            + "; or restart this server, which gives up what is lost"
        )

    def _waits_for(self) -> str:
        return f"recovery of session {self.session_id} is waiting: {self.machine.describe()}"

    def promised(self) -> dict[str, int]:
        """The highest committed id that each storage is known to have made durable."""
        mark = self.high_water_mark
        return {replica.storage: min(replica.promised, mark) for replica in self._replicas.values()}

    def undecided(self) -> list[Append]:
        """The uncommitted appends that were given to replicas, in order."""
        return [] if self._ring is None else self._ring.undecided()

    # Life

    async def open(self) -> int:
        """Recover. Returns the high-water mark from which the session continues. Raises :class:`SessionEndedError`."""
        self._spawn(None, self._write_metadata())
        for replica_id, replica in self._replicas.items():
            self._spawn(replica_id, replica.run())
        while self._high_water_mark is None:
            self._raise_if_ended()
            if not await self._wait_change(OPENING_REPORT_INTERVAL_S):
                self._opening_is_late = True
                logger.warning("partition %d: %s", self.partition_id, self._waits_for())
        self._raise_if_ended()
        return self._high_water_mark

    async def close(self) -> None:
        """Stop all work; idempotent. Undecided appends remain in :meth:`undecided`."""
        self.end(SessionEndedError("the session was closed"), tell=False)
        tasks = list(self._tasks.values())
        if self._confirmation is not None:
            tasks.append(self._confirmation)
        for task in tasks:
            self._dismiss(task)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._times.close()

    def end(self, error: SessionEndedError, *, tell: bool = True) -> None:
        """End the session: it makes no further commits."""
        if self.ended is not None:
            return
        self.ended = error
        self.ring = None
        self._stall_timer.stop()
        self._notify()
        if tell:
            logger.warning("partition %d: session %d ends: %s", self.partition_id, self.session_id, error)
            self._owner.session_over()

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until all given appends are committed. Returns false if the session or the time has ended before.

        Without ``timeout_s`` the wait lasts as long as there is progress. A session without progress ends.
        """
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        while self.ended is None and self.undecided_batches:
            if not await self._wait_change(None if deadline_s is None else deadline_s - self._loop.time()):
                break
        return self.ended is None and not self.undecided_batches

    # Writing

    def append(self, payload: bytes, appends: Sequence[Append]) -> None:
        """Hand a batch of the next ids to all replicas."""
        ring = self._ring
        assert ring is not None
        assert appends[0].transaction_id == ring.next_id
        if not ring.undecided_bytes:
            self._last_commit_s = self._loop.time()
        ring.add(payload, appends, self._timings.clock())
        for replica in self._members:
            replica.pump()
        if not self._stall_timer.running and self.ended is None:
            self._stall_timer.start(self.options.stall_timeout_s / 4)

    def acknowledged(self) -> None:
        """Check whether more is committed now."""
        if self.watched:
            self._loop.call_soon(self._owner.session_stored)
        ring = self.ring
        if ring is None:
            return
        members = self._members
        committed = None
        if ring.undecided_bytes:
            mark = committed_mark([replica.acked for replica in members], self._quorum)
            if self._high_water_mark is None or mark > self._high_water_mark:
                committed = ring.commit(mark)
        if committed is None and not ring.kept_bytes:
            return  # the usual case after two of three acknowledgements
        live_positions = [replica.next_id for replica in members if replica.live]
        ring.trim(min(live_positions, default=ring.next_id))
        if committed is None:
            return
        timings = self._timings
        timings.quorum.observe(timings.clock() - committed.given_s)
        self._high_water_mark = committed.appends[-1].transaction_id
        self._last_commit_s = self._confirmed_s = self._loop.time()
        if self._waiters:
            self._notify()
        self._owner.session_committed(committed, self._high_water_mark)
        if len(live_positions) < self._quorum:
            self._check_quorum()

    def replica_left(self) -> None:
        """Check whether a quorum is still possible."""
        self._check_quorum()

    def _check_quorum(self) -> None:
        ring = self._ring
        if ring is None or self.ended is not None:
            return
        positions = [replica.acked for replica in self._members]
        live = [replica.live for replica in self._members]
        if not can_reach(ring.decision_wanted, positions, live, self._quorum):
            self.end(SessionEndedError(f"{sum(live)} of {len(live)} replicas are left, {self._quorum} are needed"))

    def _check_stall(self, stood_still_s: float) -> None:
        """Give up replicas with missing acknowledgements: soon if there are no commits, later if commits continue
        without them."""
        now_s = self._loop.time()
        options = self.options
        if stood_still_s:
            self._last_commit_s += stood_still_s
            for replica in self._members:
                replica.forgive(stood_still_s)
        stalled = bool(self.undecided_batches) and now_s - self._last_commit_s > options.stall_timeout_s
        limit_s = options.stall_timeout_s if stalled else options.replica_timeout_s
        for replica in self._members:
            replica.check_progress(now_s, limit_s, needed=stalled)
        owing = self.undecided_batches or any(replica.owes for replica in self._members)
        if owing and self.ended is None:
            self._stall_timer.start(options.stall_timeout_s / 4)

    # Reading

    async def read(self, first_id: int, max_count: int, *, except_from: ReplicaId | None = None) -> list[Record]:
        """Committed records from any replica except one; at least one record. Raises :class:`ReadFailedError`."""
        if first_id > self.high_water_mark:
            raise ReadFailedError(f"transaction {first_id} is not committed")
        count = min(max_count, self.high_water_mark - first_id + 1)
        return await self._reader.records(first_id, count, except_from)

    async def read_headers(self, first_id: int, max_count: int) -> list[RecordHeader]:
        """Headers of committed records, at least one. Raises :class:`ReadFailedError`."""
        if first_id > self.high_water_mark:
            raise ReadFailedError(f"transaction {first_id} is not committed")
        return await self._reader.headers(first_id, min(max_count, self.high_water_mark - first_id + 1))

    def tell_time(self, time_ms: int) -> None:
        """Report to the storages that the high-water mark is committed now. Called about once a second."""
        if self.ring is not None:
            self._times.tell(self.high_water_mark, time_ms)

    async def time_entry(self, question: TimeQuestion, value: int, timeout_s: float) -> TimeEntry | None:
        """The best entry of the storages. Raises as :meth:`CommitTimes.entry`."""
        return await self._times.entry(question, value, timeout_s)

    async def confirm(self, timeout_s: float) -> bool:
        """Whether a quorum of the replicas still has this session, according to their answers to requests after this
        call.

        A newer session reaches a quorum before its first commit, so one of the answering replicas would know it. While
        appends are under way, the next batch is the request; otherwise the replicas are asked. The caller limits the
        total time; ``timeout_s`` is the limit without progress of the question to one replica.
        """
        if self.ring is None:
            return False
        next_id = self.ring.next_id
        while self.undecided_batches and self.high_water_mark < next_id and self.ended is None:
            await self._wait_change(None)
        return self.high_water_mark >= next_id or (self.ended is None and await self._ask_quorum(timeout_s))

    async def _ask_quorum(self, timeout_s: float) -> bool:
        questions = [self._loop.create_task(self._ask(replica, timeout_s)) for replica in self._members]
        answer_count = 0
        try:
            for answered in asyncio.as_completed(questions):
                answer_count += await answered
                if answer_count >= self._quorum:
                    break  # a slow replica costs nothing (rule S8)
        finally:
            for question in questions:
                question.cancel()
            await asyncio.gather(*questions, return_exceptions=True)
        confirmed = self.ended is None and answer_count >= self._quorum
        if confirmed:
            self._confirmed_s = self._loop.time()
        return confirmed

    @property
    def healthy(self) -> bool:
        """Whether the last commit or question has proved that the session can commit (rule L5).

        After a read of the health, :meth:`confirm_if_idle` asks again.
        """
        self._looked_at = True
        now_s = self._loop.time()
        standing_still = self.undecided_batches and now_s - self._last_commit_s > self.options.commit_limit_s
        return not standing_still and self._unconfirmed_s <= self._confirmed_s

    def confirm_if_idle(self, *, unasked: bool) -> None:
        """Ask a quorum whether the session is :attr:`healthy`, unless that was proved recently.

        Only if the health was read since the last call, or with ``unasked``.
        """
        if not (unasked or self._looked_at):
            return
        self._looked_at = False
        idle = self._loop.time() - self._confirmed_s > self.options.confirm_interval_s
        if idle and self._confirmation is None and not self.ended:
            self._confirmation = self._loop.create_task(self._find_out())
            self._confirmation.add_done_callback(self._found_out)

    async def _find_out(self) -> None:
        if not await self._ask_quorum(self.options.rpc_timeout_s):
            self._unconfirmed_s = self._loop.time()

    def _found_out(self, task: asyncio.Task[None]) -> None:
        self._confirmation = None
        if task not in self._dismissed:
            self._task_failed(task)

    async def _ask(self, replica: Replica, timeout_s: float) -> bool:
        try:
            return await replica.answers(timeout_s)
        except (WaltzError, OSError) as error:
            self.noticed(error)
            return False

    # The recovery machine

    def execute(self, effects: list[Effect]) -> None:
        """Carry out the effects of the machine."""
        for effect in effects:
            if self.ended is not None:
                return
            match effect:
                case WriteMetadata():
                    self._writes.put_nowait(effect)
                case Open(high_water_mark=mark):
                    self._opened(mark)
                case Abort(reason=reason, superseded=superseded):
                    self.end(SupersededError(reason) if superseded else SessionEndedError(reason))
                case Renew():
                    self._owner.renewal_wanted()
                case _:
                    self._replicas[effect.replica_id].deliver(effect)
        if self.machine.below_floor != self._told_below_floor:
            self._told_below_floor = self.machine.below_floor
            if self.trouble is not None:
                logger.critical("partition %d: %s", self.partition_id, self.trouble)

    def set_trim_point(self, transaction_id: int) -> None:
        """More transactions are trimmed."""
        self.trim_point = transaction_id
        for replica in self._members:
            replica.trim_soon()

    def give_up(self, reason: str) -> None:
        """End the session, so that the log tries another one."""
        self.end(SessionEndedError(reason))

    def noticed(self, error: Exception) -> bool:
        """Note that a request to a storage has failed. If the storage has seen a newer session, this session ends (rule
        S2).

        Returns whether the storage has seen a newer session.
        """
        fenced = isinstance(error, RemoteStorageError) and error.is_session_fenced
        if fenced:
            self.end(SupersededError(str(error)))
        return fenced

    def barred_replica_reachable(self, storage: str) -> None:
        """Begin another session for the sake of this replica, unless other replicas would lose their progress."""
        if self._ring is None:
            if not self.machine.copying:
                self.end(SessionEndedError("a replica that this recovery had to leave out can be reached again"))
        elif not self.machine.joining and 1 + sum(replica.live for replica in self._members) >= self._quorum:
            self._owner.readmission_wanted(storage)

    def replica_joined(self, storage: str) -> None:
        self._owner.replica_joined(storage)

    async def wait_committed(self, transaction_id: int) -> None:
        """Wait for the commit by the other replicas. If commits need the waiting replica, the session ends."""
        while self.high_water_mark < transaction_id and self.ended is None:
            known = self.high_water_mark
            moved = await self._wait_change(self.options.stall_timeout_s) or known != self.high_water_mark
            # A replica with missing acknowledgements makes progress, or the check for stalls gives it up.
            if not moved and not any(replica.owes for replica in self._members):
                self.end(
                    SessionEndedError(f"transaction {transaction_id} is not committed without a returning replica")
                )

    def _opened(self, mark: int) -> None:
        self.ring = self._ring = BatchRing(mark + 1, self.options.ring_size_bytes)
        self._high_water_mark = self._low_water_mark = mark
        for replica_id, task in list(self._tasks.items()):
            if replica_id is not None and replica_id not in self._assigned:
                # A removed replica was a witness of the previous session, and its evidence has been used.
                self._dismiss(task)
        self._confirmed_s = self._loop.time()
        for replica in self._members:
            replica.pump()
        self._check_quorum()
        self._notify()

    async def _write_metadata(self) -> None:
        options = self.options
        backoff = Backoff(options.initial_retry_interval_s, options.max_retry_interval_s, options.random_source)
        while True:
            effect = await self._writes.get()
            try:
                version = await self._node.write(effect.metadata, effect.version)
            except ZooKeeperError as error:
                logger.warning("partition %d: writing the metadata failed: %s", self.partition_id, error)
                metadata, version = await self._read_metadata(backoff)
                self.execute(self.machine.metadata_read(metadata, version))
            else:
                backoff.reset()
                self.execute(self.machine.metadata_written(version))

    async def _read_metadata(self, backoff: Backoff) -> tuple[PartitionMetadata, int]:
        """Read the metadata until a read succeeds: without the metadata the session can neither continue nor end."""
        while True:
            try:
                return await self._node.read()
            except NoNodeError as error:
                self.end(SessionEndedError(f"the partition's metadata are missing: {error}"))
            except (ZooKeeperError, ProtocolError) as error:
                logger.warning("partition %d: reading the metadata failed: %s", self.partition_id, error)
            await asyncio.sleep(backoff.next_delay_s())

    # Helpers

    def _spawn(self, key: ReplicaId | None, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[key] = task
        task.add_done_callback(self._task_done)

    def _dismiss(self, task: asyncio.Task[None]) -> None:
        self._dismissed.add(task)
        task.cancel()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        """End the session after the end of one of its tasks. No task may end by itself (rule L6)."""
        if not self._task_failed(task) and task not in self._dismissed:
            logger.error("partition %d: a task of the store session has ended", self.partition_id)
            self.end(SessionEndedError("defect: a task has ended"))

    def _task_failed(self, task: asyncio.Task[None]) -> bool:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return False
        logger.error("partition %d: a task of the store session failed", self.partition_id, exc_info=error)
        self.end(SessionEndedError(f"defect: {error!r}"))
        return True

    def _raise_if_ended(self) -> None:
        if self.ended is not None:
            raise self.ended

    async def _wait_change(self, timeout_s: float | None) -> bool:
        """Wait until the mark moves, or the session opens or ends. Returns false after the time."""
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(None if timeout_s is None else max(timeout_s, 0)):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    def _notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
