"""Messages of write sessions, byte for byte: nobody else speaks them, so these bytes are their definition."""

import pytest
from hypothesis import given

from tests.unit.common.wire.golden import check_bytes, check_first_version
from tests.unit.common.wire.strategies import LONGS
from waltz.common.errors import ProtocolError
from waltz.common.ids import RUN_PART, ReqId
from waltz.common.wire.append_request import AppendRequest, encode_append, session_of_run
from waltz.common.wire.client_server import Message, decode, encode
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    HeartbeatOption,
    HeartbeatRequest,
    HeartbeatResponse,
    HeartbeatState,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
    SessionFenced,
    SessionFlag,
)

REQ_ID = ReqId.of(7, 3, 2, 258)
REQ_ID_HEX = "00000007000000030000000200000102"
APPEND = AppendRequest(REQ_ID, 41, (3357067,), (), (), -2, b"hello", 0x3610A686, 6)

GOLDEN: list[tuple[Message, str]] = [
    (
        APPEND,
        "4c00050000004202" + REQ_ID_HEX + "0000000000000029000000010033398b0000000000000000fffffffe0000000568656c6c6f"
        "3610a6860000000000000006",
    ),
    (SessionFenced(REQ_ID, 112, 7), "4c000500000021" + "17" + REQ_ID_HEX + "00000000000000700000000000000007"),
    (HeartbeatRequest(REQ_ID, HeartbeatOption.GET_SESSION), "4c000500000012" + "18" + REQ_ID_HEX + "02"),
    (
        HeartbeatResponse(REQ_ID, HeartbeatState.OK, 112, 7, SessionFlag(0)),
        "4c000500000026" + "19" + REQ_ID_HEX + "000000000000000000000070000000000000000700",
    ),
    (
        LastTransactionIdRequest(REQ_ID, FenceOption.FENCE, NO_WRITE_SESSION),
        "4c00050000001a" + "1a" + REQ_ID_HEX + "01ffffffffffffffff",
    ),
    (
        LastTransactionIdResponse(REQ_ID, LastTransactionStatus.OK, 112, 7),
        "4c000500000025" + "1b" + REQ_ID_HEX + "0000000000000000000000700000000000000007",
    ),
    (
        HeartbeatResponse(
            REQ_ID,
            HeartbeatState.HELD_BY_ANOTHER,
            112,
            NO_WRITE_SESSION,
            SessionFlag.EXCLUSIVE | SessionFlag.HELD_BY_YOU,
        ),
        "4c000500000026" + "19" + REQ_ID_HEX + "000000020000000000000070ffffffffffffffff03",
    ),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(message: Message, hex_frame: str) -> None:
    check_bytes(message, hex_frame, 5)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN[1:]], ids=lambda value: type(value).__name__)
def test_older_versions_have_none_of_it(message: Message) -> None:
    check_first_version(message, 5)


@pytest.mark.parametrize("version", range(5))
def test_an_append_of_an_older_version_has_no_write_session(version: int) -> None:
    with pytest.raises(ProtocolError, match=f"write sessions not supported in version {version}, upgrade servers"):
        encode(APPEND, version)
    with pytest.raises(ProtocolError, match=f"write sessions not supported in version {version}, upgrade servers"):
        encode_append(version, bytes(16), 0, bytes(4), bytes(4), bytes(4), 0, b"", write_session=6)


@pytest.mark.parametrize(
    ("message", "position", "value", "text"),
    [
        (GOLDEN[2][0], 24, 8, "unknown heartbeat options 0x8"),
        (GOLDEN[3][0], 27, 3, "unknown heartbeat state 3"),
        (GOLDEN[3][0], 44, 4, "unknown session flags 0x4"),
        (GOLDEN[4][0], 24, 5, "unknown fence options 0x5"),
        (GOLDEN[5][0], 27, 4, "unknown status 4"),
    ],
)
def test_what_is_not_known_is_refused(message: Message, position: int, value: int, text: str) -> None:
    frame = bytearray(encode(message, 5))
    frame[position] = value
    with pytest.raises(ProtocolError, match=text):
        decode(bytes(frame), 7, len(frame), 5)


def test_options_that_no_version_knows_are_not_sent() -> None:
    with pytest.raises(ProtocolError, match="unknown fence options 0x4"):
        encode(LastTransactionIdRequest(REQ_ID, FenceOption(4), NO_WRITE_SESSION), 5)


@given(LONGS)
def test_session_of_a_run(write_session: int) -> None:
    key = REQ_ID[RUN_PART]
    if write_session != NO_WRITE_SESSION:
        key += write_session.to_bytes(8, "big", signed=True)
    assert session_of_run(key) == write_session
