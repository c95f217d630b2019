"""The mount of one partition on the server that owns it, and the requests for its feed."""

import asyncio
import logging
from collections.abc import Callable

from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.partition.feed import PartitionFeed
from waltz.client.engine.partition.mount_states import SESSION_STATES, Action, Event, State, next_step
from waltz.client.errors import NotAuthorizedError, TrimmedError
from waltz.client.options import ClientOptions
from waltz.common.ids import NO_TRANSACTION, ReqId
from waltz.common.net.channel import Channel
from waltz.common.wire.client_server import (
    MAX_FEED_COUNT,
    FeedRequest,
    FeedSuspended,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountRequest,
    MountResponse,
    PartitionState,
    encode,
)
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.version5 import PartitionClosed
from waltz.common.wire.versions import FIRST_WITH_MARK_FEED, FIRST_WITH_PARTIAL_MOUNTS

logger = logging.getLogger(__name__)

_ANSWERS = {
    PartitionState.READY: Event.ANSWER_READY,
    PartitionState.NOT_READY: Event.ANSWER_NOT_READY,
    PartitionState.CLIENT_AHEAD: Event.ANSWER_AHEAD,
}


class Mount:
    """The mount of one partition. Reports events to :mod:`~waltz.client.engine.partition.mount_states`, and carries out
    the steps of its table.

    A mount, and every further part of the feed, is requested when few received transactions wait. From version 5 on,
    the answer of a server to one request is bounded. So a slow partition has a bounded backlog, and the connection is
    always read.

    A server may answer that a mount is ready before the client has got all transactions. Then the server is asked for
    its mark, and the partition counts as mounted when the client has applied all transactions up to the mark: an append
    has to know all transactions committed before the mount.

    ``changed`` is called at every change that calls may wait for, ``mounted`` when the partition is mounted.
    ``await_applied`` is called with a transaction; when the transaction is applied, :meth:`caught_up` has to be called.
    ``needs_headers`` returns whether transactions have to be fed: for a client without an applier and without undecided
    appends, marks are enough.
    """

    def __init__(
        self,
        partition_id: int,
        feed: PartitionFeed,
        *,
        next_req_id: Callable[[], ReqId],
        mounted: Callable[[], None],
        await_applied: Callable[[int, bytes], None],
        changed: Callable[[], None],
        needs_headers: Callable[[], bool],
        options: ClientOptions,
    ) -> None:
        self.state = State.UNASSIGNED
        self.link: ServerLink | None = None
        """The server to mount on, according to the cluster."""
        self.channel: Channel | None = None
        """The connection on which the partition is mounted; ``None`` while it is not."""
        self.fed_marks = False
        """Whether the server was last asked for marks instead of transactions."""
        self.refusal: NotAuthorizedError | TrimmedError | None = None
        """The reason why the server refuses the mount, or has ended it. The server is asked again after pauses."""
        self._partition_id = partition_id
        self._feed = feed
        self._next_req_id = next_req_id
        self._mounted = mounted
        self._await_applied = await_applied
        self._changed = changed
        self._needs_headers = needs_headers
        self._options = options
        self._session: ReqId | None = None
        """The id of the present mount request."""
        self._answer: MountResponse | None = None
        self._mark = NO_TRANSACTION
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_s = options.mount_timeout_s
        self._ahead_delay_s = options.ahead_retry_initial_s
        self._fed_from = NO_TRANSACTION
        self._feed_waits_for_room = False
        self._request_end_bytes = 0
        self._actions: dict[Action, Callable[[], None]] = {
            Action.LOOK_FOR_ROOM: self._look_for_room,
            Action.REQUEST: self._request,
            Action.PAUSE: self._pause,
            Action.REPORT_AHEAD: self._report_ahead,
            Action.AWAIT_FED: self._await_fed,
            Action.REQUEST_MARK: self._request_mark,
            Action.AWAIT_MARK: self._await_mark,
            Action.BEGIN_WITH_FEED: self._begin_with_feed,
            Action.BEGIN: self._begin,
            Action.REQUEST_FEED: self._request_feed_when_low,
            Action.RESUME_FEED: self._resume_feed,
            Action.RECONNECT: self._reconnect,
        }

    @property
    def ahead(self) -> bool:
        """Whether, according to the server, the client has applied more than is in the log."""
        return self.state is State.AHEAD or self.state is State.REQUESTED_AHEAD

    @property
    def session_id(self) -> bytes | None:
        """The request id of the present mount; ``None`` while none is under way."""
        return self._session

    # Events

    def attach(self, link: ServerLink) -> None:
        """Mount on this server from now on."""
        self.detach()
        self.link = link
        self._step(Event.ASSIGN)
        if link.channel is not None:
            self._step(Event.CONNECT)

    def detach(self) -> None:
        """End the mount. Nothing is sent, because the protocol has no message for that."""
        self._step(Event.LEAVE)
        self.link = None
        self.refusal = None

    def restart(self) -> None:
        """Mount again on the same connection, because the partition object at the server may be a new one."""
        self._step(Event.RESTART)

    def restart_later(self) -> None:
        """Mount again after a moment, because the cause of the feed's break may recur immediately."""
        self._step(Event.BREAK_OFF)

    def link_ready(self) -> None:
        """The link has a connection."""
        self._step(Event.CONNECT)

    def link_lost(self) -> None:
        """The link has lost its connection, and will have another one."""
        self._step(Event.LOSE)

    def response(self, message: MountResponse) -> None:
        """Take the answer to a mount request. Ignored unless the request is the present one."""
        if message.req_id == self._session:
            self.refusal = None
            self._answer = message
            self._step(_ANSWERS[message.state])

    def closed(self, message: PartitionClosed) -> None:
        """The server does not own the partition any more (version 5). The cluster will report the new owner.

        The mount is repeated, in case the partition returns to the server without a report of the cluster.
        """
        if message.req_id == self._session:
            self._step(Event.CLOSED)

    def refused(self, message: NotAuthorized) -> bool:
        """The client lacks a right, according to the server (version 6). False if that concerns another request."""
        if message.req_id != self._session:
            return False
        if self.refusal is None:
            logger.warning("partition %d is not mounted: %s", self._partition_id, message.text)
        self.refusal = NotAuthorizedError(message.text)
        self._step(Event.CLOSED)
        self._changed()
        return True

    def trimmed(self, message: Trimmed) -> None:
        """The client needs transactions that are trimmed, according to the server (version 6)."""
        if message.req_id != self._session:
            return
        error = TrimmedError(self._partition_id, message.transaction_id)
        if self.refusal is None:
            logger.error("%s; the client needs transaction %d", error, self._feed.received + 1)
        self.refusal = error
        self._step(Event.CLOSED)
        self._changed()

    def raise_refusal(self) -> None:
        """Raise the reason why the server refuses the mount, if there is one."""
        refusal = self.refusal
        if isinstance(refusal, TrimmedError):
            raise TrimmedError(refusal.partition_id, refusal.first_available)
        if refusal is not None:
            raise NotAuthorizedError(str(refusal))

    def reached(self, session_id: bytes) -> None:
        """All transactions before the READY of this session are applied."""
        if session_id != self._session:
            return
        partial = self._live_channel().version >= FIRST_WITH_PARTIAL_MOUNTS
        if partial and self._feed.received - self._fed_from >= MAX_FEED_COUNT:
            self._step(Event.APPLIED_PART)
        else:
            self._step(Event.APPLIED)

    def mark_told(self, message: HighWaterMarkResponse) -> None:
        """Take the mark that has to be applied before the partition is mounted.

        A server that does not know its mark first has to answer whether it still owns the partition.
        """
        if message.req_id != self._session:
            return
        if message.transaction_id < NO_TRANSACTION:
            self._step(Event.NO_MARK)
        else:
            self._mark = message.transaction_id
            self._step(Event.MARK)

    def caught_up(self, session_id: bytes) -> None:
        """All transactions up to the server's mark in this session are applied."""
        if session_id == self._session:
            self._step(Event.CAUGHT_UP)

    def feed_suspended(self, message: FeedSuspended) -> None:
        """The server has fed the requested number of transactions."""
        if message.req_id == self._session:
            self._step(Event.FEED_ENDED)

    def backlog_is_low(self) -> None:
        """Few received transactions wait: ask for more of the feed."""
        self._step(Event.ROOM)

    def _step(self, event: Event) -> None:
        before = self.state
        self.state, action = next_step(before, event)
        if self.state is not before:
            self._cancel_timer()
            if self.state not in SESSION_STATES:
                self._session = None
                self._feed_waits_for_room = False
                self.fed_marks = False
            if self.channel is not None:
                self.channel = None
                self._changed()
        if action is not None:
            self._actions[action]()

    # Actions

    def _look_for_room(self) -> None:
        if self._feed.backlog <= self._options.feed_queue_low:
            self._step(Event.ROOM)

    def _request(self) -> None:
        assert self.link is not None
        channel = self._live_channel()
        self._session = self._next_req_id()
        self._fed_from = self._feed.received
        channel.send(encode(MountRequest(self._session, self._fed_from, self.link.seq_num), channel.version))
        self._request_end_bytes = self.link.taken_bytes
        self._watch(self.link.left_bytes())

    def _watch(self, left_bytes: int) -> None:
        received = self._feed.received
        self._call_later(self._timeout_s, lambda: self._check_progress(received, left_bytes))

    def _check_progress(self, received: int, left_bytes: int) -> None:
        """Check the progress: parts of the feed that arrive, or a request that is still leaving behind large
        appends."""
        assert self.link is not None
        now_bytes = self.link.left_bytes()
        leaving = left_bytes < self._request_end_bytes and now_bytes > left_bytes
        if leaving or self._feed.received != received or self._feed.backlog:
            self._watch(now_bytes)
        else:
            self._step(Event.STALL)

    def _reconnect(self) -> None:
        assert self.link is not None
        waited_s = self._timeout_s
        self._timeout_s = min(2 * waited_s, self._options.mount_timeout_maximum_s)
        self.link.reconnect(f"partition {self._partition_id} was not mounted within {waited_s:g} s")

    def _pause(self) -> None:
        self._call_later(self._options.not_ready_retry_s, lambda: self._step(Event.TIME))

    def _report_ahead(self) -> None:
        """Report that the client is ahead, and ask again, because a server that is losing the partition may be
        wrong."""
        logger.error(
            "partition %d: the client has applied up to transaction %d, which the log does not have; is this the "
            "right cluster, and the right database?",
            self._partition_id,
            self._feed.received,
        )
        self._changed()
        self._call_later(self._ahead_delay_s, lambda: self._step(Event.TIME))
        self._ahead_delay_s = min(2 * self._ahead_delay_s, self._options.ahead_retry_maximum_s)

    def _await_fed(self) -> None:
        self._timeout_s = self._options.mount_timeout_s
        self._ahead_delay_s = self._options.ahead_retry_initial_s
        assert self._answer is not None
        self._feed.offer_mounted(self._answer)

    def _request_mark(self) -> None:
        assert self.link is not None
        assert self._session is not None
        channel = self._live_channel()
        channel.send(encode(HighWaterMarkRequest(self._session), channel.version))
        self.link.expect_answer()
        self._request_feed()

    def _await_mark(self) -> None:
        assert self._session is not None
        self._await_applied(self._mark, self._session)

    def _begin_with_feed(self) -> None:
        self.channel = self._live_channel()
        self._mounted()
        self._request_feed()
        self._changed()

    def _begin(self) -> None:
        self.channel = self._live_channel()
        self._mounted()
        self._changed()

    def _request_feed_when_low(self) -> None:
        if self._feed.backlog <= self._options.feed_queue_low:
            self._request_feed()
        else:
            self._feed_waits_for_room = True

    def _resume_feed(self) -> None:
        if self._feed_waits_for_room:
            self._request_feed()

    def _request_feed(self) -> None:
        assert self._session is not None
        channel = self._live_channel()
        self._feed_waits_for_room = False
        self.fed_marks = channel.version >= FIRST_WITH_MARK_FEED and not self._needs_headers()
        kind = MarkFeedRequest if self.fed_marks else FeedRequest
        channel.send(encode(kind(self._session, self._feed.received), channel.version))

    def request_headers(self) -> None:
        """Request the feed of transactions before an append leaves."""
        assert self._session is not None
        channel = self._live_channel()
        self.fed_marks = False
        channel.send(encode(FeedRequest(self._session, self._feed.received), channel.version))

    def _live_channel(self) -> Channel:
        assert self.link is not None
        assert self.link.channel is not None
        return self.link.channel

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_s, callback)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
