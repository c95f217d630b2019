"""A client presents its token first, renews it in time, and says what is wrong with it."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.common.net.peers import Recorder
from tests.unit.common.net.token_peers import TIMEOUT_S, Accepted, connected, listening, presenting
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConfigError, ConnectFailedError, ProtocolError, TokenRefusedError
from waltz.common.ids import Endpoint
from waltz.common.net import token_sender
from waltz.common.net.channel import Channel, connect
from waltz.common.net.listener import Listener
from waltz.common.net.tls import configured_token, server_context
from waltz.common.net.token_sender import TokenSource, token_text
from waltz.common.wire.frames import CLIENT_SERVER, encode_frame


class Changing:
    """A source that gives what is set."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.asked = 0
        self.error: Exception | None = None
        self.source = TokenSource(self._get, "the test")

    def _get(self) -> str:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.token


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_sender, "MIN_RENEWAL_S", 0.01)


async def test_a_token_is_renewed_before_it_expires(caplog: pytest.LogCaptureFixture) -> None:
    accepted, changing = Accepted(first="svc-a", second="svc-a"), Changing("first")
    accepted.expire("first", 1.0)
    async with listening(accepted.rules) as port:
        channel, _ = await connected(port, changing.source)
        changing.error = RuntimeError("secret")
        while changing.asked < 2:
            await asyncio.sleep(0.01)
        changing.error, changing.token = None, "second"
        await asyncio.sleep(1.2)
        assert not channel.closed
        channel.send(encode_frame(CLIENT_SERVER.magic, 6, b"\x01a"))
        await port.handlers[0].until(lambda found: found.payloads == [b"\x01a"])
    assert "cannot be renewed yet: the test gives no token: RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_without_a_newer_token_the_connection_ends_and_the_next_one_has_the_newer() -> None:
    accepted, changing = Accepted(first="svc-a", second="svc-a"), Changing("first")
    accepted.expire("first", 0.2)
    async with listening(accepted.rules) as port:
        _, client = await connected(port, changing.source)
        assert isinstance(await client.until_closed(), TokenRefusedError)
        with pytest.raises(TokenRefusedError, match=r"cannot connect to .* does not accept the token: "):
            await connected(port, changing.source)
        changing.token = "second"
        await connected(port, changing.source)


class Hasty(Recorder):
    """A node that speaks before it is spoken to."""

    def channel_ready(self, channel: Channel) -> None:
        super().channel_ready(channel)
        channel.send(encode_frame(CLIENT_SERVER.magic, 6, b"\x01a"))


async def test_a_peer_that_answers_something_else_is_refused() -> None:
    listener = await Listener.open("127.0.0.1", 0, CLIENT_SERVER, "node", Hasty, tls=server_context(TlsConfig()))
    try:
        with pytest.raises(ConnectFailedError, match="other messages before its answer to the token") as failed:
            endpoint = Endpoint("127.0.0.1", listener.port)
            tls = presenting(Changing("first").source)
            await connect(endpoint, CLIENT_SERVER, "client", Recorder(), tls=tls, timeout_s=TIMEOUT_S)
        assert isinstance(failed.value.__cause__, ProtocolError)
    finally:
        await listener.close()


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "holds no token"),
        (" \n", "holds no token"),
        ("é", "others than ASCII"),
        ("a" * 9000, "8192"),
        ("a\0b", "ASCII"),
    ],
)
async def test_what_cannot_be_a_token_is_not_sent(token: str, reason: str) -> None:
    async with listening(Accepted().rules) as port:
        with pytest.raises(ConnectFailedError, match=reason):
            await connected(port, TokenSource(lambda: token, "the test"))
        assert not port.handlers


async def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    source = configured_token(TlsConfig(token_location=str(path), trust_store_location="/trust"))
    assert source is not None
    with pytest.raises(ConfigError, match=r"cannot read the token of .*token: No such file"):
        await source.read()
    for text in ("first\n", "second"):
        path.write_text(text)
        assert await source.read() == text.strip()
    path.write_bytes(b"secr\xff")
    with pytest.raises(ConfigError, match="not text") as refused:
        await source.read()
    assert "secr" not in str(refused.value)
    path.write_bytes(b"a" * 20_000)
    with pytest.raises(ConfigError, match="more than 8192 characters"):
        token_text(path)
