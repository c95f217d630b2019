"""Messages of the feed of marks, byte for byte: nobody else speaks them, so these bytes are their definition."""

import pytest

from tests.unit.common.wire.golden import check_bytes, check_first_version
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import Message
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
    check_bytes(message, hex_frame, 6)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda value: type(value).__name__)
def test_older_versions_have_none_of_it(message: Message) -> None:
    check_first_version(message, FIRST_WITH_MARK_FEED)
