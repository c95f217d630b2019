"""Messages of the admin port with which a storage node is repaired. The original has none of them.

They extend version 0 of the storage admin protocol; a node of the original closes the connection on them.
"""

from typing import NamedTuple

from waltz.common.records import Record
from waltz.common.wire import admin as wire
from waltz.common.wire.catalogue import Catalogue, layout
from waltz.common.wire.fields import BOOLEAN, INT, LONG, map_of
from waltz.common.wire.frames import STORAGE_ADMIN
from waltz.common.wire.structures import RECORD_LIST

VERSION = 0


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


RepairMessage = RepairSurveyRequest | RepairSurveyResponse | RepairRecordsRequest | RepairCommitRequest

_CATALOGUE: Catalogue[RepairMessage] = Catalogue(
    STORAGE_ADMIN.magic,
    VERSION,
    {
        100: layout(RepairSurveyRequest, LONG, INT),
        101: layout(RepairSurveyResponse, LONG, INT, map_of(LONG, LONG, 16), LONG, BOOLEAN),
        102: layout(RepairRecordsRequest, LONG, INT, RECORD_LIST),
        103: layout(RepairCommitRequest, LONG, INT, LONG),
    },
)

AdminMessage = wire.Message | RepairMessage
"""Whatever can be said on the admin port."""

_TYPES = range(100, 104)
_REPAIR_MESSAGES = (RepairSurveyRequest, RepairSurveyResponse, RepairRecordsRequest, RepairCommitRequest)


def encode_admin(message: AdminMessage) -> bytes:
    """The whole frame of any message of the admin port. Raises ``ProtocolError``."""
    return _CATALOGUE.encode(message) if isinstance(message, _REPAIR_MESSAGES) else wire.encode(message)


def decode_admin(buffer: bytes, start: int, end: int) -> AdminMessage:
    """The message whose payload is ``buffer[start:end]``. Raises ``ProtocolError`` on anything wrong with it."""
    if start < end and buffer[start] in _TYPES:
        return _CATALOGUE.decode(buffer, start, end)
    return wire.decode(buffer, start, end)
