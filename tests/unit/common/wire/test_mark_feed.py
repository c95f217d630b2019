"""Messages of the feed of marks, byte for byte: nobody else speaks them, so these bytes are their definition."""

import pytest

from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import Message, decode, encode
from waltz.common.wire.mark_feed import MarkAdvanced, MarkFeedRequest
from waltz.common.wire.versions import FIRST_WITH_MARK_FEED

GOLDEN: list[tuple[Message, str]] = [
    (
        MarkFeedRequest(ReqId.of(7, 3, 2, 258), 41),
        "4c000600000019" + "32" + "00000007000000030000000200000102" + "0000000000000029",
    ),
    (
        MarkAdvanced(ReqId.of(-1, -1, 2, -1), 42),
        "4c000600000019" + "33" + "ffffffffffffffff00000002ffffffff" + "000000000000002a",
    ),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(message: Message, hex_frame: str) -> None:
    frame = bytes.fromhex(hex_frame)
    assert encode(message, 6).hex() == hex_frame
    assert decode(frame, 7, len(frame), 6) == message


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda value: type(value).__name__)
def test_older_versions_have_none_of_it(message: Message) -> None:
    frame = encode(message, FIRST_WITH_MARK_FEED)
    for version in range(FIRST_WITH_MARK_FEED):
        with pytest.raises(ProtocolError, match=f"version {version} of the protocol has no {type(message).__name__}"):
            encode(message, version)
        with pytest.raises(ProtocolError, match="unknown message type"):
            decode(frame, 7, len(frame), version)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda value: type(value).__name__)
def test_truncated(message: Message) -> None:
    frame = encode(message, 6)
    for end in range(8, len(frame)):
        with pytest.raises(ProtocolError):
            decode(frame, 7, end, 6)
