"""Messages between tools and the admin port of a storage node, version 0.

Every message begins with the number of the request on its connection, which the reply repeats (the reply to
:class:`AdminOpenRequest` carries -1).
"""

from typing import Any, NamedTuple
from uuid import UUID

from waltz.common.records import Record
from waltz.common.wire.catalogue import Catalogue, Layout, layout
from waltz.common.wire.fields import BOOLEAN, INT, LONG, NULLABLE_INTS, NULLABLE_STRING, UUID_FIELD, map_of
from waltz.common.wire.frames import STORAGE_ADMIN, Bounds
from waltz.common.wire.structures import RECORD_LIST, RPC_EXCEPTION, SESSION_INFO, RpcException, SessionInfo

VERSION = 0


class AdminSuccessResponse(NamedTuple):
    """The request succeeded."""

    seq_num: int


class AdminFailureResponse(NamedTuple):
    """The request failed, or succeeded in part only."""

    seq_num: int
    error: RpcException


class AdminOpenRequest(NamedTuple):
    """Asks whether the storage belongs to this cluster; its number is -1."""

    seq_num: int
    key: UUID
    partition_count: int


class PartitionAvailableRequest(NamedTuple):
    """Switches normal reads and writes of partitions on or off. ``partition_ids`` is ``None`` for a null list."""

    seq_num: int
    partition_ids: tuple[int, ...] | None
    available: bool


class PartitionAssignmentRequest(NamedTuple):
    """Assigns partitions to the storage or takes them away. ``partition_ids`` is ``None`` for a null list."""

    seq_num: int
    partition_ids: tuple[int, ...] | None
    assigned: bool
    delete_files: bool


class RecordListRequest(NamedTuple):
    """Asks for at most ``max_count`` consecutive records from ``transaction_id``."""

    seq_num: int
    partition_id: int
    transaction_id: int
    max_count: int


class RecordListResponse(NamedTuple):
    """Answers :class:`RecordListRequest`."""

    seq_num: int
    partition_id: int
    records: list[Record]


class LastSessionInfoRequest(NamedTuple):
    """Asks for the persisted session and marks."""

    seq_num: int
    partition_id: int


class LastSessionInfoResponse(NamedTuple):
    """Answers :class:`LastSessionInfoRequest`."""

    seq_num: int
    partition_id: int
    info: SessionInfo


class MetricsRequest(NamedTuple):
    """Asks for the metrics of the node."""

    seq_num: int


class MetricsResponse(NamedTuple):
    """Answers :class:`MetricsRequest` with a JSON text."""

    seq_num: int
    metrics_json: str | None


class AssignedPartitionStatusRequest(NamedTuple):
    """Asks which partitions are assigned to the storage."""

    seq_num: int


class AssignedPartitionStatusResponse(NamedTuple):
    """Answers :class:`AssignedPartitionStatusRequest`: every assigned partition and whether it is available."""

    seq_num: int
    partition_status: tuple[tuple[int, bool], ...]


Message = (
    AdminSuccessResponse
    | AdminFailureResponse
    | AdminOpenRequest
    | PartitionAvailableRequest
    | PartitionAssignmentRequest
    | RecordListRequest
    | RecordListResponse
    | LastSessionInfoRequest
    | LastSessionInfoResponse
    | MetricsRequest
    | MetricsResponse
    | AssignedPartitionStatusRequest
    | AssignedPartitionStatusResponse
)

LAYOUTS: dict[int, Layout[Any]] = {
    1: layout(AdminSuccessResponse, LONG),
    2: layout(AdminFailureResponse, LONG, RPC_EXCEPTION),
    3: layout(AdminOpenRequest, LONG, UUID_FIELD, INT),
    4: layout(PartitionAvailableRequest, LONG, NULLABLE_INTS, BOOLEAN),
    6: layout(PartitionAssignmentRequest, LONG, NULLABLE_INTS, BOOLEAN, BOOLEAN),
    7: layout(RecordListRequest, LONG, INT, LONG, INT),
    8: layout(RecordListResponse, LONG, INT, RECORD_LIST),
    9: layout(LastSessionInfoRequest, LONG, INT),
    10: layout(LastSessionInfoResponse, LONG, INT, SESSION_INFO),
    11: layout(MetricsRequest, LONG),
    12: layout(MetricsResponse, LONG, NULLABLE_STRING),
    13: layout(AssignedPartitionStatusRequest, LONG),
    14: layout(AssignedPartitionStatusResponse, LONG, map_of(INT, BOOLEAN, 5)),
}
"""The messages by type number."""

CATALOGUE: Catalogue[Message] = Catalogue(STORAGE_ADMIN.magic, VERSION, LAYOUTS)


def encode(message: Message) -> bytes:
    """Encode a message as a whole frame.

    Raises:
        ProtocolError: A value does not fit into its field.
    """
    return CATALOGUE.encode(message)


def decode(buffer: bytes, start: int, end: int) -> Message:
    """Decode the payload ``buffer[start:end]``.

    Raises:
        ProtocolError: The payload is not a valid message.
    """
    return CATALOGUE.decode(buffer, start, end)


def decode_batch(buffer: bytes, bounds: Bounds) -> list[Message]:
    """Decode all payloads of one read.

    Raises:
        ProtocolError: One of the payloads is not a valid message; none of them is returned.
    """
    return [CATALOGUE.decode(buffer, start, end) for start, end in bounds]
