"""Bearer tokens: the first message of a client may carry one, in all protocols.

The peer answers each token. When a token expires on an open connection, the peer sends another answer, and closes the
connection.
"""

from typing import Final, NamedTuple

from waltz.common.errors import ProtocolError
from waltz.common.wire.fields import LONG, NULLABLE_STRING, structure
from waltz.common.wire.frames import CLIENT_SERVER, STORAGE, STORAGE_ADMIN, Family, encode_frame
from waltz.common.wire.versions import FIRST_WITH_TOKENS

TOKEN: Final = 40
"""Type of the message from the client."""
TOKEN_ANSWER: Final = 44
"""Type of the answer."""

MAX_TOKEN_BYTES: Final = 8192

FOR_EVER: Final = -1
"""In place of a token's remaining time: the peer does not check tokens."""

_FIRST_VERSIONS: Final = {CLIENT_SERVER.magic: FIRST_WITH_TOKENS, STORAGE.magic: 1, STORAGE_ADMIN.magic: 1}
_NEVER: Final = 1 << 15


class _Token(NamedTuple):
    text: str | None


class TokenAnswer(NamedTuple):
    """Whether a token is accepted."""

    error: str | None
    """The reason of a refusal; the connection ends then. ``None``: the token is accepted."""
    left_ms: int
    """Remaining time of the token in milliseconds, or :data:`FOR_EVER`."""


_TOKEN = structure(_Token, NULLABLE_STRING)
_ANSWER = structure(TokenAnswer, NULLABLE_STRING, LONG)


def takes_tokens(family: Family, version: int) -> bool:
    """Whether a version of a protocol has these messages."""
    return version >= _FIRST_VERSIONS.get(family.magic, _NEVER)


def encode_token(family: Family, version: int, token: str) -> bytes:
    """The whole frame of a token."""
    return encode_frame(family.magic, version, bytes([TOKEN]) + _TOKEN.encode(_Token(token)))


def encode_token_answer(family: Family, version: int, answer: TokenAnswer) -> bytes:
    """The whole frame of an answer."""
    return encode_frame(family.magic, version, bytes([TOKEN_ANSWER]) + _ANSWER.encode(answer))


def decode_token(buffer: bytes, start: int, end: int) -> str:
    """Decode a token from the payload ``buffer[start:end]``.

    Raises:
        ProtocolError: The payload is not a valid message. The text contains no part of the token.
    """
    if end - start > MAX_TOKEN_BYTES + 5:
        raise ProtocolError(f"a token of {end - start - 5} bytes; the limit is {MAX_TOKEN_BYTES}")
    try:
        found, position = _TOKEN.decode(buffer, start + 1, end)
    except ProtocolError:
        raise ProtocolError("a token message that is cut off") from None
    if position != end or found.text is None:
        raise ProtocolError("a token message with bytes left over, or without a token")
    return found.text


def decode_token_answer(buffer: bytes, start: int, end: int) -> TokenAnswer:
    """Decode an answer from the payload ``buffer[start:end]``.

    Raises:
        ProtocolError: The payload is not a valid message.
    """
    found, position = _ANSWER.decode(buffer, start + 1, end)
    if position != end:
        raise ProtocolError(f"TokenAnswer: {end - position} bytes left over")
    return found
