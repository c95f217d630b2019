"""Clients that speak raw bytes, in whatever version they are told."""

import asyncio
import contextlib
import itertools
import struct
from zlib import crc32

from tests.smoke.trial import owner
from waltz.common.ids import Endpoint
from waltz.common.zk.store_admin import read_partition_assignment
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT

SERVER_HELLO = bytes.fromhex("480000000000220000000700000001000200030004000500060000000c57616c747a20536572766572")
TIMEOUT_S = 60

numbers = itertools.count(1)


class Peer:
    """One connection that speaks as many versions as it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader = reader
        self.writer = writer
        self.version = version
        self.client_id = 1000 + next(numbers)
        self.generation = 1
        self.partition = 0
        """Where requests go that name no other."""

    @classmethod
    async def connect(cls, endpoint: Endpoint, version: int) -> "Peer":
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        payload = struct.pack(f">i{version + 1}h", version + 1, *range(version + 1)) + struct.pack(">i", -1)
        writer.write(struct.pack(">Bhi", ord("H"), 0, len(payload)) + payload)
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.readexactly(len(SERVER_HELLO)) == SERVER_HELLO
        return cls(reader, writer, version)

    def req_id(self, seq: int, partition: int | None = None) -> bytes:
        partition = self.partition if partition is None else partition
        return struct.pack(">iiii", self.client_id, self.generation, partition, seq)

    def send(self, kind: int, seq: int, body: bytes = b"", partition: int | None = None) -> None:
        payload = bytes([kind]) + self.req_id(seq, partition) + body
        self.writer.write(struct.pack(">Bhi", ord("L"), self.version, len(payload)) + payload)

    def mount(self, seq: int, mark: int, connection: int = 0, partition: int | None = None) -> None:
        self.send(0, seq, struct.pack(">qq", mark, connection), partition)

    def append(
        self, seq: int, mark: int, locks: tuple[int, ...] = (), data: bytes = b"hello", session: int = -1
    ) -> None:
        body = struct.pack(f">qi{len(locks)}i", mark, len(locks), *locks)
        body += bytes(4) * min(self.version, 2)
        body += struct.pack(">ii", 7, len(data)) + data + struct.pack(">I", crc32(data))
        self.send(2, seq, body + (struct.pack(">q", session) if self.version >= 5 else b""))

    async def receive(self) -> tuple[int, bytes, bytes]:
        """Type, request id and body of the next message."""
        async with asyncio.timeout(TIMEOUT_S):
            magic, version, size = struct.unpack(">Bhi", await self.reader.readexactly(7))
            assert (magic, version) == (ord("L"), self.version)
            payload = await self.reader.readexactly(size)
        return payload[0], payload[1:17], payload[17:]

    async def mark(self) -> int:
        self.send(11, 0)
        kind, _, body = await self.receive()
        assert kind == 12
        return int(struct.unpack(">q", body)[0])

    async def mounted(self, connection: int = 0) -> int:
        """Mount at the server's mark; returns it."""
        mark = await self.mark()
        self.mount(1, mark, connection)
        ready = struct.pack(">i", 0) if self.version >= 3 else b"\x01"
        assert await self.receive() == (1, self.req_id(1), ready)
        return mark

    async def closed_by_server(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                assert await self.reader.read() == b""


class Peers:
    """Opens connections to one server."""

    def __init__(self, endpoint: Endpoint, generation: int) -> None:
        self.endpoint = endpoint
        self.generation = generation
        self.open: list[Peer] = []

    async def __call__(self, version: int) -> Peer:
        self.open.append(await Peer.connect(self.endpoint, version))
        self.open[-1].generation = self.generation
        return self.open[-1]

    @classmethod
    async def of(cls, cluster: LocalCluster, partition_id: int = 0) -> "Peers":
        """To the server that owns the partition, in its generation."""
        node = await owner(cluster, partition_id)
        zookeeper = await cluster.zookeeper()
        assignment = await read_partition_assignment(zookeeper, ROOT)
        await zookeeper.close()
        owned = {each.partition_id: each.generation for server in assignment.servers.values() for each in server}
        return cls(Endpoint.parse(node.connect_string), owned[partition_id])

    def close(self) -> None:
        """End all connections."""
        for peer in self.open:
            peer.writer.close()


async def live(connect: Peers, version: int, partition: int = 0) -> None:
    """A client appends, is refused for a lock, reads, flushes, and comes back: every byte of the answers is given."""
    peer = await connect(version)
    peer.partition = partition
    mark = await peer.mounted()
    peer.send(3, 1, struct.pack(">q", mark))
    peer.append(2, mark, (version,))
    assert await peer.receive() == (4, peer.req_id(2), struct.pack(">qi", mark + 1, 7))
    peer.append(3, mark, (version,))
    assert await peer.receive() == (10, peer.req_id(3), struct.pack(">q", mark + 1))
    peer.send(6, 4, struct.pack(">q", mark + 1))
    data = struct.pack(">qbi", mark + 1, 1, 5) + b"hello" + struct.pack(">I", crc32(b"hello"))
    assert await peer.receive() == (7, peer.req_id(4), data)
    peer.send(8, 3)
    assert await peer.receive() == (9, peer.req_id(3), struct.pack(">q", mark + 1))
    again = await connect(version)
    again.partition = partition
    again.mount(1, mark)
    assert await again.receive() == (4, peer.req_id(2), struct.pack(">qi", mark + 1, 7))
    kind, req_id, _ = await again.receive()
    assert (kind, req_id) == (1, again.req_id(1))
