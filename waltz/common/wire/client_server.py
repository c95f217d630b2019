"""Messages between clients and servers, versions 0 to 5.

``req_id`` holds the 16 bytes of a :class:`~waltz.common.ids.ReqId`; wrap it in one to read its parts. A response
carries the request id of its request, :class:`FeedData` that of the append that made the transaction. What version 5
adds is defined in :mod:`waltz.common.wire.version5` and can be imported from here, too.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from waltz.common.checksum import crc32
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.wire.catalogue import Catalogue, Layout, layout
from waltz.common.wire.fields import (
    BOOLEAN,
    INT,
    LONG,
    NULLABLE_BYTES,
    NULLABLE_INTS,
    NULLABLE_STRING,
    REQ_ID,
    Field,
    map_of,
    not_null,
    structure,
)
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER, Bounds
from waltz.common.wire.version5 import AppendFailed as AppendFailed
from waltz.common.wire.version5 import AppendFailure as AppendFailure
from waltz.common.wire.version5 import DataListStatus as DataListStatus
from waltz.common.wire.version5 import PartitionClosed as PartitionClosed
from waltz.common.wire.version5 import TransactionDataListRequest as TransactionDataListRequest
from waltz.common.wire.version5 import TransactionDataListResponse as TransactionDataListResponse
from waltz.common.wire.version5 import encode_transaction_data_list as encode_transaction_data_list
from waltz.common.wire.version5 import version5_layouts
from waltz.common.wire.versions import (
    FIRST_WITH_APPEND_LOCKS,
    FIRST_WITH_ASSIGNMENT,
    FIRST_WITH_CONNECTIVITY,
    FIRST_WITH_DATA_LISTS,
    FIRST_WITH_HEALTH,
    FIRST_WITH_PARTITION_STATE,
    FIRST_WITH_PREFERENCES,
    FIRST_WITH_READ_LOCKS,
    FIRST_WITH_WRITE_SESSION,
)


class PartitionState(IntEnum):
    """What a server says to a mount. Versions below 3 cannot tell the last two apart: both arrive as not ready."""

    READY = 0
    NOT_READY = 1
    CLIENT_AHEAD = 2


class MountRequest(NamedTuple):
    """Asks for the feed of a partition from the client's high-water mark on. ``seq_num`` orders the connections."""

    req_id: bytes
    client_high_water_mark: int
    seq_num: int


class MountResponse(NamedTuple):
    """Ends the mount; everything up to the server's high-water mark has been fed."""

    req_id: bytes
    state: PartitionState


class AppendRequest(NamedTuple):
    """Asks to append a transaction. Locks are signed 32-bit hashes; ``checksum`` is the signed CRC-32 of ``data``.

    From version 5 on a write session follows, which is always "none": what others mean is not defined yet.
    """

    req_id: bytes
    client_high_water_mark: int
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    header: int
    data: bytes
    checksum: int


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
    """As many transactions as promised were fed; the client asks for more with a feed request."""

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
    """Asks to be told when every earlier append is decided; ``req_id`` is that of the last one."""

    req_id: bytes


class FlushResponse(NamedTuple):
    """Every earlier append is decided; the server's high-water mark after that."""

    req_id: bytes
    transaction_id: int


class LockFailure(NamedTuple):
    """The append was refused: its locks changed, at the latest, with ``transaction_id``."""

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
    """Asks the server to prefer partitions no longer (version 2 and later)."""

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
)

_APPEND_REQUEST = 2
_FEED_DATA = 4

MAX_FEED_COUNT = 2048
"""Transactions that a server feeds for one request, at most (before version 5: for a feed request alone, and not fewer
than ``server.minFetchSize``)."""
_NO_WRITE_SESSION = b"\xff" * 8


def _verify(data: bytes, checksum: int) -> None:
    if crc32(data) != checksum & 0xFFFF_FFFF:
        raise ProtocolError(f"the data has the checksum {crc32(data):08x} and says {checksum & 0xFFFF_FFFF:08x}")


def _encode_ready(state: PartitionState) -> bytes:
    return b"\x01" if state == PartitionState.READY else b"\x00"


def _decode_ready(buffer: bytes, position: int, end: int) -> tuple[PartitionState, int]:
    ready, behind = BOOLEAN.decode(buffer, position, end)
    return PartitionState.READY if ready else PartitionState.NOT_READY, behind


def _decode_state(buffer: bytes, position: int, end: int) -> tuple[PartitionState, int]:
    number, behind = INT.decode(buffer, position, end)
    try:
        return PartitionState(number), behind
    except ValueError:
        raise ProtocolError(f"unknown partition state {number}") from None


_READY = Field(_encode_ready, _decode_ready)
_STATE: Field[PartitionState] = Field(INT.encode, _decode_state)


def _locks(kind: str, version: int, first_version: int) -> Field[tuple[int, ...]]:
    """The field of a lock array; in versions before it was introduced it takes no bytes and must be empty."""
    if version >= first_version:
        return not_null(NULLABLE_INTS, f"{kind} locks")

    def encode_none(locks: tuple[int, ...]) -> bytes:
        if locks:
            raise ProtocolError(f"{kind} locks not supported in version {version}, upgrade servers")
        return b""

    def decode_none(buffer: bytes, position: int, end: int) -> tuple[tuple[int, ...], int]:
        return (), position

    return Field(encode_none, decode_none)


def _append_layout(version: int) -> Layout[AppendRequest]:
    body = structure(
        AppendRequest,
        REQ_ID,
        LONG,
        _locks("write", version, 0),
        _locks("read", version, FIRST_WITH_READ_LOCKS),
        _locks("append", version, FIRST_WITH_APPEND_LOCKS),
        INT,
        not_null(NULLABLE_BYTES, "data"),
        INT,
    )
    has_write_session = version >= FIRST_WITH_WRITE_SESSION

    def encode_body(message: AppendRequest) -> bytes:
        return body.encode(message) + _NO_WRITE_SESSION if has_write_session else body.encode(message)

    def decode_body(buffer: bytes, position: int, end: int) -> tuple[AppendRequest, int]:
        message, behind = body.decode(buffer, position, end)
        if has_write_session:
            write_session, behind = LONG.decode(buffer, behind, end)
            if write_session != -1:
                raise ProtocolError(f"write session {write_session}: there are no write sessions in this version")
        _verify(message.data, message.checksum)
        return message, behind

    return Layout(AppendRequest, Field(encode_body, decode_body))


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
    _verify(data, checksum)
    return TransactionDataResponse(req_id, transaction_id, data, checksum, None), position


def _layouts(version: int) -> dict[int, Layout[Any]]:
    partition_ids = not_null(NULLABLE_INTS, "partition ids")
    layouts: dict[int, Layout[Any]] = {
        0: layout(MountRequest, REQ_ID, LONG, LONG),
        1: layout(MountResponse, REQ_ID, _STATE if version >= FIRST_WITH_PARTITION_STATE else _READY),
        _APPEND_REQUEST: _append_layout(version),
        3: layout(FeedRequest, REQ_ID, LONG),
        _FEED_DATA: layout(FeedData, REQ_ID, LONG, INT),
        5: layout(FeedSuspended, REQ_ID),
        6: layout(TransactionDataRequest, REQ_ID, LONG),
        7: Layout(TransactionDataResponse, Field(_encode_transaction_data, _decode_transaction_data)),
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
    return layouts


_CATALOGUES: dict[int, Catalogue[Message]] = {
    version: Catalogue(CLIENT_SERVER.magic, version, _layouts(version)) for version in CLIENT_SERVER.versions
}

_FEED_DATA_PAYLOAD = struct.Struct(">x16sqi")  # behind the type byte, the fields of FeedData
_FEED_DATA_FRAME = struct.Struct(">8s16sqi")
_APPEND_START = struct.Struct(">b16sqi")
_COUNT = struct.Struct(">i")
_HEADER_AND_SIZE = struct.Struct(">ii")
_MIN_APPEND_SIZE_BYTES = _APPEND_START.size + 2 * _COUNT.size + _HEADER_AND_SIZE.size + _COUNT.size


@lru_cache(maxsize=64)
def _ints(count: int) -> struct.Struct:
    return struct.Struct(f">{count}i")


@lru_cache(maxsize=64)
def _append_frame_start(write_count: int, read_count: int, append_count: int) -> struct.Struct:
    """Frame header and payload up to the size of the data."""
    return struct.Struct(f">Bhib16sqi{write_count}ii{read_count}ii{append_count}iii")


def encode(message: Message, version: int) -> bytes:
    """The whole frame of ``message``.

    Raises :class:`ProtocolError` when ``version`` has no such message, cannot express its locks, or when a value does
    not fit into its field.
    """
    if type(message) is AppendRequest:
        return encode_append(version, *message)
    return _CATALOGUES[version].encode(message)


def encode_append(
    version: int,
    req_id: bytes,
    client_high_water_mark: int,
    write_locks: tuple[int, ...],
    read_locks: tuple[int, ...],
    append_locks: tuple[int, ...],
    header: int,
    data: bytes,
    checksum: int,
) -> bytes:
    """The frame of an :class:`AppendRequest` with these fields, in one go: appends are what a client sends most.

    Raises as :func:`encode` does.
    """
    if version < FIRST_WITH_APPEND_LOCKS or len(req_id) != ReqId.SIZE_BYTES:
        return _encode_by_catalogue(
            version, req_id, client_high_water_mark, write_locks, read_locks, append_locks, header, data, checksum
        )
    write_session = _NO_WRITE_SESSION if version >= FIRST_WITH_WRITE_SESSION else b""
    try:
        start = _append_frame_start(len(write_locks), len(read_locks), len(append_locks))
        head = start.pack(
            CLIENT_SERVER.magic,
            version,
            start.size - FRAME_HEADER.size + len(data) + _COUNT.size + len(write_session),
            _APPEND_REQUEST,
            req_id,
            client_high_water_mark,
            len(write_locks),
            *write_locks,
            len(read_locks),
            *read_locks,
            len(append_locks),
            *append_locks,
            header,
            len(data),
        )
        return b"".join((head, data, _COUNT.pack(checksum), write_session))
    except (TypeError, struct.error):  # the catalogue says what is wrong
        return _encode_by_catalogue(
            version, req_id, client_high_water_mark, write_locks, read_locks, append_locks, header, data, checksum
        )


def _encode_by_catalogue(version: int, *fields: Any) -> bytes:
    return _CATALOGUES[version].encode(AppendRequest(*fields))


def decode(buffer: bytes, start: int, end: int, version: int) -> Message:
    """The message whose payload is ``buffer[start:end]``.

    Raises :class:`ProtocolError` on anything wrong with it, be it the checksum of its data.
    """
    return _CATALOGUES[version].decode(buffer, start, end)


def decode_batch(buffer: bytes, bounds: Bounds, version: int) -> list[Message]:
    """The messages of all payloads of one read; raises as :func:`decode` does, for the whole batch."""
    decode_one = _CATALOGUES[version].decode
    has_all_locks = version >= FIRST_WITH_APPEND_LOCKS
    append_tail = b"" if version < FIRST_WITH_WRITE_SESSION else _NO_WRITE_SESSION
    unpack_feed_data, feed_data_size = _FEED_DATA_PAYLOAD.unpack_from, _FEED_DATA_PAYLOAD.size
    make = tuple.__new__
    messages: list[Message] = []
    for start, end in bounds:
        kind = buffer[start]
        if kind == _FEED_DATA and end - start == feed_data_size:
            messages.append(make(FeedData, unpack_feed_data(buffer, start)))
        elif kind == _APPEND_REQUEST and has_all_locks:
            messages.append(_decode_append(buffer, start, end, append_tail) or decode_one(buffer, start, end))
        else:
            messages.append(decode_one(buffer, start, end))
    return messages


def _decode_append(buffer: bytes, start: int, end: int, tail: bytes) -> AppendRequest | None:
    """What the catalogue does, in one go; ``None`` when it has to say what is wrong.

    No count is believed before the bytes for it were found to be there.
    """
    if end - start < _MIN_APPEND_SIZE_BYTES:
        return None
    _, req_id, client_high_water_mark, count = _APPEND_START.unpack_from(buffer, start)
    position = start + _APPEND_START.size
    # Behind the write locks there are at least two counts, header, data size and checksum.
    if not 0 <= 4 * count <= end - position - 20:
        return None
    write_locks = _ints(count).unpack_from(buffer, position)
    position += 4 * count
    (count,) = _COUNT.unpack_from(buffer, position)
    position += 4
    read_locks: tuple[int, ...] = ()
    if count:
        if not 0 <= 4 * count <= end - position - 16:
            return None
        read_locks = _ints(count).unpack_from(buffer, position)
        position += 4 * count
    (count,) = _COUNT.unpack_from(buffer, position)
    position += 4
    append_locks: tuple[int, ...] = ()
    if count:
        if not 0 <= 4 * count <= end - position - 12:
            return None
        append_locks = _ints(count).unpack_from(buffer, position)
        position += 4 * count
    header, size = _HEADER_AND_SIZE.unpack_from(buffer, position)
    position += 8
    behind = position + size
    if size < 0 or behind + 4 + len(tail) != end or (tail and buffer[end - 8 : end] != tail):
        return None
    data = buffer[position:behind]
    (checksum,) = _COUNT.unpack_from(buffer, behind)
    if crc32(data) != checksum & 0xFFFF_FFFF:
        return None
    return AppendRequest(req_id, client_high_water_mark, write_locks, read_locks, append_locks, header, data, checksum)


def encode_feed_data(version: int, items: Iterable[tuple[bytes, int, int]]) -> bytes:
    """The frames of many :class:`FeedData` (request id, transaction id, header) as one bytes object."""
    start = FRAME_HEADER.pack(CLIENT_SERVER.magic, version, _FEED_DATA_PAYLOAD.size) + bytes([_FEED_DATA])
    pack = _FEED_DATA_FRAME.pack
    return b"".join([pack(start, req_id, transaction_id, header) for req_id, transaction_id, header in items])
