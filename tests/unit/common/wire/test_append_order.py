"""The message of ordered appends, byte for byte: nobody else speaks it, so these bytes are its definition."""

from tests.unit.common.wire.golden import check_bytes, check_first_version
from waltz.common.ids import ReqId
from waltz.common.wire.append_order import AppendOrderRequest
from waltz.common.wire.versions import FIRST_WITH_APPEND_ORDER

REQUEST = AppendOrderRequest(ReqId.of(7, 3, 2, 258), 42)


def test_golden_bytes() -> None:
    check_bytes(REQUEST, "4c000600000019" + "38" + "00000007000000030000000200000102" + "000000000000002a", 6)


def test_older_versions_do_not_have_it() -> None:
    check_first_version(REQUEST, FIRST_WITH_APPEND_ORDER)
