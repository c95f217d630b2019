"""One replica in one store session: connects, recovers, then follows the batches of the session. The I/O of the
machine.

A replica repeats a cycle: it connects with back-off, the recovery machine brings it up to date, and it serves until a
failure. While it serves, it gets batches directly from the ring, within a window of bytes; this path has no task and no
future. If the next batch is no longer in the ring, the replica leaves the window, copies committed records from the
other replicas, and continues at a batch that is still in the ring (rule S8).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial

from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.backoff import Backoff
from waltz.common.records import Record, encode_records
from waltz.common.replica_states import ReplicaStatus
from waltz.common.zk.znodes import ReplicaId
from waltz.server.store.connections import Lane, StorageRpc
from waltz.server.store.interface import ReadFailedError, TimeEntry
from waltz.server.store.recovery.recovery_effects import (
    Compare,
    Copy,
    GetMaximum,
    Join,
    Refuse,
    ReplicaEffect,
    SetLowWaterMark,
    Truncate,
)
from waltz.server.store.replica.copying import ReadAhead
from waltz.server.store.replica.replica_session import ReplicaSession
from waltz.server.store.replica.replica_stages import LIVE_STAGES, REPLICA, WRITTEN_STAGES, Stage, StageEvent
from waltz.server.store.replica.replica_view import ReplicaView
from waltz.storage.remote.errors import RemoteStorageError

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT_REQUESTS = 64
"""The largest number of appends in flight to one replica of a partition, in addition to the limit in bytes. A storage
of the original stops reading a connection, which all partitions share, while 100 requests of one partition wait for its
disk; then even questions that need no disk stay unanswered. The rest of the 100 is for recoveries and reads."""

_SERVING, _LAGGING = Stage.SERVING, Stage.LAGGING  # the lookup of an enum's member in its class costs a call

STABLE_AFTER_S = 10.0
"""After this time of service a replica starts with the shortest back-off again."""


class ReplicaRefusedError(WaltzError):
    """The recovery machine does not admit the storage. The text is for the operator."""


class ReplicaStalledError(WaltzError):
    """The replica has left appends unanswered for too long."""


class Replica:
    """The I/O of one replica. All methods belong to the event loop; :meth:`run` is a task of the session."""

    # Without slots, an object with this number of attributes has a hash table of its own: a thousand of them miss the
    # caches.
    __slots__ = (
        "_acknowledgement",
        "_backoff",
        "_change_unanswered",
        "_client",
        "_clock",
        "_copies",
        "_copy_failing_since_s",
        "_copy_written",
        "_end_watch",
        "_failure",
        "_in_flight_bytes",
        "_in_flight_count",
        "_last_failure",
        "_last_progress_s",
        "_life",
        "_loop",
        "_mailbox",
        "_promised",
        "_refused",
        "_sent_position",
        "_serving_since_s",
        "_session",
        "_stage",
        "_told",
        "_trimmed",
        "_wake",
        "_watched_bytes",
        "_watched_position",
        "_window_size_bytes",
        "acked",
        "live",
        "next_id",
        "replica_id",
        "storage",
    )

    def __init__(self, session: ReplicaSession, replica_id: ReplicaId, promised: int = NO_TRANSACTION) -> None:
        """``promised`` is the highest id that the replica has made durable in earlier sessions, as far as is known."""
        self.replica_id = replica_id
        self.storage = replica_id.connect_string
        self.acked = NO_TRANSACTION
        """The highest id that the replica has made durable according to its acknowledgements in this session."""
        self.next_id = 0
        """The id of the next record to be sent; has a meaning while the replica is live."""
        self.live = False
        """The replica has joined and not failed since, so its votes can be expected."""
        self._promised = promised
        self._session = session
        self._loop = asyncio.get_running_loop()
        options = session.options
        self._backoff = Backoff(options.initial_retry_interval_s, options.max_retry_interval_s, options.random_source)
        self._client: StorageRpc | None = None
        self._end_watch: Callable[[], None] | None = None
        self._mailbox: asyncio.Queue[ReplicaEffect | None] = asyncio.Queue()
        self._wake = asyncio.Event()
        self._stage = Stage.AWAY
        self._failure: Exception | None = None
        """The reason why the replica was given up."""
        self._life = 0
        """The number of connections so far. An answer to a request of an earlier connection is true, so its
        acknowledgement counts. But it proves nothing about the present connection, which has its own window and
        failures."""
        self._window_size_bytes = options.window_size_bytes
        self._in_flight_bytes = 0
        self._in_flight_count = 0
        self._last_progress_s = 0.0
        self._sent_position = 0
        self._watched_position: int | None = None
        self._watched_bytes = 0
        self._copy_failing_since_s: float | None = None
        self._copy_written: asyncio.Future[None] | None = None
        self._change_unanswered = False
        """Whether the storage may still execute a change without an answer so far (rule S2)."""
        self._serving_since_s: float | None = None
        self._copies: ReadAhead[tuple[ReplicaId, int]] = ReadAhead(self._read_from, options.copy_size_bytes)
        self._last_failure = ""
        self._refused = False
        self._told = NO_TRANSACTION
        self._trimmed = 0
        """The transaction before which the storage was told to remove everything, over the present connection."""
        self._clock = options.timings.clock
        self._acknowledgement = options.timings.acknowledgements.of(self.storage)

    def deliver(self, effect: ReplicaEffect) -> None:
        """Take an effect of the machine for this replica. :meth:`run` carries it out."""
        if isinstance(effect, Join):
            # Immediately, so that a count of the members includes this one.
            self._enter(StageEvent.JOINED)
            self.next_id = effect.position + 1
            self.acked = max(self.acked, min(effect.position, self._session.high_water_mark))
        self._mailbox.put_nowait(effect)

    @property
    def promised(self) -> int:
        """The highest id that the storage has ever reported as durable, even if the record is lost now."""
        return max(self._promised, self.acked)

    @property
    def missing(self) -> bool:
        """Whether the storage is known to be away: it has failed in this session, and has not come back."""
        return not self.live and self._last_failure != ""

    @property
    def owes(self) -> bool:
        """Whether acknowledgements are outstanding."""
        return self._stage in WRITTEN_STAGES and self._in_flight_bytes > 0

    @property
    def view(self) -> ReplicaView:
        """The state of the replica for operators."""
        machine = self._session.machine
        if self.live:
            position: int | None = self.acked
            status = ReplicaStatus.LAGGING if self._stage is _LAGGING else ReplicaStatus.CURRENT
        else:
            position = machine.mark(self.replica_id)
            if machine.is_barred(self.replica_id):
                status = ReplicaStatus.BARRED
            elif self._refused:
                status = ReplicaStatus.REFUSED
            elif self._stage is Stage.RECOVERING:
                status = ReplicaStatus.COPYING
            else:
                status = ReplicaStatus.AWAY
        lag = None if position is None else max(self._session.high_water_mark - position, 0)
        return ReplicaView(self.storage, status, lag)

    def holds(self, transaction_id: int) -> bool:
        """Whether a committed record can be read from this replica."""
        return self.live and self.acked >= transaction_id

    def tell_committed(self, committed: TimeEntry, time_ms: int) -> None:
        """Report a time of commit to the storage, if the replica is live, for its records without a report so far.

        If the replica lacks the end of ``committed``, the report is about its last record, at ``time_ms``, the present
        time.
        """
        client = self._client
        if client is None or not self.live:
            return
        told = committed if self.acked >= committed.transaction_id else TimeEntry(self.acked, time_ms)
        if told.transaction_id > self._told:
            self._told = told.transaction_id
            client.note_committed(self._session.session_id, self._session.partition_id, *told)

    async def answers(self, timeout_s: float) -> bool:
        """Whether the storage still answers in the session; false if the replica is not live. Raises the errors of a
        request.

        The question uses the connection on which the replica has joined. Over another connection, a restarted storage
        of the original may answer that has forgotten a newer session (rule S2).
        """
        client, session = self._client, self._session
        if client is None or not self.live:
            return False
        await client.max_transaction_id(session.session_id, session.partition_id, timeout_s=timeout_s)
        return True

    async def run(self) -> None:
        """Connect, recover and serve, until cancelled or until only another session can continue."""
        while True:
            await self._one_life()
            if self._session.machine.is_barred(self.replica_id):
                await self._wait_for_another_session()
            delay_s = self._backoff.next_delay_s()
            if self._session.ring is None:
                # Nothing is written until a quorum has returned: notice that quickly.
                delay_s = min(delay_s, self._session.options.opening_retry_interval_s)
            await asyncio.sleep(delay_s)

    # One connection

    def _enter(self, event: StageEvent) -> None:
        self._stage = REPLICA.after(self._stage, event)
        self.live = self._stage in LIVE_STAGES

    async def _one_life(self) -> None:
        self._begin_life()
        try:
            await self._follow_session()
        except (WaltzError, OSError) as error:
            self._session.noticed(error)
            self._log_failure(error)
        finally:
            if self._end_watch is not None:
                self._end_watch()
                self._end_watch = None
            await self._copies.close()
        if self._serving_since_s is not None and self._loop.time() - self._serving_since_s > STABLE_AFTER_S:
            self._backoff.reset()
        self._end_life()

    async def _follow_session(self) -> None:
        """Connect, recover and serve until a failure. Raises the failure."""
        session = self._session
        client = await session.connections.client(self.storage)
        info = await client.last_session_info(
            session.session_id, session.partition_id, timeout_s=session.options.rpc_timeout_s
        )
        self._client = client
        self._enter(StageEvent.CONNECTED)
        self._end_watch = session.connections.watch(client, partial(self._connection_closed, self._life))
        session.execute(
            session.machine.replica_connected(self.replica_id, info.session_id, info.low_water_mark, self.promised)
        )
        position = await self._recover(client)
        self._refused = False
        self._serving_since_s = self._loop.time()
        if self._life > 1:
            self._log_state(f"is a member of session {session.session_id} again")
        self._last_failure = ""
        await self._begin_to_serve(position)
        await self._serve(client)

    def _begin_life(self) -> None:
        self._life += 1
        self._failure = None
        self._told = NO_TRANSACTION
        self._trimmed = 0
        self._serving_since_s = None
        self._in_flight_bytes = self._in_flight_count = 0
        self._watched_position = None
        self._copy_failing_since_s = None
        self._change_unanswered = False
        self._wake.clear()
        while not self._mailbox.empty():
            self._mailbox.get_nowait()

    def _end_life(self) -> None:
        was_live = self.live
        self._enter(StageEvent.ENDED)
        self._client = None
        effects = self._session.machine.replica_lost(self.replica_id, change_unanswered=self._change_unanswered)
        if self._change_unanswered:
            self._log_state("is left out until the next session: it may still execute what it has not answered")
        self._session.execute(effects)
        if was_live:
            self._session.replica_left()

    def _log_state(self, state: str) -> None:
        logger.info("partition %d, replica %s: %s", self._session.partition_id, self.storage, state)

    def _log_failure(self, error: Exception) -> None:
        """Log a failure once per kind, because attempts are repeated as long as it lasts."""
        text = str(error)
        self._refused = isinstance(error, ReplicaRefusedError)
        level = logging.ERROR if self._refused else logging.WARNING
        level = logging.DEBUG if text == self._last_failure else level
        self._last_failure = text
        logger.log(level, "partition %d, replica %s: %s", self._session.partition_id, self.storage, error)

    async def _wait_for_another_session(self) -> None:
        """Do not use the storage, which may still execute a request of this session. Report when it can be reached."""
        while True:
            await asyncio.sleep(self._backoff.next_delay_s())
            try:
                await self._session.connections.client(self.storage)
            except (WaltzError, OSError) as error:
                logger.info("partition %d, replica %s: %s", self._session.partition_id, self.storage, error)
            else:
                self._session.barred_replica_reachable(self.storage)

    # Recovery

    async def _recover(self, client: StorageRpc) -> int:
        """Carry out the effects of the machine until the replica has joined. Returns the id up to which it has the
        log."""
        session, machine = self._session, self._session.machine
        ids, timeout_s = (session.session_id, session.partition_id), session.options.change_timeout_s
        while True:
            effect = await self._next_effect()
            match effect:
                case Join(position=position):
                    return position
                case Refuse(reason=reason):
                    raise ReplicaRefusedError(f"the storage {reason}")
                case GetMaximum():
                    maximum = await client.max_transaction_id(*ids, timeout_s=session.options.rpc_timeout_s)
                    session.execute(machine.maximum_known(self.replica_id, maximum))
                    if machine.is_barred(self.replica_id):
                        self._take_back_votes(maximum)
                case Truncate(transaction_id=transaction_id):
                    with self._changing():
                        maximum = await client.truncate(*ids, transaction_id, timeout_s=timeout_s)
                    session.execute(machine.maximum_known(self.replica_id, maximum))
                case SetLowWaterMark(low_water_mark=mark):
                    with self._changing():
                        await client.set_low_water_mark(*ids, mark, timeout_s=timeout_s)
                    session.execute(machine.low_water_mark_set(self.replica_id))
                case Compare():
                    await self._compare(client, effect)
                case Copy():
                    await self._copy(client, effect)

    def _take_back_votes(self, maximum: int) -> None:
        """Take back the votes of a storage that has lost acknowledged records: they cannot help later commits."""
        self._promised = self.promised
        self.acked = min(self.acked, maximum)
        self._session.replica_left()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """The context of a request that changes the storage. Without an answer, the storage may still execute the
        request later."""
        self._change_unanswered = True
        try:
            yield
        except RemoteStorageError:
            self._change_unanswered = False
            raise
        self._change_unanswered = False

    async def _next_effect(self) -> ReplicaEffect | None:
        """The next effect of the machine. Raises if the connection breaks meanwhile."""
        effect = await self._mailbox.get()
        if self._failure is not None:
            raise self._failure
        return effect

    async def _compare(self, client: StorageRpc, effect: Compare) -> None:
        session, (_, source, transaction_id) = self._session, effect
        if await self._begin_anew(client, source, compared=True):
            return
        if transaction_id >= session.trim_point:  # otherwise it may be trimmed at either of them
            own = (await self._read_from((self.replica_id, 0), transaction_id, 1))[0]
        try:
            if transaction_id < session.trim_point:
                own = (await self._read_from((self.replica_id, 0), transaction_id, 1))[0]
            other = (await self._read_from((source, 0), transaction_id, 1))[0]
        except (WaltzError, OSError) as error:
            session.noticed(error)
            self._log_failure(error)
            await asyncio.sleep(self._backoff.next_delay_s())
            session.execute(session.machine.comparison_failed(self.replica_id, source))
            return
        session.execute(session.machine.compared(self.replica_id, source, transaction_id, same=own == other))

    async def _copy(self, client: StorageRpc, effect: Copy) -> None:
        session = self._session
        if await self._begin_anew(client, effect.source, compared=False):
            return
        ids = (session.session_id, session.partition_id)
        source = (effect.source, session.machine.connections_of(effect.source))
        try:
            records = await self._copies.take(source, effect.first, effect.last)
        except (WaltzError, OSError) as error:
            session.noticed(error)
            self._log_failure(error)
            await asyncio.sleep(self._backoff.next_delay_s())
            session.execute(session.machine.copy_failed(self.replica_id, effect.source))
            return
        with self._changing():
            await client.append(*ids, records, timeout_s=session.options.change_timeout_s)
        self._note_untimed(records)
        self._backoff.reset()
        session.execute(session.machine.copied(self.replica_id, records[-1].transaction_id))

    async def _begin_anew(self, client: StorageRpc, source: ReplicaId, *, compared: bool) -> bool:
        """Begin the log of the storage at the trim point instead of a copy or a comparison, if the machine wants that.
        Returns false if not."""
        session, machine = self._session, self._session.machine
        begin = machine.begin_of(self.replica_id, source, session.trim_point, compared=compared)
        if begin is None:
            return False
        if not client.trims:
            raise ReplicaRefusedError(
                f"the storage cannot begin at transaction {begin}, before which the partition is trimmed: it is a node"
                " of the original, or of an older version"
            )
        with self._changing():
            await client.begin(
                session.session_id, session.partition_id, begin, timeout_s=session.options.change_timeout_s
            )
        self._log_state(f"begins at transaction {begin}, before which the partition is trimmed")
        session.execute(machine.begun(self.replica_id, begin - 1))
        return True

    def _note_untimed(self, copied: list[Record]) -> None:
        """The storage has got records without the times of their commits."""
        untimed, first = self._session.untimed, copied[0].transaction_id
        untimed[self.storage] = min(first, untimed.get(self.storage, first))

    async def _read_from(self, source: tuple[ReplicaId, int], first: int, count: int) -> list[Record]:
        session = self._session
        storage = source[0].connect_string
        async with asyncio.timeout(session.options.rpc_timeout_s):
            reading = await session.connections.client(storage, Lane.READ)
        ids = (session.session_id, session.partition_id)
        records = await reading.records(*ids, first, count, timeout_s=session.options.read_timeout_s)
        if not records:
            raise ReadFailedError(f"storage {storage} does not have transaction {first}")
        return records

    # Serving

    async def _begin_to_serve(self, position: int) -> None:
        """Wait until the other replicas have committed the records of this replica.

        A member that returns may have records whose acknowledgement was lost. Such records get no second vote, and an
        acknowledgement of later records would cover them.
        """
        await self._session.wait_committed(position)
        self.acked = max(self.acked, position)  # no vote any more, but what all storages have needs it
        self._enter(StageEvent.FOLLOWING)
        self._session.replica_joined(self.storage)
        self.pump()

    async def _serve(self, client: StorageRpc) -> None:
        """Follow the session until a failure. Raises the failure."""
        while True:
            await self._trim(client)
            await self._wake.wait()
            self._wake.clear()
            if self._failure is not None:
                raise self._failure
            if self._stage is _LAGGING and self._in_flight_bytes == 0:
                await self._catch_up(client)

    def trim_soon(self) -> None:
        """More transactions are trimmed than before."""
        self._wake.set()

    async def _trim(self, client: StorageRpc) -> None:
        """Have the storage remove what is trimmed: a segment for each request, so that appends are not held up long.

        Without success the storage keeps more than it has to, until the next session or trim.
        """
        session = self._session
        bound, first = session.trim_bound, NO_TRANSACTION
        if bound <= self._trimmed:
            return
        self._trimmed = bound
        if not client.trims:
            self._log_state("keeps trimmed transactions: it is a node of the original, or of an older version")
            return
        ids, timeout_s = (session.session_id, session.partition_id), session.options.rpc_timeout_s
        try:
            while (found := await client.trim(*ids, bound, timeout_s=timeout_s)) > first and self._failure is None:
                first = found
        except RemoteStorageError as error:
            session.noticed(error)
            self._log_failure(error)

    def pump(self) -> None:
        """Send the batches that fit into the window. Called for new batches and after acknowledgements.

        While the shared connection of all partitions has many unsent bytes, only one batch is in flight. The other
        batches wait in the ring, whose bytes are counted. The acknowledgement of that batch causes the next call.
        """
        session, client = self._session, self._client
        ring = session.ring
        if self._stage is not _SERVING or client is None or ring is None:
            return
        window_bytes = self._window_size_bytes
        while (
            self.next_id < ring.next_id
            and self._in_flight_bytes < window_bytes
            and self._in_flight_count < MAX_IN_FLIGHT_REQUESTS
        ):
            if self._in_flight_count and not client.writable:
                return
            batch = ring.by_first_id.get(self.next_id) or ring.get(self.next_id)
            if batch is None:
                self._enter(StageEvent.FELL_BEHIND)
                self._wake.set()
                return
            size_bytes = len(batch.payload)
            if not self._in_flight_bytes:
                self._last_progress_s = self._loop.time()
            self._in_flight_bytes += size_bytes
            self._in_flight_count += 1
            self.next_id = batch.last_id + 1
            done = partial(self._appended, self._life, batch.last_id, size_bytes, batch.given_s)
            self._sent_position = client.append_encoded(
                session.session_id, session.partition_id, batch.payload, batch.count, done
            )

    def _appended(self, life: int, last_id: int, size_bytes: int, given_s: float, error: Exception | None) -> None:
        if error is not None:
            self._session.noticed(error)
            if life == self._life:
                self.fail(error)
            return
        self._acknowledgement.observe(self._clock() - given_s)
        if life == self._life:
            self._in_flight_bytes -= size_bytes
            self._in_flight_count -= 1
            self._last_progress_s = self._loop.time()
            self._watched_position = None
            if self._stage is _LAGGING and self._in_flight_bytes == 0:
                self._wake.set()
        # An acknowledgement that arrives after the replica was given up is still valid.
        session = self._session
        if last_id > self.acked:
            self.acked = last_id
            session.acknowledged()
        ring = session.ring
        if ring is not None and self.next_id < ring.next_id:
            self.pump()

    def fail(self, error: Exception) -> None:
        """Give up the replica. It has to join again from the beginning."""
        if self._failure is None:
            self._failure = error
            was_live = self.live
            self._enter(StageEvent.FAILED)
            self._wake.set()
            self._mailbox.put_nowait(None)
            if self._copy_written is not None:
                _settle(self._copy_written, error)
            if was_live:
                self._session.replica_left()

    def forgive(self, time_s: float) -> None:
        """Do not count this time against the replica, because this process did not read from it."""
        self._last_progress_s += time_s

    def check_progress(self, now_s: float, limit_s: float, *, needed: bool) -> None:
        """Give up the replica after too long a time without due progress (rules L1, L2).

        ``needed``: no append is committed at present. Then a copy without success is no reason to wait either.
        """
        if needed and self._copy_failing_since_s is not None and now_s - self._copy_failing_since_s > limit_s:
            self.fail(ReplicaStalledError(f"storage {self.storage} lags, and no replica has the missing records"))
        client = self._client
        if client is None or not self.owes:
            return
        if self._watched_position is None:
            # Measured from early on, so that the progress is known when the limit becomes short.
            if now_s - self._last_progress_s < self._session.options.stall_timeout_s / 4:
                return
            self._watched_position = self._sent_position
            self._watched_bytes = client.transfer(self._sent_position).moved_bytes
        moved_bytes, allowance_s = client.transfer(self._watched_position)
        if moved_bytes != self._watched_bytes:
            self._watched_bytes, self._last_progress_s = moved_bytes, now_s
        waiting_s = now_s - self._last_progress_s
        if waiting_s > limit_s + allowance_s:
            self.fail(ReplicaStalledError(f"storage {self.storage} left appends unanswered for {waiting_s:.1f} s"))

    def _connection_closed(self, life: int, error: Exception | None) -> None:
        if life == self._life and self._client is not None:
            self.fail(error or WaltzError(f"the connection to storage {self.storage} closed"))

    async def _catch_up(self, client: StorageRpc) -> None:
        """Copy committed records from other replicas until the next needed record is in the ring."""
        session, ring = self._session, self._session.ring
        if ring is None:
            return
        self._log_state(f"lags at {self.next_id - 1}, copying from others")
        copies = ReadAhead(self._read_from_others, session.options.copy_size_bytes)
        try:
            while self.next_id < ring.first_id:
                await self._catch_up_step(client, copies, ring.first_id - 1)
        finally:
            await copies.close()
        self._log_state("is current again")
        self._enter(StageEvent.CAUGHT_UP)
        self.pump()

    async def _catch_up_step(self, client: StorageRpc, copies: ReadAhead[None], last: int) -> None:
        session = self._session
        try:
            records = await copies.take(None, self.next_id, last)
        except ReadFailedError as error:
            if self._copy_failing_since_s is None:
                self._copy_failing_since_s = self._loop.time()
            self._log_failure(error)
            await asyncio.sleep(self._backoff.next_delay_s())
        else:
            self._copy_failing_since_s = None
            await self._write_copy(client, records)
            self._note_untimed(records)
            self._backoff.reset()
            self.next_id = records[-1].transaction_id + 1
            self.acked = max(self.acked, self.next_id - 1)
            session.acknowledged()
        if self._failure is not None:
            raise self._failure

    async def _write_copy(self, client: StorageRpc, records: list[Record]) -> None:
        """Append copied records, with a check of the progress as for everything in flight."""
        session = self._session
        payload = encode_records(records)
        written = self._copy_written = self._loop.create_future()
        self._in_flight_bytes = len(payload)
        self._last_progress_s, self._watched_position = self._loop.time(), None
        try:
            self._sent_position = client.append_encoded(
                session.session_id, session.partition_id, payload, len(records), partial(_settle, written)
            )
            await written
        finally:
            self._copy_written = None
            self._in_flight_bytes = 0

    async def _read_from_others(self, _: None, first: int, count: int) -> list[Record]:
        return await self._session.read(first, count, except_from=self.replica_id)


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
