"""Messages about times between clients and servers, byte for byte: nobody else speaks them."""

import pytest

from tests.unit.common.wire.golden import check_bytes, check_first_version
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import Message
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.wire.versions import FIRST_WITH_TIME

REQ_ID = ReqId.of(7, 3, 2, 258)
REQ_ID_HEX = "00000007000000030000000200000102"

GOLDEN: list[tuple[Message, str]] = [
    (
        TimeRequest(REQ_ID, TimeQuestion.LAST_AT, 1_700_000_000_000),
        "4c00060000001d" + "2a" + REQ_ID_HEX + "00000000" + "0000018bcfe56800",
    ),
    (
        TimeRequest(REQ_ID, TimeQuestion.FIRST_COVERING, 42),
        "4c00060000001d" + "2a" + REQ_ID_HEX + "00000001" + "000000000000002a",
    ),
    (
        TimeResponse(REQ_ID, TimeStatus.OK, 42, 1_700_000_000_000),
        "4c000600000025" + "2b" + REQ_ID_HEX + "00000000" + "000000000000002a" + "0000018bcfe56800",
    ),
    (
        TimeResponse(REQ_ID, TimeStatus.NOT_KEPT, -1, -1),
        "4c000600000025" + "2b" + REQ_ID_HEX + "00000003" + "ff" * 16,
    ),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN)
def test_golden_bytes(message: Message, hex_frame: str) -> None:
    check_bytes(message, hex_frame, 6)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN])
def test_older_versions_have_none_of_it(message: Message) -> None:
    check_first_version(message, FIRST_WITH_TIME)
