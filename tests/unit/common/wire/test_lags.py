"""Messages about lags, byte for byte: nobody else speaks them."""

import pytest

from tests.unit.common.wire.golden import check_bytes, check_first_version
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import Message, decode
from waltz.common.wire.lags import UNKNOWN_LAG, LagsRequest, LagsResponse, PartitionLags, ReplicaLag
from waltz.common.wire.versions import FIRST_WITH_LAGS

REQ_ID = ReqId.of(7, 3, 2, 258)
REQ_ID_HEX = "00000007000000030000000200000102"

TWO_REPLICAS = [ReplicaLag("a:1", 5, 1500), ReplicaLag("b:2", UNKNOWN_LAG, UNKNOWN_LAG)]

GOLDEN: list[tuple[Message, str]] = [
    (LagsRequest(REQ_ID), "4c000600000011" + "2e" + REQ_ID_HEX),
    (LagsResponse(REQ_ID, []), "4c000600000015" + "2f" + REQ_ID_HEX + "00000000"),
    (
        LagsResponse(REQ_ID, [PartitionLags(4, 9, 2000, TWO_REPLICAS)]),
        "4c00060000005b"
        "2f"
        + REQ_ID_HEX
        + "00000001"
        + "00000004"
        + "0000000000000009"
        + "00000000000007d0"
        + "00000002"
        + "00000003613a31"
        + "0000000000000005"
        + "00000000000005dc"
        + "00000003623a32"
        + "ff" * 16,
    ),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN)
def test_golden_bytes(message: Message, hex_frame: str) -> None:
    check_bytes(message, hex_frame, 6)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN])
def test_older_versions_have_none_of_it(message: Message) -> None:
    check_first_version(message, FIRST_WITH_LAGS)


@pytest.mark.parametrize(
    "rest",
    [
        "7fffffff",  # more partitions than the message can hold
        "ffffffff",  # a negative number of partitions
        "00000001" + "00" * 20 + "7fffffff",  # more replicas than the message can hold
        "00000001" + "00" * 20 + "00000001" + "ffffffff" + "00" * 16,  # a storage without a name
    ],
)
def test_hostile_answers(rest: str) -> None:
    payload = bytes.fromhex("2f" + REQ_ID_HEX + rest)
    with pytest.raises(ProtocolError):
        decode(payload, 0, len(payload), 6)
