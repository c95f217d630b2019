import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.unit.common.net.certificates import Authority
from tests.unit.common.net.peers import FAMILY, Recorder, bare_client, bare_server, frame
from tests.unit.relay import relay
from waltz.common.access import ANONYMOUS
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConnectFailedError, DeadlineExceededError, ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.net import channel as channel_module
from waltz.common.net.channel import Channel, connect
from waltz.common.net.limits import ListenerLimits
from waltz.common.net.listener import Listener
from waltz.common.net.tls import client_context, server_context
from waltz.common.wire.connection import Hello, encode_hello

PLAINTEXT = TlsConfig(plaintext=True)


@asynccontextmanager
async def pair(
    tls: TlsConfig = PLAINTEXT, *, write_high_bytes: int = 1 << 20, write_low_bytes: int = 256 << 10
) -> AsyncIterator[tuple[Recorder, Channel, Recorder, Channel]]:
    """A client and a server that are connected: handler and channel of both."""
    server, client = Recorder(), Recorder()
    listener = await Listener.open("127.0.0.1", 0, FAMILY, "server", lambda: server, tls=server_context(tls))
    channel = await connect(
        Endpoint("127.0.0.1", listener.port),
        FAMILY,
        "client",
        client,
        tls=client_context(tls),
        timeout_s=60,
        write_high_bytes=write_high_bytes,
        write_low_bytes=write_low_bytes,
    )
    await server.until(lambda recorder: recorder.channel is not None)
    assert server.channel is not None
    try:
        yield client, channel, server, server.channel
    finally:
        channel.abort()
        await channel.wait_closed()
        await listener.close()


class FakeTransport(asyncio.Transport):
    """Notes what is written; the connection ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.written = asyncio.Event()
        self.ended: list[str] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.writes.append(data)
        self.written.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")


def ready_channel(
    handler: Recorder, *, keep_alive_interval_s: float | None = None, write_high_bytes: int = 1 << 20
) -> tuple[Channel, FakeTransport]:
    """A channel that is ready, over a transport whose noted writes begin behind the hello."""
    channel = Channel(
        FAMILY, "test", handler, keep_alive_interval_s=keep_alive_interval_s, write_high_bytes=write_high_bytes
    )
    transport = FakeTransport()
    channel.connection_made(transport)
    assert transport.writes == [encode_hello(Hello([0, 3], "test"))]
    channel.data_received(encode_hello(Hello([3], "peer")))
    transport.writes.clear()
    transport.written.clear()
    return channel, transport


@pytest.mark.parametrize("tls", [PLAINTEXT, TlsConfig()], ids=["plaintext", "TLS"])
async def test_frames_go_both_ways_in_order(tls: TlsConfig) -> None:
    async with pair(tls) as (client, channel, server, server_channel):
        assert (channel.version, server_channel.version) == (3, 3)
        assert server_channel.peer.startswith("127.0.0.1:")
        server.on_payload = lambda replying, payload: replying.send(frame(payload.upper()))
        sent = [f"payload {number}".encode() for number in range(1000)]
        for payload in sent:
            channel.send(frame(payload))
        channel.send(frame(b""))  # a keep-alive: nobody hears of it
        await client.until(lambda recorder: len(recorder.payloads) == 1000)
        assert server.payloads == sent
        assert client.payloads == [payload.upper() for payload in sent]
    assert await client.until_closed() is None
    assert await server.until_closed() is None


async def test_the_principal_is_the_subject_of_the_verified_certificate(
    authority: Authority, node_pem: str, trust_pem: str
) -> None:
    async with pair() as (_, channel, _, accepted):
        assert (channel.principal, accepted.principal) == (ANONYMOUS, ANONYMOUS)
    async with pair(TlsConfig(key_store_location=node_pem)) as (_, channel, _, accepted):
        assert (channel.principal, accepted.principal) == (ANONYMOUS, ANONYMOUS), "nothing is verified"
    both = TlsConfig(key_store_location=node_pem, trust_store_location=trust_pem, check_hostname=False)
    async with pair(both) as (_, channel, _, accepted):
        assert (channel.principal, accepted.principal) == ("CN=127.0.0.1", "CN=127.0.0.1")


@pytest.mark.parametrize("tls", [PLAINTEXT, TlsConfig()], ids=["plaintext", "TLS"])
async def test_a_frame_of_many_reads(tls: TlsConfig) -> None:
    async with pair(tls) as (_, channel, server, _server_channel):
        payload = bytes(range(256)) * 20_000
        channel.send(frame(payload))
        channel.send(frame(b"next"))
        await server.until(lambda recorder: len(recorder.payloads) == 2)
        assert server.payloads == [payload, b"next"]


async def test_many_sends_in_one_turn_are_one_write() -> None:
    channel, transport = ready_channel(Recorder())
    frames = [frame(bytes([number])) for number in range(191)]
    for each in frames:
        channel.send(each)
    assert transport.writes == []
    assert channel.unsent_bytes == sum(map(len, frames))
    await transport.written.wait()
    assert transport.writes == [b"".join(frames)]
    channel.send(frames[0])
    channel.flush()
    await asyncio.sleep(0)
    assert transport.writes[1:] == [frames[0]]
    channel.connection_lost(None)


async def test_of_very_many_sends_the_first_do_not_wait_for_the_end_of_the_turn() -> None:
    channel, transport = ready_channel(Recorder())
    frames = [frame(number.to_bytes(2, "big")) for number in range(500)]
    for each in frames:
        channel.send(each)
    assert channel.taken_bytes == sum(map(len, frames))
    assert transport.writes == [b"".join(frames[start : start + 128]) for start in (0, 128, 256)]
    assert channel.unsent_bytes == sum(map(len, frames[384:]))
    transport.written.clear()
    await transport.written.wait()
    assert transport.writes[3:] == [b"".join(frames[384:])]
    assert channel.unsent_bytes == 0
    channel.early_frames = 300
    for each in frames[:400]:
        channel.send(each)
    assert transport.writes[4:] == [b"".join(frames[:200])]
    channel.connection_lost(None)


async def test_much_in_one_turn_does_not_wait_for_its_end() -> None:
    channel, transport = ready_channel(Recorder(), write_high_bytes=100)
    channel.send(frame(b"x" * 60))
    assert transport.writes == []
    channel.send(frame(b"x" * 60))
    assert len(transport.writes) == 1
    channel.connection_lost(None)


async def test_nothing_is_sent_before_ready_or_after_close() -> None:
    channel = Channel(FAMILY, "test", Recorder())
    transport = FakeTransport()
    channel.connection_made(transport)
    channel.send(frame(b"early"))
    channel.data_received(encode_hello(Hello([3], None)))
    channel.send(frame(b"in time"))
    channel.close()
    channel.send(frame(b"late"))
    await asyncio.sleep(0)
    assert transport.writes[1:] == [frame(b"in time")]
    assert transport.ended == ["close"]
    channel.connection_lost(None)


async def test_keep_alive_is_sent_when_nothing_else_is() -> None:
    channel, transport = ready_channel(Recorder(), keep_alive_interval_s=0.01)
    async with asyncio.timeout(60):
        await transport.written.wait()
        assert transport.writes == [frame(b"")]
        transport.written.clear()
        await transport.written.wait()
    assert transport.writes == [frame(b""), frame(b"")]
    channel.connection_lost(None)


async def test_hello_and_frames_in_one_segment() -> None:
    handler = Recorder()
    channel = Channel(FAMILY, "test", handler)
    channel.connection_made(FakeTransport())
    channel.data_received(encode_hello(Hello([0, 1, 2, 3, 4], "peer")) + frame(b"one") + frame(b"two"))
    assert handler.channel is channel
    assert handler.payloads == [b"one", b"two"]
    assert handler.reads == [2]
    channel.connection_lost(None)


@pytest.mark.parametrize("tls", [PLAINTEXT, TlsConfig()], ids=["plaintext", "TLS"])
async def test_back_pressure(tls: TlsConfig) -> None:
    async with pair(tls, write_high_bytes=1 << 20, write_low_bytes=1 << 18) as (
        client,
        channel,
        server,
        server_channel,
    ):
        server_channel.pause_reading()
        server_channel.pause_reading()
        sent = 0
        while channel.writable:
            channel.send(frame(sent.to_bytes(4, "big") * (1 << 14)))
            sent += 1
            assert sent < 10_000, "the channel never ceases to be writable"
            await asyncio.sleep(0)
        assert channel.unsent_bytes > 1 << 20
        assert client.writable_calls == 0
        server_channel.resume_reading()
        await client.until(lambda recorder: recorder.writable_calls == 1)
        assert client.channel is not None
        assert client.channel.writable
        await server.until(lambda recorder: len(recorder.payloads) == sent)
        assert [int.from_bytes(payload[:4], "big") for payload in server.payloads] == list(range(sent))


@pytest.mark.parametrize("tls", [PLAINTEXT, TlsConfig()], ids=["plaintext", "TLS"])
async def test_close_sends_what_was_gathered(tls: TlsConfig) -> None:
    async with pair(tls) as (client, channel, server, _):
        for number in range(500):
            channel.send(frame(number.to_bytes(2, "big") * 1000))
        channel.close()
        assert channel.closed
        assert not channel.writable
        assert await server.until_closed() is None
        assert len(server.payloads) == 500
        await channel.wait_closed()
        assert client.closed == [None]


async def test_close_ends_although_the_peer_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "CLOSE_TIMEOUT_S", 0.05)
    async with pair() as (client, channel, _, server_channel):
        server_channel.pause_reading()
        while channel.writable:
            channel.send(frame(bytes(1 << 16)))
            await asyncio.sleep(0)
        channel.close()
        assert client.closed == []
        async with asyncio.timeout(60):
            await channel.wait_closed()
        assert len(client.closed) == 1


async def test_a_line_that_is_dead_is_not_waited_for_to_say_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the kernel everything has left; a relay holds the bytes."""
    monkeypatch.setattr(channel_module, "CLOSE_TIMEOUT_S", 3600.0)
    monkeypatch.setattr(channel_module, "FAREWELL_S", 0.05)
    server, client = Recorder(), Recorder()
    listener = await Listener.open("127.0.0.1", 0, FAMILY, "server", lambda: server, tls=server_context(TlsConfig()))
    async with relay(listener.port) as line:
        endpoint = Endpoint("127.0.0.1", line.port)
        channel = await connect(endpoint, FAMILY, "client", client, tls=client_context(TlsConfig()), timeout_s=60)
        line.blackhole()
        channel.send(frame(b"never seen"))
        channel.close()
        async with asyncio.timeout(60):
            await channel.wait_closed()
        assert client.closed == [None]
        assert server.payloads == []
    await listener.close()


async def test_a_slow_line_may_take_its_time_to_get_the_last_bytes_across(monkeypatch: pytest.MonkeyPatch) -> None:
    """While anything leaves, up to the limit: here at every look, and then no more."""
    monkeypatch.setattr(channel_module, "FAREWELL_S", 0.01)

    class Slow(FakeTransport):
        looks = 0

        def get_extra_info(self, name: str, default: object = None) -> object:
            return self if name == "ssl_object" else default

        def is_closing(self) -> bool:
            return bool(self.ended)

        def get_write_buffer_size(self) -> int:
            self.looks += bool(self.ended)
            return max(20 - self.looks, 10)

    channel = Channel(FAMILY, "test", Recorder())
    transport = Slow()
    channel.connection_made(transport)
    channel.data_received(encode_hello(Hello([3], "peer")))
    channel.send(frame(bytes(1000)))
    channel.close()
    while "abort" not in transport.ended:
        await asyncio.sleep(0.001)
    assert transport.looks > 10
    channel.connection_lost(None)


async def test_abort_tells_its_reason_once() -> None:
    async with pair() as (client, channel, server, _):
        reason = DeadlineExceededError("too slow")
        channel.abort(reason)
        channel.abort(ProtocolError("another"))
        channel.close()
        assert client.closed == []  # never from inside the call
        assert await client.until_closed() is reason
        await server.until_closed()


async def test_nothing_is_delivered_after_close() -> None:
    handler = Recorder()
    channel, _ = ready_channel(handler)
    handler.on_payload = lambda closing, _: closing.close()
    channel.data_received(frame(b"first"))
    channel.data_received(frame(b"second"))
    assert handler.payloads == [b"first"]
    channel.connection_lost(None)
    assert handler.closed == [None]


async def test_a_protocol_error_of_the_handler_closes() -> None:
    async with pair() as (client, channel, server, _):
        server.failure = ProtocolError("unknown message type 99")
        channel.send(frame(b"x"))
        assert await server.until_closed() is server.failure
        await client.until_closed()


async def test_a_defect_of_the_handler_closes_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (client, channel, server, _):
        server.failure = KeyError("a defect")
        channel.send(frame(b"x"))
        assert await server.until_closed() is server.failure
        await client.until_closed()
    assert any(record.exc_info for record in caplog.records)


async def test_garbage_after_the_hello_closes() -> None:
    async with pair() as (client, channel, server, _):
        channel.send(b"GET / HTTP/1.1\r\n\r\n")
        assert isinstance(await server.until_closed(), ProtocolError)
        await client.until_closed()
        assert server.payloads == []


async def test_garbage_instead_of_a_hello_reaches_no_handler() -> None:
    server = Recorder()
    listener = await Listener.open("127.0.0.1", 0, FAMILY, "server", lambda: server, tls=None)
    async with bare_client(listener.port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1000)
    await listener.close()
    assert (server.channel, server.payloads, server.closed) == (None, [], [])


async def test_a_peer_that_never_says_hello_is_closed() -> None:
    server = Recorder()
    listener = await Listener.open(
        "127.0.0.1", 0, FAMILY, "server", lambda: server, tls=None, limits=ListenerLimits(hello_timeout_s=0.05)
    )
    async with bare_client(listener.port) as (reader, _):
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1000)
    await listener.close()
    assert (server.channel, server.closed) == (None, [])


async def test_no_common_version() -> None:
    server, client = Recorder(), Recorder()
    listener = await Listener.open("127.0.0.1", 0, FAMILY, "server", lambda: server, tls=None)
    newer = FAMILY._replace(versions=(7, 8))
    endpoint = Endpoint("127.0.0.1", listener.port)
    with pytest.raises(ConnectFailedError, match=f"^cannot connect to {endpoint}: no common version"):
        await connect(endpoint, newer, "client", client, tls=None, timeout_s=60)
    await listener.close()
    assert (client.channel, client.closed, server.channel, server.closed) == (None, [], None, [])


async def test_connect_gives_up_on_a_silent_server() -> None:
    async with bare_server(lambda reader, writer: None) as endpoint:
        with pytest.raises(ConnectFailedError, match=rf"^cannot connect to {endpoint}: not ready within 0\.05 s$"):
            await connect(endpoint, FAMILY, "client", Recorder(), tls=None, timeout_s=0.05)
        with pytest.raises(ConnectFailedError, match=r"not ready within 0\.05 s$"):
            await connect(endpoint, FAMILY, "client", Recorder(), tls=client_context(TlsConfig()), timeout_s=0.05)


async def test_connect_to_something_else() -> None:
    async with bare_server(lambda reader, writer: writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")) as endpoint:
        with pytest.raises(ConnectFailedError, match="does not speak the test protocol"):
            await connect(endpoint, FAMILY, "client", Recorder(), tls=None, timeout_s=60)


async def test_connect_to_a_server_that_hangs_up() -> None:
    async with bare_server(lambda reader, writer: writer.close()) as endpoint:
        with pytest.raises(ConnectFailedError, match="closed before the hello; is this the right port"):
            await connect(endpoint, FAMILY, "client", Recorder(), tls=None, timeout_s=60)


async def test_connect_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = Endpoint("127.0.0.1", unused.getsockname()[1])
        with pytest.raises(ConnectFailedError, match=f"^cannot connect to {endpoint}: connection refused"):
            await connect(endpoint, FAMILY, "client", Recorder(), tls=None, timeout_s=60)


async def test_connect_to_an_impossible_name() -> None:
    with pytest.raises(ConnectFailedError, match=r"^cannot connect to a\.\.b:1: "):
        await connect(Endpoint("a..b", 1), FAMILY, "client", Recorder(), tls=None, timeout_s=60)


async def test_cancelling_connect_leaves_no_connection() -> None:
    ended = asyncio.Event()
    readers: list[asyncio.Task[None]] = []

    async def read_to_the_end(reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionResetError):
            await reader.read()
        ended.set()

    async with bare_server(
        lambda reader, writer: readers.append(asyncio.ensure_future(read_to_the_end(reader)))
    ) as endpoint:
        connecting = asyncio.ensure_future(connect(endpoint, FAMILY, "client", Recorder(), tls=None, timeout_s=1000))
        while not readers:
            await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        async with asyncio.timeout(60):
            await ended.wait()
        await asyncio.gather(*readers)


@pytest.mark.parametrize("plaintext", [True, False])
async def test_a_large_frame_is_handed_over_in_portions_in_its_order(plaintext: bool) -> None:
    """While the peer does not read, what has left is bounded by the kernels and a portion or two; all of it arrives."""
    size_bytes = 48 << 20
    async with pair(TlsConfig(plaintext=plaintext)) as (_, channel, server, server_channel):
        server_channel.pause_reading()
        large = bytes(range(256)) * (size_bytes // 256)
        for payload in (b"first", large, b"last"):
            channel.send(frame(payload))
        channel.flush()
        assert channel.taken_bytes == sum(len(frame(payload)) for payload in (b"first", large, b"last"))
        writable = [channel.writable]
        for _ in range(50):
            await asyncio.sleep(0)
        assert channel.left_bytes() < 24 << 20
        assert channel.unsent_bytes > 24 << 20
        server_channel.resume_reading()
        await server.until(lambda recorder: len(recorder.payloads) == 3)
        assert server.payloads == [b"first", large, b"last"]
        writable.append(channel.writable)
        assert writable == [False, True]
        async with asyncio.timeout(60):
            while channel.left_bytes() < channel.taken_bytes:  # the last acknowledgements of the kernel
                await asyncio.sleep(0.001)


async def test_what_waits_is_sent_before_the_connection_closes() -> None:
    async with pair() as (_, channel, server, server_channel):
        server_channel.pause_reading()
        channel.send(frame(bytes(8 << 20)))
        channel.send(frame(b"last"))
        channel.close()
        server_channel.resume_reading()
        await server.until_closed()
        assert [len(payload) for payload in server.payloads] == [8 << 20, 4]


async def test_bytes_that_come_are_counted_and_a_frame_in_the_middle_is_seen() -> None:
    async with pair() as (_, channel, server, server_channel):
        before = server_channel.received_bytes
        whole = frame(b"x" * 1000)
        channel.send(whole[:400])
        channel.flush()
        async with asyncio.timeout(60):
            while server_channel.received_bytes < before + 400:
                await asyncio.sleep(0.001)
        receiving = [server_channel.receiving]
        channel.send(whole[400:])
        await server.until(lambda recorder: len(recorder.payloads) == 1)
        receiving.append(server_channel.receiving)
        assert receiving == [True, False]
        assert server_channel.received_bytes == before + len(whole)


async def test_a_port_that_does_not_exist_is_a_failed_connection() -> None:
    with pytest.raises(ConnectFailedError, match="127.0.0.1:70000"):
        await connect(Endpoint("127.0.0.1", 70_000), FAMILY, "client", Recorder(), tls=None, timeout_s=60)


async def test_what_has_left_does_not_come_back_while_a_peer_reads_nothing() -> None:
    """Small frames grow by a tenth below TLS, and so does what the kernel is left with."""
    async with pair(TlsConfig()) as (_, channel, _, server):
        server.pause_reading()
        before = channel.left_bytes()
        while channel.unsent_bytes < 1 << 20:
            for _ in range(100):
                channel.send(frame(bytes(200)))
                channel.flush()
            await asyncio.sleep(0)
            assert channel.left_bytes() >= before
            before = channel.left_bytes()
        assert before < channel.taken_bytes
