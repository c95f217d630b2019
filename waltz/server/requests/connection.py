"""One client connection: reads frames, and hands requests to their partitions."""

import logging
from collections.abc import Sequence
from typing import Protocol

from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.net.channel import Channel
from waltz.common.net.limits import OPENING_PAYLOAD_BYTES
from waltz.common.wire.append_request import session_of_run
from waltz.common.wire.client_server import Message, MountRequest, decode
from waltz.common.wire.frames import Bounds
from waltz.server.requests.appends import (
    AppendCall,
    AppendLimits,
    Runs,
    Unacceptable,
    take_appends,
)
from waltz.server.requests.link import ClientLink

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 8 << 20
"""Limit of unread answers above which the server stops reading from a client. Far above the limit at which feeds pause,
so that a client that only takes its feed slowly can still send."""


class RequestHandler(Protocol):
    """The server behind all connections."""

    def link_opened(self, channel: Channel) -> ClientLink:
        """A client has connected."""

    def link_closed(self, link: ClientLink) -> None:
        """Its connection is gone."""

    def append(self, link: ClientLink, requests: Sequence[AppendCall], write_session: int) -> None:
        """Appends of one connection, generation and write session to one partition."""

    def append_unacceptable(self, link: ClientLink, append: Unacceptable) -> None:
        """An append that is refused; its client is told if its version allows it."""

    def received(self, link: ClientLink, message: Message, *, noted: bool = False) -> None:
        """Any other message, perhaps ``noted`` by an audit before. Raises ``ProtocolError`` if it closes the
        connection."""


class ClientConnection:
    """Handler of one channel.

    The appends of one read go to each partition as one list; the order of requests to one partition is kept.
    """

    def __init__(self, handler: RequestHandler, limits: AppendLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._link: ClientLink | None = None
        self._channel: Channel | None = None

    def channel_ready(self, channel: Channel) -> None:
        """The client may send requests."""
        self._channel = channel
        self._link = self._handler.link_opened(channel)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """Handle all messages of one read. ``ProtocolError`` closes the connection; the messages before are handled."""
        link = self._link
        assert link is not None, "a channel is ready before it has frames"
        if link.client_id is None and bounds:
            link.client_id = _client_id(buffer, *bounds[0])
        self._dispatch(link, buffer, bounds)
        if not channel.writable and not channel.closed and channel.unsent_bytes > MAX_UNSENT_BYTES:
            link.hold(self)

    def channel_writable(self, channel: Channel) -> None:
        """Continue with everything that waited for the client to read."""
        link = self._link
        if link is None:
            return
        link.release(self)
        for request, noted in link.take_postponed():
            self._handler.received(link, request, noted=noted)
        link.resume_paused()

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        """Forget the connection everywhere."""
        self._channel = None
        if self._link is not None:
            self._handler.link_closed(self._link)

    def _dispatch(self, link: ClientLink, buffer: bytes, bounds: Bounds) -> None:
        frames = iter(bounds)
        channel = link.channel
        version = channel.version
        runs: Runs = {}
        while not channel.closed:
            try:
                ended_by = take_appends(buffer, frames, version, self._limits, runs)
            finally:
                for key, requests in runs.items():
                    self._handler.append(link, requests, session_of_run(key))
            if ended_by is None:
                return
            runs = {}
            if isinstance(ended_by, Unacceptable):
                self._handler.append_unacceptable(link, ended_by)
                continue
            start, end = ended_by
            if end - start > OPENING_PAYLOAD_BYTES:
                raise ProtocolError(f"a request of {end - start} bytes; only appends may be so large")
            message = decode(buffer, start, end, version)
            if type(message) is MountRequest and link.seq_num is None:
                self._mounts_first(link, message)
            self._handler.received(link, message)

    def _mounts_first(self, link: ClientLink, request: MountRequest) -> None:
        """The first mount request of a connection; appends, which may be large, come from clients that have mounted."""
        link.seq_num = request.seq_num
        if self._channel is not None:
            self._channel.allow_large_frames()


def _client_id(buffer: bytes, start: int, end: int) -> int:
    """The client in the request id that follows the type byte."""
    if end - start <= ReqId.SIZE_BYTES:
        raise ProtocolError("a message without a request id")
    return ReqId(buffer[start + 1 : start + 1 + ReqId.SIZE_BYTES]).client_id
