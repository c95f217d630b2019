"""Both ends of connections with tokens, which stand for themselves in a list."""

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.unit.common.net.peers import Recorder
from waltz.common.config.schemas import TlsConfig
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, connect
from waltz.common.net.limits import ListenerLimits
from waltz.common.net.listener import Listener, NameOf
from waltz.common.net.tls import client_context, server_context
from waltz.common.net.token_gate import Identities
from waltz.common.net.token_problems import TokenProblem, TokenRefusal
from waltz.common.net.token_sender import TokenSource
from waltz.common.wire.frames import CLIENT_SERVER, Family

TIMEOUT_S = 60.0


class Proved(NamedTuple):
    principal: str
    expires_s: float


class Accepted:
    """Tokens that are accepted: name and end of each. The others are refused."""

    def __init__(self, **principals: str) -> None:
        self.known = {token: Proved(name, time.time() + 3600) for token, name in principals.items()}
        self.rules = Identities(lambda: self)
        self._lives: dict[str, float] = {}

    def verify(self, token: str) -> Proved:
        if token in self._lives:
            self.known[token] = self.known[token]._replace(expires_s=time.time() + self._lives.pop(token))
        found = self.known.get(token)
        if found is None or found.expires_s <= time.time():
            raise TokenRefusal(TokenProblem.WRONG_SIGNATURE, "it is not accepted")
        return found

    def expire(self, token: str, in_s: float) -> None:
        """Let a token expire that long after it has been verified the next time."""
        self._lives[token] = in_s


class Port(NamedTuple):
    """A listening port; the handlers of its connections, in their order."""

    listener: Listener
    handlers: list[Recorder]

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.listener.port)


@asynccontextmanager
async def listening(
    rules: Identities | None,
    *,
    plaintext: bool = False,
    family: Family = CLIENT_SERVER,
    limits: ListenerLimits | None = None,
    name_of: NameOf | None = None,
) -> AsyncIterator[Port]:
    handlers: list[Recorder] = []

    def make() -> Recorder:
        handlers.append(Recorder())
        return handlers[-1]

    tls = server_context(TlsConfig(plaintext=plaintext))
    listener = await Listener.open(
        "127.0.0.1", 0, family, "node", make, tls=tls, limits=limits, identities=rules, name_of=name_of
    )
    try:
        yield Port(listener, handlers)
    finally:
        await listener.close()


def presenting(source: TokenSource | None) -> ssl.SSLContext | None:
    """A client's context; it trusts everybody, which the configuration would not let it."""
    return client_context(TlsConfig(), source)


def always(token: str) -> TokenSource:
    return TokenSource(lambda: token, "the test")


async def connected(port: Port, source: TokenSource | None, family: Family = CLIENT_SERVER) -> tuple[Channel, Recorder]:
    handler = Recorder()
    channel = await connect(port.endpoint, family, "client", handler, tls=presenting(source), timeout_s=TIMEOUT_S)
    return channel, handler
