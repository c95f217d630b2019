"""What peers may present as tokens, what nodes may answer, and what operators may write into files of keys."""

import json
import time
from contextlib import suppress

from tests.fuzz.target import Target
from tests.unit.common.acl.tokens import AUDIENCE, PRIVATE, described, key_set, part, token
from waltz.common.acl.tokens import ALGORITHMS, Tokens, inspected, read_keys, read_withdrawn
from waltz.common.errors import ConfigError, ProtocolError
from waltz.common.net.token_problems import TokenRefusal
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER
from waltz.common.wire.tokens import (
    FOR_EVER,
    TokenAnswer,
    decode_token,
    decode_token_answer,
    encode_token,
    encode_token_answer,
)

TOKENS = Tokens(read_keys(key_set(), ALGORITHMS, "keys"), frozenset({"gone"}), AUDIENCE, 30.0)


def decode_messages(data: bytes) -> None:
    """The message with a token, and its answer; the same bytes are taken for both."""
    with suppress(ProtocolError):
        text = decode_token(data, 0, len(data))
        frame = encode_token(CLIENT_SERVER, 6, text)
        assert decode_token(frame, FRAME_HEADER.size, len(frame)) == text
    with suppress(ProtocolError):
        answer = decode_token_answer(data, 0, len(data))
        frame = encode_token_answer(CLIENT_SERVER, 6, answer)
        assert decode_token_answer(frame, FRAME_HEADER.size, len(frame)) == answer


def verify(data: bytes) -> None:
    """Only what the keys have signed is accepted."""
    text = data.decode(errors="replace")
    with suppress(TokenRefusal):
        inspected(text, None)
    with suppress(TokenRefusal):
        assert inspected(text, TOKENS.keys).principal == "svc-t"
    with suppress(TokenRefusal):
        found = TOKENS.verify(text)
        assert found.principal == "svc-t"
        assert found.expires_s > time.time()


def read_files(data: bytes) -> None:
    """A file of keys, or of withdrawn tokens."""
    with suppress(ConfigError):
        read_keys(data, ALGORITHMS, "keys")
    with suppress(ConfigError):
        read_withdrawn(data.decode(errors="replace"), "withdrawn")


def _message_seeds() -> list[bytes]:
    answers = [TokenAnswer(None, FOR_EVER), TokenAnswer(None, 60_000), TokenAnswer("it has expired", 0)]
    frames = [
        encode_token(CLIENT_SERVER, 6, "a.b.c"),
        *(encode_token_answer(CLIENT_SERVER, 6, each) for each in answers),
    ]
    return [frame[FRAME_HEADER.size :] for frame in frames]


def _token_seeds() -> list[bytes]:
    unsigned = f"{part({'alg': 'none', 'kid': 'ES256'})}.{part({'sub': 'ops', 'aud': AUDIENCE})}."
    return [*(token(algorithm).encode() for algorithm in PRIVATE), unsigned.encode()]


TARGETS = {
    "token-messages": Target(decode_messages, _message_seeds),
    "tokens": Target(verify, _token_seeds),
    "token-files": Target(
        read_files, lambda: [key_set().encode(), json.dumps({"keys": [described("ES256")]}).encode(), b"# old\nt-1\n"]
    ),
}
