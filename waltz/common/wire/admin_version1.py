"""Both versions of the storage admin protocol: that of the original, and ours, which adds to it.

Version 0 is the original's. Version 1, which only nodes and tools of ours offer in their hello, adds the repair of a
node and bulk reads of records as they are on disk.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from waltz.common.records import Record
from waltz.common.wire import admin as wire
from waltz.common.wire.catalogue import Catalogue, layout
from waltz.common.wire.fields import BOOLEAN, INT, LONG, NULLABLE_BYTES, map_of
from waltz.common.wire.frames import FRAME_HEADER, STORAGE_ADMIN
from waltz.common.wire.structures import RECORD_LIST

OUR_VERSION = 1

_INT_BYTES = 4

RECORD_RANGE_RESPONSE = 105
"""Type number of :class:`RecordRangeResponse`, for readers that do not decode it into an object."""


class RepairSurveyRequest(NamedTuple):
    """Asks which records of a partition are damaged or missing; forgets what an unfinished repair has brought."""

    seq_num: int
    partition_id: int


class RepairSurveyResponse(NamedTuple):
    """Answers :class:`RepairSurveyRequest`: first and last ids, ascending, and the last id that should be there.

    ``whole``: the partition is served and none of its files is damaged.
    """

    seq_num: int
    partition_id: int
    missing: tuple[tuple[int, int], ...]
    last_transaction_id: int
    whole: bool


class RepairRecordsRequest(NamedTuple):
    """Brings records that are missing, in ascending order; nothing is changed yet."""

    seq_num: int
    partition_id: int
    records: list[Record]


class RepairCommitRequest(NamedTuple):
    """Puts the records that were brought in their places.

    Where records are still missing above ``certain_up_to``, the log is cut before the first of them.
    """

    seq_num: int
    partition_id: int
    certain_up_to: int


class RecordRangeRequest(NamedTuple):
    """Asks as :class:`~waltz.common.wire.admin.RecordListRequest` does, but for records as they are on disk."""

    seq_num: int
    partition_id: int
    transaction_id: int
    max_count: int


class RecordRangeResponse(NamedTuple):
    """Answers :class:`RecordRangeRequest`; both parts are empty only when the first record is absent."""

    seq_num: int
    partition_id: int
    sizes: bytes | None
    """The size in bytes of every record, 4 bytes each."""
    records: bytes | None
    """Records as in a segment file, one behind the other; their checksums were verified."""


Message = (
    wire.Message
    | RepairSurveyRequest
    | RepairSurveyResponse
    | RepairRecordsRequest
    | RepairCommitRequest
    | RecordRangeRequest
    | RecordRangeResponse
)
"""Whatever can be said on the admin port."""

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
        },
    ),
}


def range_frame(seq_num: int, partition_id: int, sizes: bytes, records: Sequence[bytes]) -> list[bytes]:
    """The frame of a :class:`RecordRangeResponse`, in pieces: records are not copied."""
    empty = encode(RecordRangeResponse(seq_num, partition_id, sizes, b""), OUR_VERSION)
    magic, version, size_bytes = FRAME_HEADER.unpack_from(empty)
    records_bytes = sum(map(len, records))
    head = FRAME_HEADER.pack(magic, version, size_bytes + records_bytes)
    return [head + empty[FRAME_HEADER.size : -_INT_BYTES] + records_bytes.to_bytes(_INT_BYTES, "big"), *records]


def encode(message: Message, version: int) -> bytes:
    """The whole frame of any message of the admin port. Raises ``ProtocolError``."""
    return _CATALOGUES[version].encode(message)


def decode(buffer: bytes, start: int, end: int, version: int) -> Message:
    """The message whose payload is ``buffer[start:end]``. Raises ``ProtocolError`` on anything wrong with it."""
    message: Message = _CATALOGUES[version].decode(buffer, start, end)
    return message
