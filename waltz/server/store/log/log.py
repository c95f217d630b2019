"""The replicated log behind one partition.

:class:`ReplicatedLog` keeps a store session open, for ever and with back-off. It hides changes of sessions from its
user as far as that is safe: an append is reported as committed or failed only when that is certain (rule S5), and stays
undecided until then. Sessions are renewed at checkpoints, after a change of the replica set, and for a replica that the
present session must leave out. After a change of the replica set, the renewal waits for answers of a quorum of the new
set; until then the partition stays with the former set (rule L7). A renewal waits until everything in flight is
committed. Appends that arrive meanwhile are kept. The next session writes them under their ids, if it continues exactly
at the end of the last session. The states are in :mod:`waltz.server.store.log.log_states`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.backoff import Backoff
from waltz.common.records import Record, RecordHeader
from waltz.common.replica_states import ReplicaStatus
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.server.store.connections import StorageConnections
from waltz.server.store.interface import (
    Append,
    LogClosedError,
    LogListener,
    SessionEndedError,
    StoreOptions,
    TimeEntry,
    TrimmedReadError,
    encode_appends,
)
from waltz.server.store.log.batching import PendingAppends
from waltz.server.store.log.log_reader import LogReader
from waltz.server.store.log.log_states import FAILING_STATES, LOG, OPEN_STATES, LogEvent, LogState
from waltz.server.store.log.pacing import Readmissions
from waltz.server.store.log.replica_change import ReplicaChange
from waltz.server.store.memory import MemoryAccount
from waltz.server.store.metadata_node import MetadataNode
from waltz.server.store.replica.replica_view import ReplicaView
from waltz.server.store.ring import Committed
from waltz.server.store.session.next_session import Begun, NextSession, unless
from waltz.server.store.session.session import StoreSession
from waltz.server.store.session.settlement import Settlement, settle

logger = logging.getLogger(__name__)

_SERVING = LogState.SERVING  # the lookup of an enum's member in its class costs a call

UNHEALTHY_AFTER_S = 10.0
"""A partition without a session for longer than this is reported as unhealthy."""

SHORT_SESSION_S = 5.0
"""After a session that failed sooner than this, the pause before the next session grows."""


class ReplicatedLog:
    """The log of one partition, kept open for its owner. All methods belong to the loop."""

    # Without slots, an object with this number of attributes has a hash table of its own: a thousand of them miss the
    # caches.
    __slots__ = (
        "_awaited_id",
        "_awaits_some",
        "_change",
        "_checkpoint_id",
        "_congestion_seen",
        "_connections",
        "_flush_scheduled",
        "_generation",
        "_give_up_timer",
        "_given_back",
        "_high_water_mark",
        "_listener",
        "_loop",
        "_next_id",
        "_next_session",
        "_node",
        "_opened_generation",
        "_opening",
        "_options",
        "_pending",
        "_promised",
        "_reader",
        "_readmissions",
        "_renewal_timer",
        "_renewal_wanted",
        "_replicas",
        "_ring_memory",
        "_session",
        "_state",
        "_successors",
        "_task",
        "_told_id",
        "_unresolved",
        "_untimed",
        "_wake",
        "_without_session_since_s",
        "first_available",
        "partition_id",
    )

    def __init__(
        self,
        partition_id: int,
        generation: int,
        replicas: frozenset[str],
        connections: StorageConnections,
        zookeeper: ZooKeeper,
        root: str,
        listener: LogListener,
        options: StoreOptions,
        ring_memory: MemoryAccount | None = None,
    ) -> None:
        """``replicas`` are the connect strings of the assigned storages, ``root`` is the cluster root.

        ``ring_memory`` limits the batches that are kept for lagging replicas, in addition to
        ``options.ring_size_bytes``.
        """
        self.partition_id = partition_id
        self.first_available = 0
        """The trim point: the first transaction that is not trimmed."""
        self._generation = generation
        self._replicas = replicas
        self._connections = connections
        self._node = MetadataNode(zookeeper, ClusterPaths(root).partition(partition_id))
        self._listener = listener
        self._options = options
        self._ring_memory = ring_memory
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._session: StoreSession | None = None
        self._opening: StoreSession | None = None
        self._state = LogState.SEEKING
        self._wake = asyncio.Event()
        self._renewal_wanted = False
        self._without_session_since_s = self._loop.time()
        self._give_up_timer: asyncio.TimerHandle | None = None
        self._renewal_timer: asyncio.TimerHandle | None = None
        self._change = ReplicaChange(partition_id, connections, options)
        self._successors: frozenset[str] | None = None
        """The storages of the session for whose sake the last session was given up in order."""
        self._next_session = NextSession(self._node, self._wake, options.rpc_timeout_s)
        self._opened_generation = -1
        self._checkpoint_id = 0
        """The session is renewed when this transaction is committed."""
        self._high_water_mark: int | None = None
        self._promised: dict[str, int] = {}
        """For each storage, the last committed transaction that it has reported as durable."""
        self._untimed: dict[str, int] = {}
        """For each storage, the first transaction that it has received as a copy, without the times of commits."""
        self._next_id = 0
        self._pending = PendingAppends(options.max_batch_size)
        self._flush_scheduled = False
        self._congestion_seen = False
        self._given_back = False
        self._readmissions = Readmissions(options.readmission_interval_s)
        self._awaited_id = NO_TRANSACTION
        """The listener wants to know when all storages have this."""
        self._awaits_some = False
        self._told_id: int | None = None
        """What all storages have, as the listener was told last."""
        self._unresolved: list[Append] = []
        self._reader = LogReader(partition_id, options, lambda: self._high_water_mark)

    # State

    @property
    def open(self) -> bool:
        """Whether appends are accepted: between ``session_opened`` and ``session_ended``, in the present generation."""
        return self._state in OPEN_STATES and self._opened_generation == self._generation

    @property
    def generation(self) -> int:
        """The generation under which this server owns the partition."""
        return self._generation

    @property
    def opened_generation(self) -> int:
        """The generation of the last opened session; -1 before the first session.

        No server can open a session of an older generation any more, so all appends of older owners are decided.
        """
        return self._opened_generation

    @property
    def replicas(self) -> frozenset[str]:
        """Connect strings of the assigned storages."""
        return self._replicas

    @property
    def session_id(self) -> int | None:
        """The running store session; ``None`` without one."""
        return None if self._session is None else self._session.session_id

    @property
    def high_water_mark(self) -> int | None:
        """The highest committed id that is known; ``None`` before the first session has opened."""
        return self._high_water_mark

    @property
    def healthy(self) -> bool:
        """Whether a session runs and has recently proved that it can commit, or will probably run within seconds."""
        if self._task is None or self._task.done():
            return False
        if self._session is not None:
            return self._session.healthy
        return (
            self._state not in FAILING_STATES and self._loop.time() - self._without_session_since_s < UNHEALTHY_AFTER_S
        )

    @property
    def trouble(self) -> str | None:
        """The obstacle of an overdue session, or the reason why the assigned storages have not taken over from the
        present storages; one line."""
        opening = None if self._opening is None else self._opening.trouble
        return opening or self._change.objection

    def confirm_if_idle(self, *, unasked: bool) -> None:
        """Make the running session find out whether it is :attr:`healthy`, unless a recent commit proves that.

        Only if the health was read since the last call, or with ``unasked``.
        """
        if self._session is not None:
            self._session.confirm_if_idle(unasked=unasked)

    def tell_time(self, time_ms: int) -> None:
        """Report to the storages the transaction up to which all are committed now."""
        if self._session is not None:
            self._session.tell_time(time_ms)

    @property
    def replica_views(self) -> tuple[ReplicaView, ...]:
        """The view of the running or opening session on every assigned replica, in the order of their names."""
        session = self._session or self._opening
        known = {} if session is None else {view.storage: view for view in session.replica_views}
        return tuple(
            known.get(storage) or ReplicaView(storage, ReplicaStatus.AWAY, None) for storage in sorted(self._replicas)
        )

    @property
    def missing_storages(self) -> list[str]:
        """Assigned storages that are known to be away."""
        return [] if self._session is None else self._session.missing_storages

    @property
    def takes_more(self) -> bool:
        """Whether appends are accepted now. While too many bytes are undecided, an open log accepts none until the call
        of ``drained``."""
        session = self._session
        if self._state not in OPEN_STATES or self._opened_generation != self._generation:
            return False
        load_bytes = self._pending.size_bytes + (0 if session is None else session.undecided_bytes)
        if load_bytes < self._options.ring_size_bytes:
            return True
        self._congestion_seen = True
        return False

    # Control

    def start(self) -> None:
        """Begin to open sessions."""
        assert self._task is None
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._run_done)

    def set_generation(self, generation: int) -> None:
        """Take over a new assignment. A session of an older generation ends immediately (hazard H1)."""
        if generation > self._generation:
            self._generation = generation
            if self._session is None:
                self._end_visibly()  # a renewal was under way
            elif self._state is LogState.DRAINING:
                self._session.end(SessionEndedError(f"generation {generation} has begun"), tell=False)
            self._assignment_changed()

    def set_replicas(self, replicas: frozenset[str]) -> None:
        """Take over another set of storages for the partition.

        After a change the session is renewed as soon as a quorum of the new storages answers.
        """
        if replicas != self._replicas:
            self._replicas = replicas
            self._watch_all()
            self._readmissions.keep(replicas)
            self._change.reset()
            self._assignment_changed()

    def set_trim_point(self, transaction_id: int) -> None:
        """Take over another trim point: the storages may remove what is before it, as far as it is certainly committed.

        A lower one than before has no effect: nothing that was trimmed comes back.
        """
        self.first_available = max(self.first_available, transaction_id)
        for session in (self._opening, self._session):
            if session is not None:
                session.set_trim_point(self.first_available)

    async def close(self) -> None:
        """Stop. Appends in flight have the stall time-out to be committed. Undecided appends are never reported."""
        session = self._session
        if session is not None:
            self._flush()
            self._enter(LogEvent.RENEWED)
            await session.drain(self._options.stall_timeout_s)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._lose_session()
        self._end_visibly()

    def _assignment_changed(self) -> None:
        self._wake.set()
        if self._opening is not None:
            self._opening.end(SessionEndedError("the assignment has changed"), tell=False)

    # Sessions

    def _enter(self, event: LogEvent) -> None:
        self._state = LOG.after(self._state, event)

    async def _run(self) -> None:
        """Run one session after the other, for ever (rule L6)."""
        options = self._options
        backoff = Backoff(options.initial_retry_interval_s, options.max_retry_interval_s, options.random_source)
        while True:
            try:
                await self._have_session(backoff)
            except Exception:
                logger.critical("partition %d: a defect has ended the store session", self.partition_id, exc_info=True)
                self._enter(LogEvent.FAILED)
                self._end_visibly()
                await self._pause(backoff.next_delay_s())

    async def _have_session(self, backoff: Backoff) -> None:
        try:
            session, settlement = await self._open_session()
        except (WaltzError, OSError) as error:
            self._enter(LogEvent.FAILED)
            logger.warning("partition %d: no store session could be opened: %s", self.partition_id, error)
            await self._pause(backoff.next_delay_s())
            return
        opened_s = self._loop.time()
        in_order = False
        try:
            self._adopt(session, settlement)
            in_order = await self._tend(session)
        finally:
            # Appends that could not be settled stay undecided; the session has not taken any appends yet.
            if not in_order and not self._unresolved:
                self._keep_unresolved(session)
            self._lose_session()
            await session.close()
        if in_order or self._loop.time() - opened_s > SHORT_SESSION_S:
            backoff.reset()
        else:
            await self._pause(backoff.next_delay_s())

    def _run_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("partition %d: the log has stopped by a defect", self.partition_id, exc_info=error)

    async def _open_session(self) -> tuple[StoreSession, Settlement]:
        """Begin a session, recover, and settle undecided appends."""
        self._wake.clear()
        self._renewal_wanted = False
        successors, self._successors = self._successors, None
        if not (successors or self._replicas):
            raise SessionEndedError("no storage is assigned to the partition")
        begun = await self._next_session.take(self._generation)
        replicas = successors or await self._choose_replicas(begun)
        session = StoreSession(
            self.partition_id,
            begun.metadata,
            begun.version,
            replicas,
            node=self._node,
            connections=self._connections,
            owner=self,
            options=self._options,
            floor=NO_TRANSACTION if self._high_water_mark is None else self._high_water_mark,
            promised=self._promised,
            untimed=self._untimed,
            trim_point=self.first_available,
        )
        self._opening = session
        try:
            if self._wake.is_set():
                raise SessionEndedError("the assignment has changed")
            async with self._change.reconsidered(session.session_id, begun.listed, replicas, session.give_up):
                await session.open()
            settlement = await settle(session, self._unresolved)
            if session.ended is not None:
                raise session.ended
        except BaseException:
            await session.close()
            raise
        finally:
            self._opening = None
        return session, settlement

    async def _choose_replicas(self, begun: Begun) -> frozenset[str]:
        if not begun.listed or begun.listed == self._replicas:
            return self._replicas
        choosing = self._change.choose(begun.metadata.session_id, begun.listed, self._replicas)
        return await unless(lambda: True, self._wake, choosing)

    def _adopt(self, session: StoreSession, settlement: Settlement) -> None:
        """Continue with an opened session. Its metadata are written, so its decisions are final (S5)."""
        mark, known_mark = session.high_water_mark, self._high_water_mark
        unbroken = self._next_session.continuity.session_opened()
        if self._state in OPEN_STATES and (mark != known_mark or not unbroken):
            # Another owner may have reported an end of the log to its clients, which must stay true.
            self._end_visibly()
        continued = self._state in OPEN_STATES
        self._enter(LogEvent.CONTINUED if continued else LogEvent.RECOVERED)
        self._cancel_give_up_timer()
        self._session = session
        if session.storages == self._replicas:
            self._change.reset()
        self._opened_generation = session.generation
        self._checkpoint_id = session.low_water_mark + self._options.checkpoint_interval
        self._reader.follow(session)
        self._count_ring(self._ring_memory)
        if continued:
            self._listener.session_begun(session.session_id, unbroken, mark)
            self._watch_all()
            self._flush()
            return
        changed = mark != known_mark or self._given_back or bool(self._unresolved)
        self._given_back = False
        if settlement.committed:
            self._high_water_mark = settlement.committed[-1].transaction_id
            self._listener.batch_committed(settlement.committed, [encode_appends(settlement.committed)])
        self._unresolved = list(settlement.failed)
        if settlement.failed:
            self._listener.failed(settlement.failed)
        self._unresolved = []
        self._high_water_mark = mark
        self._next_id = mark + 1
        self._enter(LogEvent.SETTLED)
        self._listener.session_begun(session.session_id, unbroken, mark)
        self._listener.session_opened(mark, changed)
        self._watch_all()

    async def _tend(self, session: StoreSession) -> bool:
        """Serve the session to its end. Returns whether it was given up on purpose; then the next session begins
        immediately."""
        options = self._options
        backoff = Backoff(options.initial_retry_interval_s, options.max_retry_interval_s, options.random_source)
        if session.storages != self._replicas:
            self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if session.generation != self._generation:
                session.end(SessionEndedError(f"generation {self._generation} has begun"), tell=False)
            elif (successors := await self._find_successors(session)) is not None:
                if not await self._next_session.take_ahead(session, lambda: self._has_to_end(session)):
                    self._try_renewal_later(backoff.next_delay_s())
                elif await self._give_up_in_order(session):
                    self._successors = successors
                    return True
            if session.ended is not None:
                self._keep_unresolved(session)
                self._lose_session()
                self._end_visibly()
                return session.generation != self._generation

    async def _find_successors(self, session: StoreSession) -> frozenset[str] | None:
        """The storages of the session that should follow now; ``None`` while the present session should continue."""
        assigned, present = self._replicas, session.storages
        if session.ended is None and assigned != present:
            try:
                answers = await unless(
                    lambda: self._has_to_end(session),
                    self._wake,
                    self._change.can_take_over(session.session_id, present, assigned),
                )
            except SessionEndedError:
                return None
            for storage in present & answers.errors.keys():
                session.noticed(answers.errors[storage])
            if assigned != self._replicas:
                self._wake.set()
                return None
            if answers.enough:
                return assigned
            self._try_renewal_later(self._change.pause_s)
        return present if self._renewal_wanted and session.ended is None else None

    def _has_to_end(self, session: StoreSession) -> bool:
        return session.ended is not None or session.generation != self._generation

    def _try_renewal_later(self, delay_s: float) -> None:
        self._cancel_renewal_timer()
        self._renewal_timer = self._loop.call_later(delay_s, self._wake.set)

    async def _give_up_in_order(self, session: StoreSession) -> bool:
        """Wait until everything in flight is committed, so that a new session can continue from there. Returns false
        after a failure."""
        if session.ended is not None:
            return False
        logger.info("partition %d: session %d is renewed", self.partition_id, session.session_id)
        self._enter(LogEvent.RENEWED)
        if await session.drain() and session.generation == self._generation:
            self._lose_session()
            self._give_up_timer = self._loop.call_later(self._options.stall_timeout_s, self._end_visibly)
            return True
        session.end(SessionEndedError("appends stood still during a renewal"), tell=False)
        return False

    def _cancel_renewal_timer(self) -> None:
        if self._renewal_timer is not None:
            self._renewal_timer.cancel()
            self._renewal_timer = None

    def _lose_session(self) -> None:
        self._cancel_renewal_timer()
        if self._session is not None:
            self._enter(LogEvent.LOST)
            self._count_ring(None)
            self._promised |= self._session.promised()
            self._session = None
            self._reader.follow(None)
            self._without_session_since_s = self._loop.time()

    def _end_visibly(self) -> None:
        """Tell the listener that provisional ids are void, and give back the appends that were sent to no replica."""
        self._cancel_give_up_timer()
        if self._state not in OPEN_STATES:
            return
        self._enter(LogEvent.VOIDED)
        unwritten = self._pending.take_all()
        self._given_back = bool(unwritten)
        self._listener.session_ended(unwritten)
        self._tell_drained()

    def _cancel_give_up_timer(self) -> None:
        if self._give_up_timer is not None:
            self._give_up_timer.cancel()
            self._give_up_timer = None

    async def _pause(self, delay_s: float) -> None:
        """Wait for a time, or until the assignment changes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._wake.wait()

    # What all storages have

    def await_all(self, transaction_id: int) -> None:
        """Call the listener's ``stored_by_all`` now and, until all storages have the transaction, at each change.

        While the assigned storages are others than those of the session, it is not called: nobody asks them all.
        """
        self._awaited_id = max(self._awaited_id, transaction_id)
        self._told_id = None
        self.session_stored()

    def await_some(self, wanted: bool) -> None:
        """Call the listener's ``stored_by_some`` at each acknowledgement, or cease to."""
        self._awaits_some = wanted
        if wanted and self._session is not None:
            self._session.watched = True

    def _watch_all(self) -> None:
        """There is another session or member of it, or the assigned storages are others."""
        if self._awaited_id > NO_TRANSACTION or self._awaits_some:
            self.session_stored()

    @property
    def _is_awaited_known(self) -> bool:
        """Whether the listener knows already that all storages have what was awaited."""
        return self._told_id is not None and self._told_id >= self._awaited_id

    def session_stored(self) -> None:
        session = self._session
        if session is None:
            return
        if self._awaits_some:
            self._listener.stored_by_some(session.marks)
        session.watched = self._awaits_some
        if session.storages != self._replicas or self._is_awaited_known:
            return
        mark = session.mark_of_all
        session.watched = mark < self._awaited_id or self._awaits_some
        if mark == self._told_id:
            return
        self._told_id = mark
        self._listener.stored_by_all(mark, len(session.storages))

    def _count_ring(self, memory: MemoryAccount | None) -> None:
        """Make the ring of the session report its bytes to ``memory``; ``None``: to no account."""
        ring = None if self._session is None else self._session.ring
        if ring is not None:
            ring.memory = memory
        if memory is None and self._ring_memory is not None:
            self._ring_memory.set(0)

    # Calls of the session

    def session_committed(self, committed: Committed, high_water_mark: int) -> None:
        self._high_water_mark = high_water_mark
        self._listener.batch_committed(committed.appends, committed.records)
        if self._pending.size_bytes:
            self._flush()
        session = self._session
        if session is not None and high_water_mark >= self._checkpoint_id:
            self.renewal_wanted()
        if self._congestion_seen:
            self._tell_drained()

    def session_over(self) -> None:
        if self._session is not None:  # a session that fails during its opening raises an exception instead
            self._wake.set()

    def renew(self) -> None:
        """Begin another store session soon. The running session ends in order. ``session_begun`` reports the new
        session."""
        if self._session is not None and self._state is _SERVING:
            self.renewal_wanted()

    def renewal_wanted(self) -> None:
        if not self._renewal_wanted:
            self._renewal_wanted = True
            self._wake.set()

    def readmission_wanted(self, storage: str) -> None:
        if not self._renewal_wanted and self._readmissions.admit(storage, self._loop.time()):
            logger.info("partition %d: the session is renewed to let storage %s in", self.partition_id, storage)
            self.renewal_wanted()

    def replica_joined(self, storage: str) -> None:
        self._readmissions.joined(storage)
        self._watch_all()

    def _tell_drained(self) -> None:
        if self._congestion_seen and self._load_bytes() < self._options.ring_size_bytes / 2:
            self._congestion_seen = False
            self._listener.drained()

    # Appending

    def append(self, appends: Sequence[Append]) -> None:
        """Write the appends under their provisional ids, which continue the ids of the last appends.

        Raises :class:`LogClosedError` without an open session; then no append was taken.
        """
        if self._state not in OPEN_STATES:
            raise LogClosedError(f"partition {self.partition_id}: no store session is open")
        first_id, self._next_id = self._next_id, self._next_id + len(appends)
        assert appends[0].transaction_id == first_id, "ids are dense"
        assert appends[-1].transaction_id == self._next_id - 1, "ids are dense"
        self._pending.add(appends)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._connections.outbox.prepare(self._flush)

    def _flush(self) -> None:
        """Send all appends accepted since the last send, in as few batches as possible."""
        self._flush_scheduled = False
        session, options, pending = self._session, self._options, self._pending
        if session is None or self._state is not _SERVING:
            return
        while pending.size_bytes and (ring := session.ring) and ring.undecided_bytes < options.ring_size_bytes:
            # While several batches are under way, the wait for a full batch costs no time, because the storages are
            # busy.
            if ring.undecided_count >= options.batches_in_flight and len(pending) < options.max_batch_size:
                return
            appends = pending.take_batch()
            session.append(encode_appends(appends), appends)

    def _keep_unresolved(self, session: StoreSession) -> None:
        self._unresolved = session.undecided()

    def _load_bytes(self) -> int:
        return self._pending.size_bytes + (0 if self._session is None else self._session.undecided_bytes)

    # Reading

    async def read(self, first_id: int, max_count: int, max_bytes: int, timeout_s: float) -> list[Record]:
        """Committed records; see :meth:`LogReader.read`. Raises ``TrimmedReadError``, too."""
        self._check_available(first_id)
        return await self._reader.read(first_id, max_count, max_bytes, timeout_s)

    async def read_headers(self, first_id: int, max_count: int, timeout_s: float) -> list[RecordHeader]:
        """Headers of committed records; see :meth:`LogReader.read_headers`. Raises ``TrimmedReadError``, too."""
        self._check_available(first_id)
        return await self._reader.read_headers(first_id, max_count, timeout_s)

    def _check_available(self, first_id: int) -> None:
        if 0 <= first_id < self.first_available:
            raise TrimmedReadError(f"transaction {first_id} is trimmed; the first one is {self.first_available}")

    async def confirmed_mark(self, timeout_s: float) -> int | None:
        """A value of :attr:`high_water_mark` that was certainly the mark of the log; see
        :meth:`LogReader.confirmed_mark`."""
        return await self._reader.confirmed_mark(timeout_s)

    async def time_entry(self, question: TimeQuestion, value: int, timeout_s: float) -> TimeEntry | None:
        """An entry of the storages about the times of commits; see :meth:`LogReader.time_entry`."""
        return await self._reader.time_entry(question, value, timeout_s)
