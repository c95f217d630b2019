"""A node's side of bearer tokens: a token in the first message identifies the peer from then on."""

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
"""Maximum wait for the end of a token before the clock is read again."""


MAX_EARLY_RENEWALS: Final = 10
"""Maximum renewals of a connection beyond one per second. Clients renew a token once per second at most, and each
signature costs a node half a millisecond."""


MAX_CHECKED_PER_TURN: Final = 5
"""Maximum number of tokens verified again in one turn of the loop."""


class VerifiedToken(Protocol):
    """A verified token."""

    @property
    def principal(self) -> str: ...

    @property
    def expires_s(self) -> float:
        """Seconds since 1970."""
        ...


class TokenVerifier(Protocol):
    """Verifies tokens. The result for a token may change."""

    def verify(self, token: str) -> VerifiedToken:
        """Verify a token.

        Raises:
            TokenRefusal: The token is not valid; the text gives the reason.
        """
        ...


class RefusedToken(NamedTuple):
    """A refused token, for the audit log."""

    claimed: str | None
    """The principal named in the token, without proof; ``None`` if the token names none."""
    peer: str
    """Address of the peer."""
    port: int
    """Port of this node."""
    refusal: TokenRefusal


def _nobody(token: str) -> None:
    """Names no principal: tokens are not read."""


def _unnoted(refused: RefusedToken) -> None:
    """Does nothing: there is no audit log."""


class Identities:
    """How a node with access rules identifies its peers; knows the connections that depend on a token."""

    def __init__(
        self,
        verifier: Callable[[], TokenVerifier] | None,
        sources: Sequence[Source] = (Source.SUBJECT,),
        *,
        claimed: Callable[[str], str | None] = _nobody,
        note: Callable[[RefusedToken], None] = _unnoted,
    ) -> None:
        """Make the identities of a node.

        Args:
            verifier: Returns the present verifier of tokens; ``None``: this node accepts no tokens.
            sources: The places of names in certificates.
            claimed: Reads the principal of a token without verification.
            note: Called with each refused token.
        """
        self.sources = sources
        self._verifier = verifier
        self._claimed = claimed
        self._note = note
        self._gates: weakref.WeakSet[TokenGate] = weakref.WeakSet()

    def verify(self, token: str) -> VerifiedToken:
        """Verify a token, like :class:`TokenVerifier`.

        Raises:
            TokenRefusal: The token is not valid, or this node accepts no tokens.
        """
        if self._verifier is None:
            raise TokenRefusal(
                TokenProblem.NOT_TAKEN, "this node accepts no tokens: acl.tokens.keys is not set in its configuration"
            )
        return self._verifier().verify(token)

    def refused(self, token: str, peer: str, port: int, refusal: TokenRefusal) -> None:
        """Note that the token of a peer was refused."""
        self._note(RefusedToken(self._claimed(token), peer, port, refusal))

    def add(self, gate: "TokenGate") -> None:
        """Add a connection that depends on a token."""
        self._gates.add(gate)

    def check_all(self) -> None:
        """Verify the tokens of all connections again, a few in each turn of the loop; end connections whose token is no
        longer valid.
        """
        self._check_some(list(self._gates))

    def _check_some(self, gates: "list[TokenGate]") -> None:
        for gate in gates[:MAX_CHECKED_PER_TURN]:
            gate.check()
        if len(gates) > MAX_CHECKED_PER_TURN:
            asyncio.get_running_loop().call_soon(self._check_some, gates[MAX_CHECKED_PER_TURN:])


class TokenGate:
    """Stands before the handler of an accepted connection, until the first message; if that is a token, until the end.

    With access rules, the handler gets the connection when its principal is known. Without access rules, tokens are
    accepted without a check.
    """

    def __init__(
        self,
        handler: ChannelHandler,
        family: Family,
        identities: Identities | None,
        on_refused: Callable[[Channel, str, TokenRefusal], None],
        on_known: Callable[[Channel], bool],
    ) -> None:
        """Make the gate of one connection.

        Args:
            handler: The handler behind the gate.
            family: The protocol.
            identities: Identifies the peer; ``None`` without access rules.
            on_refused: Called with each refused token and the reason.
            on_known: Called when the principal is known; returns whether there is room for the connection.
        """
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
        """Take tokens out of the frames: the first token, and renewals."""
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
        """Verify the token again; end the connection if the token is no longer valid."""
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
        """The end of the token's validity; ``None`` after a refusal of the token, which ends the connection."""
        assert self._identities is not None
        try:
            found = self._identities.verify(token)
        except TokenRefusal as refusal:
            self._refuse(channel, token, refusal)
            return None
        if channel.token_principal not in (None, found.principal):
            text = f"the connection belongs to {channel.token_principal!r}, but the token to another principal"
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
