"""Checks of messages that nobody else speaks, beside their frames in hexadecimal digits, which are their definition."""

import pytest

from waltz.common.errors import ProtocolError
from waltz.common.wire.client_server import Message, decode, encode

BODY = 8
"""Where the fields of a frame begin: behind magic number, version, length and type."""


def check_bytes(message: Message, hex_frame: str, version: int) -> None:
    """These are the bytes of the message, all of which it needs."""
    frame = bytes.fromhex(hex_frame)
    assert encode(message, version).hex() == hex_frame
    assert decode(frame, BODY - 1, len(frame), version) == message
    for end in range(BODY, len(frame)):
        with pytest.raises(ProtocolError):
            decode(frame, BODY - 1, end, version)


def check_first_version(message: Message, first: int) -> None:
    """No version before ``first`` has such a message."""
    frame = encode(message, first)
    for version in range(first):
        with pytest.raises(ProtocolError, match=f"version {version} of the protocol has no {type(message).__name__}"):
            encode(message, version)
        with pytest.raises(ProtocolError, match="unknown message type"):
            decode(frame, BODY - 1, len(frame), version)
