"""Both versions of the storage admin protocol.

Version 0 is the original's. Version 1 is an extension of this implementation: only its own nodes and tools offer it in
their hello. It adds the repair of a node, bulk reads of records in the form they have on disk, and moves of partitions
between the disks of a node.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from waltz.common.records import Record
from waltz.common.wire import admin as wire
from waltz.common.wire.catalogue import Catalogue, layout
from waltz.common.wire.fields import BOOLEAN, INT, LONG, NULLABLE_BYTES, NULLABLE_STRING, map_of
from waltz.common.wire.frames import FRAME_HEADER, STORAGE_ADMIN
from waltz.common.wire.structures import RECORD_LIST

OUR_VERSION = 1

_INT_BYTES = 4

RECORD_RANGE_RESPONSE = 105
"""Type number of :class:`RecordRangeResponse`, for readers of its raw bytes."""


class RepairSurveyRequest(NamedTuple):
    """Asks which records of a partition are damaged or missing; drops the records of an unfinished repair."""

    seq_num: int
    partition_id: int


class RepairSurveyResponse(NamedTuple):
    """Answers :class:`RepairSurveyRequest`: ranges of ids, ascending, and the last id that should be there.

    ``whole``: the partition is served, and none of its files is damaged.
    """

    seq_num: int
    partition_id: int
    missing: tuple[tuple[int, int], ...]
    last_transaction_id: int
    whole: bool


class RepairRecordsRequest(NamedTuple):
    """Sends missing records, in ascending order. Nothing changes until the :class:`RepairCommitRequest`."""

    seq_num: int
    partition_id: int
    records: list[Record]


class RepairCommitRequest(NamedTuple):
    """Puts the sent records in their places.

    If records above ``certain_up_to`` are still missing, the log is cut before the first of them.
    """

    seq_num: int
    partition_id: int
    certain_up_to: int


class RecordRangeRequest(NamedTuple):
    """Like :class:`~waltz.common.wire.admin.RecordListRequest`, but asks for records in the form they have on disk."""

    seq_num: int
    partition_id: int
    transaction_id: int
    max_count: int


class RecordRangeResponse(NamedTuple):
    """Answers :class:`RecordRangeRequest`. If the first record is absent, and only then, both parts are empty."""

    seq_num: int
    partition_id: int
    sizes: bytes | None
    """The size in bytes of every record, 4 bytes each."""
    records: bytes | None
    """Records as in a segment file, one behind the other; their checksums were verified."""


class DisksRequest(NamedTuple):
    """Asks for the disks of the node, and for the moves of partitions that even out their free space."""

    seq_num: int


class DisksResponse(NamedTuple):
    """Answers :class:`DisksRequest`."""

    seq_num: int
    disks_json: str | None
    """``directories``: path, free bytes and the sizes of the partitions; ``moves``: the plan."""


class MoveToDiskRequest(NamedTuple):
    """Moves a partition to another directory of the node while the partition is served."""

    seq_num: int
    partition_id: int
    directory: str | None
    rate_bytes_per_s: int
    """The limit of the copying."""


Message = (
    wire.Message
    | RepairSurveyRequest
    | RepairSurveyResponse
    | RepairRecordsRequest
    | RepairCommitRequest
    | RecordRangeRequest
    | RecordRangeResponse
    | DisksRequest
    | DisksResponse
    | MoveToDiskRequest
)
"""All messages of the admin port."""

_CATALOGUES: dict[int, Catalogue[Any]] = {
    wire.VERSION: wire.CATALOGUE,
    OUR_VERSION: Catalogue(
        STORAGE_ADMIN.magic,
        OUR_VERSION,
        {
            **wire.LAYOUTS,
            100: layout(RepairSurveyRequest, LONG, INT),
            101: layout(RepairSurveyResponse, LONG, INT, map_of(LONG, LONG, 16), LONG, BOOLEAN),
            102: layout(RepairRecordsRequest, LONG, INT, RECORD_LIST),
            103: layout(RepairCommitRequest, LONG, INT, LONG),
            104: layout(RecordRangeRequest, LONG, INT, LONG, INT),
            RECORD_RANGE_RESPONSE: layout(RecordRangeResponse, LONG, INT, NULLABLE_BYTES, NULLABLE_BYTES),
            106: layout(DisksRequest, LONG),
            107: layout(DisksResponse, LONG, NULLABLE_STRING),
            108: layout(MoveToDiskRequest, LONG, INT, NULLABLE_STRING, LONG),
        },
    ),
}


def range_frame(seq_num: int, partition_id: int, sizes: bytes, records: Sequence[bytes]) -> list[bytes]:
    """Encode a :class:`RecordRangeResponse` as a frame in pieces: records are not copied."""
    empty = encode(RecordRangeResponse(seq_num, partition_id, sizes, b""), OUR_VERSION)
    magic, version, size_bytes = FRAME_HEADER.unpack_from(empty)
    records_bytes = sum(map(len, records))
    head = FRAME_HEADER.pack(magic, version, size_bytes + records_bytes)
    return [head + empty[FRAME_HEADER.size : -_INT_BYTES] + records_bytes.to_bytes(_INT_BYTES, "big"), *records]


def encode(message: Message, version: int) -> bytes:
    """Encode any message of the admin port as a whole frame.

    Raises:
        ProtocolError: The version has no such message, or a value does not fit into its field.
    """
    return _CATALOGUES[version].encode(message)


def decode(buffer: bytes, start: int, end: int, version: int) -> Message:
    """Decode the payload ``buffer[start:end]`` of a message of the admin port.

    Raises:
        ProtocolError: The payload is not a valid message.
    """
    message: Message = _CATALOGUES[version].decode(buffer, start, end)
    return message
