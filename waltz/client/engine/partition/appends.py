"""Submissions to one partition, and their outcomes."""

import asyncio
import inspect
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from waltz.client.engine.partition.deferred import DeferredDecisions
from waltz.client.engine.partition.feed import PartitionFeed
from waltz.client.engine.partition.guarantees import Guarantees
from waltz.client.engine.partition.monitor import MonitorState, Registration, TransactionMonitor
from waltz.client.engine.partition.mount import Mount
from waltz.client.engine.partition.places import Places
from waltz.client.engine.partition.probe import AppendCounts, LatencyProbe
from waltz.client.engine.partition.write_session import ClientWriteSession, SessionState
from waltz.client.engine.settings import PartitionSettings
from waltz.client.engine.submission import NO_LOCKS_BYTES, AppendFields, RetryQueue, Submission, tell_failure
from waltz.client.engine.tasks import STOPS_THE_LOOP, Signal, is_being_cancelled
from waltz.client.errors import (
    AckRetracted,
    ClientAheadError,
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    ConsistencyRefusedError,
    NotAppendedError,
    NotAuthorizedError,
    PartitionInactiveError,
    ServerError,
    SessionFencedError,
    TransactionTooLargeError,
)
from waltz.client.locks import HASH_BYTES
from waltz.common.consistency import Consistency, storages_before_commit, waits_for_all
from waltz.common.errors import TlsRefusedError, WaltzError
from waltz.common.ids import SEQ_NUM_MASK, ReqId
from waltz.common.net.backoff import Backoff
from waltz.common.net.channel import Channel
from waltz.common.wire.append_delays import AppendsDelayed
from waltz.common.wire.append_request import encode_append
from waltz.common.wire.client_server import FlushRequest, FlushResponse, LockFailure, encode
from waltz.common.wire.consistency import AppendAck, AppendAckRequest, AppendLevelRequest, ConsistencyRefused
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.version5 import AppendFailed, AppendFailure
from waltz.common.wire.versions import FIRST_WITH_CONSISTENCY
from waltz.common.wire.write_sessions import SessionFenced

logger = logging.getLogger(__name__)

_pack_seq_num = struct.Struct(">i").pack

MAX_DELAY_S = 60.0
"""The longest pause of appends on the word of a server. The next append after it finds out."""

_STARTED, _REGISTERED = MonitorState.STARTED, Registration.REGISTERED  # module names: each append looks them up


class PartitionAppends:
    """Registers and sends appends, and settles them when their outcome is known. Usable after :meth:`bind`."""

    def __init__(self, partition_id: int, client_id: int, settings: PartitionSettings, probe: LatencyProbe) -> None:
        self.monitor: TransactionMonitor[Submission] = TransactionMonitor(
            partition_id, settings.max_concurrent_transactions
        )
        self.signal = Signal()
        """Notified at every change that a submission may wait for."""
        self.counts = AppendCounts()
        self._probe = probe
        self.partition_id = partition_id
        self._client_id = client_id
        self._settings = settings
        self._options = settings.options
        self._places = Places(settings.max_concurrent_transactions)
        self._retries = RetryQueue(self._attempt_again, settings.options, settings.random_source)
        self.deferred = DeferredDecisions()
        self.guarantees = Guarantees(partition_id, self._ask_acknowledgement)
        self._told_level = Consistency.LEADER_QUORUM  # the level that the server takes appends for
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        self._last_seq_num = 0
        self._req_id_start = b""
        self._limits = settings.limits
        self._max_size_bytes = settings.limits.max_size_bytes
        self._max_lock_bytes = NO_LOCKS_BYTES + HASH_BYTES * settings.limits.max_locks
        self._undecided_before: bytes | None = None  # the last registered request at the last check for late requests
        self._refusals = Backoff(
            settings.options.refused_initial_s, settings.options.refused_maximum_s, settings.random_source
        )
        self._refusal: ServerError | None = None  # the server's reason for the last refused appends
        self._pause: asyncio.TimerHandle | None = None
        self._delay: asyncio.TimerHandle | None = None  # the end of the time for which the server wants no appends
        sessions = settings.sessions
        self.session = ClientWriteSession(
            partition_id,
            enabled=sessions.enabled,
            exclusive=sessions.exclusive,
            may_go_without=sessions.may_go_without,
        )
        """After each change, :meth:`session_changed` has to be called."""
        self._write_session = self.session.carried
        self._held_back = not self.session.sends  # nothing is sent during a pause, or because of the session
        self.set_generation(-1)
        self._mount: Mount
        self._feed: PartitionFeed

    def bind(self, mount: Mount, feed: PartitionFeed) -> None:
        """Set the destination of appends, and the source of the high-water mark."""
        self._mount = mount
        self._feed = feed

    def set_generation(self, generation: int) -> None:
        """Use this generation in later request ids."""
        self._req_id_start = ReqId.of(self._client_id, generation, self.partition_id, 0)[:12]

    def next_req_id(self) -> ReqId:
        """A new request id, for a request other than an append."""
        self.counts.other_ids += 1
        return ReqId(self._next_req_id())

    def count_sent(self) -> int:
        """The number of sent appends; see :meth:`AppendCounts.sent`."""
        return self.counts.sent(self._last_seq_num)

    def _next_req_id(self) -> bytes:
        self._last_seq_num = seq_num = (self._last_seq_num + 1) & SEQ_NUM_MASK
        return self._req_id_start + _pack_seq_num(seq_num)

    @property
    def has_pending(self) -> bool:
        """Whether a submission is undecided."""
        return self._places.taken > 0

    @property
    def high_water_mark(self) -> int:
        """Id of the last applied transaction."""
        return self._feed.applied

    @property
    def obstacle(self) -> WaltzError | None:
        """The known reason why appends cannot be sent at present."""
        mount = self._mount
        if mount.channel is not None:
            if self.session.state is SessionState.ASKING:
                return ClientError("the server has not told the number of the write session")
            if self._delay is None:
                return self._refusal
            reason = "the server wants no appends at present: a quota is used up"
            over_quota = ServerError(reason if self._refusal is None else str(self._refusal))
            over_quota.retry_after_s = max(self._delay.when() - self._loop.time(), 0.0)
            return over_quota
        if mount.ahead:
            return ClientAheadError(self.partition_id)
        if mount.refusal is not None:
            return mount.refusal
        if mount.link is None:
            return ClientError("no server is known to own the partition")
        return mount.link.failure

    async def found_ahead(self) -> bool:
        """Whether, according to the server's answer to a mount, the client has applied more than is in the log."""
        while self._mount.channel is None and not self._mount.ahead:
            self.check_active()
            self._mount.raise_refusal()
            await self.signal.wait()
        return self._mount.ahead

    def stop(self) -> None:
        """Refuse submissions. Registered appends are still decided."""
        self.monitor.stop()
        self._places.fail(lambda: PartitionInactiveError(self.partition_id))
        self.signal.notify()

    def forget_decisions(self) -> None:
        """Forget all undecided appends."""
        self.deferred.clear()

    def fail(self) -> Sequence[Submission]:
        """End all waits at the close. Returns the undecided submissions, for :meth:`tell_closed`."""
        self.guarantees.end("the client was closed")
        undecided = self.monitor.close()
        self._places.fail(ClientClosedError)
        self._end_pause()
        self._end_delay()
        return undecided

    async def close(self, undecided: Sequence[Submission], caller: asyncio.Task[Any] | None) -> None:
        """End the present attempts and tell all submissions. Does not wait for ``caller``."""
        waiting = await self._retries.close(caller)
        for submission in (*undecided, *waiting):
            self._places.release()
            await tell_failure(submission, ClientClosedError())

    # Submissions

    def submit(self, submission: Submission) -> Coroutine[Any, Any, None] | None:
        """Build and send a submission: immediately if possible, otherwise by the returned coroutine.

        If the submission cannot be sent, the coroutine raises the reason, after the submission was told.
        """
        submission.failures = 0
        submission.sent = None
        channel = self._mount.channel
        places = self._places
        if (
            channel is None  # the same as self._sendable and try_take, without the cost of calls for every append
            or not channel.writable
            or self._held_back
            or self.monitor.state is not _STARTED
            or places.taken >= places.limit
            or places.waiters
        ):
            return self._tell_failure_of(submission, self._submit_slowly(submission))
        places.taken += 1
        try:
            built = submission.build(self._feed.applied)
            if type(built) is AppendFields and self._mount.channel is channel:
                self._append(submission, built)
                return None
        except Exception as error:
            self._places.release()
            return self._refuse(submission, error)
        except BaseException:
            self._places.release()
            raise
        return self._tell_failure_of(submission, self._finish_attempt(submission, built))

    async def _refuse(self, submission: Submission, error: Exception) -> None:
        await tell_failure(submission, error)
        raise error

    async def _tell_failure_of(self, submission: Submission, attempt: Coroutine[Any, Any, None]) -> None:
        try:
            await attempt
        except Exception as error:
            await tell_failure(submission, error)
            raise

    async def _submit_slowly(self, submission: Submission) -> None:
        await self._take_place(submission)
        await self._attempt(submission, self._now_s())

    async def mounted(self) -> None:
        """Return when the partition is mounted.

        Raises :class:`PartitionInactiveError`, :class:`ClientAheadError`, :class:`NotAuthorizedError`,
        :class:`ClientClosedError`, and :class:`ClientTimeoutError` after ``mount_wait_s``.
        """
        await self._ready(self._now_s(), sending=False)

    async def begin_flush(self) -> bytes | None:
        """Ask for the decision of all registered appends. Returns the request to wait for with :meth:`flushed`."""
        await self.mounted()
        self.flush_now()
        return self.monitor.last_enqueued

    async def flushed(self, req_id: bytes) -> None:
        """Return when this append and all older ones are decided."""
        while req_id in self.monitor:
            await self.signal.wait()
        if self.monitor.state is MonitorState.CLOSED:
            raise ClientClosedError

    async def applied(self, transaction_id: int) -> None:
        """Return when a transaction is applied (without an applier: known as committed).

        Raises :class:`PartitionInactiveError` and :class:`ClientClosedError`.
        """
        if self._feed.applied < transaction_id:
            self.deferred.add_flush_point(transaction_id, self.next_req_id())  # this notifies the signal
        while self._feed.applied < transaction_id:
            await self.changed()

    async def changed(self) -> None:
        """Return at the next change. Raises :class:`PartitionInactiveError` and :class:`ClientClosedError`."""
        self.check_active()
        await self.signal.wait()
        self.check_active()

    def check_active(self) -> None:
        """Raises :class:`PartitionInactiveError` and :class:`ClientClosedError`."""
        if self.monitor.state is MonitorState.CLOSED:
            raise ClientClosedError
        if self.monitor.state is MonitorState.STOPPED:
            raise PartitionInactiveError(self.partition_id)

    def flush_now(self) -> None:
        """Ask the server for the decision of all registered appends, if there are any and the server can be asked."""
        channel = self._mount.channel
        last = self.monitor.last_enqueued
        if channel is None or last is None:
            return
        channel.send(encode(FlushRequest(last), channel.version))
        if self._mount.link is not None:
            self._mount.link.expect_answer()

    def nudge(self) -> None:
        """Flush if an append has been undecided since the last call, because servers may drop appends silently."""
        before = self._undecided_before
        if before is not None and before in self.monitor:
            self.counts.late += 1
            self.flush_now()
        self._undecided_before = self.monitor.last_enqueued

    @property
    def _sendable(self) -> bool:
        channel = self._mount.channel
        return (
            channel is not None
            and channel.writable
            and not self._held_back
            and self.monitor.state is MonitorState.STARTED
        )

    async def _take_place(self, submission: Submission) -> None:
        while True:
            await self._ready(self._now_s(), submission)
            if await self._places.take(self._options.place_wait_s):
                return
            self.flush_now()

    async def _attempt(self, submission: Submission, since_s: float) -> None:
        """Make one attempt of a submission that has a place."""
        with self._places:
            if not self._sendable:
                await self._ready(since_s, submission)
            built = submission.build(self._feed.applied)
        await self._finish_attempt(submission, built)

    async def _finish_attempt(
        self, submission: Submission, built: AppendFields | Awaitable[AppendFields | None] | None
    ) -> None:
        with self._places:
            fields = built if built is None or isinstance(built, AppendFields) else await built
            if fields is not None:
                if not self._sendable:
                    await self._ready(self._now_s(), submission)
                self._append(submission, fields)
                return
        self._probe.forget(submission)
        self._places.release()
        result = submission.withdrawn()
        if result is not None and inspect.isawaitable(result):
            await result

    async def _attempt_again(self, submission: Submission, since_s: float) -> None:
        try:
            await self._attempt(submission, since_s)
        except STOPS_THE_LOOP:
            raise
        except BaseException as error:
            self._probe.forget(submission)
            cancelled = isinstance(error, asyncio.CancelledError) and is_being_cancelled()
            closed = cancelled and self.monitor.state is MonitorState.CLOSED
            await tell_failure(submission, ClientClosedError() if closed else _as_exception(error))
            if cancelled:
                raise

    def _append(self, submission: Submission, fields: AppendFields) -> None:
        """Register and send in one step: the order of registration has to be the order on the wire."""
        data, header, client_high_water_mark, write_locks, read_locks, append_locks = fields
        lock_bytes = len(write_locks) + len(read_locks) + len(append_locks)
        if len(data) > self._max_size_bytes or lock_bytes > self._max_lock_bytes:
            self._limits.check(fields)
        channel = self._mount.channel
        assert channel is not None
        level = submission.level
        if level is None:
            level = self.guarantees.default
        if level is not self._told_level:
            self._tell_level(channel, level)
        if self._mount.fed_marks:
            self._mount.request_headers()
        self._last_seq_num = seq_num = (self._last_seq_num + 1) & SEQ_NUM_MASK  # as in _next_req_id
        req_id = self._req_id_start + _pack_seq_num(seq_num)
        frame = encode_append(
            channel.version,
            req_id,
            client_high_water_mark,
            write_locks,
            read_locks,
            append_locks,
            header,
            data,
            self._write_session,
        )
        registration = self.monitor.register(req_id, submission)
        assert registration is _REGISTERED, "there are as many places as the monitor registers"
        submission.sent = data
        submission.sent_level = level
        channel.send(frame)
        if not seq_num & self._probe.skipped and self._probe.submission is None:
            self._probe.begin(submission)

    def _tell_level(self, channel: Channel, level: Consistency) -> None:
        """Have the server take the appends that follow at another level. Raises :class:`ConsistencyRefusedError` when
        its version has no levels, and the commit is not enough."""
        if channel.version >= FIRST_WITH_CONSISTENCY:
            channel.send(encode(AppendLevelRequest(self.next_req_id(), level), channel.version))
        elif waits_for_all(level):
            reason = f"the server is too old for appends at {level.word}"
            raise ConsistencyRefusedError(self.partition_id, level.word, reason)
        self._told_level = level

    def _ask_acknowledgement(self, transaction_id: int) -> bool:
        channel = self._mount.channel
        if channel is None or channel.version < FIRST_WITH_CONSISTENCY:
            return False
        self.guarantees.question = self.next_req_id()
        channel.send(encode(AppendAckRequest(self.guarantees.question, transaction_id), channel.version))
        return True

    def mount_changed(self) -> None:
        """The partition is mounted, perhaps by another server, which knows neither level nor question."""
        self._told_level = Consistency.LEADER_QUORUM
        self.guarantees.mounted(self._mount.session_id)

    async def _ready(self, since_s: float, submission: Submission | None = None, *, sending: bool = True) -> None:
        """Return when the partition is mounted and, on request, takes appends. Otherwise raises the reason.

        The time limit of the mount is ``mount_wait_s``, counted from ``since_s``, or the limit of ``submission``. With
        the latter, there is no wait for a server whose TLS refuses the client.
        """
        mount = self._mount
        own_deadline_s = None if submission is None else submission.waits_until_s
        deadline_s = since_s + self._options.mount_wait_s if own_deadline_s is None else own_deadline_s
        while True:
            self.check_active()
            if mount.ahead and own_deadline_s is None:
                raise ClientAheadError(self.partition_id)
            mount.raise_refusal()
            if sending and (refusal := self.session.refusal) is not None:
                raise refusal
            if mount.channel is not None and not (sending and self.session.state is SessionState.ASKING):
                if not sending or (mount.channel.writable and not self._held_back):
                    return
                await self.signal.wait()
                if own_deadline_s is None:
                    deadline_s = self._loop.time() + self._options.mount_wait_s
                continue
            tls_refusal = None if own_deadline_s is None or mount.link is None else mount.link.refusal
            if tls_refusal is not None:
                raise TlsRefusedError(str(tls_refusal)) from tls_refusal
            remaining_s = deadline_s - self._loop.time()
            if remaining_s <= 0:
                raise self._not_mounted()
            await self.signal.wait(remaining_s)

    def _not_mounted(self) -> ClientTimeoutError:
        elapsed_ms = round(self._options.mount_wait_s * 1000)
        text = f"Partition ensure mounted timeout: partitionId={self.partition_id} elapsed={elapsed_ms} ms"
        obstacle = self.obstacle
        error = ClientTimeoutError(text if obstacle is None else f"{text}: {obstacle}")
        error.__cause__ = obstacle
        return error

    # Answers of servers

    def flush_response(self, message: FlushResponse) -> None:
        """All appends up to this one are decided. The committed ones are in the feed up to the transaction id."""
        self.await_applied(message.transaction_id, message.req_id)

    def await_applied(self, transaction_id: int, req_id: bytes) -> None:
        """A flush or a mount waits for the feed up to the transaction id."""
        if transaction_id <= self._feed.applied:
            self._flushed(req_id)
        else:
            self.deferred.add_flush_point(transaction_id, req_id)

    def lock_failure(self, message: LockFailure) -> None:
        """The append was refused. It fails when the transaction that changed its lock has been applied."""
        submission = self.monitor.get(message.req_id)
        if submission is None:
            return
        self.counts.lock_failures += 1
        self._settings.events.conflict(self.partition_id, message.transaction_id)
        self.tell(submission.refused, message.transaction_id)
        if message.transaction_id <= self._feed.applied:
            self._abort(message.req_id, self._failed)
        else:
            self.deferred.add_lock_failure(message.transaction_id, message.req_id)

    def append_failed(self, message: AppendFailed) -> None:
        """The append is not in the log and never will be (version 5): no flush is needed."""
        if message.reason is not AppendFailure.TOO_LARGE:
            logger.debug("partition %d: an append failed: %s", self.partition_id, message.reason.name)
            if message.reason is AppendFailure.MOVED:
                self._refusal = ServerError(message.text or "the server cannot write the partition at present")
                self._begin_pause()
            self._abort(message.req_id, self._lost)
            return
        text = message.text or "the transaction is too large for the server"
        self._abort(message.req_id, lambda given: self._end_sent(given, lambda: TransactionTooLargeError(text)))

    def not_authorized(self, message: NotAuthorized) -> None:
        """The append is not in the log and never will be: the client lacks the right (version 6)."""
        self._abort(message.req_id, lambda given: self._end_sent(given, lambda: NotAuthorizedError(message.text)))

    def consistency_refused(self, message: ConsistencyRefused) -> None:
        """The append is not in the log and never will be: its level does not go (version 6).

        One whose writer has named no level is sent again at that of the partition, if it has changed in the meantime.
        """
        submission = self.monitor.get(message.req_id)
        if submission is None:
            return
        if submission.level is None and submission.sent_level is not self.guarantees.default:
            self._abort(message.req_id, self._lost)
            return
        level, text = submission.sent_level.word, message.text or "the server does not take this level of consistency"
        self._abort(
            message.req_id,
            lambda given: self._end_sent(given, lambda: ConsistencyRefusedError(self.partition_id, level, text)),
        )

    def acknowledged(self, message: AppendAck) -> None:
        """Storages have an append, before its commit, or all storages have what was asked for (version 6)."""
        if message.req_id == self.guarantees.question:
            self.guarantees.acknowledged(message)
            return
        submission = self.monitor.get(message.req_id)
        if submission is None or submission.acknowledged_id is not None:
            return
        needed = storages_before_commit(submission.sent_level)
        # A server goes by the level of the connection at the time of admission, which may be that of a later append.
        if needed is not None and message.storage_count >= needed:
            self.counts.acknowledged += 1
            self.tell(submission.acknowledged, message.transaction_id, message.storage_count)

    def delayed(self, message: AppendsDelayed) -> None:
        """The server wants no appends for a while, because of a quota (version 6). A later message may extend that."""
        until_s = self._loop.time() + min(message.delay_ms / 1000, MAX_DELAY_S)
        if self._delay is None or self._delay.when() < until_s:
            if self._delay is not None:
                self._delay.cancel()
            self._delay = self._loop.call_at(until_s, self._end_delay)
            self._update_held_back()

    def session_fenced(self, message: SessionFenced) -> None:
        """The append is not in the log and never will be: its write session has ended (version 5)."""
        if self.session.fenced(message.write_session):
            number = self.session.number
            self._abort(
                message.req_id,
                lambda given: self._end_sent(given, lambda: SessionFencedError(self.partition_id, number)),
            )
        else:
            self._abort(message.req_id, self._lost)
        self.session_changed()

    def session_changed(self) -> None:
        """The write session has changed: it may allow other appends, and appends may carry another number."""
        self._write_session = self.session.carried
        self._update_held_back()

    # Calls of the feed

    def take_committed(self, req_id: bytes) -> Submission | None:
        """A transaction is committed. Returns its submission, if it is an undecided one of this client."""
        submission = self.monitor.take_oldest(req_id)
        if submission is None:
            commit = self.monitor.committed(req_id)
            if commit is None:
                return None
            submission, failed = commit
            self._lost(failed)
        if self._refusal is not None:
            self._refusal = None
            self._refusals.reset()
            self._end_pause()
        if self.signal.waited_for:
            self.signal.notify()
        if submission is not None:
            places = self._places
            places.taken -= 1  # the same as places.release, without the cost of a call for every append
            if places.waiters:
                places.hand_over()
        return submission

    def is_own(self, req_id: bytes) -> bool:
        """Whether the transaction is an undecided append of this client. Then its data is in memory."""
        return self.monitor.get(req_id) is not None

    def settle_deferred(self, high_water_mark: int) -> None:
        """Make the decisions that waited for the high-water mark to reach this transaction."""
        for req_id in self.deferred.take_lock_failures(high_water_mark):
            self._abort(req_id, self._failed)
        for req_id in self.deferred.take_flush_points(high_water_mark):
            self._flushed(req_id)

    # Decisions

    def _flushed(self, req_id: bytes) -> None:
        self._lost(self.monitor.flush(req_id))
        self._mount.caught_up(req_id)
        self.signal.notify()

    def _abort(self, req_id: bytes, decide: Callable[[Sequence[Submission]], None]) -> None:
        submission = self.monitor.abort(req_id)
        if submission is not None:
            decide((submission,))
            self.signal.notify()

    def _lost(self, submissions: Sequence[Submission]) -> None:
        """Handle lost appends, which are not in the log. In a write session the application decides on another attempt,
        because it would come after the following appends."""
        if self.session.state in (SessionState.OFF, SessionState.PLAIN):
            self._failed(submissions)
        elif submissions:
            text = (
                f"partition {self.partition_id}: an append of a write session got lost and is not in the log; "
                "append it again if it may come behind later ones"
            )
            self._end_sent(submissions, lambda: NotAppendedError(text))

    def _failed(self, submissions: Sequence[Submission]) -> None:
        for submission in submissions:
            if submission.acknowledged_id is not None:
                self._retract(submission, submission.acknowledged_id)
                continue
            submission.failures += 1
            submission.sent = None
            try:
                again = self._settings.retries and self._retries.add(submission)
            except STOPS_THE_LOOP:
                raise
            except BaseException as error:
                self._end(submission, _as_exception(error))
                continue
            if not again:
                self._probe.forget(submission)
                self._places.release()
                self.tell(submission.withdrawn)

    def _end_sent(self, submissions: Sequence[Submission], make_error: Callable[[], Exception]) -> None:
        """End submissions that were sent, and are certainly not in the log."""
        for submission in submissions:
            if submission.acknowledged_id is not None:
                self._retract(submission, submission.acknowledged_id)
                continue
            submission.sent = None
            self._end(submission, make_error())

    def _retract(self, submission: Submission, transaction_id: int) -> None:
        """An acknowledged append is lost. The application was told of it, so only the application can decide on another
        attempt."""
        self.counts.retracted += 1
        submission.sent = None
        self._end(submission, AckRetracted(self.partition_id, transaction_id))

    def _end(self, submission: Submission, error: Exception) -> None:
        self._probe.forget(submission)
        self._places.release()
        self._settings.tasks.spawn(
            tell_failure(submission, error), f"telling of an error in partition {self.partition_id}"
        )

    def _begin_pause(self) -> None:
        """Pause appends: the partition cannot be written at present, and repeats would only load its server."""
        if self._pause is None:
            self._pause = self._loop.call_later(self._refusals.next_delay_s(), self._end_pause)
            self._held_back = True

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._update_held_back()

    def _end_delay(self) -> None:
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None
        self._update_held_back()

    def _update_held_back(self) -> None:
        self._held_back = self._pause is not None or self._delay is not None or not self.session.sends
        self.signal.notify()

    # Callbacks outside of the feed

    def tell(self, callback: Callable[..., Awaitable[None] | None], *arguments: object) -> None:
        """Call a function of the application, and await its result in a task; errors are logged."""
        try:
            result = callback(*arguments)
        except STOPS_THE_LOOP:
            raise
        except BaseException:
            logger.exception("a transaction context failed in partition %d", self.partition_id)
            return
        if result is not None and inspect.isawaitable(result):
            self._settings.tasks.spawn(result, f"a transaction context in partition {self.partition_id}")


def _as_exception(error: BaseException) -> Exception:
    """The exception for a context."""
    if isinstance(error, Exception):
        return error
    wrapped = ClientError(f"a transaction context raised {error!r}")
    wrapped.__cause__ = error
    return wrapped
