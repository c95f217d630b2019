"""The relay before a node's port, and the arithmetic of lines."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.smoke.line import FAST_IN_FLIGHT_BYTES, QUEUE_BYTES, Line, Shape
from tests.smoke.proxy import CHUNK_SIZE_BYTES, Connection, Proxy
from waltz.common.net.listener import close_server

HOST = "127.0.0.1"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def test_bytes_leave_one_after_the_other_and_are_on_the_line_for_the_delay() -> None:
    line = Line()
    line.shape = Shape(rate=1000, delay_s=2)
    assert [line.put(500, now_s=10), line.put(500, now_s=10), line.put(1000, now_s=20)] == [12.5, 13, 23]
    line.shape = Shape()
    assert line.put(1 << 30, now_s=30) == 30


@given(
    st.floats(1e3, 1e8),
    st.floats(0, 2),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1 << 20)), min_size=1, max_size=50),
)
def test_a_line_carries_no_more_than_its_rate_and_everything_in_order(
    rate: float, delay_s: float, puts: list[tuple[float, int]]
) -> None:
    line = Line()
    line.shape = Shape(rate, delay_s)
    now_s = 0.0
    came_out_s = []
    for pause_s, size_bytes in puts:
        now_s += pause_s
        came_out_s.append(line.put(size_bytes, now_s))
        assert came_out_s[-1] >= now_s + delay_s
    assert came_out_s == sorted(came_out_s)
    total_bytes = sum(size_bytes for _, size_bytes in puts)
    assert came_out_s[-1] >= (puts[0][0] + total_bytes / rate + delay_s) * (1 - 1e-9)


def test_what_is_taken_from_the_sender_covers_the_line_and_little_more() -> None:
    assert Shape.of(megabits=8, round_trip_s=1) == Shape(1e6, 0.5)
    assert str(Shape.of(10, 0.1)) == "10 Mbit/s, 100 ms"
    assert Shape(1e6, 0.5).in_flight_bytes == 500_000 + QUEUE_BYTES
    assert Shape(1e6).in_flight_bytes == Shape().in_flight_bytes == QUEUE_BYTES
    assert Shape(delay_s=0.1).in_flight_bytes == FAST_IN_FLIGHT_BYTES


class Node:
    """What is behind the proxy: connections that are accepted, for the test to read and write."""

    server: asyncio.Server

    def __init__(self) -> None:
        self._accepted: asyncio.Queue[Streams] = asyncio.Queue()
        self._opened: list[asyncio.StreamWriter] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def behind_proxy(cls) -> "AsyncIterator[tuple[Node, Proxy]]":
        node = cls()
        node.server = await asyncio.start_server(lambda *streams: node._accepted.put_nowait(streams), HOST, 0)
        proxy = Proxy(HOST, 0, HOST, node.server.sockets[0].getsockname()[1])
        try:
            await proxy.open()
            (await node._accepted.get())[1].transport.abort()  # the proxy has looked whether the node is there
            yield node, proxy
        finally:
            await proxy.close()
            await close_server(node.server)
            for writer in node._opened:
                writer.transport.abort()
            while not node._accepted.empty():
                node._accepted.get_nowait()[1].transport.abort()
            await asyncio.sleep(0)  # transports free their sockets in the turn after

    async def connect(self, proxy: Proxy) -> tuple[Streams, Streams, Connection]:
        """A connection: the stream of who connects, that of the node, and what is between them."""
        near = await asyncio.open_connection(HOST, proxy.port)
        far = await self._accepted.get()
        self._opened += [near[1], far[1]]
        return near, far, proxy.connections[-1]


@pytest.mark.parametrize("shape", [Shape(), Shape(2e7), Shape(delay_s=0.02), Shape(2e7, 0.02)], ids=str)
async def test_all_bytes_come_out_in_both_directions_with_the_end_behind_them(shape: Shape) -> None:
    data = random.Random(1).randbytes(1 << 20)
    async with Node.behind_proxy() as (node, proxy):
        proxy.shape(shape)
        (near_reader, near_writer), (far_reader, far_writer), connection = await node.connect(proxy)
        for writer in (near_writer, far_writer):
            writer.write(data)
            writer.write_eof()
        assert await far_reader.read() == data
        assert await near_reader.read() == data
        for direction in (connection.to_node, connection.from_node):
            assert direction.passed_bytes == len(data)
            assert direction.longest_queue_bytes <= shape.in_flight_bytes + CHUNK_SIZE_BYTES
        while proxy.connections:
            await asyncio.sleep(0)


async def test_a_line_that_is_cut_holds_the_sender_up_and_loses_nothing() -> None:
    data = bytes(16 << 20)
    async with Node.behind_proxy() as (node, proxy):
        (_, near_writer), (far_reader, _), connection = await node.connect(proxy)
        proxy.cut()
        near_writer.write(data)
        near_writer.write_eof()
        while connection.to_node.longest_queue_bytes < QUEUE_BYTES:
            await asyncio.sleep(0)
        assert connection.passed_bytes == 0
        proxy.mend()
        assert await far_reader.read() == data
        assert connection.to_node.longest_queue_bytes <= QUEUE_BYTES + CHUNK_SIZE_BYTES


async def test_a_dead_connection_stays_open_and_passes_nothing_while_others_do() -> None:
    async with Node.behind_proxy() as (node, proxy):
        (near_reader, near_writer), (far_reader, far_writer), dead = await node.connect(proxy)
        near_writer.write(b"before")
        assert await far_reader.read(100) == b"before"
        dead.blackhole()
        near_writer.write(b"lost")
        far_writer.write(b"lost")
        near_writer.write_eof()
        (_, other_writer), (other_reader, _), other = await node.connect(proxy)
        proxy.reset()
        assert await other_reader.read() == b""
        assert other not in proxy.connections
        assert proxy.connections == [dead]
        (_, other_writer), (other_reader, _), other = await node.connect(proxy)
        other_writer.write(b"alive")
        assert await other_reader.read(100) == b"alive"
        assert dead.passed_bytes == len(b"before")
        assert not near_reader.at_eof()
        assert not far_reader.at_eof()
        proxy.blackhole()
        other_writer.write(b"lost")
        await node.connect(proxy)
        assert other.passed_bytes == len(b"alive")
        assert not other_reader.at_eof()


async def test_who_connects_while_the_node_is_down_is_disconnected() -> None:
    async with Node.behind_proxy() as (node, proxy):
        (near_reader, _), (_, far_writer), _ = await node.connect(proxy)
        far_writer.transport.abort()
        assert await near_reader.read() == b""
        node.server.close()
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        assert await reader.read() == b""
        writer.close()
