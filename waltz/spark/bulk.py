"""The connection over which records are read in bulk: the admin port of a storage node, without objects per record."""

import ssl
from typing import NamedTuple
from uuid import UUID

from waltz.common.errors import ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel
from waltz.common.wire import admin as wire
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire.frames import STORAGE_ADMIN, Bounds
from waltz.spark.chunk import Chunk, decode_chunk, decode_range
from waltz.storage.remote.connection import StorageConnection
from waltz.storage.remote.pending_calls import OPEN_SEQ_NUM

HELLO_TEXT = "Waltz Spark Reader"
CLOSE_TIMEOUT_S = 5.0

_LIST = (wire.RecordListRequest, 8, wire.RecordListResponse, decode_chunk)
_RANGE = (
    admin_wire.RecordRangeRequest,
    admin_wire.RECORD_RANGE_RESPONSE,
    admin_wire.RecordRangeResponse,
    decode_range,
)
"""Request, type number and class of the answer, and the function that makes a chunk of the answer."""

_SEQ_NUM_START, _SEQ_NUM_END = 1, 9
_PARTITION_START, _PARTITION_END = 9, 13


class _Payload(NamedTuple):
    """An answer's bytes; its ``repr`` is short for the reason given at :class:`~waltz.spark.chunk.Chunk`."""

    buffer: bytes
    start: int
    end: int

    def __repr__(self) -> str:
        return f"<Payload of {self.end - self.start} bytes>"


class BulkClient(StorageConnection[_Payload]):
    """One open connection to the admin port of a storage node, which answers in order."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        """Use :meth:`connect`."""
        super().__init__(endpoint, f"storage admin {endpoint}")
        self._timeout_s = timeout_s

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
        """Connect and open. A later request, too, is given up when nothing moves for ``timeout_s``.

        Raises ``ConnectFailedError`` or ``RemoteStorageError`` (foreign cluster, node closing).
        """
        client = cls(endpoint, timeout_s)
        request = wire.AdminOpenRequest(OPEN_SEQ_NUM, cluster_key, partition_count)

        async def open_store(remaining_s: float) -> None:
            answer = await client._request(request, remaining_s)
            client._check_other(answer, wire.AdminSuccessResponse, "the open request")

        await client._open(STORAGE_ADMIN, HELLO_TEXT, open_store, tls=tls, timeout_s=timeout_s)
        return client

    async def records(self, partition_id: int, first: int, max_count: int) -> Chunk | None:
        """Records ``first``, ``first + 1``, ... as stored, committed or not; ``None`` only when ``first`` is absent.

        Fewer than ``max_count`` does not mean that there are no more. Raises ``RemoteStorageError``,
        ``DeadlineExceededError``, ``ConnectionClosedError``, ``DataCorruptionError`` and ``ProtocolError``.
        """
        seq_num = self._calls.next_seq_num()
        as_on_disk = self._version >= admin_wire.OUR_VERSION
        request, number, response, decode = _RANGE if as_on_disk else _LIST
        answer = await self._request(request(seq_num, partition_id, first, max_count), self._timeout_s)
        buffer, start, end = answer
        if buffer[start] != number:
            self._check_other(answer, response, request.__name__)
        position = start + _PARTITION_END
        if position > end or int.from_bytes(buffer[start + _PARTITION_START : position], "big") != partition_id:
            raise self._protocol_error(f"answered for a partition other than {partition_id}")
        return decode(buffer, position, end, partition_id=partition_id, source=f"storage {self.endpoint}")

    # The channel's callbacks

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for start, end in bounds:
            if end - start < _SEQ_NUM_END:
                raise ProtocolError(f"storage {self.endpoint} sent a message that is too short")
            seq_num = int.from_bytes(buffer[start + _SEQ_NUM_START : start + _SEQ_NUM_END], "big", signed=True)
            self._calls.resolve(seq_num, _Payload(buffer, start, end))

    # Internals

    async def _request(
        self, request: wire.AdminOpenRequest | wire.RecordListRequest | admin_wire.RecordRangeRequest, timeout_s: float
    ) -> _Payload:
        frame = admin_wire.encode(request, self._open_channel().version)
        return await self._ask(request.seq_num, frame, type(request).__name__, timeout_s)

    def _check_other(self, answer: _Payload, expected: type[admin_wire.Message], what: str) -> None:
        """Raise the error that an answer tells in place of a record list, unless the answer is ``expected``."""
        self._expect(admin_wire.decode(*answer, version=self._version), expected, what)
