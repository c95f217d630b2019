"""Messages that set properties, byte for byte: nobody else speaks them."""

import re
from pathlib import Path

import pytest

from tests.unit.common.wire.golden import check_bytes, check_first_version
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import Message, decode
from waltz.common.wire.partition_properties import SetPropertiesRequest, SetPropertiesResponse, SetPropertiesStatus
from waltz.common.wire.versions import FIRST_WITH_PROPERTIES

REQ_ID = ReqId.of(7, 0, 2, 0)
REQ_ID_HEX = "00000007000000000000000200000000"

GOLDEN: list[tuple[Message, str]] = [
    (
        SetPropertiesRequest(REQ_ID, 3, '{"disabled": true}'),
        "4c00060000002f" + "3a" + REQ_ID_HEX + "0000000000000003" + "00000012" + b'{"disabled": true}'.hex(),
    ),
    (
        SetPropertiesResponse(REQ_ID, SetPropertiesStatus.DONE, 4, None),
        "4c000600000021" + "3b" + REQ_ID_HEX + "00000000" + "0000000000000004" + "ffffffff",
    ),
    (
        SetPropertiesResponse(REQ_ID, SetPropertiesStatus.FAILED, -1, "why"),
        "4c000600000024" + "3b" + REQ_ID_HEX + "00000002" + "ff" * 8 + "00000003" + b"why".hex(),
    ),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN)
def test_golden_bytes(message: Message, hex_frame: str) -> None:
    check_bytes(message, hex_frame, 6)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN])
def test_older_versions_have_none_of_it(message: Message) -> None:
    check_first_version(message, FIRST_WITH_PROPERTIES)


def test_the_guide_shows_the_same_bytes() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text().partition("### Properties\n")[2]
    shown = [re.sub(r"\s", "", line) for line in re.findall(r"^4c 0006 .*$", guide, re.MULTILINE)]
    assert shown[:3] == [hex_frame for _, hex_frame in GOLDEN]


@pytest.mark.parametrize(
    "payload",
    [
        "3a" + REQ_ID_HEX + "00" * 8 + "ffffffff",  # no properties
        "3a" + REQ_ID_HEX + "00" * 8 + "7fffffff",  # more bytes than the message has
        "3b" + REQ_ID_HEX + "00000003" + "00" * 8 + "ffffffff",  # an unknown status
    ],
)
def test_hostile_messages(payload: str) -> None:
    content = bytes.fromhex(payload)
    with pytest.raises(ProtocolError):
        decode(content, 0, len(content), 6)
