"""The bytes of the message about trimmed transactions."""

import pytest

from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import decode, encode
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.versions import FIRST_WITH_TRIM

MESSAGE = Trimmed(ReqId.of(1, 2, 3, 4), 1000)
FRAME = "4c0006" + "00000019" + "39" + "00000001000000020000000300000004" + "00000000000003e8"


def test_the_bytes_are_frozen() -> None:
    frame = encode(MESSAGE, FIRST_WITH_TRIM)
    assert frame.hex() == FRAME
    assert decode(frame, 7, len(frame), FIRST_WITH_TRIM) == MESSAGE


def test_older_versions_do_not_have_it() -> None:
    with pytest.raises(ProtocolError):
        encode(MESSAGE, FIRST_WITH_TRIM - 1)


@pytest.mark.parametrize("length", range(1, 25))
def test_a_part_is_no_message(length: int) -> None:
    frame = encode(MESSAGE, FIRST_WITH_TRIM)
    with pytest.raises(ProtocolError):
        decode(frame, 7, 7 + length, FIRST_WITH_TRIM)
