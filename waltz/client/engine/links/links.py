"""Connections to servers. Each is reopened for ever, with increasing sequence numbers."""

import asyncio
import logging
import math
import random
import ssl
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Protocol

from waltz.client.engine.links.assignments import Assigned, Assignments, Owner
from waltz.client.engine.links.silence import Silence
from waltz.client.engine.tasks import TaskOwner
from waltz.client.options import ClientOptions
from waltz.common.errors import (
    ConnectFailedError,
    ConnectionClosedError,
    DeadlineExceededError,
    ProtocolError,
    TlsRefusedError,
)
from waltz.common.ids import Endpoint, ReqId
from waltz.common.net.backoff import Backoff
from waltz.common.net.channel import CLOSE_TIMEOUT_S, Channel, ChannelHandler, connect
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import owned, restarting
from waltz.common.wire.client_server import (
    FED_CLIENT_SERVER,
    Message,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    encode,
)
from waltz.common.wire.frames import Bounds, Family
from waltz.common.wire.versions import FIRST_WITH_ASSIGNMENT

logger = logging.getLogger(__name__)

HELLO_TEXT = "Waltz Client"

UNMANAGED_CLIENT_ID = -1
"""The client id of tools outside of the cluster."""

LOOKS_PER_SILENCE = 60
"""The number of checks of a link within the limit of silence. The verdict is late by up to three checks."""


class Connector(Protocol):
    """A function that opens connections: :func:`waltz.common.net.channel.connect`, or the connector of tests or a mock
    driver."""

    async def __call__(
        self,
        endpoint: Endpoint,
        family: Family,
        hello_text: str,
        handler: ChannelHandler,
        *,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        keep_alive_interval_s: float | None = None,
    ) -> Channel:
        """Return a channel that is ready. Raises ``ConnectFailedError``."""
        ...


class SequenceNumbers:
    """The numbers of the connections to each endpoint: 0, 1, 2, ...

    The numbers never restart, even when a server disappears and returns. For a server, a connection with a number that
    is not higher than that of an earlier connection is stale, and the server drops its mounts (a defect of the
    original).
    """

    def __init__(self) -> None:
        self._next: dict[Endpoint, int] = {}

    def take(self, endpoint: Endpoint) -> int:
        """The number of the next connection to ``endpoint``."""
        number = self._next.get(endpoint, 0)
        self._next[endpoint] = number + 1
        return number


class LinkUser(Protocol):
    """The calls of a link to its user, in the event loop."""

    def link_ready(self, link: "ServerLink") -> None:
        """``link.channel`` is set, and its version is negotiated."""

    def link_received(self, link: "ServerLink", buffer: bytes, bounds: Bounds) -> None:
        """Frames have arrived over ``link.channel``. A ``ProtocolError`` closes the channel."""

    def link_writable(self, link: "ServerLink") -> None:
        """``link.channel`` is writable again."""

    def link_lost(self, link: "ServerLink", error: Exception) -> None:
        """``link.channel`` is ``None`` now, and another connection will be opened. Not called after the close of the
        link."""

    def link_refused(self, link: "ServerLink") -> None:
        """``link.refusal`` is set, so a longer wait is of little use. Attempts continue."""


class ServerLink:
    """Keeps a connection to ``endpoint`` from :meth:`start` to :meth:`close`.

    A connection that has received a message is replaced immediately when it breaks. There is a growing delay, unlike in
    the original, after a connection without any message (refused, TLS failure, no common version, closed after the
    hello), and after a connection that was closed because of its messages.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        user: LinkUser,
        seq_nums: SequenceNumbers,
        *,
        client_id: int,
        tls: ssl.SSLContext | None,
        options: ClientOptions,
        random_source: random.Random,
        watched: bool,
        connector: Connector = connect,
    ) -> None:
        self._connect = connector
        # With the id of the client: a server takes the id in the first message as the id of the connection.
        self._ping = ServerPartitionsAssignmentRequest(ReqId.of(client_id, 0, 0, 0))
        self.endpoint = endpoint
        self.channel: Channel | None = None
        """The connection, while it is ready for messages."""
        self.seq_num = -1
        """The sequence number of the present connection."""
        self.failure: ConnectFailedError | None = None
        """The error of the last attempt to connect; ``None`` after a success, or before the first attempt."""
        self.closed = False
        self._user = user
        self._seq_nums = seq_nums
        self._tls = tls
        self._options = options
        self._backoff = Backoff(options.reconnect_initial_s, options.reconnect_maximum_s, random_source)
        self._loop = asyncio.get_running_loop()
        self._outage = OutageLog(logger, self._loop.time)
        self._task: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Future[Channel]] = set()
        self._paused_by: set[Hashable] = set()
        self._useful = False
        self.receiving_at_s = -math.inf
        """The time, by the loop's clock, when :meth:`check_silence` last found that a part of a large message had
        arrived."""
        self._watched = watched
        self._pinged_at_s: float | None = None
        self._pings = 0
        self._condemned = False
        self._silence = Silence(self._loop.time())

    def __repr__(self) -> str:
        return f"<ServerLink {self.endpoint} #{self.seq_num}>"

    def start(self) -> None:
        """Begin to connect."""
        what = f"the connection to {self.endpoint}"
        self._task = owned(restarting(self._run_or_tell, what), what)

    async def close(self) -> None:
        """Close the connection for ever. Waiters get ``ConnectionClosedError``.

        Does not wait for a server without a requested sign of life: such a server would not answer the end of TLS
        either.
        """
        self.closed = True
        self._fail_waiters(ConnectionClosedError(f"the connection to {self.endpoint} is closed"))
        channel, self.channel = self.channel, None
        if channel is not None:
            if self._pinged_at_s is not None:
                channel.abort()
            channel.close()
        if self._task is not None:
            if channel is None:
                self._task.cancel()
            await asyncio.wait((self._task,))

    async def ready_channel(self, timeout_s: float) -> Channel:
        """The connection, when it is established.

        Raises ``ConnectFailedError`` when the present attempt fails, ``ConnectionClosedError`` when the link is closed,
        and ``DeadlineExceededError``.
        """
        if self.channel is not None:
            return self.channel
        if self.closed:
            raise ConnectionClosedError(f"the connection to {self.endpoint} is closed")
        waiter: asyncio.Future[Channel] = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            reason = "" if self.failure is None else f": {self.failure}"
            raise DeadlineExceededError(
                f"no connection to {self.endpoint} within {timeout_s:g} s{reason}"
            ) from self.failure
        finally:
            self._waiters.discard(waiter)

    @property
    def refusal(self) -> TlsRefusedError | None:
        """The reason of the refusal by TLS, if the last attempt to connect ended with one."""
        return self.failure if isinstance(self.failure, TlsRefusedError) else None

    def reconnect(self, reason: str) -> None:
        """Give up the present connection and open another one."""
        if self.channel is not None:
            logger.warning("replacing the connection to %s: %s", self.endpoint, reason)
            self.channel.abort(ConnectionClosedError(reason))

    def expect_answer(self) -> None:
        """Note that a message was sent that the server has to answer.

        No effect on a watched connection: its clock counts from the last traffic, and must not restart with every
        question.
        """
        channel = self.channel
        if channel is not None and not (self._watched and _answers_pings(channel)):
            self._silence.expect(channel.taken_bytes, self._loop.time())

    def check_silence(self) -> None:
        """Replace the connection after too long a time without any traffic. Called often.

        After half of the time, the server gets a question that it can always answer immediately, and has the other half
        for the answer. That is done while an answer is awaited. On a watched link it is always done, so that a
        connection with only a feed, or with undecided appends, is known to be alive, too.

        Two checks have to agree: a delayed process reads waiting messages in between.
        """
        channel, silence, now_s = self.channel, self._silence, self._loop.time()
        if channel is None:
            return
        if silence.look(channel.taken_bytes, channel.left_bytes(), channel.received_bytes, now_s) and channel.receiving:
            self.receiving_at_s = now_s
        if self._paused_by:
            silence.excuse(now_s)
        limit_s = self._options.silence_limit_s
        quiet_s = silence.quiet_s(now_s)
        condemned, self._condemned = self._condemned, False
        if quiet_s < limit_s / 2 or not (self._watched or silence.expecting):
            return
        if self._pinged_at_s is None and _answers_pings(channel):
            self._pinged_at_s = now_s
            self._pings += 1
            channel.send(encode(self._ping, channel.version))
        elif quiet_s >= limit_s and (
            silence.expecting if self._pinged_at_s is None else now_s - self._pinged_at_s >= limit_s / 2
        ):
            self._condemned = True
            if condemned:
                self.reconnect(f"no sign of life for {limit_s:g} s")

    def answers_ping(self, message: Message) -> bool:
        """Whether a message is the answer to a question of :meth:`check_silence`. Called once for each message."""
        if not self._pings or type(message) is not ServerPartitionsAssignmentResponse:
            return False
        self._pings -= 1
        return True

    @property
    def taken_bytes(self) -> int:
        """The end of the last request, counted in all bytes handed to the present connection."""
        return 0 if self.channel is None else self.channel.taken_bytes

    def left_bytes(self) -> int:
        """The number of these bytes that have left this machine."""
        return 0 if self.channel is None else self.channel.left_bytes()

    def pause(self, who: Hashable) -> None:
        """Stop reading until every caller has called :meth:`resume`."""
        self._paused_by.add(who)
        if self.channel is not None:
            self.channel.pause_reading()

    def resume(self, who: Hashable) -> None:
        """Continue reading, unless another caller of :meth:`pause` has not resumed yet."""
        if who in self._paused_by:
            self._paused_by.remove(who)
            if not self._paused_by and self.channel is not None:
                self.channel.resume_reading()

    # Calls of the channel: this is its ChannelHandler

    def channel_ready(self, channel: Channel) -> None:
        if self.closed:
            channel.abort()
            return
        self.channel = channel
        self.failure = None
        self._useful = self._condemned = False
        self._pinged_at_s = None
        self._pings = 0
        self._silence = Silence(self._loop.time())
        if self._paused_by:
            channel.pause_reading()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(channel)
        self._user.link_ready(self)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        if channel is self.channel:
            self._useful = True
            self._pinged_at_s = None
            self._silence.answered()
            self._user.link_received(self, buffer, bounds)

    def channel_writable(self, channel: Channel) -> None:
        if channel is self.channel:
            self._user.link_writable(self)

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        if channel is not self.channel:
            return
        self.channel = None
        if isinstance(error, ProtocolError):
            self._useful = False
        self._paused_by.clear()  # partitions mount on the next connection when there is room for their feed
        cause = error or ConnectionClosedError(f"{self.endpoint} closed the connection")
        logger.debug("connection to %s lost: %s", self.endpoint, cause)
        self._user.link_lost(self, cause)

    async def _run_or_tell(self) -> None:
        try:
            await self._run()
        except Exception as error:
            self.reconnect(f"a defect: {error!r}")
            self._fail_waiters(ConnectFailedError(f"cannot connect to {self.endpoint}: {error!r}"))
            raise

    async def _run(self) -> None:
        while not self.closed:
            self.seq_num = self._seq_nums.take(self.endpoint)
            if await self._connect_once():
                self._backoff.reset()
            elif not self.closed:
                await asyncio.sleep(self._backoff.next_delay_s())

    async def _connect_once(self) -> bool:
        """Open one connection and serve it to its end. Returns whether it was of any use."""
        options = self._options
        try:
            channel = await self._connect(
                self.endpoint,
                FED_CLIENT_SERVER,
                HELLO_TEXT,
                self,
                tls=self._tls,
                timeout_s=options.connect_timeout_s,
                keep_alive_interval_s=options.keep_alive_interval_s,
            )
        except ConnectFailedError as error:
            self._outage.failed(str(error))
            self.failure = error
            self._fail_waiters(error)
            if self.refusal is not None and not self.closed:
                self._user.link_refused(self)
            return False
        self._outage.over()
        await channel.wait_closed()
        return self._useful

    def _fail_waiters(self, error: Exception) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                failure = type(error)(str(error))  # one exception for each waiter, because each gets its own traceback
                failure.__cause__ = error
                waiter.set_exception(failure)


def _answers_pings(channel: Channel) -> bool:
    return channel.version >= FIRST_WITH_ASSIGNMENT


class Links:
    """One link to each requested server, and the known owners of partitions.

    ``watched`` links ask for signs of life even while no answer is awaited.
    """

    def __init__(
        self,
        user: LinkUser,
        *,
        tls: ssl.SSLContext | None,
        options: ClientOptions,
        random_source: random.Random,
        watched: bool,
        connector: Connector,
    ) -> None:
        self.closed = False
        self.client_id = UNMANAGED_CLIENT_ID
        """The user of new links."""
        self._user = user
        self._tls = tls
        self._options = options
        self._random = random_source
        self._watched = watched
        self._connector = connector
        self._seq_nums = SequenceNumbers()
        self._links: dict[Endpoint, ServerLink] = {}
        self._assignments = Assignments()
        self._closing = TaskOwner()

    def __iter__(self) -> Iterator[ServerLink]:
        return iter(list(self._links.values()))

    def __contains__(self, link: ServerLink) -> bool:
        return self._links.get(link.endpoint) is link

    def assign(self, endpoints: Mapping[Endpoint, Sequence[Assigned]]) -> dict[int, Owner]:
        """Take the owners of the partitions from the cluster. Returns the partitions with changes."""
        return {} if self.closed else self._assignments.update(endpoints)

    def owner(self, partition_id: int) -> Owner | None:
        """The server of a partition, if known."""
        return self._assignments.owner(partition_id)

    def to(self, endpoint: Endpoint) -> ServerLink:
        """The link to a server. A new link begins to connect."""
        link = self._links.get(endpoint)
        if link is None:
            link = self._links[endpoint] = ServerLink(
                endpoint,
                self._user,
                self._seq_nums,
                client_id=self.client_id,
                tls=self._tls,
                options=self._options,
                random_source=self._random,
                watched=self._watched,
                connector=self._connector,
            )
            link.start()
        return link

    def remove(self, endpoint: Endpoint) -> ServerLink | None:
        """Remove a server that has left the cluster. Returns its link, if there was one; the link is being closed."""
        self._assignments.remove(endpoint)
        link = self._links.pop(endpoint, None)
        if link is not None:
            self._closing.spawn(link.close(), f"closing the connection to {endpoint}")
        return link

    async def close(self) -> None:
        """Close all links."""
        self.closed = True
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link in links.values()))
        await self._closing.close(CLOSE_TIMEOUT_S)  # an early cancellation would leave a link that connects for ever
