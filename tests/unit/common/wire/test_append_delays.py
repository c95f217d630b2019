"""The message about delays, byte for byte: nobody else speaks it, so these bytes are its definition."""

from tests.unit.common.wire.golden import check_bytes, check_first_version
from waltz.common.ids import ReqId
from waltz.common.wire.append_delays import AppendsDelayed
from waltz.common.wire.client_server import Message
from waltz.common.wire.versions import FIRST_WITH_APPEND_DELAYS

GOLDEN: list[tuple[Message, str]] = [
    (
        AppendsDelayed(ReqId.of(7, 3, 2, 258), 1500),
        "4c000600000015" + "2d" + "00000007000000030000000200000102" + "000005dc",
    ),
]


def test_golden_bytes() -> None:
    for message, hex_frame in GOLDEN:
        check_bytes(message, hex_frame, 6)


def test_older_versions_do_not_have_it() -> None:
    for message, _ in GOLDEN:
        check_first_version(message, FIRST_WITH_APPEND_DELAYS)
