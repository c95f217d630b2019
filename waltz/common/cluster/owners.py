"""Questions to the server that owns a partition, for readers of the log other than clients.

A client of Waltz keeps connections, mounts partitions and follows them. A bulk read, a repair or a checker only asks
the present owner of a partition a few questions: :func:`read_owners` finds the owner, an :class:`OwnerConnection`
transports the questions.
"""

import asyncio
import functools
import ssl
from collections.abc import Callable
from typing import NamedTuple, Self

from waltz.common.errors import ConnectionClosedError
from waltz.common.ids import Endpoint, ReqId
from waltz.common.net.channel import Channel, connect
from waltz.common.wire.client_server import Message, decode, encode
from waltz.common.wire.frames import CLIENT_SERVER, Bounds
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import read_partition_assignment, read_server_descriptors

HELLO_TEXT = "Waltz Reader"

CLIENT_ID = -1
"""The client id in request ids of tools and servers."""

RETRY_INITIAL_S = 0.1
RETRY_MAXIMUM_S = 2.0
"""The longest pause between attempts while a partition changes its owner."""

CLOSE_TIMEOUT_S = 5.0

_REQ_ID_START, _REQ_ID_END = 1, 17  # behind the type


class Owner(NamedTuple):
    """The owner of a partition."""

    server_id: int
    endpoint: Endpoint | None
    """``None``: the server has left the cluster, and no server has taken over the partition yet."""
    generation: int


class Answer(NamedTuple):
    """The frame of an answer."""

    buffer: bytes
    start: int
    end: int
    version: int
    """Version of the protocol."""

    def decode(self) -> Message:
        """The message. Raises ``ProtocolError``."""
        return decode(self.buffer, self.start, self.end, self.version)


async def read_owners(zookeeper: ZooKeeper, root: str) -> dict[int, Owner]:
    """The owner of every partition with an owner. Raises ``WaltzError`` of ZooKeeper.

    The answer may lag. A caller that needs an owner with all earlier commits first calls ``sync_cluster``.
    """
    assignment = await read_partition_assignment(zookeeper, root)
    endpoints = {server.server_id: server.endpoint for server in await read_server_descriptors(zookeeper, root)}
    return {
        partition_id: Owner(server_id, endpoints.get(server_id), generation)
        for server_id, owned in assignment.servers.items()
        for partition_id, generation in owned
    }


class OwnerConnection:
    """One connection to a server, for any number of requests at a time; a ``ChannelHandler``."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Made by :meth:`open`."""
        self.endpoint = endpoint
        self._channel: Channel | None = None
        self._unanswered: dict[bytes, asyncio.Future[Answer]] = {}
        self._given_up = False
        self._requests = 0

    @classmethod
    async def open(cls, endpoint: Endpoint, *, tls: ssl.SSLContext | None, timeout_s: float) -> Self:
        """Connect. Raises ``ConnectFailedError``."""
        connection = cls(endpoint)
        connection._channel = await connect(
            endpoint, CLIENT_SERVER, HELLO_TEXT, connection, tls=tls, timeout_s=timeout_s
        )
        return connection

    @property
    def channel(self) -> Channel:
        """The channel under it. Raises ``ConnectionClosedError`` when it has been closed."""
        if self._channel is None or self._channel.closed:
            raise ConnectionClosedError(f"the connection to server {self.endpoint} is closed")
        return self._channel

    def send(self, partition_id: int, generation: int, request: Callable[[ReqId], Message]) -> asyncio.Future[Answer]:
        """Send the message that ``request`` makes from a new request id. The future gets the answer.

        The future may fail with ``ConnectionClosedError``. Without an answer it stays pending, so the caller has to set
        a limit and cancel it. This call raises ``ConnectionClosedError`` when the connection is closed already, and
        ``ProtocolError`` when the negotiated version has no such message.
        """
        channel = self.channel
        req_id = ReqId.of(CLIENT_ID, generation, partition_id, self._requests)
        frame = encode(request(req_id), channel.version)
        self._requests += 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._unanswered[bytes(req_id)] = answer
        answer.add_done_callback(functools.partial(self._forget, bytes(req_id)))
        channel.send(frame)
        return answer

    async def close(self) -> None:
        """Close the connection. Open requests get no answer.

        After a request that timed out, the close does not wait for the server: such a server would not answer the end
        of TLS.
        """
        channel = self._channel
        if channel is not None:
            if self._given_up:
                channel.abort()
            await channel.close_within(CLOSE_TIMEOUT_S)

    # ChannelHandler

    def channel_ready(self, channel: Channel) -> None:
        pass

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for start, end in bounds:
            answer = self._unanswered.get(buffer[start + _REQ_ID_START : start + _REQ_ID_END])
            if answer is not None and not answer.done():
                answer.set_result(Answer(buffer, start, end, channel.version))

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        reason = f": {error}" if error is not None else ""
        for answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(ConnectionClosedError(f"server {self.endpoint} closed the connection{reason}"))
                answer.exception()  # retrieved, so that asyncio does not report it: no caller may be waiting

    def _forget(self, req_id: bytes, answer: asyncio.Future[Answer]) -> None:
        self._unanswered.pop(req_id, None)
        self._given_up = self._given_up or answer.cancelled()
