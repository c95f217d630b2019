"""The common part of the clients of a storage node's ports: open a connection, match answers to requests, close."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from waltz.common.checksum import checksum
from waltz.common.errors import ConnectFailedError, ConnectionClosedError, DeadlineExceededError, ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import KEEP_ALIVE_INTERVAL_S, Channel, connect
from waltz.common.records import Record
from waltz.common.wire.admin import AdminFailureResponse
from waltz.common.wire.frames import Bounds, Family
from waltz.common.wire.storage import FailureResponse
from waltz.storage.remote.errors import DataCorruptionError, RemoteStorageError
from waltz.storage.remote.pending_calls import PendingCalls

CLOSE_TIMEOUT_S = 5.0

Answer = TypeVar("Answer")
Response = TypeVar("Response")


class StorageConnection(ABC, Generic[Answer]):
    """One connection to a port of a storage node; the handler of its channel, except for incoming frames.

    All methods belong to the event loop's thread. The connection never reconnects: a new connection needs a new client.
    """

    def __init__(self, endpoint: Endpoint, peer: str) -> None:
        """``peer`` names the node in messages."""
        self.endpoint = endpoint
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._closed: ConnectionClosedError | None = None
        self._calls: PendingCalls[Answer] = PendingCalls(peer)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended. Every later request fails."""
        return self._channel is None or self._channel.closed

    async def close(self) -> None:
        """Close the connection. Every pending request gets ``ConnectionClosedError``.

        Does not wait for a node after a request that timed out: such a node would not answer the end of TLS either.
        """
        channel = self._channel
        if channel is not None:
            if self._calls.owes_any:
                channel.abort()
            await channel.close_within(CLOSE_TIMEOUT_S)

    # The channel's callbacks

    def channel_ready(self, channel: Channel) -> None:
        self._channel = channel

    @abstractmethod
    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """Hand every answer to its request."""

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        reason = f": {error}" if error is not None else ""
        self._closed = ConnectionClosedError(f"the connection to {self._peer} closed{reason}")
        self._calls.close(self._closed)

    # For the clients

    async def _open(
        self,
        family: Family,
        hello_text: str,
        open_store: Callable[[float], Awaitable[object]],
        *,
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        """Connect, and run ``open_store`` with the remaining time before any other request.

        Raises ``ConnectFailedError`` when the node is not reached or does not answer, and the errors of ``open_store``;
        the connection is then closed.
        """
        deadline_s = self._loop.time() + timeout_s
        self._channel = await connect(
            self.endpoint,
            family,
            hello_text,
            self,
            tls=tls,
            timeout_s=timeout_s,
            keep_alive_interval_s=KEEP_ALIVE_INTERVAL_S,
        )
        try:
            await open_store(max(deadline_s - self._loop.time(), 0.001))
        except (DeadlineExceededError, ConnectionClosedError) as error:
            await self.close()
            raise ConnectFailedError(f"cannot connect to {self._peer}: {error}") from error
        except BaseException:
            await self.close()
            raise

    @property
    def _version(self) -> int:
        """The negotiated version of the protocol; -1 before the negotiation."""
        return -1 if self._channel is None else self._channel.version

    def _open_channel(self) -> Channel:
        if self._channel is None:
            raise ConnectionClosedError(f"the connection to {self._peer} is not open")
        return self._channel

    async def _ask(self, seq_num: int, frame: bytes, what: str, timeout_s: float) -> Answer:
        """Send a request and return the answer. The deadline moves as long as bytes move.

        Raises ``DeadlineExceededError``, ``ConnectionClosedError``.
        """
        channel = self._open_channel()
        future = self._calls.expect(seq_num)
        channel.send(frame)
        return await self._calls.wait_while_moving(seq_num, future, timeout_s, what, channel)

    async def _call(
        self, seq_num: int, frame: bytes, response_type: type[Response], what: str, timeout_s: float
    ) -> Response:
        """Like :meth:`_ask`, for answers that are messages. Raises as :meth:`_expect`, too."""
        return self._expect(await self._ask(seq_num, frame, what, timeout_s), response_type, what)

    def _expect(self, answer: object, response_type: type[Response], what: str) -> Response:
        """The answer to ``what`` if it is of the right type. Raises ``RemoteStorageError``, ``ProtocolError``."""
        if isinstance(answer, response_type):
            return answer
        if isinstance(answer, FailureResponse | AdminFailureResponse):
            raise RemoteStorageError(answer.error.message or "")
        raise self._protocol_error(f"answered {what} with {type(answer).__name__}")

    def _protocol_error(self, what: str) -> ProtocolError:
        """End the connection because of a protocol error of the node, and return the error."""
        error = ProtocolError(f"{self._peer} {what}")
        if self._channel is not None:
            self._channel.abort(error)
        return error


def verify_payloads(records: Sequence[Record], partition_id: int, source: Endpoint) -> None:
    """Raise ``DataCorruptionError`` for the first record whose payload does not match its checksum (rule S6)."""
    for record in records:
        if checksum(record.data) != record.checksum:
            raise DataCorruptionError(
                f"storage {source} delivered a damaged transaction: partition {partition_id},"
                f" transaction {record.transaction_id}: the payload does not match its checksum"
            )
