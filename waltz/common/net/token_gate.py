"""A node's side of bearer tokens: whoever presents one before anything else is known by it from then on."""

import asyncio
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from waltz.common.access import Source
from waltz.common.errors import ProtocolError
from waltz.common.net.channel import Channel, ChannelHandler
from waltz.common.net.token_problems import NO_TLS_TEXT, TokenProblem, TokenRefusal
from waltz.common.wire.frames import Bounds, Family
from waltz.common.wire.tokens import FOR_EVER, TOKEN, TokenAnswer, decode_token, encode_token_answer, takes_tokens

MAX_WAIT_S: Final = 3600.0
"""Longest wait for the end of a token before another look at the clock."""


MAX_EARLY_RENEWALS: Final = 10
"""Renewals of a connection beyond one a second. Clients look for a newer token once a second at most, and a signature
costs a node half a millisecond."""


MAX_CHECKED_PER_TURN: Final = 5
"""Tokens that are verified anew in one turn of the loop."""


class VerifiedToken(Protocol):
    """What a token proves."""

    @property
    def principal(self) -> str: ...

    @property
    def expires_s(self) -> float:
        """Seconds since 1970."""
        ...


class TokenVerifier(Protocol):
    """Verifies tokens. Its judgement of one may change."""

    def verify(self, token: str) -> VerifiedToken:
        """Raises :class:`TokenRefusal`."""
        ...


class RefusedToken(NamedTuple):
    """What is noted about a token that was refused."""

    claimed: str | None
    """The principal that it claims to be of, which nothing proves; ``None`` if it does not say."""
    peer: str
    """Where it came from."""
    port: int
    """The port of this node at which it was presented."""
    refusal: TokenRefusal


def _nobody(token: str) -> None:
    """Tokens are not read."""


def _unnoted(refused: RefusedToken) -> None:
    """There is no audit log."""


class Identities:
    """How a node with access rules knows its peers, and its connections that live on a token."""

    def __init__(
        self,
        verifier: Callable[[], TokenVerifier] | None,
        sources: Sequence[Source] = (Source.SUBJECT,),
        *,
        claimed: Callable[[str], str | None] = _nobody,
        note: Callable[[RefusedToken], None] = _unnoted,
    ) -> None:
        """``verifier`` tells what verifies tokens at present; ``None``: this node takes none. ``sources`` are those of
        the names in certificates. ``claimed`` reads the principal of a token without verifying it, and ``note`` is told
        of each token that is refused.
        """
        self.sources = sources
        self._verifier = verifier
        self._claimed = claimed
        self._note = note
        self._gates: weakref.WeakSet[TokenGate] = weakref.WeakSet()

    def verify(self, token: str) -> VerifiedToken:
        """As :class:`TokenVerifier`."""
        if self._verifier is None:
            raise TokenRefusal(
                TokenProblem.NOT_TAKEN, "this node takes no tokens: acl.tokens.keys is not set in its configuration"
            )
        return self._verifier().verify(token)

    def refused(self, token: str, peer: str, port: int, refusal: TokenRefusal) -> None:
        """A token of a peer at a port has been refused."""
        self._note(RefusedToken(self._claimed(token), peer, port, refusal))

    def add(self, gate: "TokenGate") -> None:
        """A connection lives on a token."""
        self._gates.add(gate)

    def check_all(self) -> None:
        """Verify the tokens of all connections anew, a few in each turn of the loop, and end those whose tokens count
        no more.
        """
        self._check_some(list(self._gates))

    def _check_some(self, gates: "list[TokenGate]") -> None:
        for gate in gates[:MAX_CHECKED_PER_TURN]:
            gate.check()
        if len(gates) > MAX_CHECKED_PER_TURN:
            asyncio.get_running_loop().call_soon(self._check_some, gates[MAX_CHECKED_PER_TURN:])


class TokenGate:
    """Stands before the handler of an accepted connection until its first message has come, and to its end if that is a
    token.

    With access rules the handler hears of the connection only when it is known whose it is. Without them tokens are
    accepted unseen.
    """

    def __init__(
        self,
        handler: ChannelHandler,
        family: Family,
        identities: Identities | None,
        on_refused: Callable[[Channel, str, TokenRefusal], None],
        on_known: Callable[[Channel], bool],
    ) -> None:
        """``on_refused`` is told which token is refused, and why. ``on_known`` is asked, as soon as it is known
        whose the connection is, whether there is room for it."""
        self._handler = handler
        self._on_known = on_known
        self._on_refused = on_refused
        self._family = family
        self._identities = identities
        self._channel: Channel | None = None
        self._ready = False
        self._token: str | None = None
        self._presented = 0
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def channel_ready(self, channel: Channel) -> None:
        if self._identities is not None:
            channel.principal_from = self._identities.sources
        if not takes_tokens(self._family, channel.version):
            self._begin_without_token(channel)
        elif self._identities is None:
            self._begin(channel)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """Take tokens out of the frames: the first one, and those that renew it."""
        if self._channel is None and buffer[bounds[0][0]] != TOKEN:
            self._begin_without_token(channel)
            if not channel.closed:
                self._handler.frames_received(channel, buffer, bounds)
            return
        types = [buffer[start] for start, _ in bounds]
        if TOKEN not in types:
            self._handler.frames_received(channel, buffer, bounds)
            return
        at = types.index(TOKEN)
        if at:
            self._handler.frames_received(channel, buffer, bounds[:at])
        if not channel.closed:
            self._take(channel, decode_token(buffer, *bounds[at]))
        if at + 1 < len(bounds) and not channel.closed:
            self.frames_received(channel, buffer, bounds[at + 1 :])

    def channel_writable(self, channel: Channel) -> None:
        if self._ready:
            self._handler.channel_writable(channel)

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        self._channel = self._token = None
        if self._timer is not None:
            self._timer.cancel()
        if self._ready:
            self._handler.channel_closed(channel, error)

    def check(self) -> None:
        """Verify the token anew; end the connection if it counts no more."""
        if self._channel is not None and self._token is not None:
            self._verify(self._channel, self._token)

    def _begin_without_token(self, channel: Channel) -> None:
        self._begin(channel)
        if self._ready:
            channel.hand_over(self._handler)

    def _begin(self, channel: Channel) -> None:
        if self._ready:
            return
        if self._on_known(channel):
            self._ready = True
            self._handler.channel_ready(channel)
        else:
            channel.close()

    def _take(self, channel: Channel, token: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._channel is None:
            self._channel, self._since_s = channel, now_s
        self._presented += 1
        if self._presented > 1 + MAX_EARLY_RENEWALS + now_s - self._since_s:
            raise ProtocolError(f"{self._presented} tokens on one connection within {now_s - self._since_s:.1f} s")
        if not channel.over_tls:
            self._refuse(channel, token, TokenRefusal(TokenProblem.NO_TLS, NO_TLS_TEXT))
            return
        if self._identities is None:
            self._answer(channel, TokenAnswer(None, FOR_EVER))
            return
        expires_s = self._verify(channel, token)
        if expires_s is None:
            return
        self._token = token
        self._identities.add(self)
        self._answer(channel, TokenAnswer(None, max(int((expires_s - time.time()) * 1000), 0)))
        self._begin(channel)

    def _verify(self, channel: Channel, token: str) -> float | None:
        """The end of the token's validity; without one the connection is ended."""
        assert self._identities is not None
        try:
            found = self._identities.verify(token)
        except TokenRefusal as refusal:
            self._refuse(channel, token, refusal)
            return None
        if channel.token_principal not in (None, found.principal):
            text = f"the connection is that of {channel.token_principal!r}, and the token another's"
            self._refuse(channel, token, TokenRefusal(TokenProblem.OTHER_PRINCIPAL, text))
            return None
        channel.token_principal = found.principal
        if self._timer is not None:
            self._timer.cancel()
        left_s = min(max(found.expires_s - time.time(), 0.01), MAX_WAIT_S)
        self._timer = asyncio.get_running_loop().call_later(left_s, self.check)
        return found.expires_s

    def _refuse(self, channel: Channel, token: str, refusal: TokenRefusal) -> None:
        self._on_refused(channel, token, refusal)
        self._answer(channel, TokenAnswer(str(refusal), 0))
        channel.close()

    def _answer(self, channel: Channel, answer: TokenAnswer) -> None:
        channel.send(encode_token_answer(self._family, channel.version, answer))
