"""One partition of a server: mounts, lock checks, order, and what follows a commit.

Requests are looked at in the order of their arrival, and only while the log has an open session (rule S3); until then
they wait. An append that passes the lock check gets its transaction id at once. Whatever depends on undecided ids (a
lock failure that would name one, a flush, a mount) waits for the commit of that id, be it in this session or when the
next one settles what this one has left, and is looked at again if there is none (rule S4). Nothing here is done per
record beyond the lock check: no task, no future, no timer.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, cast

from waltz.common.errors import ProtocolError
from waltz.common.ids import GENERATION_PART, LONG_MIN, NO_TRANSACTION, ReqId
from waltz.common.net.quiet_log import QuietLog
from waltz.common.records import Record, RecordHeader
from waltz.common.wire.client_server import (
    MAX_FEED_COUNT,
    AppendFailure,
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    MountRequest,
    MountResponse,
    PartitionClosed,
    PartitionState,
    TransactionDataListRequest,
    TransactionDataRequest,
    encode,
    encode_feed_data,
)
from waltz.common.wire.versions import FIRST_WITH_PARTIAL_MOUNTS, FIRST_WITH_PARTITION_CLOSED
from waltz.server.admission import Admission
from waltz.server.ahead import AheadClients
from waltz.server.appends import AcceptedRun, AppendCall
from waltz.server.caches import FeedCache, TransactionCache
from waltz.server.data_lists import TransactionListReader, refuse_list
from waltz.server.failures import tell_failed
from waltz.server.feed import Feed, FeedContext, Notices
from waltz.server.feed_frames import FEED_VERSION
from waltz.server.link import ClientLink
from waltz.server.locks import Conflict
from waltz.server.memory import MIN_SHARE_BYTES, MemoryBudget
from waltz.server.partition_metrics import PartitionMetrics
from waltz.server.registrations import Registrations
from waltz.server.replicated import LogFactory
from waltz.server.store.interface import Append
from waltz.server.store.replica_view import ReplicaView
from waltz.server.transaction_data import NOT_READY_TEXT, TransactionDataReader, error_response
from waltz.server.undecided import UndecidedAppends
from waltz.server.waiting import AwaitedCommits, Deadlines, Pending, WaitingRequest, WaitingRoom

logger = logging.getLogger(__name__)

_MAX_RUN = 256
"""Appends of one connection that are taken out of the waiting room together."""

_MAX_WORK_PER_TURN = 2000
"""Requests that waited, each with so many locks more, that are looked at in one turn of the loop."""

_LOCKS_PER_REQUEST = 10
"""Locks whose check takes about as long as everything else about a request."""

_NOT_COUNTED_BYTES = MIN_SHARE_BYTES // 4
"""A single append of no more than this is within what every partition may use, and committed before it is counted."""

APPENDS_DIVISOR = 4
"""The part of the free memory that the appends of one partition may use: one fourth."""


class PartitionOptions(NamedTuple):
    """Settings that all partitions of a server share."""

    lock_table_size: int = 30_000
    min_fetch_size: int = 100
    """Transactions that a feed request is good for, at least."""
    answer_timeout_s: float = 10.0
    """After this time a mount that cannot be decided is answered with "not ready", a question for an unknown mark
    with "unknown"."""
    read_timeout_s: float = 10.0
    max_undecided_count: int = 10_000
    """Flushes, mounts and lock failures that wait for commits, before further requests have to wait as a whole; and
    questions for an unknown mark, before further ones are answered with "unknown" at once."""


class ServerPartition:
    """A partition that this server owns. Implements the listener of its log. Everything runs on the loop."""

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
        self.high_water_mark: int | None = None
        """The last committed transaction; None before the first session of the log."""
        self._options = options
        self._metrics = metrics
        self._feed_cache = feed_cache
        self._transaction_cache = transaction_cache
        self._registrations = Registrations()
        self._log_quietly = QuietLog(logger)
        self._admission = Admission(options.lock_table_size, generation)
        self._undecided = UndecidedAppends()
        self._unwritten: list[AppendCall] = []
        self._session_open = False
        self._draining = False
        self._drain_handle: asyncio.Handle | None = None
        self.closed = False
        self._order = itertools.count()
        self._memory = memory.account(APPENDS_DIVISOR)
        self._waiting = WaitingRoom()
        self._mounts = Deadlines(options.answer_timeout_s, self._mount_expired)
        self._questions = Deadlines(options.answer_timeout_s, self._question_expired)
        self._after = AwaitedCommits()
        self._early: dict[ClientLink, Pending] = {}
        """Mounts by clients that know a newer generation than that of the session which runs."""
        self._leaving = AppendFailure.MOVED
        self._feed = Feed(partition_id, feed_cache, self._read_headers, metrics.feed_cache_miss.mark, random_source)
        self._data = TransactionDataReader(
            partition_id, transaction_cache, self._read_records, metrics.transaction_cache_miss.mark
        )
        self._lists = TransactionListReader(
            partition_id, transaction_cache, self._read_records, metrics.transaction_cache_miss.mark
        )
        self._ahead = AheadClients(f"proof of the mark of partition {partition_id}", self._prove, self._decide_ahead)
        self._log = log_factory(self)

    # Life

    def start(self) -> None:
        """Open the log, for ever, in the background."""
        self._metrics.add_gauges(
            {
                "pending-append": lambda: self._undecided.count,
                "append-queue-size": lambda: len(self._waiting),
                "is-closed": lambda: self.closed,
                "generation": lambda: self.generation,
                "high-water-mark": lambda: self.high_water_mark,
            }
        )
        self._metrics.add_counts(
            {
                "total-real-time-feed-context-added": lambda: self._feed.contexts_added,
                "total-real-time-feed-context-removed": lambda: self._feed.contexts_removed,
                "total-catchup-feed-context-added": lambda: self._feed.catch_up_added,
                "total-catchup-feed-context-removed": lambda: self._feed.catch_up_removed,
            }
        )
        self._metrics.add_replicas(lambda: self.replica_views)
        self._feed.start()
        self._log.start()

    def leave(self, reason: AppendFailure) -> None:
        """The server does not own the partition any more: tell the clients. :meth:`close` has to follow."""
        self.closed = True
        self._leaving = reason
        for link, session_id in self._registrations.sessions():
            if link.channel.version >= FIRST_WITH_PARTITION_CLOSED:
                link.send(PartitionClosed(session_id))

    async def close(self) -> None:
        """Close the log, then answer everybody who still waits for something that can be said."""
        if not self.closed:
            self.leave(self._leaving)
        try:
            await self._log.close()
        finally:
            self._session_open = False
            await self._ahead.close()
            self._refuse(self._take_what_is_void())
            self._refuse(self._waiting.clear())
            for pending in self._mounts.take():
                self._mount_expired(pending)
            for pending in self._questions.take():
                self._question_expired(pending)
            if self._drain_handle is not None:
                self._drain_handle.cancel()
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
        """What was never handed to a replica can be refused at once (rule S5)."""
        for pending in pendings:
            if type(pending.request) is AppendCall:
                text = (
                    "the server is stopping" if self._leaving is AppendFailure.STOPPING else "the partition has moved"
                )
                self._tell_failed(pending.link, [pending.request], self._leaving, text)

    def _tell_failed(self, link: ClientLink, appends: Sequence[Append], reason: AppendFailure, text: str) -> None:
        tell_failed(link, [append.req_id for append in appends], reason, self.high_water_mark, text)

    @property
    def generation(self) -> int:
        """The generation under which this server owns the partition."""
        return self._admission.generation

    @property
    def healthy(self) -> bool:
        """Whether the log says that it is."""
        return self._log.healthy

    @property
    def replica_views(self) -> Sequence[ReplicaView]:
        """Every replica as the log's session sees it."""
        return self._log.replica_views

    @property
    def registered_count(self) -> int:
        """Connections that have mounted the partition."""
        return len(self._registrations.sessions())

    def set_generation(self, generation: int) -> None:
        """A new assignment came; generations only grow.

        The log ends its session because of it. What is still admitted into that session is safe: it commits only if
        nobody else has written since the session began, and then the locks it was checked against are valid.
        """
        if generation > self.generation:
            self._admission.set_generation(generation)
            self._log.set_generation(generation)

    def set_replicas(self, replicas: frozenset[str]) -> None:
        """The storages of the partition changed."""
        self._log.set_replicas(replicas)

    def forget(self, link: ClientLink) -> None:
        """A connection that mounted has closed. What it sent before is executed all the same."""
        self._registrations.forget(link)
        self._early.pop(link, None)
        self._feed.forget(link)

    # Requests

    def append(self, link: ClientLink, requests: Sequence[AppendCall]) -> None:
        """Appends of one connection and one generation; dropped when the connection is not the mounted one."""
        self._metrics.transaction.mark(len(requests))
        if not self._registrations.is_valid(link):
            self._metrics.stale_append.mark(len(requests))
        elif self._ready():
            self._admit(link, requests)
        else:
            turned_away = [request for request in requests if self._wait(link, request) is None]
            if turned_away:
                self._refuse_appends(link, turned_away)

    def mount(self, link: ClientLink, request: MountRequest) -> None:
        """Register the connection, and answer when every earlier append is decided.

        A connection that its client has given up for another one is told "not ready". Raises ``ProtocolError`` for an
        impossible high-water mark.
        """
        _check_mark(request.client_high_water_mark)
        if self._registrations.register(link, ReqId(request.req_id).generation, request.req_id):
            link.mounts[self] = None
            self._feed.forget(link)  # what an earlier mount of the connection was promised
            self._barrier(link, request)
        else:
            link.send(MountResponse(request.req_id, PartitionState.NOT_READY))

    def flush(self, link: ClientLink, request: FlushRequest) -> None:
        """Answer when every earlier append, of whatever client, is decided."""
        self._barrier(link, request)

    def feed(self, link: ClientLink, request: FeedRequest) -> None:
        """Feed what was committed behind the client's mark: at most :data:`MAX_FEED_COUNT` transactions, and at least
        ``min_fetch_size`` (from version 5 on, if that is not more); then the client asks again. A client that is slow
        to apply does so when it has applied these, and need not stop reading what its other partitions are fed.

        Dropped when the connection is not the client's mounted one. Raises ``ProtocolError`` for an impossible mark.
        """
        _check_mark(request.client_high_water_mark)
        if not self._registrations.is_valid(link):
            return
        if self.high_water_mark is None:
            self._wait(link, request)
            return
        gap = self.high_water_mark - request.client_high_water_mark
        if gap < 0:
            self._ahead.add(Pending(link, request, next(self._order)))
            return
        suspended = encode(FeedSuspended(request.req_id), link.channel.version)
        count = max(min(gap, MAX_FEED_COUNT), self._options.min_fetch_size)
        if link.channel.version >= FIRST_WITH_PARTIAL_MOUNTS:
            count = min(count, MAX_FEED_COUNT)
        self._feed.add(FeedContext(link, request.client_high_water_mark, count, suspended))

    def transaction_data(self, link: ClientLink, request: TransactionDataRequest) -> None:
        """Answer with the data of one committed transaction, or why there is none."""
        if self.high_water_mark is None:
            link.send(error_response(request, NOT_READY_TEXT))
        else:
            self._data.request(link, request, self.high_water_mark)

    def transaction_list(self, link: ClientLink, request: TransactionDataListRequest) -> None:
        """Answer with consecutive committed transactions and their data."""
        if self.high_water_mark is None:
            refuse_list(link, request)
        else:
            self._lists.request(link, request, self.high_water_mark)

    def ask_high_water_mark(self, link: ClientLink, request: HighWaterMarkRequest) -> None:
        """Answer at once when the mark is known, else as soon as it is; in the end with "unknown".

        Not known is also a mark of a generation that is older than the one that the peer has heard of: another owner
        may have committed more between the two.
        """
        if self.high_water_mark is not None and ReqId(request.req_id).generation <= self._log.opened_generation:
            link.send(HighWaterMarkResponse(request.req_id, self.high_water_mark))
        elif len(self._questions) >= self._options.max_undecided_count:
            link.send(HighWaterMarkResponse(request.req_id, LONG_MIN))
        else:
            self._questions.add(Pending(link, request, next(self._order)))

    # The log's side

    def session_opened(self, high_water_mark: int, changed: bool) -> None:
        """A session has begun behind ``high_water_mark``; whatever was unresolved has been reported before."""
        if self.high_water_mark is None or high_water_mark != self.high_water_mark:
            self._move_mark(high_water_mark)
            changed = True
        for pending in self._questions.waiting():
            if ReqId(pending.request.req_id).generation <= self._log.opened_generation:
                pending.answered = True
                pending.link.send(HighWaterMarkResponse(pending.request.req_id, high_water_mark))
        self._admission.begin(high_water_mark, changed)
        self._waiting.put_back(self._take_what_is_void())
        self._session_open = True
        early, self._early = self._early, {}
        for pending in early.values():
            if not pending.answered:
                self._waiting.add(pending)
        self._count_memory()
        self._drain()

    def session_ended(self, unwritten: Sequence[Append]) -> None:
        """Whatever is undecided, and who waits for it, is kept for the next session.

        What that finds committed is told as in any other commit (rule S4). Everything else is looked at again, in the
        order of its arrival: a client takes it for granted that an append of its own which commits leaves none behind
        that might commit after it.
        """
        self._session_open = False
        self._unwritten.extend(_calls(unwritten))
        self._count_memory()

    def batch_committed(self, appends: Sequence[Append], records: Sequence[bytes]) -> None:
        """A batch is decided: caches, the feed of those at the tip, then the answers that waited for it."""
        first = appends[0].transaction_id
        count = len(appends)
        cached = records[0] if len(records) == 1 else b"".join(records)
        self._transaction_cache.add(self.partition_id, first, count, cached)
        frames = encode_feed_data(
            FEED_VERSION, [(append.req_id, append.transaction_id, append.header) for append in appends]
        )
        self._feed_cache.add(self.partition_id, first, frames)
        self.high_water_mark = first + count - 1
        self._metrics.successful_append.mark(count)
        now_s = self._metrics.clock()
        for run in self._undecided.commit(_calls(appends)):
            self._metrics.response_latency.update(now_s - run.accepted_s, run.size)
        decided = self._after.take(self.high_water_mark) if self._after else ()
        if decided:
            # A client takes an older append for lost as soon as a later one of its own comes in the feed.
            self._feed.committed(first, count, frames, self._lock_failures(decided))
            self._answer_decided(decided)
        else:
            self._feed.committed(first, count, frames)
        self._count_memory()
        if self._waiting:
            self._drain()

    def failed(self, appends: Sequence[Append]) -> None:
        """Known to be absent. Before version 5 there is no message for it: the flush after the next mount tells."""
        self._metrics.failed_append.mark(len(appends))
        self._undecided.subtract(len(appends))
        for append in _calls(appends):
            self._tell_failed(append.run.link, [append], AppendFailure.NOT_STORED, "the storages had not stored it")
        self._count_memory()

    def drained(self) -> None:
        """The log is no longer congested."""
        self._drain()

    # Looking at requests

    def _ready(self) -> bool:
        """Whether a request that arrives now is looked at now."""
        return not self._waiting and self._can_admit()

    def _can_admit(self) -> bool:
        return (
            self._session_open
            and self._log.open
            and not self._log.congested
            and len(self._after) < self._options.max_undecided_count
            and not (self._undecided.count and self._memory.exceeded)
        )

    def _wait(self, link: ClientLink, request: WaitingRequest) -> Pending | None:
        """Keep a request until it can be looked at; None when the partition may not keep more."""
        pending = Pending(link, request, next(self._order))
        if not self._memory.admits(pending.size_bytes):
            return None
        before_bytes = self._waiting.size_bytes
        self._waiting.add(pending)
        self._memory.add(self._waiting.size_bytes - before_bytes)
        return pending

    def _count_memory(self) -> None:
        """Undecided appends are in memory twice: as they came, and in the batches that go to the storages."""
        used_bytes = self._waiting.size_bytes + self._after.size_bytes
        if self._undecided.count:
            used_bytes += 2 * self._log.undecided_bytes + self._undecided.size_bytes
            used_bytes += sum(len(append.body) for append in self._unwritten)
        if used_bytes != self._memory.used_bytes:
            self._memory.set(used_bytes)

    def _refuse_appends(self, link: ClientLink, appends: Sequence[AppendCall]) -> None:
        """There is no room for them to wait. Clients that cannot be told find out by a flush."""
        self._metrics.refused_append.mark(len(appends))
        state = "do not keep up" if self._session_open else "cannot be written"
        text = f"the storages {state} at present"
        self._log_quietly.warning(
            "partition %d: refused %d appends of %s: %s", self.partition_id, len(appends), link.channel.peer, text
        )
        self._tell_failed(link, appends, AppendFailure.MOVED, text)

    def _admit(self, link: ClientLink, requests: Sequence[AppendCall]) -> None:
        """Check locks, give transaction ids, and hand what passed to the log as one list."""
        appends, conflicts, of_other_generation, lock_count = self._admission.admit(requests)
        if of_other_generation:
            self._metrics.other_generation_append.mark(len(of_other_generation))
            text = f"the partition has generation {self.generation}"
            self._tell_failed(link, of_other_generation, AppendFailure.GENERATION_MISMATCH, text)
        for conflict in conflicts:
            self._conflict(link, conflict)
        if appends:
            run = AcceptedRun(link, appends[-1].transaction_id, len(appends), self._metrics.clock(), lock_count)
            for append in appends:
                append.run = run
            self._undecided.accept(run)
            self._log.append(appends)
            if conflicts or self._undecided.count > 1 or lock_count or len(appends[0].body) > _NOT_COUNTED_BYTES:
                self._count_memory()
        elif conflicts:
            self._count_memory()

    def _conflict(self, link: ClientLink, conflict: Conflict[AppendCall]) -> None:
        """Tell a lock failure, now or when the conflicting append is committed and fed (rule S4)."""
        assert self.high_water_mark is not None
        if conflict.estimate <= self.high_water_mark:
            self._metrics.rejected_append.mark()
            link.send(LockFailure(conflict.request.req_id, conflict.estimate))
        else:
            self._await_commit(conflict.estimate, Pending(link, conflict.request, next(self._order)), conflict.next_id)

    def _await_commit(self, transaction_id: int, pending: Pending, next_id: int) -> None:
        pending.next_id = next_id
        self._after.add(transaction_id, pending)

    def _barrier(self, link: ClientLink, request: MountRequest | FlushRequest) -> None:
        """Answer a mount or flush behind all appends that came before it."""
        pending: Pending | None
        if self._ready():
            pending = Pending(link, request, next(self._order))
            self._await_decisions(pending)
        else:
            pending = self._wait(link, request)
        if type(request) is not MountRequest:
            return  # a flush that could not be kept is sent again by its client
        if pending is None:
            link.send(MountResponse(request.req_id, PartitionState.NOT_READY))
        elif not pending.answered:
            self._mounts.add(pending)

    def _await_decisions(self, pending: Pending) -> None:
        assert self.high_water_mark is not None
        last_id = self._admission.next_id - 1
        if last_id <= self.high_water_mark:
            self._answer(pending)
        else:
            self._await_commit(last_id, pending, last_id + 1)

    def _lock_failures(self, decided: Sequence[tuple[int, Pending]]) -> Notices:
        """The lock failures among requests that waited for commits, for the feeds of those who sent them (rule S4)."""
        failures: dict[ClientLink, list[tuple[int, bytes]]] = {}
        for conflict, pending in decided:
            link, request = pending.link, pending.request
            if type(request) is AppendCall:
                self._metrics.rejected_append.mark()
                frame = encode(LockFailure(request.req_id, conflict), link.channel.version)
                failures.setdefault(link, []).append((conflict, frame))
        return failures

    def _answer_decided(self, decided: Sequence[tuple[int, Pending]]) -> None:
        """Answer the mounts and flushes among requests that waited for commits, which have been fed."""
        for _, pending in decided:
            if type(pending.request) is not AppendCall:
                self._answer(pending)

    def _answer(self, pending: Pending) -> None:
        """A mount or flush whose earlier appends are all decided."""
        if pending.answered or pending.link.channel.closed:
            pending.answered = True
            return
        assert self.high_water_mark is not None
        request = pending.request
        if type(request) is MountRequest:
            if ReqId(request.req_id).generation > self._log.opened_generation:
                # The client has heard of an assignment that came after this session, and may have had an owner between
                # the two. What that owner has still in hand is decided only by a session of the newer generation.
                self._early[pending.link] = pending
                return
            if request.client_high_water_mark > self.high_water_mark:
                self._ahead.add(pending)
                return
        pending.answered = True
        if type(request) is MountRequest:
            self._answer_mount(pending.link, request, self.high_water_mark)
        else:
            pending.link.send(FlushResponse(request.req_id, self.high_water_mark))

    def _answer_mount(self, link: ClientLink, request: MountRequest, high_water_mark: int) -> None:
        gap = high_water_mark - request.client_high_water_mark
        ready = encode(MountResponse(request.req_id, PartitionState.READY), link.channel.version)
        if gap == 0:
            link.channel.send(ready)
            return
        if link.channel.version >= FIRST_WITH_PARTIAL_MOUNTS:
            gap = min(gap, MAX_FEED_COUNT)
        try:
            self._feed.add(FeedContext(link, request.client_high_water_mark, gap, ready))
        except ProtocolError as error:
            link.fail(error)

    def _decide_ahead(self, pendings: Sequence[Pending], proved: bool) -> None:
        """Requests from clients that have applied more than our mark; ``proved``: it is the log's."""
        for pending in pendings:
            request = pending.request
            assert self.high_water_mark is not None
            assert isinstance(request, MountRequest | FeedRequest)
            if pending.answered or pending.link.channel.closed:
                continue
            if not self._session_open:
                self._waiting.add(pending)
            elif request.client_high_water_mark <= self.high_water_mark:
                self._look_at(pending)
            elif type(request) is MountRequest:
                pending.answered = True
                state = PartitionState.CLIENT_AHEAD if proved else PartitionState.NOT_READY
                pending.link.send(MountResponse(request.req_id, state))
            elif proved:
                pending.link.fail(
                    ProtocolError(
                        f"feed of partition {self.partition_id} from {request.client_high_water_mark} on, "
                        f"which is above the high-water mark {self.high_water_mark}"
                    )
                )

    def _drain(self) -> None:
        """Look at the requests that waited, as long as the log takes appends."""
        if self._draining:  # the log called back while it was given an append
            return
        self._draining = True
        work = 0
        try:
            while self._waiting and work < _MAX_WORK_PER_TURN and self._can_admit():
                work += self._look_at(self._waiting.pop())
        finally:
            self._draining = False
        if work:
            self._count_memory()
        if work >= _MAX_WORK_PER_TURN and self._waiting and self._drain_handle is None:
            self._drain_handle = asyncio.get_running_loop().call_soon(self._drain_on)

    def _drain_on(self) -> None:
        self._drain_handle = None
        self._drain()

    def _look_at(self, pending: Pending) -> int:
        """Look at a request that waited, together with those behind it that belong to it; returns the work it was."""
        request = pending.request
        if type(request) is AppendCall:
            run = [request]
            lock_count = request.lock_count
            generation = request.req_id[GENERATION_PART]
            while self._waiting and len(run) < _MAX_RUN and self._waiting.first().link is pending.link:
                following = self._waiting.first().request
                if type(following) is not AppendCall or following.req_id[GENERATION_PART] != generation:
                    break
                if lock_count > _LOCKS_PER_REQUEST * _MAX_RUN:
                    break
                run.append(following)
                lock_count += following.lock_count
                self._waiting.pop()
            self._admit(pending.link, run)
            return len(run) + lock_count // _LOCKS_PER_REQUEST
        if type(request) is FeedRequest:
            try:
                self.feed(pending.link, request)
            except ProtocolError as error:
                pending.link.fail(error)
        else:
            pending.order = next(self._order)  # behind the appends that it waited behind, also if all are put back
            self._await_decisions(pending)
        return 1

    def _take_what_is_void(self) -> list[Pending]:
        """Take what is to be looked at again because nothing that an ended session was given can be committed any more.

        These are, in the order in which they were looked at, the requests that still wait for the commit of an id of
        that session, and the appends that no replica was given. No later append of the same client has been committed
        before any of these: what a session leaves undecided and the next one commits is a run from the oldest on;
        these, and whatever came behind them, lie beyond its end.
        """
        again = [((pending.next_id, 0, pending.order), pending) for pending in self._after.clear()]
        order = next(self._order)
        again += [
            ((append.transaction_id, 1, 0), Pending(append.run.link, append, order)) for append in self._unwritten
        ]
        self._unwritten.clear()
        self._undecided.clear()
        return [pending for _, pending in sorted(again, key=itemgetter(0))]

    # When the mark is not where the last commit left it

    def _move_mark(self, high_water_mark: int) -> None:
        """The mark of a session is not where the last commit left it."""
        before, self.high_water_mark = self.high_water_mark, high_water_mark
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

    def _mount_expired(self, pending: Pending) -> None:
        pending.answered = True
        pending.link.send(MountResponse(pending.request.req_id, PartitionState.NOT_READY))

    def _question_expired(self, pending: Pending) -> None:
        pending.answered = True
        pending.link.send(HighWaterMarkResponse(pending.request.req_id, LONG_MIN))

    async def _prove(self) -> bool:
        return await self._log.confirm(self._options.answer_timeout_s / 2)

    async def _read_headers(self, first: int, count: int) -> list[RecordHeader]:
        return await self._log.read_headers(first, count, self._options.read_timeout_s)

    async def _read_records(self, first: int, count: int, max_bytes: int) -> list[Record]:
        return await self._log.read(first, count, max_bytes, self._options.read_timeout_s)


def _calls(appends: Sequence[Append]) -> Sequence[AppendCall]:
    return cast("Sequence[AppendCall]", appends)  # the log gives back what it was given


def _check_mark(client_high_water_mark: int) -> None:
    if client_high_water_mark < NO_TRANSACTION:
        raise ProtocolError(f"{client_high_water_mark} is no high-water mark")
