"""The mount of one partition on the server that owns it, and the asking for its feed."""

import asyncio
import logging
from collections.abc import Callable

from waltz.client.engine.feed import PartitionFeed
from waltz.client.engine.links import ServerLink
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
    PartitionClosed,
    PartitionState,
    encode,
)
from waltz.common.wire.versions import FIRST_WITH_PARTIAL_MOUNTS

logger = logging.getLogger(__name__)


class Mount:
    """States: no link; link without connection; mount request to be sent; sent; not ready (a timer runs); ahead;
    catching up; mounted.

    A mount is asked for when little of what was received waits to be applied, and so is every further piece of the
    feed. What a server feeds for one request is bounded (from version 5 on), so that a partition that is applied slowly
    has a bounded backlog and the connection is read all the time.

    A server may call a mount ready before the client has been fed all. Then it is asked for its mark, and the partition
    counts as mounted when the client has applied that far: whoever appends has seen everything that was committed
    before the mount.

    ``changed`` is called at every change that somebody may wait for, ``mounted`` when the partition is mounted, and
    ``await_applied`` when :meth:`caught_up` is to be called as soon as a transaction is applied.
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
        options: ClientOptions,
    ) -> None:
        self.link: ServerLink | None = None
        """The server to mount on, as the cluster says."""
        self.channel: Channel | None = None
        """The connection on which the partition is mounted; ``None`` while it is not."""
        self.ahead = False
        """The server said that the client has applied more than there is."""
        self._partition_id = partition_id
        self._feed = feed
        self._next_req_id = next_req_id
        self._mounted = mounted
        self._await_applied = await_applied
        self._changed = changed
        self._options = options
        self._session: ReqId | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_s = options.mount_timeout_s
        self._ahead_delay_s = options.ahead_retry_initial_s
        self._mount_wanted = False
        self._fed_from = NO_TRANSACTION
        self._ready = False
        self._feed_wanted = False
        self._request_end_bytes = 0

    def attach(self, link: ServerLink) -> None:
        """Mount on this server from now on."""
        self.detach()
        self.link = link
        if link.channel is not None:
            self._send_request()

    def detach(self) -> None:
        """Not mounted, and not to be mounted. Nothing is sent: servers know no unmounting."""
        self._reset()
        self.link = None

    def restart(self) -> None:
        """Mount again on the same connection, because the partition on the server may be another one now."""
        if self.link is not None and self.link.channel is not None:
            self._send_request()

    def restart_later(self) -> None:
        """The same after a moment, because what made it necessary may happen again at once."""
        self._reset()
        self._timer = self._call_later(self._options.not_ready_retry_s, self._send_request)

    def link_ready(self) -> None:
        """The link has a connection."""
        self._send_request()

    def link_lost(self) -> None:
        """The link has lost its connection; it will have another one."""
        self._reset()

    def response(self, message: MountResponse) -> None:
        """The answer to a mount request; ignored unless it is that of the present session."""
        if message.req_id != self._session:
            return
        self._cancel_timer()
        self.ahead = False
        if message.state is PartitionState.READY:
            self._timeout_s = self._options.mount_timeout_s
            self._ahead_delay_s = self._options.ahead_retry_initial_s
            self._feed.offer_mounted(message)
        elif message.state is PartitionState.NOT_READY:
            self._timer = self._call_later(self._options.not_ready_retry_s, self._send_request)
        else:
            logger.error(
                "partition %d: the client has applied up to transaction %d, which the log does not have; is this the "
                "right cluster, and the right database?",
                self._partition_id,
                self._feed.received,
            )
            self.ahead = True
            self._changed()
            self._timer = self._call_later(self._ahead_delay_s, self._retry_ahead)
            self._ahead_delay_s = min(2 * self._ahead_delay_s, self._options.ahead_retry_maximum_s)

    def _retry_ahead(self) -> None:
        """Ask again: a server may have been wrong about the log, for example while it lost the partition."""
        self._send_request()
        self.ahead = self._session is not None

    def closed(self, message: PartitionClosed) -> None:
        """The server says that it does not own the partition any more (version 5). The cluster will tell who does.

        Should the partition come back to it without the cluster saying anything new, the mount is tried again.
        """
        if message.req_id == self._session:
            self._reset()
            self._timer = self._call_later(self._options.not_ready_retry_s, self._send_request)

    def reached(self, session_id: bytes) -> None:
        """Everything that came before the READY of this session has been applied."""
        link = self.link
        if session_id != self._session or link is None or link.channel is None:
            return
        self._ready = True
        version = link.channel.version
        if version >= FIRST_WITH_PARTIAL_MOUNTS and self._feed.received - self._fed_from >= MAX_FEED_COUNT:
            link.channel.send(encode(HighWaterMarkRequest(self._session), version))
            link.expect_answer()
            self._request_feed()
            return
        self.channel = link.channel
        self._mounted()
        self._request_feed()
        self._changed()

    def mark_told(self, message: HighWaterMarkResponse) -> None:
        """The mark that has to be applied before the partition is mounted. A server that does not know it has to say
        first whether it still owns the partition."""
        if message.req_id != self._session or not self._ready:
            return
        if message.transaction_id < NO_TRANSACTION:
            self.restart_later()
        else:
            self._await_applied(message.transaction_id, message.req_id)

    def caught_up(self, session_id: bytes) -> None:
        """The mark that the server told in this session is applied: the partition is mounted."""
        if session_id != self._session or not self._ready or self.channel is not None or self.link is None:
            return
        self.channel = self.link.channel
        self._mounted()
        self._changed()

    def feed_suspended(self, message: FeedSuspended) -> None:
        """The server has fed what it promised. More is asked for when not too much of it waits to be applied."""
        if message.req_id != self._session or not self._ready:
            return
        if self._feed.backlog <= self._options.feed_queue_low:
            self._request_feed()
        else:
            self._feed_wanted = True

    def backlog_is_low(self) -> None:
        """Much of what was waiting to be applied has been."""
        if self._mount_wanted:
            self._send_request()
        elif self._feed_wanted:
            self._request_feed()

    def _request_feed(self) -> None:
        link = self.link
        assert link is not None
        assert link.channel is not None
        assert self._session is not None
        self._feed_wanted = False
        link.channel.send(encode(FeedRequest(self._session, self._feed.received), link.channel.version))

    def _send_request(self) -> None:
        link = self.link
        if link is None or link.channel is None:
            return
        self._reset()
        if self._feed.backlog > self._options.feed_queue_low:
            self._mount_wanted = True
            return
        self._session = self._next_req_id()
        self._fed_from = self._feed.received
        request = MountRequest(self._session, self._fed_from, link.seq_num)
        link.channel.send(encode(request, link.channel.version))
        self._request_end_bytes = link.taken_bytes
        self._watch(link.left_bytes())

    def _watch(self, left_bytes: int) -> None:
        received = self._feed.received
        self._timer = self._call_later(self._timeout_s, lambda: self._check_progress(received, left_bytes))

    def _check_progress(self, received: int, left_bytes: int) -> None:
        """Progress is a feed that comes, and a request that is still leaving, behind large appends for example."""
        if self.link is None:
            return
        now_bytes = self.link.left_bytes()
        leaving = left_bytes < self._request_end_bytes and now_bytes > left_bytes
        if leaving or self._feed.received != received or self._feed.backlog:
            self._watch(now_bytes)
        else:
            waited_s = self._timeout_s
            self._timeout_s = min(2 * waited_s, self._options.mount_timeout_maximum_s)
            self.link.reconnect(f"partition {self._partition_id} was not mounted within {waited_s:g} s")

    def _reset(self) -> None:
        self._cancel_timer()
        self._session = None
        self._mount_wanted = False
        self._ready = False
        self._feed_wanted = False
        self.ahead = False
        if self.channel is not None:
            self.channel = None
            self._changed()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, callback)
