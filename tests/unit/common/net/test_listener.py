import asyncio
import socket
import ssl

import pytest

from tests.unit.common.net.peers import FAMILY, Recorder, bare_client, frame, has_ended
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConnectFailedError, ProtocolError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, connect
from waltz.common.net.limits import ListenerLimits
from waltz.common.net.listener import Listener
from waltz.common.net.tls import client_context, server_context


async def listen(handlers: list[Recorder], *, tls: TlsConfig | None = None, max_channels: int = 100) -> Listener:
    """A listener on a port of its own that adds the handler of every connection to ``handlers``."""

    def new_handler() -> Recorder:
        handlers.append(Recorder())
        return handlers[-1]

    context = None if tls is None else server_context(tls)
    limits = ListenerLimits(max_connections=max_channels, hello_timeout_s=1000)
    return await Listener.open("127.0.0.1", 0, FAMILY, "server", new_handler, tls=context, limits=limits)


async def connect_to(listener: Listener, handler: Recorder, tls: TlsConfig | None = None) -> Channel:
    context = None if tls is None else client_context(tls)
    endpoint = Endpoint("127.0.0.1", listener.port)
    return await connect(endpoint, FAMILY, "client", handler, tls=context, timeout_s=60)


@pytest.mark.parametrize("tls", [None, TlsConfig()], ids=["plaintext", "TLS"])
async def test_close_closes_open_channels(tls: TlsConfig | None) -> None:
    handlers: list[Recorder] = []
    listener = await listen(handlers, tls=tls)
    clients = [Recorder() for _ in range(5)]
    channels = [await connect_to(listener, client, tls) for client in clients]
    for handler in handlers:
        await handler.until(lambda recorder: recorder.channel is not None)
        assert handler.channel is not None
        handler.channel.send(frame(b"farewell"))
    assert listener.channels == {handler.channel for handler in handlers}
    await listener.close()
    assert not listener.channels
    assert [handler.closed for handler in handlers] == [[None]] * 5
    for client, channel in zip(clients, channels, strict=True):
        await client.until_closed()
        assert client.payloads == [b"farewell"]
        await channel.wait_closed()
    with pytest.raises(ConnectFailedError):
        await connect_to(listener, Recorder(), tls)
    await listener.close()


async def test_every_connection_has_a_handler_of_its_own() -> None:
    handlers: list[Recorder] = []
    listener = await listen(handlers)
    first = await connect_to(listener, Recorder())
    second = await connect_to(listener, Recorder())
    first.send(frame(b"first"))
    second.send(frame(b"second"))
    for handler, payload in zip(handlers, [b"first", b"second"], strict=True):
        await handler.until(lambda recorder: bool(recorder.payloads))
        assert handler.payloads == [payload]
    await listener.close()
    await first.wait_closed()
    await second.wait_closed()


async def test_a_channel_that_ends_leaves_the_listener() -> None:
    handlers: list[Recorder] = []
    listener = await listen(handlers)
    channel = await connect_to(listener, Recorder())
    await handlers[0].until(lambda recorder: recorder.channel is not None)
    channel.close()
    await handlers[0].until_closed()
    assert not listener.channels
    await channel.wait_closed()
    await listener.close()


async def test_connections_above_the_limit_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    handlers: list[Recorder] = []
    listener = await listen(handlers, max_channels=1)
    client = Recorder()
    channel = await connect_to(listener, client)
    await handlers[0].until(lambda recorder: recorder.channel is not None)
    assert handlers[0].channel is not None
    handlers[0].channel.send(frame(b"answer"))  # so that it is in use, and does not make room
    await client.until(lambda recorder: bool(recorder.payloads))
    with pytest.raises(ConnectFailedError):
        await connect_to(listener, Recorder())
    assert len(listener.channels) == 1
    assert "refusing 127.0.0.1:" in caplog.text
    channel.close()
    await handlers[0].until_closed()
    again = await connect_to(listener, Recorder())
    await listener.close()
    await again.wait_closed()


async def test_port_in_use() -> None:
    listener = await listen([])
    with pytest.raises(WaltzError, match=rf"^cannot listen on 127\.0\.0\.1:{listener.port}: the port is in use; stop"):
        await Listener.open("127.0.0.1", listener.port, FAMILY, "server", Recorder, tls=None)
    await listener.close()


async def test_not_an_address_of_this_machine() -> None:
    with pytest.raises(WaltzError, match=r"^cannot listen on 192\.0\.2\.1:0: not an address of this machine"):
        await Listener.open("192.0.2.1", 0, FAMILY, "server", Recorder, tls=None)


@pytest.mark.asyncio(loop_factories=["asyncio"])  # uvloop's loop cannot be patched
async def test_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_server", forbidden)
    with pytest.raises(WaltzError, match=r"^cannot listen on \*:443: no permission; configure a port above 1023"):
        await Listener.open("", 443, FAMILY, "server", Recorder, tls=None)


async def test_close_does_not_wait_for_a_tls_handshake_that_never_comes() -> None:
    handlers: list[Recorder] = []
    listener = await listen(handlers, tls=TlsConfig())
    async with bare_client(listener.port):
        while not handlers:
            await asyncio.sleep(0)  # until the connection is accepted
        async with asyncio.timeout(60):  # far less than there is for the handshake
            await listener.close()
    assert handlers[0].closed == []


async def test_close_does_not_wait_for_a_hello_that_never_comes() -> None:
    handlers: list[Recorder] = []
    listener = await listen(handlers)
    async with bare_client(listener.port) as (reader, _):
        await reader.readexactly(7)
        assert len(listener.channels) == 1
        async with asyncio.timeout(60):
            await listener.close()
    assert handlers[0].closed == []


@pytest.mark.parametrize("tls", [None, TlsConfig()], ids=["plaintext", "TLS"])
async def test_close_ends_a_connection_however_little_of_it_is_accepted(tls: TlsConfig | None) -> None:
    context = None if tls is None else server_context(tls)
    for turns in range(8):
        listener = await Listener.open("127.0.0.1", 0, FAMILY, "server", Recorder, tls=context)
        with socket.create_connection(("127.0.0.1", listener.port), timeout=60) as client:
            if tls is not None:
                client.sendall(first_words_of_tls())
            for _ in range(turns):
                await asyncio.sleep(0)
            await listener.close()
            assert not listener.channels
            assert has_ended(client), turns


async def test_a_handshake_whose_place_is_needed_ends_however_far_it_is() -> None:
    handlers: list[Recorder] = []
    listener = await listen(handlers, tls=TlsConfig(), max_channels=1)
    client_tls = client_context(TlsConfig())
    for turns in range(5):
        handlers.clear()
        with socket.create_connection(("127.0.0.1", listener.port), timeout=60) as client:
            while not handlers:
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            endpoint = Endpoint("127.0.0.1", listener.port)
            channel = await connect(endpoint, FAMILY, "client", Recorder(), tls=client_tls, timeout_s=60)
            assert has_ended(client), turns
            assert handlers[0].channel is None
        channel.abort()
        await handlers[1].until_closed()
        await channel.wait_closed()
    assert listener.failed_handshakes == 0
    await listener.close()


def first_words_of_tls() -> bytes:
    """What a client says first."""
    said = ssl.MemoryBIO()
    context = client_context(TlsConfig())
    assert context is not None
    talk = context.wrap_bio(ssl.MemoryBIO(), said)
    with pytest.raises(ssl.SSLWantReadError):
        talk.do_handshake()
    return said.read()


async def test_the_port_can_be_had_again_after_close() -> None:
    first = await listen([])
    channel = await connect_to(first, Recorder())
    await first.close()
    second = await Listener.open("127.0.0.1", first.port, FAMILY, "server", Recorder, tls=None)
    assert second.port == first.port
    await second.close()
    await channel.wait_closed()


async def test_addresses_of_sockets_are_those_asked_for() -> None:
    listener = await Listener.open("localhost", 0, FAMILY, "server", Recorder, tls=None)
    with socket.create_connection(("localhost", listener.port), timeout=60):
        pass
    await listener.close()


async def test_frames_above_the_limit_close_the_channel() -> None:
    handler, client = Recorder(), Recorder()
    listener = await Listener.open(
        "127.0.0.1", 0, FAMILY, "server", lambda: handler, tls=None, limits=ListenerLimits(max_payload_bytes=100)
    )
    channel = await connect_to(listener, client)
    channel.send(frame(bytes(100)))
    await handler.until(lambda recorder: recorder.payloads == [bytes(100)])
    channel.send(frame(bytes(101)))
    assert isinstance(await handler.until_closed(), ProtocolError)
    await client.until_closed()
    assert handler.payloads == [bytes(100)]
    await listener.close()


async def test_a_defect_while_accepting_costs_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handlers: list[Recorder] = []
    tls = TlsConfig()
    listener = await listen(handlers, tls=tls)

    def fail(*_: object) -> bool:
        raise ArithmeticError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(Listener, "accept", fail)
        with pytest.raises(ConnectFailedError):
            await connect_to(listener, Recorder(), tls)
    assert "planted" in caplog.text
    await connect_to(listener, Recorder(), tls)
    await listener.close()
