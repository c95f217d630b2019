"""Messages about levels, byte for byte: nobody else speaks them, so these bytes are their definition."""

import pytest

from tests.unit.common.wire.golden import check_bytes, check_first_version
from waltz.common.consistency import Consistency
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import Message, decode, encode
from waltz.common.wire.consistency import (
    AppendAck,
    AppendAckRequest,
    AppendLevelRequest,
    ConsistencyRefusal,
    ConsistencyRefused,
    PartitionConsistency,
)
from waltz.common.wire.versions import FIRST_WITH_CONSISTENCY

REQ_ID = ReqId.of(7, 3, 2, 258)
REQ_ID_HEX = "00000007000000030000000200000102"

GOLDEN: list[tuple[Message, str]] = [
    (AppendAck(REQ_ID, 42, 3), "4c00060000001d" + "20" + REQ_ID_HEX + "000000000000002a" + "00000003"),
    (AppendLevelRequest(REQ_ID, Consistency.LEADER_ALL), "4c000600000015" + "23" + REQ_ID_HEX + "00000004"),
    (AppendAckRequest(REQ_ID, 42), "4c000600000019" + "24" + REQ_ID_HEX + "000000000000002a"),
    (
        ConsistencyRefused(REQ_ID, ConsistencyRefusal.STORAGE_MISSING, "a:1"),
        "4c00060000001c" + "25" + REQ_ID_HEX + "00000002" + "00000003613a31",
    ),
    (PartitionConsistency(REQ_ID, Consistency.QUORUM), "4c000600000015" + "26" + REQ_ID_HEX + "00000005"),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(message: Message, hex_frame: str) -> None:
    check_bytes(message, hex_frame, 6)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda value: type(value).__name__)
def test_older_versions_have_none_of_it(message: Message) -> None:
    check_first_version(message, FIRST_WITH_CONSISTENCY)


@pytest.mark.parametrize(("index", "number"), [(1, 0), (1, 9), (3, 0), (3, 3), (4, 0), (4, 9)])
def test_unknown_numbers_are_refused(index: int, number: int) -> None:
    frame = bytearray(encode(GOLDEN[index][0], 6))
    frame[27] = number
    with pytest.raises(ProtocolError, match=f"unknown (level of consistency|refusal) {number}"):
        decode(bytes(frame), 7, len(frame), 6)
