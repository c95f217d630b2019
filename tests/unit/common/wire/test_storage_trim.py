"""The bytes of the messages about trims between servers and storages."""

import pytest

from waltz.common.errors import ProtocolError
from waltz.common.wire import storage_version1 as our_wire
from waltz.common.wire.storage_trim import BeginRequest, SizeRequest, StorageTrimMessage, TrimRequest, TrimResponse

COMMON = "0000000000000005" + "0000000000000009" + "00000001"
GOLDEN: list[tuple[StorageTrimMessage, str]] = [
    (TrimRequest(5, 9, 1, 1000), "530001" + "0000001d" + "1a" + COMMON + "00000000000003e8"),
    (BeginRequest(5, 9, 1, 1000, True), "530001" + "0000001e" + "1b" + COMMON + "00000000000003e8" + "01"),
    (TrimResponse(5, 9, 1, 1000), "530001" + "0000001d" + "1c" + COMMON + "00000000000003e8"),
    (SizeRequest(5, 9, 1, 1000), "530001" + "0000001d" + "1d" + COMMON + "00000000000003e8"),
]


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN)
def test_the_bytes_are_frozen(message: StorageTrimMessage, hex_frame: str) -> None:
    frame = our_wire.encode(message, our_wire.OUR_VERSION)
    assert frame.hex() == hex_frame
    assert our_wire.decode(frame, 7, len(frame), our_wire.OUR_VERSION) == message


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN)
def test_parts_and_more_are_refused(message: StorageTrimMessage, hex_frame: str) -> None:
    frame = bytes.fromhex(hex_frame)
    for end in range(8, len(frame)):
        with pytest.raises(ProtocolError):
            our_wire.decode(frame, 7, end, our_wire.OUR_VERSION)
    with pytest.raises(ProtocolError):
        our_wire.decode(frame + b"\0", 7, len(frame) + 1, our_wire.OUR_VERSION)


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN)
def test_the_original_does_not_have_them(message: StorageTrimMessage, hex_frame: str) -> None:
    with pytest.raises(ProtocolError):
        our_wire.encode(message, 0)
