"""Messages between clients and servers, versions 0 to 6.

``req_id`` holds the 16 bytes of a :class:`~waltz.common.ids.ReqId`; wrap it in one to read its parts. A response
carries the request id of its request, :class:`FeedData` that of the append that made the transaction. The
additions of version 5 are in :mod:`waltz.common.wire.version5` and :mod:`waltz.common.wire.write_sessions`, those of
version 6 in :mod:`waltz.common.wire.confirmed_marks`, :mod:`waltz.common.wire.client_times`,
:mod:`waltz.common.wire.mark_feed`, :mod:`waltz.common.wire.refused` and :mod:`waltz.common.wire.append_delays`.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from waltz.common.wire.append_delays import AppendsDelayed, append_delay_layouts
from waltz.common.wire.append_order import AppendOrderRequest, append_order_layouts
from waltz.common.wire.append_request import APPEND_REQUEST_TYPE, AppendRequest, append_layout
from waltz.common.wire.catalogue import Catalogue, Layout, layout
from waltz.common.wire.client_times import ClientTimeMessage, client_time_layouts
from waltz.common.wire.confirmed_marks import ConfirmedMarkMessage, confirmed_mark_layouts
from waltz.common.wire.consistency import ConsistencyMessage, consistency_layouts
from waltz.common.wire.fields import (
    BOOLEAN,
    INT,
    LONG,
    NULLABLE_BYTES,
    NULLABLE_INTS,
    NULLABLE_STRING,
    REQ_ID,
    Field,
    enumeration,
    map_of,
    not_null,
)
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER, FRAME_HEADER_SIZE_BYTES, Bounds, Run
from waltz.common.wire.lags import LagMessage, lag_layouts
from waltz.common.wire.mark_feed import MarkFeedMessage, mark_feed_layouts
from waltz.common.wire.partition_properties import PropertiesMessage, partition_properties_layouts
from waltz.common.wire.refused import NotAuthorized, refused_layouts
from waltz.common.wire.structures import verify_checksum
from waltz.common.wire.trimmed import Trimmed, trimmed_layouts
from waltz.common.wire.version5 import (
    AppendFailed,
    PartitionClosed,
    TransactionDataListRequest,
    TransactionDataListResponse,
    version5_layouts,
)
from waltz.common.wire.versions import (
    FIRST_WITH_APPEND_DELAYS,
    FIRST_WITH_APPEND_ORDER,
    FIRST_WITH_ASSIGNMENT,
    FIRST_WITH_CONFIRMED_MARK,
    FIRST_WITH_CONNECTIVITY,
    FIRST_WITH_CONSISTENCY,
    FIRST_WITH_DATA_LISTS,
    FIRST_WITH_HEALTH,
    FIRST_WITH_LAGS,
    FIRST_WITH_MARK_FEED,
    FIRST_WITH_NOT_AUTHORIZED,
    FIRST_WITH_PARTITION_STATE,
    FIRST_WITH_PREFERENCES,
    FIRST_WITH_PROPERTIES,
    FIRST_WITH_TIME,
    FIRST_WITH_TRIM,
)
from waltz.common.wire.write_sessions import WriteSessionMessage


class PartitionState(IntEnum):
    """A server's answer to a mount. Versions below 3 cannot tell the last two apart: both arrive as not ready."""

    READY = 0
    NOT_READY = 1
    CLIENT_AHEAD = 2


class MountRequest(NamedTuple):
    """Asks for the feed of a partition from the client's high-water mark on. ``seq_num`` orders the connections."""

    req_id: bytes
    client_high_water_mark: int
    seq_num: int


class MountResponse(NamedTuple):
    """Ends the mount: the server has fed all transactions up to its high-water mark."""

    req_id: bytes
    state: PartitionState


class FeedRequest(NamedTuple):
    """Asks for more of the feed; ``req_id`` is that of the mount request."""

    req_id: bytes
    client_high_water_mark: int


class FeedData(NamedTuple):
    """One committed transaction, without its data."""

    req_id: bytes
    transaction_id: int
    header: int


class FeedSuspended(NamedTuple):
    """The promised number of transactions was fed; the client asks for more with a feed request."""

    req_id: bytes


class TransactionDataRequest(NamedTuple):
    """Asks for the data of one transaction."""

    req_id: bytes
    transaction_id: int


class TransactionDataResponse(NamedTuple):
    """The data of one transaction, or, when ``data`` is ``None``, the ``error`` text (which may be null itself)."""

    req_id: bytes
    transaction_id: int
    data: bytes | None
    checksum: int
    error: str | None


class FlushRequest(NamedTuple):
    """Asks for an answer when all earlier appends are decided; ``req_id`` is that of the last append."""

    req_id: bytes


class FlushResponse(NamedTuple):
    """All earlier appends are decided; carries the server's high-water mark after that."""

    req_id: bytes
    transaction_id: int


class LockFailure(NamedTuple):
    """The append was refused: the last transaction that wrote one of its locks is ``transaction_id``."""

    req_id: bytes
    transaction_id: int


class HighWaterMarkRequest(NamedTuple):
    """Asks for the high-water mark of a partition."""

    req_id: bytes


class HighWaterMarkResponse(NamedTuple):
    """The high-water mark; the smallest 64-bit integer when the server does not know it yet."""

    req_id: bytes
    transaction_id: int


class CheckStorageConnectivityRequest(NamedTuple):
    """Asks which storages the server reaches (version 1 and later)."""

    req_id: bytes


class CheckStorageConnectivityResponse(NamedTuple):
    """Each storage as ``host:port``, and whether the server reaches it."""

    req_id: bytes
    connectivity: tuple[tuple[str, bool], ...]


class ServerPartitionsAssignmentRequest(NamedTuple):
    """Asks which partitions the server owns (version 2 and later)."""

    req_id: bytes


class ServerPartitionsAssignmentResponse(NamedTuple):
    """The partitions that the server owns."""

    req_id: bytes
    partition_ids: tuple[int, ...]


class AddPreferredPartitionRequest(NamedTuple):
    """Asks the server to prefer partitions (version 2 and later)."""

    req_id: bytes
    partition_ids: tuple[int, ...]


class AddPreferredPartitionResponse(NamedTuple):
    """Whether the preference was recorded."""

    req_id: bytes
    result: bool


class RemovePreferredPartitionRequest(NamedTuple):
    """Asks the server to stop preferring partitions (version 2 and later)."""

    req_id: bytes
    partition_ids: tuple[int, ...]


class RemovePreferredPartitionResponse(NamedTuple):
    """Whether the preference was removed."""

    req_id: bytes
    result: bool


class ServerPartitionsHealthStatRequest(NamedTuple):
    """Asks which partitions of the server are healthy (version 4 and later)."""

    req_id: bytes


class ServerPartitionsHealthStatResponse(NamedTuple):
    """Each partition of the server, and whether it is healthy."""

    req_id: bytes
    health: tuple[tuple[int, bool], ...]


Message = (
    MountRequest
    | MountResponse
    | AppendRequest
    | FeedRequest
    | FeedData
    | FeedSuspended
    | TransactionDataRequest
    | TransactionDataResponse
    | FlushRequest
    | FlushResponse
    | LockFailure
    | HighWaterMarkRequest
    | HighWaterMarkResponse
    | CheckStorageConnectivityRequest
    | CheckStorageConnectivityResponse
    | ServerPartitionsAssignmentRequest
    | ServerPartitionsAssignmentResponse
    | AddPreferredPartitionRequest
    | AddPreferredPartitionResponse
    | RemovePreferredPartitionRequest
    | RemovePreferredPartitionResponse
    | ServerPartitionsHealthStatRequest
    | ServerPartitionsHealthStatResponse
    | TransactionDataListRequest
    | TransactionDataListResponse
    | AppendFailed
    | PartitionClosed
    | WriteSessionMessage
    | ConfirmedMarkMessage
    | ClientTimeMessage
    | MarkFeedMessage
    | NotAuthorized
    | Trimmed
    | AppendsDelayed
    | ConsistencyMessage
    | LagMessage
    | PropertiesMessage
    | AppendOrderRequest
)

_FEED_DATA = 4
_DATA_RESPONSE = 7

MAX_FEED_COUNT = 2048
"""Maximum number of transactions that a server feeds for one request. Before version 5 the limit holds for feed
requests only, and is at least ``server.minFetchSize``."""


def _encode_ready(state: PartitionState) -> bytes:
    return b"\x01" if state == PartitionState.READY else b"\x00"


def _decode_ready(buffer: bytes, position: int, end: int) -> tuple[PartitionState, int]:
    ready, behind = BOOLEAN.decode(buffer, position, end)
    return PartitionState.READY if ready else PartitionState.NOT_READY, behind


_READY = Field(_encode_ready, _decode_ready)
_STATE = enumeration(PartitionState, "partition state")


_DATA = not_null(NULLABLE_BYTES, "data")


def _encode_transaction_data(message: TransactionDataResponse) -> bytes:
    head = REQ_ID.encode(message.req_id) + LONG.encode(message.transaction_id)
    if message.data is None:
        return b"".join((head, b"\x00", NULLABLE_STRING.encode(message.error)))
    return b"".join((head, b"\x01", _DATA.encode(message.data), INT.encode(message.checksum)))


def _decode_transaction_data(buffer: bytes, position: int, end: int) -> tuple[TransactionDataResponse, int]:
    req_id, position = REQ_ID.decode(buffer, position, end)
    transaction_id, position = LONG.decode(buffer, position, end)
    successful, position = BOOLEAN.decode(buffer, position, end)
    if not successful:
        error, position = NULLABLE_STRING.decode(buffer, position, end)
        return TransactionDataResponse(req_id, transaction_id, None, 0, error), position
    data, position = _DATA.decode(buffer, position, end)
    checksum, position = INT.decode(buffer, position, end)
    verify_checksum(data, checksum)
    return TransactionDataResponse(req_id, transaction_id, data, checksum, None), position


def _layouts(version: int) -> dict[int, Layout[Any]]:
    partition_ids = not_null(NULLABLE_INTS, "partition ids")
    layouts: dict[int, Layout[Any]] = {
        0: layout(MountRequest, REQ_ID, LONG, LONG),
        1: layout(MountResponse, REQ_ID, _STATE if version >= FIRST_WITH_PARTITION_STATE else _READY),
        APPEND_REQUEST_TYPE: append_layout(version),
        3: layout(FeedRequest, REQ_ID, LONG),
        _FEED_DATA: layout(FeedData, REQ_ID, LONG, INT),
        5: layout(FeedSuspended, REQ_ID),
        6: layout(TransactionDataRequest, REQ_ID, LONG),
        _DATA_RESPONSE: Layout(TransactionDataResponse, Field(_encode_transaction_data, _decode_transaction_data)),
        8: layout(FlushRequest, REQ_ID),
        9: layout(FlushResponse, REQ_ID, LONG),
        10: layout(LockFailure, REQ_ID, LONG),
        11: layout(HighWaterMarkRequest, REQ_ID),
        12: layout(HighWaterMarkResponse, REQ_ID, LONG),
    }
    if version >= FIRST_WITH_CONNECTIVITY:
        host_and_port = not_null(NULLABLE_STRING, "storage")
        layouts[13] = layout(CheckStorageConnectivityRequest, REQ_ID)
        layouts[14] = layout(CheckStorageConnectivityResponse, REQ_ID, map_of(host_and_port, BOOLEAN, 5))
    if version >= FIRST_WITH_ASSIGNMENT:
        layouts[15] = layout(ServerPartitionsAssignmentRequest, REQ_ID)
        layouts[16] = layout(ServerPartitionsAssignmentResponse, REQ_ID, partition_ids)
    if version >= FIRST_WITH_PREFERENCES:
        layouts[17] = layout(AddPreferredPartitionRequest, REQ_ID, partition_ids)
        layouts[18] = layout(AddPreferredPartitionResponse, REQ_ID, BOOLEAN)
        layouts[19] = layout(RemovePreferredPartitionRequest, REQ_ID, partition_ids)
        layouts[20] = layout(RemovePreferredPartitionResponse, REQ_ID, BOOLEAN)
    if version >= FIRST_WITH_HEALTH:
        layouts[21] = layout(ServerPartitionsHealthStatRequest, REQ_ID)
        layouts[22] = layout(ServerPartitionsHealthStatResponse, REQ_ID, map_of(INT, BOOLEAN, 5))
    if version >= FIRST_WITH_DATA_LISTS:
        layouts.update(version5_layouts())
    if version >= FIRST_WITH_CONFIRMED_MARK:
        layouts.update(confirmed_mark_layouts())
    if version >= FIRST_WITH_TIME:
        layouts.update(client_time_layouts())
    if version >= FIRST_WITH_MARK_FEED:
        layouts.update(mark_feed_layouts())
    if version >= FIRST_WITH_NOT_AUTHORIZED:
        layouts.update(refused_layouts())
    if version >= FIRST_WITH_LAGS:
        layouts.update(lag_layouts())
    if version >= FIRST_WITH_APPEND_DELAYS:
        layouts.update(append_delay_layouts())
    if version >= FIRST_WITH_CONSISTENCY:
        layouts.update(consistency_layouts())
    if version >= FIRST_WITH_TRIM:
        layouts.update(trimmed_layouts())
    if version >= FIRST_WITH_APPEND_ORDER:
        layouts.update(append_order_layouts())
    if version >= FIRST_WITH_PROPERTIES:
        layouts.update(partition_properties_layouts())
    return layouts


_CATALOGUES: dict[int, Catalogue[Message]] = {
    version: Catalogue(CLIENT_SERVER.magic, version, _layouts(version)) for version in CLIENT_SERVER.versions
}

_DATA_RESPONSE_HEAD = struct.Struct(">x16sq")
_FEED_DATA_PAYLOAD = struct.Struct(">x16sqi")  # after the type byte, the fields of FeedData
_FEED_DATA_FRAME = struct.Struct(">8s16sqi")
_FED = struct.Struct(">8x16sqi")  # the same, for reading the fields only

FED_CLIENT_SERVER = CLIENT_SERVER._replace(run=Run(_FEED_DATA, _FEED_DATA_PAYLOAD.size))
"""The protocol of a client that follows a feed: consecutive :class:`FeedData` of a read are a run, for :func:`fed`."""


def encode(message: Message, version: int) -> bytes:
    """Encode a message as a whole frame.

    Raises:
        ProtocolError: ``version`` has no such message or cannot express its locks, or a value does not fit into its
            field.
    """
    return _CATALOGUES[version].encode(message)


def decode(buffer: bytes, start: int, end: int, version: int) -> Message:
    """Decode the payload ``buffer[start:end]``, and check the checksum of its data.

    Raises:
        ProtocolError: The payload is not a valid message, or the checksum does not match.
    """
    return _CATALOGUES[version].decode(buffer, start, end)


def decode_batch(buffer: bytes, bounds: Bounds, version: int) -> list[Message]:
    """Decode all payloads of one read.

    Raises:
        ProtocolError: One of the payloads is not a valid message; none of them is returned.
    """
    decode_one = _CATALOGUES[version].decode
    return [decode_one(buffer, start, end) for start, end in bounds]


def transaction_data_head(buffer: bytes, start: int, end: int) -> tuple[bytes, int] | None:
    """Request id and transaction id of a :class:`TransactionDataResponse`, even if its rest is damaged; ``None`` for
    other messages."""
    if buffer[start] != _DATA_RESPONSE or end - start < _DATA_RESPONSE_HEAD.size:
        return None
    req_id, transaction_id = _DATA_RESPONSE_HEAD.unpack_from(buffer, start)
    return req_id, transaction_id


@cache
def feed_data_head(version: int) -> bytes:
    """Beginning of the frame of every :class:`FeedData`."""
    return FRAME_HEADER.pack(CLIENT_SERVER.magic, version, _FEED_DATA_PAYLOAD.size) + bytes([_FEED_DATA])


def fed(buffer: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The fields of each :class:`FeedData` of a run, by the bounds of its payloads.

    A piece is a run if its first frame begins with ``feed_data_head``.
    """
    return _FED.iter_unpack(buffer[start - FRAME_HEADER_SIZE_BYTES : end])


def encode_feed_data(version: int, items: Iterable[tuple[bytes, int, int]]) -> bytes:
    """The frames of many :class:`FeedData` (request id, transaction id, header) as one bytes object."""
    start = feed_data_head(version)
    pack = _FEED_DATA_FRAME.pack
    return b"".join([pack(start, req_id, transaction_id, header) for req_id, transaction_id, header in items])
