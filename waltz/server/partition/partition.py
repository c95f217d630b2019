"""One partition of a server: the mediator of its requests, its log and its sessions.

Appends that pass the lock check immediately get their transaction ids and go to the log. Requests that cannot be
answered immediately wait in the sequencer, which decides when they are answered (rules S3 and S4). Beyond the lock
check there is no work per record: no task, no future, no timer.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import NamedTuple, cast

from waltz.common.access import Right, Rights
from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.ids import NO_TRANSACTION, ReqId
from waltz.common.mark_ages import MarkAges
from waltz.common.quiet_log import QuietLog
from waltz.common.records import Record, RecordHeader
from waltz.common.tasks import owned
from waltz.common.wall_clock import now_ms
from waltz.common.wire.append_order import AppendOrderRequest
from waltz.common.wire.client_server import (
    FeedRequest,
    FlushRequest,
    HighWaterMarkRequest,
    LockFailure,
    MountRequest,
    MountResponse,
    PartitionState,
    TransactionDataRequest,
    encode_feed_data,
)
from waltz.common.wire.client_times import TimeRequest
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest
from waltz.common.wire.consistency import AppendAckRequest, AppendLevelRequest
from waltz.common.wire.lags import UNKNOWN_LAG, PartitionLags, ReplicaLag
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.version5 import AppendFailure, PartitionClosed, TransactionDataListRequest
from waltz.common.wire.versions import FIRST_WITH_PARTITION_CLOSED, FIRST_WITH_TRIM
from waltz.common.wire.write_sessions import NO_WRITE_SESSION, HeartbeatRequest, LastTransactionIdRequest
from waltz.server.feeding.caches import FeedCache, TransactionCache
from waltz.server.feeding.data_lists import TransactionListReader, fail_list, refuse_list
from waltz.server.feeding.feed import Feed
from waltz.server.feeding.feed_frames import FEED_VERSION
from waltz.server.feeding.transaction_data import NOT_READY_TEXT, TransactionDataReader, error_response
from waltz.server.partition.admission import Admission
from waltz.server.partition.answers import Answers, lock_failures
from waltz.server.partition.append_order import AppendOrders
from waltz.server.partition.append_rule import DEFAULT_RULE, AppendRule
from waltz.server.partition.confirmed_marks import ConfirmedMarks
from waltz.server.partition.fencing import Fencing, SessionRequest, refuse_heartbeat
from waltz.server.partition.locks import Conflict
from waltz.server.partition.partition_metrics import PartitionMetrics
from waltz.server.partition.registrations import Registrations
from waltz.server.partition.replicated import LogFactory
from waltz.server.partition.sequencer import Sequencer, Verdict
from waltz.server.partition.times import TimeQuestions
from waltz.server.partition.undecided import UndecidedAppends
from waltz.server.partition.write_levels import Refusal, WriteLevels, refuse_level
from waltz.server.requests.appends import AcceptedRun, AppendCall
from waltz.server.requests.deadlines import Deadlines
from waltz.server.requests.failures import tell_failed
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import AnyFeedRequest, Awaits, Pending
from waltz.server.requests.permission import right_of, tells_refusal
from waltz.server.store.interface import Append, record_bytes_of
from waltz.server.store.memory import MIN_SHARE_BYTES, MemoryBudget
from waltz.server.store.replica.replica_view import ReplicaView

logger = logging.getLogger(__name__)

_feed_item = attrgetter("req_id", "transaction_id", "header")
_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost

_MAX_WORK_PER_TURN = 2000
"""The largest number of waiting requests, counted with their locks, that are examined in one turn of the event loop."""

_NOT_COUNTED_BYTES = MIN_SHARE_BYTES // 4
"""Undecided appends up to this size fit into the share of every partition, and need not be counted."""

APPENDS_DIVISOR = 4
"""The divisor of the free memory for the appends of one partition: a fourth."""


class PartitionOptions(NamedTuple):
    """The common settings of all partitions of a server."""

    lock_table_size: int = 30_000
    min_fetch_size: int = 100
    """The smallest number of transactions for a feed request."""
    answer_timeout_s: float = 10.0
    """The time after which an undecided mount is answered "not ready", and a question for an unknown mark "unknown"."""
    read_timeout_s: float = 10.0
    min_fence_interval_s: float = 0.0
    """The shortest time between two fences of a partition (``server.minFenceInterval``)."""
    max_undecided_count: int = 10_000
    """The largest number of flushes, mounts and lock failures that wait for commits; then all further requests have to
    wait. Also the largest number of questions for an unknown mark, or for a confirmed mark; further questions are
    immediately answered "unknown"."""
    clock_ms: Callable[[], int] = now_ms
    """The wall clock of this server, for the times of commits."""


class ServerPartition:
    """A partition of this server, and the listener of its log. The log returns the same append objects that it was
    given. Everything runs in the event loop."""

    # Without slots, an object with this number of attributes has a hash table of its own: a thousand of them miss the
    # caches.
    __slots__ = (
        "_admission",
        "_ages",
        "_answers",
        "_claimant",
        "_confirmed_marks",
        "_data",
        "_drain_handle",
        "_draining",
        "_farthest_claim",
        "_feed",
        "_feed_cache",
        "_fence_timer",
        "_fencing",
        "_leaving",
        "_levels",
        "_lists",
        "_log",
        "_log_quietly",
        "_memory",
        "_metrics",
        "_mounts",
        "_options",
        "_orders",
        "_proof",
        "_questions",
        "_registrations",
        "_sequencer",
        "_times",
        "_transaction_cache",
        "_undecided",
        "closed",
        "in_doubt",
        "partition_id",
    )

    def __init__(
        self,
        partition_id: int,
        generation: int,
        options: PartitionOptions,
        *,
        feed_cache: FeedCache,
        transaction_cache: TransactionCache,
        metrics: PartitionMetrics,
        random_source: random.Random,
        memory: MemoryBudget,
        log_factory: LogFactory,
    ) -> None:
        self.partition_id = partition_id
        self._options = options
        self._metrics = metrics
        self._feed_cache = feed_cache
        self._transaction_cache = transaction_cache
        self._registrations = Registrations()
        self._log_quietly = QuietLog(logger)
        self._admission = Admission(options.lock_table_size, generation)
        self._undecided = UndecidedAppends()
        self._sequencer = Sequencer(options.max_undecided_count)
        interval_s = options.min_fence_interval_s
        in_time_count = int(options.answer_timeout_s / interval_s) if interval_s else 0
        self._fencing = Fencing(partition_id, metrics, interval_s, in_time_count, self._log_quietly)
        self._fence_timer: asyncio.TimerHandle | None = None
        self._draining = False
        self._drain_handle: asyncio.Handle | None = None
        self.closed = False
        self.in_doubt = False
        """Whether the server has lost its ZooKeeper session. Then another server may own the partition, and no mark is
        reported without a confirmation."""
        self._memory = memory.account(APPENDS_DIVISOR)
        self._mounts = Deadlines(options.answer_timeout_s, self._expire)
        self._questions = Deadlines(options.answer_timeout_s, self._expire)
        self._proof: asyncio.Task[None] | None = None
        self._confirmed_marks = ConfirmedMarks(partition_id, self._confirmed_mark, options.max_undecided_count)
        self._ages = MarkAges()
        self._times = TimeQuestions(
            partition_id,
            lambda: self._log,
            options.clock_ms,
            options.answer_timeout_s / 2,
            options.max_undecided_count,
        )
        self._levels = WriteLevels(
            lambda transaction_id: self._log.await_all(transaction_id),
            lambda wanted: self._log.await_some(wanted),
            lambda: self._log.missing_storages,
            DEFAULT_RULE,
        )
        self._orders = AppendOrders()
        self._leaving = AppendFailure.MOVED
        self._farthest_claim: AnyFeedRequest | MountRequest | None = None
        self._claimant = ""
        self._feed = Feed(
            partition_id, feed_cache, self._read_headers, metrics.feed_cache_miss.mark, random_source, metrics.feed_lag
        )
        self._answers = Answers(partition_id, self._feed, options.min_fetch_size)
        self._data = TransactionDataReader(
            partition_id, transaction_cache, self._read_records, metrics.transaction_cache_miss.mark
        )
        self._lists = TransactionListReader(
            partition_id,
            transaction_cache,
            self._read_records,
            metrics.transaction_cache_miss.mark,
            lambda: self._sequencer.session_open and not self.in_doubt,
        )
        self._log = log_factory(self)

    # Life

    def start(self) -> None:
        """Open the log in the background, and keep it open."""
        self._metrics.add_gauges(
            {
                "pending-append": lambda: self._undecided.count,
                "append-queue-size": lambda: self._sequencer.waiting_count,
                "is-closed": lambda: self.closed,
                "generation": lambda: self.generation,
                "high-water-mark": lambda: self.high_water_mark,
                "first-available": lambda: self._log.first_available,
                "acknowledgements-awaited": lambda: self._levels.asking_count,
            }
        )
        self._metrics.add_gauges(self._fencing.gauges())
        self._metrics.add_feed(self._feed)
        self._metrics.add_replicas(lambda: self.replica_views, self.replica_lags_s)
        self._feed.start()
        self._log.start()

    def leave(self, reason: AppendFailure) -> None:
        """Tell the clients that the server does not own the partition any more. :meth:`close` has to follow."""
        self.closed = True
        self._leaving = reason
        for link, session_id in self._registrations.sessions():
            if link.channel.version >= FIRST_WITH_PARTITION_CLOSED:
                link.send(PartitionClosed(session_id))

    async def close(self) -> None:
        """Close the log, then answer all waiting requests with a known answer."""
        if not self.closed:
            self.leave(self._leaving)
        try:
            await self._log.close()
        finally:
            if self._proof is not None:
                self._proof.cancel()
                await asyncio.gather(self._proof, return_exceptions=True)
            await self._confirmed_marks.close()
            await self._times.close()
            self._refuse(self._sequencer.close())
            for pending in (*self._mounts.take(), *self._questions.take()):
                self._expire(pending)
            for handle in (self._drain_handle, self._fence_timer):
                if handle is not None:
                    handle.cancel()
            self._memory.set(0)
            await self._feed.close()
            await self._data.close()
            await self._lists.close()
            for link, _ in self._registrations.sessions():
                link.mounts.pop(self, None)
            self._feed_cache.forget(self.partition_id)
            self._transaction_cache.forget(self.partition_id)
            self._metrics.remove()

    def _refuse(self, pendings: Sequence[Pending]) -> None:
        """Refuse appends that were never sent to a replica: their outcome is known (rule S5)."""
        text = "the server is stopping" if self._leaving is AppendFailure.STOPPING else "the partition has moved"
        for pending in pendings:
            tell_failed(pending.link, [pending.request.req_id], self._leaving, self.high_water_mark, text)

    def _tell_failed(self, link: ClientLink, appends: Sequence[Append], reason: AppendFailure, text: str) -> None:
        tell_failed(link, [append.req_id for append in appends], reason, self.high_water_mark, text)

    @property
    def high_water_mark(self) -> int | None:
        """The last committed transaction; None before the first session of the log."""
        return self._sequencer.high_water_mark

    @property
    def generation(self) -> int:
        """The generation under which this server owns the partition."""
        return self._admission.generation

    @property
    def healthy(self) -> bool:
        """Whether the log reports health."""
        return self._log.healthy

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for operators, one line each: a session that waits, assigned storages that cannot take over, and a
        client that has applied transactions beyond the proved end of the log. The last warning stays until the
        partition is opened again. It has no further effect, because any client can claim that."""
        trouble, claim = self._log.trouble, self._farthest_claim
        found = [] if trouble is None else [trouble]
        if claim is not None:
            found.append(
                f"{self._claimant} has applied transactions up to {claim.client_high_water_mark}, beyond the end of the"
                " log: it belongs to another cluster, or the storages have lost committed transactions"
            )
        return found

    def confirm_if_idle(self, *, unasked: bool) -> None:
        """Find out whether the partition is :attr:`healthy`, unless a recent commit proves that. Only if the health was
        read, or with ``unasked``."""
        self._log.confirm_if_idle(unasked=unasked)

    def tell_time(self, time_ms: int) -> None:
        """Report to the storages the transaction up to which all are committed now."""
        mark = self.high_water_mark
        if mark is not None:
            self._ages.note(mark, asyncio.get_running_loop().time())
        self._log.tell_time(time_ms)

    @property
    def replica_views(self) -> Sequence[ReplicaView]:
        """The view of the log's session on every replica."""
        return self._log.replica_views

    @property
    def committed_count(self) -> int:
        """The number of appends committed since the partition was opened here."""
        return self._metrics.successful_append.count

    def latency_counts(self) -> dict[int, int]:
        """The number of appends since the partition was opened here, by latency; see
        :mod:`waltz.common.metrics.durations`."""
        return self._metrics.response_latency.durations.counts()

    @property
    def feed_lag_transactions(self) -> int:
        """The largest number, over all connections, of requested committed transactions that were not sent yet."""
        return self._feed.lag_transactions

    @property
    def feed_lag_s(self) -> float:
        """The time since the commit of the oldest transaction that was requested by a connection and not sent, at
        least."""
        position = self._feed.position_behind
        return 0.0 if position is None else self._ages.age_s(position, asyncio.get_running_loop().time())

    def replica_lags_s(self) -> dict[str, float | None]:
        """For how long at least the oldest transaction is committed that a storage lacks; ``None``: not known."""
        mark, now_s = self.high_water_mark, asyncio.get_running_loop().time()
        return {
            view.storage: None
            if view.lag_transactions is None or mark is None
            else self._ages.age_s(mark - view.lag_transactions, now_s)
            for view in self.replica_views
        }

    def lags(self) -> PartitionLags:
        """What replicas and feeds lack of the partition."""
        ages_s = self.replica_lags_s()
        return PartitionLags(
            self.partition_id,
            self.feed_lag_transactions,
            round(1000 * self.feed_lag_s),
            [
                ReplicaLag(
                    view.storage,
                    UNKNOWN_LAG if view.lag_transactions is None else view.lag_transactions,
                    UNKNOWN_LAG if (age_s := ages_s.get(view.storage)) is None else round(1000 * age_s),
                )
                for view in self.replica_views
            ],
        )

    def set_generation(self, generation: int) -> None:
        """Take over the generation of a new assignment. Generations only grow.

        The log then ends its session. Appends that are still admitted into that session are safe: they are committed
        only if no other server has written since the session began, and in that case their lock check was valid.
        """
        if generation > self.generation:
            self._admission.set_generation(generation)
            self._log.set_generation(generation)

    def set_append_rule(self, rule: AppendRule) -> None:
        """The properties of the partition changed."""
        self._levels.set_rule(rule, self._registrations.sessions())
        self._log.set_trim_point(rule.first_available)
        self._feed.trim(self._log.first_available)

    def raise_low_water_mark(self) -> None:
        """Begin another store session soon, with what is committed now as its low-water mark."""
        self._log.renew()

    def set_replicas(self, replicas: frozenset[str]) -> None:
        """Take over another set of storages."""
        self._log.set_replicas(replicas)

    def forget(self, link: ClientLink) -> None:
        """Forget a mounted connection that has closed. Its earlier requests are still executed."""
        self._registrations.forget(link)
        self._levels.forget(link)
        self._orders.forget(link)
        self._sequencer.forget(link)
        self._feed.forget(link)

    def rights_lost(self, link: ClientLink) -> None:
        """The client of a mounted connection has fewer rights than before: end its feed, if it may not have that any
        more. A client that cannot be told is disconnected.

        Waiting requests are judged when their turn comes. Appends that were admitted continue.
        """
        session_id = self._registrations.session_of(link)
        if session_id is None:
            return
        refusal = link.refusal(Right.METADATA, self.partition_id, noted=link.mounts.get(self, False))
        if refusal is None:
            link.mounts[self] = link.passes_audit(Right.METADATA, self.partition_id)
            return
        self.forget(link)
        link.mounts.pop(self, None)
        if not link.refuse(session_id, refusal):
            link.fail(WaltzError(refusal))

    def holder_lost_rights(self, lost: Collection[Rights]) -> None:
        """These rights are fewer than before: an exclusive session ends whose holder may not append any more, even if
        no connection of the holder is here at present."""
        if self._fencing.holder_rights in lost:
            self._fencing.judge_holder()

    def _refusal(self, pending: Pending, count: int = 1) -> str | None:
        """The reason to refuse a request that has waited, and others like it, if its client has ever lost a right."""
        if not pending.link.rights.reduced:
            return None
        link, right = pending.link, right_of(pending.request)
        noted = pending.noted or (type(pending.request) is MountRequest and link.mounts.get(self, False))
        refusal = link.refusal(right, self.partition_id, count, noted=noted)
        pending.noted = link.passes_audit(right, self.partition_id)
        return refusal

    def _is_refused(self, pending: Pending) -> bool:
        """Whether the request is a mount whose client has lost the right during the wait, and has been told so."""
        link = pending.link
        return link.rights.reduced and type(pending.request) is MountRequest and self not in link.mounts

    # Requests

    def append(self, link: ClientLink, requests: Sequence[AppendCall], write_session: int = NO_WRITE_SESSION) -> None:
        """Take appends of one connection, generation and write session. They are dropped if the connection is not the
        client's mounted one."""
        self._metrics.transaction.mark(len(requests))
        if not self._registrations.is_valid(link):
            self._metrics.stale_append.mark(len(requests))
        elif self._levels.checks and (refusal := self._levels.refusal(link)) is not None:
            self._refuse_level(link, requests, refusal)
        elif self._sequencer.is_free and self._log_takes_more():
            self._admit(link, requests, write_session)
        else:
            turned_away = [request for request in requests if not self._line_up(Pending(link, request, write_session))]
            if turned_away:
                state = "do not keep up" if self._sequencer.session_open else "cannot be written"
                self.refuse_appends(link, turned_away, f"the storages {state} at present")

    def _refuse_level(self, link: ClientLink, requests: Sequence[AppendCall], refusal: Refusal) -> None:
        self._metrics.level_refused.mark(len(requests))
        if not refuse_level(link, [request.req_id for request in requests], refusal):
            self.refuse_appends(link, requests, refusal.text)

    def tell_level(self, link: ClientLink, message: AppendLevelRequest) -> None:
        """The level of the appends that follow. Dropped when the connection is not the client's mounted one."""
        if self._registrations.is_valid(link):
            self._levels.tell_level(link, message)

    def set_append_order(self, link: ClientLink, message: AppendOrderRequest) -> None:
        """The order of the appends that follow. Dropped when the connection is not the client's mounted one.

        Raises ``ProtocolError`` for an impossible id.
        """
        if message.transaction_id < 0:
            raise ProtocolError(f"{message.transaction_id} is no id of a transaction")
        if self._registrations.is_valid(link):
            self._orders.set(link, message)

    def ask_acknowledgement(self, link: ClientLink, request: AppendAckRequest) -> None:
        """Tell the mark that all storages have, now and until it covers the transaction, which the client knows as
        committed. Dropped when the connection is not the client's mounted one, or no store session has opened yet."""
        mark = self.high_water_mark
        if self._registrations.is_valid(link) and mark is not None:
            self._levels.ask(link, request, mark)

    def mount(self, link: ClientLink, request: MountRequest) -> None:
        """Register the connection, and answer when all earlier appends are decided.

        A connection that the client has replaced gets the answer "not ready". Raises ``ProtocolError`` for an
        impossible high-water mark.
        """
        _check_mark(request.client_high_water_mark)
        if self._is_trimmed(request.client_high_water_mark + 1):
            if not self._tell_trimmed(link, request.req_id):
                self._log_quietly.warning(
                    "partition %d: %s wants transactions from %d on, which are trimmed; the first one is %d",
                    self.partition_id,
                    link.channel.peer,
                    request.client_high_water_mark + 1,
                    self._log.first_available,
                )
                link.send(MountResponse(request.req_id, PartitionState.NOT_READY))
        elif self._registrations.register(link, ReqId(request.req_id).generation, request.req_id):
            link.mounts[self] = link.passes_audit(Right.METADATA, self.partition_id)
            self._feed.forget(link)  # the promise of an earlier mount of the connection
            self._levels.mounted(link, request.req_id)
            self._orders.forget(link)
            self._barrier(link, request)
        else:
            link.send(MountResponse(request.req_id, PartitionState.NOT_READY))

    def flush(self, link: ClientLink, request: FlushRequest) -> None:
        """Answer when all earlier appends, of all clients, are decided."""
        self._barrier(link, request)

    def heartbeat(self, link: ClientLink, request: HeartbeatRequest) -> None:
        """Answer with the write session, or raise it for a client that asks for an exclusive session.

        A connection that is not the client's mounted one gets the answer "not ready".
        """
        if self._registrations.is_valid(link):
            self._barrier(link, request)
        else:
            refuse_heartbeat(link, request)

    def last_transaction_id(self, link: ClientLink, request: LastTransactionIdRequest) -> None:
        """Answer when all earlier appends are decided and, on request, the write session is raised."""
        self._barrier(link, request)

    def feed(self, link: ClientLink, request: AnyFeedRequest) -> None:
        """Feed the committed transactions after the client's mark, or the mark alone.

        The client asks for further transactions after it has received these. A slow client asks after it has applied
        these, and can continue to read the feeds of its other partitions.

        The request is dropped if the connection is not the client's mounted one. Raises ``ProtocolError`` for an
        impossible mark.
        """
        _check_mark(request.client_high_water_mark)
        if not self._registrations.is_valid(link):
            return
        mark = self.high_water_mark
        if type(request) is FeedRequest and self._is_trimmed(request.client_high_water_mark + 1):
            if not self._tell_trimmed(link, request.req_id):
                link.fail(WaltzError(self._trimmed_text(request.client_high_water_mark + 1)))
        elif mark is None:
            self._line_up(Pending(link, request))
        elif request.client_high_water_mark > mark:
            pending = Pending(link, request)
            self._answer(pending, self._sequencer.await_proof(pending))
        else:
            self._answers.feed(link, request, mark)

    def transaction_data(self, link: ClientLink, request: TransactionDataRequest) -> None:
        """Answer with the data of one committed transaction, or with the reason for missing data."""
        if self._is_trimmed(request.transaction_id):
            if not self._tell_trimmed(link, request.req_id):
                link.send(error_response(request, self._trimmed_text(request.transaction_id)))
        elif self.high_water_mark is None:
            link.send(error_response(request, NOT_READY_TEXT))
        else:
            self._data.request(link, request, self.high_water_mark)

    def transaction_list(self, link: ClientLink, request: TransactionDataListRequest) -> None:
        """Answer with consecutive committed transactions and their data, and with the mark while a session is open."""
        if self._is_trimmed(request.transaction_id):
            if not self._tell_trimmed(link, request.req_id):
                fail_list(link, request, self._trimmed_text(request.transaction_id))
        elif self.high_water_mark is None:
            refuse_list(link, request)
        else:
            self._lists.request(link, request, self.high_water_mark)

    def _is_trimmed(self, transaction_id: int) -> bool:
        return 0 <= transaction_id < self._log.first_available

    def _trimmed_text(self, transaction_id: int) -> str:
        return (
            f"transaction {transaction_id} of partition {self.partition_id} is trimmed: the first available one is "
            f"{self._log.first_available}"
        )

    def _tell_trimmed(self, link: ClientLink, req_id: bytes) -> bool:
        """Tell the first available transaction; false if the version of the client has no message for that."""
        told = link.channel.version >= FIRST_WITH_TRIM
        if told:
            link.send(Trimmed(req_id, self._log.first_available))
        return told

    def ask_high_water_mark(self, link: ClientLink, request: HighWaterMarkRequest) -> None:
        """Answer when a store session is open; at the time limit answer "unknown".

        While the generation here is older than that of the peer, the mark is unknown, too: another owner may have
        committed transactions between the two generations.
        """
        if self.in_doubt:
            self._confirmed_marks.ask(link, request)
            return
        pending = Pending(link, request)
        self._answer(pending, self._sequencer.ask(pending))
        if not pending.answered:
            self._questions.add(pending)

    def ask_confirmed_mark(self, link: ClientLink, request: ConfirmedMarkRequest) -> None:
        """Answer with a mark that a quorum of the storages has confirmed after this moment, or with "not confirmed"."""
        self._confirmed_marks.ask(link, request)

    def ask_time(self, link: ClientLink, request: TimeRequest) -> None:
        """Answer a question about the time of a commit, after the answers of the storages."""
        self._times.ask(link, request)

    # Calls of the log

    def session_begun(self, session_id: int, unbroken: bool, high_water_mark: int) -> None:
        """A quorum of the storages has a new store session. A fence may have waited for it."""
        fence = self._sequencer.take_fence()
        self._fencing.store_session_begun(session_id, unbroken, fence, high_water_mark)
        if fence is not None:
            self._drain()

    def session_opened(self, high_water_mark: int, changed: bool) -> None:
        """A session has begun after ``high_water_mark``. The outcomes of all undecided appends have been reported
        before."""
        before = self.high_water_mark
        questions = self._sequencer.session_opened(high_water_mark, self._log.opened_generation)
        if high_water_mark != before:
            self._move_mark(before, high_water_mark)
            changed = True
        for pending in questions:
            self._answer(pending, Verdict.READY)
        self._undecided.clear()
        self._admission.begin(high_water_mark, changed)
        self._count_memory()
        self._drain()

    def session_ended(self, unwritten: Sequence[Append]) -> None:
        """Keep undecided appends, and the requests that wait for them, for the next session. Appends that were sent to
        no replica are examined again, because a client relies on the order of its commits: no older append commits
        after a newer one."""
        self._levels.session_ended()
        self._undecided.subtract(unwritten)
        self._sequencer.session_ended(cast("Sequence[AppendCall]", unwritten))
        self._count_memory()

    def batch_committed(self, appends: Sequence[Append], records: Sequence[bytes]) -> None:
        """A batch is committed: update the caches, feed the connections at the tip, then send the answers that waited
        for the batch."""
        first = appends[0].transaction_id
        count = len(appends)
        if self._levels.checks:
            self._levels.committed(first + count - 1)
        cached = records[0] if len(records) == 1 else b"".join(records)
        self._transaction_cache.add(self.partition_id, first, count, cached)
        frames = encode_feed_data(FEED_VERSION, map(_feed_item, appends))
        self._feed_cache.add(self.partition_id, first, frames)
        now_s = self._metrics.clock()
        self._metrics.successful_append.mark(count, now_s)
        for run in self._undecided.commit(appends, len(cached)):  # type: ignore[arg-type]  # the log's own arguments
            self._metrics.response_latency.update(now_s - run.accepted_s, run.size, now_s)
        decided = self._sequencer.committed(first + count - 1)
        if decided:
            # When a later append of a client arrives in its feed, the client takes an older append for lost.
            notices = lock_failures(decided)
            self._metrics.rejected_append.mark(sum(map(len, notices.values())))
            self._feed.committed(first, count, frames, notices)
            for _, pending in decided:
                if not pending.answered:
                    self._answer(pending, self._sequencer.reached(pending))
        else:
            self._feed.committed(first, count, frames)
        if self._memory.used_bytes or self._sequencer.size_bytes:
            self._count_memory()
        if self._sequencer.has_turn:
            self._drain()

    def failed(self, appends: Sequence[Append]) -> None:
        """Appends are certainly not in the log. Versions before 5 have no message for that: the client learns it by the
        flush after the next mount."""
        self._metrics.failed_append.mark(len(appends))
        self._undecided.subtract(appends)
        for append in cast("Sequence[AppendCall]", appends):
            self._tell_failed(append.run.link, [append], AppendFailure.NOT_STORED, "the storages had not stored it")
        self._count_memory()

    def stored_by_all(self, transaction_id: int, storage_count: int) -> None:
        """All storages have everything up to a committed transaction."""
        self._levels.stored_by_all(transaction_id, storage_count)

    def stored_by_some(self, marks: Sequence[int]) -> None:
        """What each assigned storage has acknowledged, descending."""
        self._levels.stored_by_some(marks)

    def drained(self) -> None:
        """The log is no longer congested."""
        self._drain()

    # Examining requests

    def _log_takes_more(self) -> bool:
        return self._log.takes_more and not (self._undecided.count and self._memory.exceeded)

    def _line_up(self, pending: Pending) -> bool:
        """Keep a request until it can be examined. Returns false if the partition must not keep more requests."""
        size_bytes = pending.size_bytes
        if not self._memory.admits(size_bytes):
            return False
        before_bytes = self._sequencer.size_bytes
        self._sequencer.line_up(pending)
        self._memory.add(self._sequencer.size_bytes - before_bytes)
        return True

    def _count_memory(self) -> None:
        """Update the memory of undecided appends and waiting requests."""
        used_bytes = self._sequencer.size_bytes
        if self._undecided.count:
            used_bytes += self._undecided.size_bytes
        if used_bytes != self._memory.used_bytes:
            self._memory.set(used_bytes)

    def refuse_appends(self, link: ClientLink, appends: Sequence[AppendCall], text: str) -> None:
        """Refuse appends without an examination. Clients whose version has no message for that learn it by a flush."""
        self._metrics.refused_append.mark(len(appends))
        self._log_quietly.warning(
            "partition %d: refused %d appends of %s: %s", self.partition_id, len(appends), link.channel.peer, text
        )
        self._tell_failed(link, appends, AppendFailure.MOVED, text)

    def _admit(self, link: ClientLink, requests: Sequence[AppendCall], write_session: int) -> None:
        """Check the write session and the locks, assign transaction ids, and hand the admitted appends to the log as
        one list."""
        if not self._fencing.session.admits(link.client_id, write_session):
            assert self.high_water_mark is not None
            self._fencing.refuse(link, requests, self.high_water_mark)
            return
        if self._orders.by_link:
            requests = self._in_order(link, requests)
            if not requests:
                return
        if write_session != NO_WRITE_SESSION:
            self._metrics.session_append.mark(len(requests))
        appends, conflicts, of_other_generation, lock_count = self._admission.admit(requests)
        if of_other_generation:
            self._metrics.other_generation_append.mark(len(of_other_generation))
            text = f"the partition has generation {self.generation}"
            self._tell_failed(link, of_other_generation, AppendFailure.GENERATION_MISMATCH, text)
        for conflict in conflicts:
            self._conflict(link, conflict, write_session)
        if appends:
            last_id, accepted_s = appends[-1].transaction_id, self._metrics.clock()
            run: AcceptedRun = _new_tuple(
                AcceptedRun, (link, last_id, len(appends), accepted_s, lock_count, write_session)
            )
            for append in appends:
                append.run = run
            self._undecided.accept(run, record_bytes_of(appends))
            self._log.append(appends)
            if self._levels.checks:
                self._levels.accepted(link, appends)
            if conflicts or self._undecided.size_bytes > _NOT_COUNTED_BYTES or self._memory.used_bytes:
                self._count_memory()
        elif conflicts:
            self._count_memory()

    def _in_order(self, link: ClientLink, requests: Sequence[AppendCall]) -> Sequence[AppendCall]:
        """Refuse the appends that would not get the ids that their client has foreseen; the others."""
        count = self._orders.admitted_count(link, requests, self._admission.next_id)
        if count < len(requests):
            self._metrics.out_of_order_append.mark(len(requests) - count)
            text = f"the next transaction is {self._admission.next_id + count}, and the client has foreseen another one"
            self._tell_failed(link, requests[count:], AppendFailure.OUT_OF_ORDER, text)
        return requests[:count]

    def _conflict(self, link: ClientLink, conflict: Conflict[AppendCall], write_session: int) -> None:
        """Report a lock failure, now or when the conflicting append is committed and fed (rule S4)."""
        if self._sequencer.refuse(link, conflict, write_session):
            self._metrics.rejected_append.mark()
            link.send(LockFailure(conflict.request.req_id, conflict.estimate))

    def _barrier(self, link: ClientLink, request: MountRequest | FlushRequest | SessionRequest) -> None:
        """Answer a request after all appends before it."""
        pending = Pending(link, request)
        self._take_turn(pending)
        if not pending.answered and type(request) is not FlushRequest:
            self._mounts.add(pending)

    def _take_turn(self, pending: Pending) -> None:
        if self._sequencer.is_free and self._log_takes_more():
            self._look(pending)
        elif not self._line_up(pending):
            self._expire(pending)

    def _look(self, pending: Pending) -> None:
        wait_s = self._fencing.wait_s(pending)
        if not wait_s:
            self._answer(pending, self._sequencer.look(pending, self._admission.next_id))
            return
        assert self.high_water_mark is not None
        self._fencing.stand_aside(pending, self.high_water_mark)
        if self._fence_timer is None:
            self._fence_timer = asyncio.get_running_loop().call_later(wait_s, self._look_at_early)

    def _look_at_early(self) -> None:
        """The interval between two fences has passed: the first waiting fence begins a store session, the others wait
        again."""
        self._fence_timer = None
        for pending in self._fencing.take_early():
            self._take_turn(pending)

    def _answer(self, pending: Pending, verdict: Verdict | None) -> None:
        """Carry out the decision of the sequencer: answer a request, or wait."""
        if verdict is not None and self._is_refused(pending):
            self._sequencer.expire(pending)
        elif verdict is Verdict.READY and (refusal := self._refusal(pending)) is not None:
            self._sequencer.expire(pending)
            request = pending.request
            if not (tells_refusal(request) and pending.link.refuse(request.req_id, refusal)):
                self._give_up(pending, refusal)
        elif isinstance(pending.request, AnyFeedRequest) and verdict is Verdict.READY:
            self._feed_again(pending.link, pending.request)
        elif verdict is not None and isinstance(pending.request, HeartbeatRequest | LastTransactionIdRequest):
            self._answer_session(pending, verdict)
        elif verdict is not None:
            self._answers.give(pending, verdict, self.high_water_mark)
        elif pending.awaits is Awaits.PROOF and self._proof is None:
            self._proof = owned(self._prove_mark(), f"proof of the mark of partition {self.partition_id}")

    def _give_up(self, pending: Pending, reason: str) -> None:
        """Answer a request that may not be executed any more, where no message tells that."""
        if isinstance(pending.request, HeartbeatRequest | LastTransactionIdRequest):
            self._fencing.give_up(pending, self.high_water_mark, reason)
        else:
            self._answers.give(pending, Verdict.UNKNOWN, self.high_water_mark)

    def _answer_session(self, pending: Pending, verdict: Verdict) -> None:
        mark = self.high_water_mark
        if verdict is not Verdict.READY or mark is None:
            self._fencing.give_up(pending, mark)
        elif self._fencing.answer(pending, mark):
            self._sequencer.fence_ended(pending)
        else:
            self._log.renew()

    def _feed_again(self, link: ClientLink, request: AnyFeedRequest) -> None:
        try:
            self.feed(link, request)
        except ProtocolError as error:
            link.fail(error)

    async def _confirmed_mark(self) -> int | None:
        return await self._log.confirmed_mark(self._options.answer_timeout_s / 2)

    async def _prove_mark(self) -> None:
        """Answer clients that have applied transactions above the mark of this server.

        Either the log has lost transactions, or the client has got them from another owner, and this server does not
        know yet that it was replaced. So the log is asked whether another server has written since.
        """
        try:
            while pendings := self._sequencer.take_unproved():
                try:
                    proved = await self._confirmed_mark() is not None
                except Exception:
                    logger.exception("partition %d: the mark could not be proved", self.partition_id)
                    proved = False
                for pending in pendings:
                    verdict = self._sequencer.prove(pending, proved, self._admission.next_id)
                    if verdict is Verdict.AHEAD:
                        self._note_claim(pending)
                    self._answer(pending, verdict)
        finally:
            self._proof = None

    def _note_claim(self, pending: Pending) -> None:
        """Note that a client has applied transactions beyond the proved end of the log."""
        claim, farthest = cast("AnyFeedRequest | MountRequest", pending.request), self._farthest_claim
        if farthest is None or claim.client_high_water_mark > farthest.client_high_water_mark:
            self._farthest_claim, self._claimant = claim, f"client {pending.link.channel.peer}"
            self._log_quietly.warning("partition %d: %s", self.partition_id, self.warnings[-1])

    def _drain(self) -> None:
        """Examine waiting requests while the log takes appends."""
        if self._draining:  # the log has called back during an append
            return
        self._draining = True
        work = 0
        try:
            while self._sequencer.has_turn and work < _MAX_WORK_PER_TURN and self._log_takes_more():
                pending, appends, cost = self._sequencer.take()
                if appends and (refusal := self._refusal(pending, len(appends))) is not None:
                    for append in appends:
                        if not pending.link.refuse(append.req_id, refusal):
                            self._tell_failed(pending.link, [append], AppendFailure.MOVED, refusal)
                elif appends:
                    self._admit(pending.link, appends, pending.write_session)
                elif isinstance(pending.request, AnyFeedRequest):
                    self._feed_again(pending.link, pending.request)
                else:
                    self._look(pending)
                work += cost
        finally:
            self._draining = False
        if work:
            self._count_memory()
        if work >= _MAX_WORK_PER_TURN and self._sequencer.has_turn and self._drain_handle is None:
            self._drain_handle = asyncio.get_running_loop().call_soon(self._drain_on)

    def _drain_on(self) -> None:
        self._drain_handle = None
        self._drain()

    def _move_mark(self, before: int | None, high_water_mark: int) -> None:
        """Take over the mark of a session that differs from the mark of the last commit."""
        if before is not None and high_water_mark < before:
            logger.critical(
                "partition %d: the storages have lost committed transactions %d to %d",
                self.partition_id,
                high_water_mark + 1,
                before,
            )
            self._feed_cache.forget(self.partition_id)
            self._transaction_cache.forget(self.partition_id)
        self._feed.advance(high_water_mark)

    def _expire(self, pending: Pending) -> None:
        """Answer a request with the present knowledge, because time or room has run out."""
        self._sequencer.expire(pending)
        self._answer(pending, Verdict.UNKNOWN)
        if self._sequencer.has_turn:  # a fence was before these appends
            self._drain()

    async def _read_headers(self, first: int, count: int) -> list[RecordHeader]:
        return await self._log.read_headers(first, count, self._options.read_timeout_s)

    async def _read_records(self, first: int, count: int, max_bytes: int) -> list[Record]:
        return await self._log.read(first, count, max_bytes, self._options.read_timeout_s)


def _check_mark(client_high_water_mark: int) -> None:
    if client_high_water_mark < NO_TRANSACTION:
        raise ProtocolError(f"{client_high_water_mark} is no high-water mark")
