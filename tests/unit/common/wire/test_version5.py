"""Version 5, byte for byte: nobody else speaks it, so these bytes are its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.wire.golden import check_bytes, check_first_version
from tests.unit.common.wire.strategies import LONGS, RECORDS, REQ_IDS
from waltz.common.checksum import checksum
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.records import Record, encode_records
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import FeedData, Message, decode, decode_batch, encode
from waltz.common.wire.connection import WireConnection
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.wire.version5 import (
    AppendFailed,
    AppendFailure,
    DataListStatus,
    PartitionClosed,
    TransactionDataListRequest,
    TransactionDataListResponse,
    encode_transaction_data_list,
)

REQ_ID = ReqId.of(7, 3, 2, 258)
REQ_ID_HEX = "00000007000000030000000200000102"
APPEND = AppendRequest(REQ_ID, 41, (3357067,), (), (), -2, b"hello", 0x3610A686)
RECORD = Record(42, REQ_ID, -2, b"hello", 0x3610A686)

GOLDEN: list[tuple[Message, str]] = [
    (
        APPEND,
        "4c00050000004202" + REQ_ID_HEX + "0000000000000029000000010033398b0000000000000000fffffffe0000000568656c6c6f"
        "3610a686ffffffffffffffff",
    ),
    (FeedData(REQ_ID, 42, -2), "4c00050000001d04" + REQ_ID_HEX + "000000000000002afffffffe"),
    (
        TransactionDataListRequest(REQ_ID, 42, 1000, 1 << 20),
        "4c0005000000211c" + REQ_ID_HEX + "000000000000002a000003e800100000",
    ),
    (
        TransactionDataListResponse(REQ_ID, 42, DataListStatus.OK, 42, [RECORD], None),
        "4c0005000000561d" + REQ_ID_HEX + "000000000000002a00000000000000000000002a00000001"
        "000000000000002a" + REQ_ID_HEX + "fffffffe0000000568656c6c6f3610a686ffffffff",
    ),
    (
        TransactionDataListResponse(REQ_ID, 42, DataListStatus.FAILED, -1, [], "why"),
        "4c0005000000301d" + REQ_ID_HEX + "000000000000002a00000002ffffffffffffffff0000000000000003776879",
    ),
    (
        AppendFailed(REQ_ID, AppendFailure.TOO_LARGE, 42, "big"),
        "4c0005000000241e" + REQ_ID_HEX + "00000004000000000000002a00000003626967",
    ),
    (PartitionClosed(REQ_ID), "4c0005000000111f" + REQ_ID_HEX),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(message: Message, hex_frame: str) -> None:
    check_bytes(message, hex_frame, 5)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN[2:]], ids=lambda value: type(value).__name__)
def test_older_versions_have_none_of_it(message: Message) -> None:
    check_first_version(message, 5)


def test_an_append_without_its_write_session_is_too_short() -> None:
    frame = encode(APPEND, 5)
    assert decode_batch(frame, [(7, len(frame))], 5) == [APPEND]
    with pytest.raises(ProtocolError):
        decode_batch(frame[:-8], [(7, len(frame) - 8)], 5)


def test_hello_offers_our_versions_and_peers_of_the_original_get_version_4() -> None:
    ours = WireConnection(CLIENT_SERVER, "Waltz Client")
    expected = "480000000000220000000700000001000200030004000500060000000c57616c747a20436c69656e74"
    assert ours.hello.hex() == expected
    original = WireConnection(CLIENT_SERVER, "Waltz Server", versions=(0, 1, 2, 3, 4))
    ours.receive(original.hello)
    original.receive(ours.hello)
    assert ours.version == original.version == 4


@given(REQ_IDS, LONGS, LONGS, st.lists(RECORDS, max_size=5))
def test_list_of_encoded_records(req_id: bytes, first: int, mark: int, records: list[Record]) -> None:
    response = TransactionDataListResponse(req_id, first, DataListStatus.OK, mark, records, None)
    frame = encode_transaction_data_list(5, req_id, first, mark, len(records), encode_records(records))
    assert frame == encode(response, 5)


def test_checksums_of_a_list_are_left_to_its_user() -> None:
    """One damaged record must not cost the connection, nor its neighbours."""
    damaged = RECORD._replace(checksum=checksum(b"other"))
    response = TransactionDataListResponse(REQ_ID, 42, DataListStatus.OK, 42, [damaged], None)
    frame = encode(response, 5)
    assert decode(frame, 7, len(frame), 5) == response


@pytest.mark.parametrize(
    ("message", "position"),
    [
        (TransactionDataListResponse(REQ_ID, 42, DataListStatus.OK, 42, [], None), 32),
        (AppendFailed(REQ_ID, AppendFailure.MOVED, 42, None), 24),
    ],
)
def test_unknown_numbers_are_refused(message: Message, position: int) -> None:
    frame = bytearray(encode(message, 5))
    frame[position + 3] = 9
    with pytest.raises(ProtocolError, match="unknown"):
        decode(bytes(frame), 7, len(frame), 5)
