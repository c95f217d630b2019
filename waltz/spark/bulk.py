"""The connection over which records are read in bulk: the admin port of a storage node, without objects per record."""

import ssl
from typing import NamedTuple
from uuid import UUID

from waltz.common.errors import ConnectFailedError, ConnectionClosedError, DeadlineExceededError, ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import KEEP_ALIVE_INTERVAL_S, Channel, connect
from waltz.common.wire import admin as wire
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire.frames import STORAGE_ADMIN, Bounds
from waltz.spark.chunk import Chunk, decode_chunk, decode_range
from waltz.storage.remote.client import RemoteStorageError
from waltz.storage.remote.pending_calls import OPEN_SEQ_NUM, PendingCalls

HELLO_TEXT = "Waltz Spark Reader"
CLOSE_TIMEOUT_S = 5.0

_LIST = (wire.RecordListRequest, 8, wire.RecordListResponse, decode_chunk)
_RANGE = (
    admin_wire.RecordRangeRequest,
    admin_wire.RECORD_RANGE_RESPONSE,
    admin_wire.RecordRangeResponse,
    decode_range,
)
"""Request, number and class of the answer, and what makes a chunk of it."""

_SEQ_NUM_START, _SEQ_NUM_END = 1, 9
_PARTITION_START, _PARTITION_END = 9, 13


class _Payload(NamedTuple):
    """An answer as it came; ``repr`` is that of a name, see :class:`~waltz.spark.chunk.Chunk`."""

    buffer: bytes
    start: int
    end: int

    def __repr__(self) -> str:
        return f"<Payload of {self.end - self.start} bytes>"


class BulkClient:
    """One open connection to the admin port of a storage node, which answers in order."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        """Use :meth:`connect`."""
        self.endpoint = endpoint
        self.peer = f"storage {endpoint}"
        self._timeout_s = timeout_s
        self._channel: Channel | None = None
        self._calls: PendingCalls[_Payload] = PendingCalls(f"storage admin {endpoint}")

    @classmethod
    async def connect(
        cls,
        endpoint: Endpoint,
        *,
        cluster_key: UUID,
        partition_count: int,
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> "BulkClient":
        """Connect and open; after ``timeout_s`` in which nothing moves any later request is given up, too.

        Raises ``ConnectFailedError`` or ``RemoteStorageError`` (foreign cluster, node closing).
        """
        client = cls(endpoint, timeout_s)
        client._channel = await connect(
            endpoint,
            STORAGE_ADMIN,
            HELLO_TEXT,
            client,
            tls=tls,
            timeout_s=timeout_s,
            keep_alive_interval_s=KEEP_ALIVE_INTERVAL_S,
        )
        try:
            answer = await client._call(wire.AdminOpenRequest(OPEN_SEQ_NUM, cluster_key, partition_count))
            client._decode_other(answer, wire.AdminSuccessResponse)
        except (DeadlineExceededError, ConnectionClosedError) as error:
            await client.close()
            raise ConnectFailedError(f"cannot connect to storage admin {endpoint}: {error}") from error
        except BaseException:
            await client.close()
            raise
        return client

    async def records(self, partition_id: int, first: int, max_count: int) -> Chunk | None:
        """Records ``first``, ``first + 1``, ... as stored, committed or not; ``None`` only when ``first`` is absent.

        Fewer than ``max_count`` does not mean that there are no more. Raises ``RemoteStorageError``,
        ``DeadlineExceededError``, ``ConnectionClosedError``, ``DataCorruptionError`` and ``ProtocolError``.
        """
        seq_num = self._calls.next_seq_num()
        as_on_disk = self._version >= admin_wire.OUR_VERSION
        request, number, response, decode = _RANGE if as_on_disk else _LIST
        answer = await self._call(request(seq_num, partition_id, first, max_count))
        buffer, start, end = answer
        if buffer[start] != number:
            self._decode_other(answer, response)
        position = start + _PARTITION_END
        if position > end or int.from_bytes(buffer[start + _PARTITION_START : position], "big") != partition_id:
            raise ProtocolError(f"storage {self.endpoint} answered for a partition other than {partition_id}")
        return decode(buffer, position, end, partition_id=partition_id, source=self.peer)

    async def close(self) -> None:
        """Close the connection; every pending request gets ``ConnectionClosedError``."""
        if self._channel is not None:
            await self._channel.close_within(CLOSE_TIMEOUT_S)

    # The channel's callbacks

    def channel_ready(self, channel: Channel) -> None:
        """Part of ``ChannelHandler``."""
        self._channel = channel

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """Part of ``ChannelHandler``: bring every answer to its request."""
        for start, end in bounds:
            if end - start < _SEQ_NUM_END:
                raise ProtocolError(f"storage {self.endpoint} sent a message that is too short")
            seq_num = int.from_bytes(buffer[start + _SEQ_NUM_START : start + _SEQ_NUM_END], "big", signed=True)
            self._calls.resolve(seq_num, _Payload(buffer, start, end))

    def channel_writable(self, channel: Channel) -> None:
        """Part of ``ChannelHandler``."""

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        """Part of ``ChannelHandler``: everything that waits fails."""
        reason = f": {error}" if error is not None else ""
        self._calls.close(ConnectionClosedError(f"the connection to storage admin {self.endpoint} closed{reason}"))

    # Internals

    @property
    def _version(self) -> int:
        return -1 if self._channel is None else self._channel.version

    async def _call(
        self, request: wire.AdminOpenRequest | wire.RecordListRequest | admin_wire.RecordRangeRequest
    ) -> _Payload:
        if self._channel is None:
            raise ConnectionClosedError(f"the connection to storage admin {self.endpoint} is not open")
        channel, what = self._channel, type(request).__name__
        future = self._calls.expect(request.seq_num)
        channel.send(admin_wire.encode(request, channel.version))
        return await self._calls.wait(request.seq_num, future, self._timeout_s, what, channel)

    def _decode_other(self, answer: _Payload, expected: type[admin_wire.Message]) -> None:
        """Raise what an answer that is no record list says, unless it is ``expected``."""
        message = admin_wire.decode(*answer, version=self._version)
        if isinstance(message, wire.AdminFailureResponse):
            raise RemoteStorageError(message.error.message or "")
        if not isinstance(message, expected):
            raise ProtocolError(f"storage {self.endpoint} answered with {type(message).__name__}")
