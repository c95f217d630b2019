"""Tokens on the wire, byte for byte: nobody else speaks them, so these bytes are their definition."""

import re
from pathlib import Path

import pytest

from waltz.common.errors import ProtocolError
from waltz.common.wire import client_server
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER_SIZE_BYTES, STORAGE, STORAGE_ADMIN, Family
from waltz.common.wire.tokens import (
    FOR_EVER,
    MAX_TOKEN_BYTES,
    TOKEN,
    TokenAnswer,
    decode_token,
    decode_token_answer,
    encode_token,
    encode_token_answer,
    takes_tokens,
)

TOKEN_FRAMES = {
    CLIENT_SERVER: "4c" + "0006" + "0000000a" + "28" + "00000005" + "612e622e63",
    STORAGE: "53" + "0001" + "0000000a" + "28" + "00000005" + "612e622e63",
    STORAGE_ADMIN: "41" + "0001" + "0000000a" + "28" + "00000005" + "612e622e63",
}
ANSWERS = {
    "4c" + "0006" + "0000000d" + "2c" + "ffffffff" + "000000000000ea60": TokenAnswer(None, 60_000),
    "4c" + "0006" + "0000000d" + "2c" + "ffffffff" + "ffffffffffffffff": TokenAnswer(None, FOR_EVER),
    "4c" + "0006" + "0000000f" + "2c" + "00000002" + "6e6f" + "0000000000000000": TokenAnswer("no", 0),
}


@pytest.mark.parametrize("family", TOKEN_FRAMES)
def test_golden_bytes_of_a_token(family: Family) -> None:
    frame = bytes.fromhex(TOKEN_FRAMES[family])
    assert encode_token(family, max(family.versions), "a.b.c") == frame
    assert decode_token(frame, FRAME_HEADER_SIZE_BYTES, len(frame)) == "a.b.c"
    with pytest.raises(ProtocolError, match="unknown message type 40"):
        client_server.decode(frame, FRAME_HEADER_SIZE_BYTES, len(frame), 6)


@pytest.mark.parametrize("hex_frame", ANSWERS)
def test_golden_bytes_of_answers(hex_frame: str) -> None:
    frame = bytes.fromhex(hex_frame)
    assert encode_token_answer(CLIENT_SERVER, 6, ANSWERS[hex_frame]) == frame
    assert decode_token_answer(frame, FRAME_HEADER_SIZE_BYTES, len(frame)) == ANSWERS[hex_frame]
    with pytest.raises(ProtocolError):
        decode_token_answer(frame, FRAME_HEADER_SIZE_BYTES, len(frame) - 1)
    with pytest.raises(ProtocolError, match="left over"):
        decode_token_answer(frame + b"\0", FRAME_HEADER_SIZE_BYTES, len(frame) + 1)


def test_the_page_of_the_protocols_shows_these_bytes() -> None:
    page = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text()
    shown = [line.replace(" ", "") for line in re.findall(r"^4c [0-9a-f ]+$", page, re.MULTILINE)]
    assert {TOKEN_FRAMES[CLIENT_SERVER], next(iter(ANSWERS))} <= set(shown)


def test_versions_of_the_original_have_no_tokens() -> None:
    assert [version for version in CLIENT_SERVER.versions if takes_tokens(CLIENT_SERVER, version)] == [6]
    assert [version for version in STORAGE.versions if takes_tokens(STORAGE, version)] == [1]
    assert [version for version in STORAGE_ADMIN.versions if takes_tokens(STORAGE_ADMIN, version)] == [1]
    assert not takes_tokens(Family("other", ord("X"), (0, 9)), 9)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (b"", "cut off"),
        (b"\0\0\0", "cut off"),
        (b"\0\0\0\x05secr", "cut off"),
        (b"\x7f\xff\xff\xffsecret", "cut off"),
        (b"\0\0\0\x06secret!", "left over"),
        (b"\xff\xff\xff\xff", "without a token"),
        (b"\0\0\x20\x01" + b"secret" + b"a" * (MAX_TOKEN_BYTES - 5), "8193 bytes; the limit is 8192"),
    ],
)
def test_malformed_tokens_are_refused_without_being_quoted(fields: bytes, reason: str) -> None:
    payload = bytes([TOKEN]) + fields
    with pytest.raises(ProtocolError, match=reason) as refused:
        decode_token(payload, 0, len(payload))
    assert "secr" not in str(refused.value)
