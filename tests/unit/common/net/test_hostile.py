"""Peers that mean no good, against a listener: each costs little, and others go on being served."""

import asyncio
import logging
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.unit.common.net.peers import FAMILY, Recorder, frame
from waltz.common import quiet_log
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConnectFailedError, DeadlineExceededError, ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, connect
from waltz.common.net.guard import OverloadedError, TrafficGuard
from waltz.common.net.limits import ListenerLimits, TrafficLimits
from waltz.common.net.listener import Listener
from waltz.common.net.tls import client_context, server_context
from waltz.common.wire.connection import Hello, encode_hello
from waltz.common.wire.frames import FRAME_HEADER

HELLO = encode_hello(Hello([3], "hostile"))
HELLO_TIMEOUT_S = 1.0
"""Passes in tests of connections without a hello. Others need far less, with their handshakes, on a busy machine."""

BOTH = pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "TLS"])


class Echo(Recorder):
    """Answers every frame with the same."""

    def frames_received(self, channel: Channel, buffer: bytes, bounds: list[tuple[int, int]]) -> None:
        super().frames_received(channel, buffer, bounds)
        for start, end in bounds:
            channel.send(frame(buffer[start:end]))


class World:
    """A listener, its handlers, and raw connections to it."""

    def __init__(self, listener: Listener, handlers: list[Echo], tls: bool) -> None:
        self.listener = listener
        self.handlers = handlers
        self.tls = tls
        self.writers: list[asyncio.StreamWriter] = []

    async def raw(
        self, *sent: bytes, tls: bool | None = None, address: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which the test decides what is sent."""
        context: ssl.SSLContext | None = client_context(TlsConfig()) if (self.tls if tls is None else tls) else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.listener.port, ssl=context, local_addr=(address, 0)
        )
        self.writers.append(writer)
        writer.write(b"".join(sent))
        return reader, writer

    async def client(self) -> tuple[Recorder, Channel]:
        client = Recorder()
        context = client_context(TlsConfig()) if self.tls else None
        endpoint = Endpoint("127.0.0.1", self.listener.port)
        return client, await connect(endpoint, FAMILY, "client", client, tls=context, timeout_s=60)

    async def serves(self, payload: bytes = b"work") -> None:
        """A client that comes now is served."""
        client, channel = await self.client()
        channel.send(frame(payload))
        await client.until(lambda recorder: bool(recorder.payloads))
        assert client.payloads == [payload]
        channel.abort()
        await channel.wait_closed()


@asynccontextmanager
async def world(
    limits: ListenerLimits | None = None, traffic: TrafficLimits | None = None, *, tls: bool = False
) -> AsyncIterator[World]:
    handlers: list[Echo] = []

    def handler() -> Echo:
        handlers.append(Echo())
        return handlers[-1]

    guard = TrafficGuard(traffic or TrafficLimits())
    context = server_context(TlsConfig()) if tls else None
    listener = await Listener.open("127.0.0.1", 0, FAMILY, "server", handler, tls=context, limits=limits, guard=guard)
    made = World(listener, handlers, tls)
    try:
        yield made
    finally:
        for writer in made.writers:
            writer.transport.abort()
        await listener.close()
        guard.close()
        assert not listener.channels
        assert guard.received_bytes == 0


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side ends the connection."""
    async with asyncio.timeout(60):
        try:
            while await reader.read(1 << 16):
                pass
        except OSError:
            pass
    return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@BOTH
async def test_a_hello_that_trickles_is_cut_off(tls: bool) -> None:
    async with world(ListenerLimits(hello_timeout_s=HELLO_TIMEOUT_S), tls=tls) as made:
        reader, writer = await made.raw()

        async def trickle() -> None:
            for position in range(len(HELLO) - 1):
                writer.write(HELLO[position : position + 1])
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        await made.serves()
        assert await ended(reader)
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
        assert all(handler.closed == [] for handler in made.handlers if handler.channel is None)


@BOTH
async def test_connections_without_hello_do_not_keep_clients_out(tls: bool) -> None:
    limits = ListenerLimits(max_connections=60, max_greeting=20, greeting_grace_s=0, hello_timeout_s=60)
    async with world(limits, tls=tls) as made:
        client, channel = await made.client()
        silent = [await made.raw(tls=False) for _ in range(100)]
        await made.serves()
        assert await ended(silent[0][0])
        await until(lambda: len(made.listener.channels) <= 21)
        channel.send(frame(b"still here"))
        await client.until(lambda recorder: recorder.payloads == [b"still here"])
        channel.abort()
        await channel.wait_closed()


@BOTH
async def test_many_clients_at_once_do_not_push_each_other_out(tls: bool) -> None:
    async with world(ListenerLimits(max_connections=60, max_greeting=5), tls=tls) as made:
        await asyncio.gather(*(made.serves() for _ in range(40)))
        silent = [await made.raw(tls=False) for _ in range(80)]  # these do, when there are no places any more
        await made.serves()
        assert await ended(silent[0][0])


@BOTH
async def test_connections_that_ask_for_nothing_make_room(tls: bool) -> None:
    async with world(ListenerLimits(max_connections=10), tls=tls) as made:
        client, channel = await made.client()
        channel.send(frame(b"first"))
        await client.until(lambda recorder: recorder.payloads == [b"first"])
        idle = [await made.raw(HELLO) for _ in range(9)]
        await until(lambda: sum(handler.channel is not None for handler in made.handlers) == 10)
        await made.serves()
        assert await ended(idle[0][0])
        assert len(made.listener.channels) <= 10
        channel.send(frame(b"second"))
        await client.until(lambda recorder: recorder.payloads == [b"first", b"second"])
        channel.abort()
        await channel.wait_closed()


@BOTH
async def test_one_address_cannot_take_all_places(tls: bool) -> None:
    async with world(ListenerLimits(max_connections=100, max_per_address=5), tls=tls) as made:
        for _ in range(5):
            reader, _ = await made.raw(HELLO, address="127.0.0.2")
            assert await reader.readexactly(7)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            reader, _ = await made.raw(HELLO, address="127.0.0.2")
            await reader.readexactly(7)
        await made.serves()
        made.writers[0].transport.abort()
        await until(lambda: len(made.listener.channels) == 4)
        reader, _ = await made.raw(HELLO, address="127.0.0.2")
        assert await reader.readexactly(7)


async def test_a_handshake_without_end_is_cut_off() -> None:
    async with world(ListenerLimits(hello_timeout_s=HELLO_TIMEOUT_S), tls=True) as made:
        silent, _ = await made.raw(tls=False)
        begun, _ = await made.raw(b"\x16\x03\x01\x02\x00\x01", tls=False)
        await made.serves()
        assert await ended(silent)
        assert await ended(begun)
        await until(lambda: not made.listener.channels)


async def test_garbage_instead_of_a_handshake_is_not_logged_without_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet_log, "BURST", 3)
    async with world(tls=True) as made:
        for _ in range(10):
            reader, _ = await made.raw(b"GET / HTTP/1.1\r\n\r\n" * 20, tls=False)
            assert await ended(reader)
        await until(lambda: not made.listener.channels)
        await made.serves()
    assert sum("no TLS connection" in record.message for record in caplog.records) == 3
    assert all(record.levelno < logging.ERROR for record in caplog.records)


async def test_a_client_certificate_that_is_missing_is_logged_in_one_line(
    trust_pem: str, caplog: pytest.LogCaptureFixture
) -> None:
    context = server_context(TlsConfig(trust_store_location=trust_pem))
    listener = await Listener.open("127.0.0.1", 0, FAMILY, "server", Recorder, tls=context)
    with pytest.raises(ConnectFailedError):
        await connect(
            Endpoint("127.0.0.1", listener.port),
            FAMILY,
            "client",
            Recorder(),
            tls=client_context(TlsConfig()),
            timeout_s=60,
        )
    await until(lambda: not listener.channels)
    await listener.close()
    assert "no TLS connection with 127.0.0.1:" in caplog.text
    assert "Traceback" not in caplog.text


@BOTH
async def test_a_lying_length_takes_no_memory_and_ends(tls: bool) -> None:
    claimed = 30 << 20
    limits = ListenerLimits(max_payload_bytes=32 << 20)
    async with world(limits, TrafficLimits(frame_timeout_s=0.4), tls=tls) as made:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            lying = [await made.raw(HELLO, FRAME_HEADER.pack(FAMILY.magic, 3, claimed), b"some") for _ in range(5)]
            await made.serves(bytes(1 << 20))
            for reader, _ in lying:
                assert await ended(reader)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak - before < claimed
        for handler in made.handlers:
            if not handler.payloads:
                assert isinstance(await handler.until_closed(), DeadlineExceededError)


async def test_a_frame_that_trickles_ends() -> None:
    async with world(traffic=TrafficLimits(frame_timeout_s=0.4)) as made:
        reader, writer = await made.raw(HELLO, FRAME_HEADER.pack(FAMILY.magic, 3, 1 << 20))

        async def trickle() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        await made.serves()
        assert await ended(reader)
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)


async def test_an_idle_connection_is_left_alone() -> None:
    """Idle is what is between two frames; keep-alives come every ten minutes only."""
    traffic = TrafficLimits(frame_timeout_s=0.04, unread_timeout_s=0.04)
    async with world(ListenerLimits(hello_timeout_s=HELLO_TIMEOUT_S), traffic) as made:
        client, channel = await made.client()
        for said in ((), *[(HELLO, FRAME_HEADER.pack(FAMILY.magic, 3, 100))] * 3):
            reader, _ = await made.raw(*said)
            assert await ended(reader)  # meanwhile the time-outs have passed
        channel.send(frame(b"after all that"))
        await client.until(lambda recorder: recorder.payloads == [b"after all that"])
        channel.abort()
        await channel.wait_closed()


@BOTH
async def test_incomplete_frames_are_bounded_in_total(tls: bool) -> None:
    limits = ListenerLimits(max_payload_bytes=4 << 20)
    async with world(limits, TrafficLimits(max_receive_bytes=8 << 20), tls=tls) as made:
        part = FRAME_HEADER.pack(FAMILY.magic, 3, 4 << 20) + bytes(1 << 20)
        hostile = [await made.raw(HELLO, part) for _ in range(12)]
        await until(lambda: sum(bool(handler.closed) for handler in made.handlers) >= 4)
        assert made.listener.guard.received_bytes <= 8 << 20
        await made.serves(bytes(4 << 20))
        assert made.listener.guard.received_bytes <= 8 << 20
        assert await ended(hostile[0][0])
        errors = [handler.closed[0] for handler in made.handlers if handler.closed and not handler.payloads]
        assert errors
        assert all(isinstance(error, OverloadedError) for error in errors)


@BOTH
async def test_a_peer_that_never_reads_is_cut_off(tls: bool) -> None:
    async with world(traffic=TrafficLimits(unread_timeout_s=0.4), tls=tls) as made:
        _, writer = await made.raw(HELLO)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # the stream's transport can read
        for _ in range(64):
            writer.write(frame(bytes(1 << 20)))
        await made.serves()
        await until(lambda: any(handler.closed for handler in made.handlers if len(handler.payloads) > 1))
        (hostile,) = (handler for handler in made.handlers if len(handler.payloads) > 1)
        assert isinstance(hostile.closed[0], DeadlineExceededError)


async def test_unread_data_are_bounded_in_total() -> None:
    async with world(traffic=TrafficLimits(max_send_bytes=24 << 20)) as made:
        for _ in range(4):
            _, writer = await made.raw(HELLO)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # the stream's transport can read
            for _ in range(24):
                writer.write(frame(bytes(1 << 20)))
        await until(lambda: any(handler.closed for handler in made.handlers))
        await made.serves()
        error = next(handler.closed[0] for handler in made.handlers if handler.closed and len(handler.payloads) > 1)
        assert isinstance(error, OverloadedError)


async def test_large_frames_wait_until_they_are_allowed() -> None:
    """Also when all of it came in one read."""
    async with world(ListenerLimits(opening_payload_bytes=100)) as made:
        refused, writer = await made.raw(HELLO)
        await until(lambda: made.handlers[0].channel is not None)
        writer.write(frame(bytes(101)))
        assert await ended(refused)
        assert isinstance(made.handlers[0].closed[0], ProtocolError)
        for allow in (True, False):
            reader, writer = await made.raw(HELLO)
            await until(lambda: made.handlers[-1].channel is not None)
            if allow:
                made.handlers[-1].on_payload = lambda channel, _: channel.allow_large_frames()
            writer.write(frame(b"open") + frame(bytes(101)) + frame(b"end"))
            if allow:
                await made.handlers[-1].until(lambda recorder: recorder.payloads == [b"open", bytes(101), b"end"])
            else:
                await made.handlers[-1].until(lambda recorder: bool(recorder.payloads))
                writer.write(frame(b"more"))
                assert await ended(reader)
                assert made.handlers[-1].payloads == [b"open"]


async def test_garbage_after_the_hello_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet_log, "BURST", 3)
    monkeypatch.setattr(quiet_log, "WINDOW_S", 0.0)
    async with world() as made:
        for _ in range(2):
            reader, _ = await made.raw(HELLO, b"\xff" * 50)
            assert await ended(reader)
        monkeypatch.setattr(quiet_log, "WINDOW_S", 3600.0)
        for _ in range(8):
            reader, _ = await made.raw(HELLO, b"\xff" * 50)
            assert await ended(reader)
        assert sum("magic 0xff" in record.message for record in caplog.records) == 5
        made.listener.log._window_end_s = 0.0
        reader, _ = await made.raw(HELLO, b"\xff" * 50)
        assert await ended(reader)
        assert "5 more messages" in caplog.text
        await made.serves()
