"""The client's side of bearer tokens: presents a token in the first message, and renews it on the open connection."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from waltz.common.errors import (
    ConfigError,
    ConnectionClosedError,
    ProtocolError,
    TokenRefusedError,
    WaltzError,
)
from waltz.common.tasks import owned
from waltz.common.wire.frames import Bounds, Family
from waltz.common.wire.tokens import (
    MAX_TOKEN_BYTES,
    TOKEN_ANSWER,
    decode_token_answer,
    encode_token,
    takes_tokens,
)

logger = logging.getLogger(__name__)

MIN_RENEWAL_S: Final = 1.0
"""Minimum time between two checks for a newer token."""


class TokenSource:
    """The source of a client's tokens; read for each connection, and again before the token expires."""

    def __init__(self, get: Callable[[], str], name: str) -> None:
        """``get`` returns the token, and may block; ``name`` is the name of the source in texts."""
        self._get = get
        self._name = name

    def __str__(self) -> str:
        return self._name

    async def read(self) -> str:
        """The present token.

        Raises:
            ConfigError: There is no token, or it is malformed. The text contains no part of the token.
        """
        return await asyncio.to_thread(_got, self._get, self._name)


def _got(get: Callable[[], str], name: str) -> str:
    try:
        text = get()
    except OSError as error:
        raise ConfigError(f"cannot read the token of {name}: {error.strerror or error}") from None
    except UnicodeError:
        raise ConfigError(f"{name} holds no token: the content is not text") from None
    except Exception as error:
        raise ConfigError(f"{name} gives no token: {type(error).__name__}") from error
    token = text.strip() if isinstance(text, str) else ""
    if not token:
        raise ConfigError(f"{name} holds no token")
    if len(token) > MAX_TOKEN_BYTES or not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{name} holds no token: more than {MAX_TOKEN_BYTES} characters, or others than ASCII")
    return token


def token_text(path: str | os.PathLike[str]) -> str:
    """The token in a file.

    Raises:
        ConfigError: There is no token. The text contains no part of the content.
    """
    return _got(lambda: _content(path), str(path))


def _content(path: str | os.PathLike[str]) -> str:
    with Path(path).open("rb") as file:
        return file.read(MAX_TOKEN_BYTES + 1024).decode("ascii")


def file_source(path: str | os.PathLike[str]) -> TokenSource:
    """The source that reads a file."""
    return TokenSource(lambda: _content(path), str(path))


class TokenChannel(Protocol):
    """The part of a :class:`~waltz.common.net.channel.Channel` that a sender needs."""

    version: int
    peer: str
    closed: bool

    def send(self, frame: bytes) -> None: ...

    def abort(self, error: Exception | None = None) -> None: ...


C = TypeVar("C", bound=TokenChannel)
C_contra = TypeVar("C_contra", bound=TokenChannel, contravariant=True)


class Handler(Protocol[C_contra]):
    """The :class:`~waltz.common.net.channel.ChannelHandler` of such a channel."""

    def channel_ready(self, channel: C_contra) -> None: ...

    def frames_received(self, channel: C_contra, buffer: bytes, bounds: Bounds) -> None: ...

    def channel_writable(self, channel: C_contra) -> None: ...

    def channel_closed(self, channel: C_contra, error: Exception | None) -> None: ...


class TokenSender(Generic[C]):
    """Stands before the handler of a connection that presents a token.

    The handler gets the connection when the token is accepted, or when the peer is too old for tokens.
    """

    def __init__(self, handler: Handler[C], family: Family, source: TokenSource, token: str) -> None:
        self._handler = handler
        self._family = family
        self._source = source
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._settled = asyncio.Event()
        self._ready = False
        self._error: Exception | None = None
        self._expires_at_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def accepted(self) -> None:
        """Wait until the handler has the connection.

        Raises:
            TokenRefusedError: The peer refused the token.
            Exception: The error that ended the connection, or a ``ConnectionClosedError``.
        """
        await self._settled.wait()
        if not self._ready:
            raise self._error or ConnectionClosedError("closed before the answer to the token")

    def channel_ready(self, channel: C) -> None:
        if takes_tokens(self._family, channel.version):
            channel.send(encode_token(self._family, channel.version, self._token))
        else:
            self._hand_over(channel)

    def frames_received(self, channel: C, buffer: bytes, bounds: Bounds) -> None:
        """Take answers to tokens out of the frames."""
        types = [buffer[start] for start, _ in bounds]
        if TOKEN_ANSWER not in types:
            self._pass_on(channel, buffer, bounds)
            return
        at = types.index(TOKEN_ANSWER)
        self._pass_on(channel, buffer, bounds[:at])
        if not channel.closed:
            self._take_answer(channel, buffer, *bounds[at])
        if not channel.closed and at + 1 < len(bounds):
            self.frames_received(channel, buffer, bounds[at + 1 :])

    def channel_writable(self, channel: C) -> None:
        if self._ready:
            self._handler.channel_writable(channel)

    def channel_closed(self, channel: C, error: Exception | None) -> None:
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
        if self._ready:
            self._handler.channel_closed(channel, error)
        self._settled.set()

    def _pass_on(self, channel: C, buffer: bytes, bounds: Bounds) -> None:
        if not bounds:
            return
        if not self._ready:
            raise ProtocolError("the peer sent other messages before its answer to the token")
        self._handler.frames_received(channel, buffer, bounds)

    def _hand_over(self, channel: C) -> None:
        if not self._ready:
            self._ready = True
            self._handler.channel_ready(channel)
            self._settled.set()

    def _take_answer(self, channel: C, buffer: bytes, start: int, end: int) -> None:
        answer = decode_token_answer(buffer, start, end)
        if answer.error is not None:
            channel.abort(TokenRefusedError(f"{channel.peer} does not accept the token: {answer.error}"))
            return
        if answer.left_ms >= 0:
            self._expires_at_s = self._loop.time() + answer.left_ms / 1000
            self._look_later(channel)
        self._hand_over(channel)

    def _look_later(self, channel: C) -> None:
        """Check for a newer token after half of the remaining time of the present one."""
        if self._timer is not None:
            self._timer.cancel()
        left_s = self._expires_at_s - self._loop.time()
        self._timer = self._loop.call_later(max(left_s / 2, MIN_RENEWAL_S), self._begin_renewal, channel)

    def _begin_renewal(self, channel: C) -> None:
        self._renewal = owned(self._renew(channel), f"the renewal of the token for {channel.peer}")

    async def _renew(self, channel: C) -> None:
        try:
            token = await self._source.read()
        except WaltzError as error:
            logger.warning("the token for %s cannot be renewed yet: %s", channel.peer, error)
            token = self._token
        if channel.closed:
            return
        if token != self._token:
            self._token = token
            channel.send(encode_token(self._family, channel.version, token))
        self._look_later(channel)
