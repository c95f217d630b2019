"""Peers that mean no good, against a running storage node: others go on being served, and it ends as it should."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.storage.node_support import (
    KEY,
    OTHER_KEY,
    PARTITION_COUNT,
    TIMEOUT_S,
    RawPeer,
    RunningNode,
    record,
    records,
    running_node,
)
from waltz.common.config.schemas import StorageConnectionsConfig, TlsConfig
from waltz.common.ids import Endpoint
from waltz.common.net import http
from waltz.common.net.tls import client_context
from waltz.common.wire import storage as wire
from waltz.common.wire.frames import FRAME_HEADER, STORAGE
from waltz.storage.remote.client import StorageClient

QUICK = StorageConnectionsConfig(
    hello_timeout_ms=300, frame_timeout_ms=400, unread_timeout_ms=400, max=40, max_per_address=1000, max_admin=10
)


def header(size: int) -> bytes:
    return FRAME_HEADER.pack(STORAGE.magic, 0, size)


class Legitimate:
    """A client that was there before and appends one transaction after the other; another one that comes later."""

    def __init__(self, node: RunningNode, client: StorageClient) -> None:
        self._node = node
        self._client = client
        self._next_id = 0

    @classmethod
    async def connect(cls, node: RunningNode) -> "Legitimate":
        return cls(node, await node.client())

    async def is_served(self) -> None:
        await self._client.append(1, 0, records(self._next_id, 1), timeout_s=TIMEOUT_S)
        self._next_id += 1
        newcomer = await self._node.client()
        assert await newcomer.max_transaction_id(1, 0, timeout_s=TIMEOUT_S) == self._next_id - 1
        await newcomer.close()
        admin = await self._node.admin()
        assert (await admin.assigned_partition_status())[0]
        await admin.close()


async def connection(node: RunningNode, *sent: bytes, admin: bool = False) -> RawPeer:
    """A peer that does not even say hello by itself."""
    peer = RawPeer(*await asyncio.open_connection(*(node.admin_endpoint if admin else node.endpoint)))
    peer.send(*sent)
    return peer


async def ended(peer: RawPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        try:
            while await peer.reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
    await peer.close()


async def test_hellos_that_never_end(tmp_path: Path) -> None:
    async with running_node(tmp_path, connections=QUICK) as node:
        legitimate = await Legitimate.connect(node)
        peers = [
            await connection(node, RawPeer.HELLO[:size], admin=admin) for size in (0, 3, 20) for admin in (False, True)
        ]
        await legitimate.is_served()
        for peer in peers:
            await ended(peer)
        await legitimate.is_served()


async def test_more_connections_than_there_are_places(tmp_path: Path) -> None:
    connections = QUICK.model_copy(update={"hello_timeout_ms": 60_000})
    async with running_node(tmp_path, connections=connections) as node:
        legitimate = await Legitimate.connect(node)
        silent = [await connection(node) for _ in range(300)]
        greeting = [await connection(node, RawPeer.HELLO) for _ in range(300)]
        admin = [await connection(node, admin=True) for _ in range(20)]
        await legitimate.is_served()
        for peer in (*silent, *greeting, *admin):
            await peer.close()


async def test_lying_lengths_and_trickling_frames(tmp_path: Path) -> None:
    async with running_node(tmp_path, connections=QUICK) as node:
        legitimate = await Legitimate.connect(node)
        stranger = await node.raw()
        stranger.send(header(1 << 20), b"\x05")  # more than a peer may send that has not opened the store
        await ended(stranger)
        impostor = await node.raw()
        await impostor.ask(wire.OpenRequest(-1, -1, -1, OTHER_KEY, PARTITION_COUNT))
        impostor.send(header(1 << 20), b"\x05")
        await ended(impostor)
        slow = await node.raw()
        assert await slow.ask(wire.OpenRequest(-1, -1, -1, KEY, PARTITION_COUNT)) == wire.SuccessResponse(-1, -1, -1)
        slow.send(header(1 << 28), bytes(100_000))
        await legitimate.is_served()
        await ended(slow)
        huge = await node.raw()
        await huge.ask(wire.OpenRequest(-1, -1, -1, KEY, PARTITION_COUNT))
        huge.send(header((512 << 20) + 1))
        await ended(huge)
        await legitimate.is_served()


async def test_a_large_request_of_a_peer_that_has_opened_the_store(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        client = await node.client()
        batch = [record(number, bytes(4 << 20)) for number in range(8)]
        await client.append(1, 0, batch, timeout_s=TIMEOUT_S)
        assert await client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S) == 7


async def test_a_peer_that_never_reads(tmp_path: Path) -> None:
    async with running_node(tmp_path, connections=QUICK) as node:
        legitimate = await Legitimate.connect(node)
        client = await node.client()
        await client.append(1, 1, [record(0, bytes(1 << 20))], timeout_s=TIMEOUT_S)
        deaf = await node.raw()
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the stream's transport can read
        for seq_num in range(100):
            deaf.send(wire.encode(wire.RecordRequest(1, seq_num, 1, 0)))
        await legitimate.is_served()
        address = "{}:{}".format(*deaf.writer.get_extra_info("sockname"))
        listener = node.node._data_listener
        assert listener is not None
        async with asyncio.timeout(TIMEOUT_S):
            while address in {channel.peer for channel in listener.channels}:
                await asyncio.sleep(0.01)
        await legitimate.is_served()


async def test_garbage_after_the_hello(tmp_path: Path) -> None:
    async with running_node(tmp_path, connections=QUICK) as node:
        legitimate = await Legitimate.connect(node)
        for garbage in (b"\xff" * 100, header(1) + b"\x7f", header(21) + bytes(21), FRAME_HEADER.pack(1, 1, -1)):
            for admin in (False, True):
                peer = await node.raw(admin=admin)
                peer.send(garbage)
                await ended(peer)
        await legitimate.is_served()


async def test_handshakes_that_never_end(tmp_path: Path) -> None:
    connections = QUICK.model_copy(update={"hello_timeout_ms": 2000})
    async with running_node(tmp_path, tls=TlsConfig(), connections=connections) as node:
        peers = [await connection(node, sent) for sent in (b"", b"\x16\x03\x01\x02\x00") for _ in range(30)]
        client = await StorageClient.connect(
            node.endpoint,
            cluster_key=KEY,
            partition_count=PARTITION_COUNT,
            tls=client_context(TlsConfig()),
            timeout_s=TIMEOUT_S,
        )
        await client.append(1, 0, records(0, 1), timeout_s=TIMEOUT_S)
        for peer in peers:
            await ended(peer)
        assert await client.max_transaction_id(1, 0, timeout_s=TIMEOUT_S) == 0
        await client.close()


async def test_http_requests_that_never_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DEADLINE_S", 0.3)
    async with running_node(tmp_path, connections=QUICK, storage_jetty_port=0) as node:
        legitimate = await Legitimate.connect(node)
        assert node.node.http_port is not None
        endpoint = Endpoint("127.0.0.1", node.node.http_port)
        slow = [RawPeer(*await asyncio.open_connection(*endpoint)) for _ in range(2 * http.MAX_CONNECTIONS)]
        for peer in slow:
            peer.send(b"GET /health HTTP/1.1\r\nX-Slow: ")
        asking = RawPeer(*await asyncio.open_connection(*endpoint))
        asking.send(b"GET /ping HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            assert (await asking.reader.read()).endswith(b"pong\n")
        await asking.close()
        await legitimate.is_served()
        for peer in slow:
            await ended(peer)
