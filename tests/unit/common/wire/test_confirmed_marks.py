"""Messages of confirmed marks, byte for byte: nobody else speaks them, so these bytes are their definition."""

import pytest

from tests.unit.common.wire.golden import check_bytes, check_first_version
from waltz.common.errors import ProtocolError
from waltz.common.ids import NO_TRANSACTION, ReqId
from waltz.common.wire.client_server import Message, decode, encode
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest, ConfirmedMarkResponse, ConfirmedMarkStatus
from waltz.common.wire.versions import FIRST_WITH_CONFIRMED_MARK

REQ_ID = ReqId.of(7, 3, 2, 258)
REQ_ID_HEX = "00000007000000030000000200000102"

GOLDEN: list[tuple[Message, str]] = [
    (ConfirmedMarkRequest(REQ_ID), "4c000600000011" + "21" + REQ_ID_HEX),
    (
        ConfirmedMarkResponse(REQ_ID, ConfirmedMarkStatus.OK, 42),
        "4c00060000001d" + "22" + REQ_ID_HEX + "00000000" + "000000000000002a",
    ),
    (
        ConfirmedMarkResponse(REQ_ID, ConfirmedMarkStatus.NOT_READY, NO_TRANSACTION),
        "4c00060000001d" + "22" + REQ_ID_HEX + "00000001" + "ffffffffffffffff",
    ),
    (
        ConfirmedMarkResponse(REQ_ID, ConfirmedMarkStatus.NOT_CONFIRMED, NO_TRANSACTION),
        "4c00060000001d" + "22" + REQ_ID_HEX + "00000002" + "ffffffffffffffff",
    ),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(message: Message, hex_frame: str) -> None:
    check_bytes(message, hex_frame, 6)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda value: type(value).__name__)
def test_older_versions_have_none_of_it(message: Message) -> None:
    check_first_version(message, FIRST_WITH_CONFIRMED_MARK)


def test_unknown_statuses_are_refused() -> None:
    frame = bytearray(encode(GOLDEN[1][0], 6))
    frame[27] = 3
    with pytest.raises(ProtocolError, match="unknown status 3"):
        decode(bytes(frame), 7, len(frame), 6)
