"""Raw bytes against a running server: old versions, stale connections, foreign generations, hostile frames."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from zlib import crc32

import pytest

from tests.integration.peers import SERVER_HELLO, TIMEOUT_S, Peers, live
from waltz.local.cluster import LocalCluster

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def plain_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory: Path = tmp_path_factory.mktemp("protocol")
    with LocalCluster(directory, servers=1, partitions=1, plaintext=True) as running:
        yield running


@pytest.fixture
async def connect(plain_cluster: LocalCluster) -> AsyncIterator[Peers]:
    peers = await Peers.of(plain_cluster)
    yield peers
    peers.close()


@pytest.mark.parametrize("version", range(7))
async def test_the_life_of_an_append_in_every_version(connect: Peers, version: int) -> None:
    await live(connect, version)


@pytest.mark.parametrize("version", [0, 3, 4, 5, 6])
async def test_a_newer_connection_of_a_client_replaces_the_older(connect: Peers, version: int) -> None:
    old, new = await connect(version), await connect(version)
    new.client_id = old.client_id
    mark = await old.mounted(connection=0)
    await new.mounted(connection=1)
    old.append(2, mark)
    old.send(8, 2)
    assert await old.receive() == (9, old.req_id(2), struct.pack(">q", mark)), "dropped, and the flush tells so"
    old.mount(3, mark)
    not_ready = struct.pack(">i", 1) if version >= 3 else b"\x00"
    assert await old.receive() == (1, old.req_id(3), not_ready)
    new.append(4, mark)
    new.send(8, 4)
    assert await new.receive() == (9, new.req_id(4), struct.pack(">q", mark + 1))


@pytest.mark.parametrize("version", [0, 2, 4, 5, 6])
async def test_a_foreign_generation_is_not_written(connect: Peers, version: int) -> None:
    peer = await connect(version)
    mark = await peer.mounted()
    for generation in (connect.generation - 1, connect.generation + 1):
        peer.generation = generation
        peer.append(2, mark)
        if version >= 5:
            kind, req_id, body = await peer.receive()
            assert (kind, req_id, struct.unpack_from(">iq", body)) == (30, peer.req_id(2), (1, mark))
    peer.generation = connect.generation
    assert await peer.mark() == mark


@pytest.mark.parametrize("version", [0, 2, 3, 4, 5, 6])
async def test_unknown_partitions(connect: Peers, version: int) -> None:
    peer = await connect(version)
    not_ready = struct.pack(">i", 1) if version >= 3 else b"\x00"
    for partition in (1, 77, -1, (1 << 31) - 1):
        peer.mount(1, -1, partition=partition)
        assert await peer.receive() == (1, peer.req_id(1, partition), not_ready)
        peer.send(6, 2, struct.pack(">q", 0), partition)
        text = b"partition not ready"
        body = struct.pack(">qbi", 0, 0, len(text)) + text
        assert await peer.receive() == (7, peer.req_id(2, partition), body)
        peer.send(3, 1, struct.pack(">q", -1), partition)
        peer.send(8, 1, b"", partition)
    assert await peer.mark() >= -1, "the connection is as good as before"


HOSTILE = {
    "nothing but a type": b"\x00",
    "an unknown type": bytes([99]) + bytes(16),
    "a negative type": b"\xff" + bytes(16),
    "a short request id": b"\x00" + bytes(7),
    "a mount without its mark": b"\x00" + bytes(16),
    "an append of endless locks": b"\x02" + bytes(24) + b"\x7f\xff\xff\xff" + bytes(30),
    "an append of null locks": b"\x02" + bytes(24) + b"\xff\xff\xff\xff" + bytes(30),
    "a damaged append": b"\x02" + bytes(24) + bytes(4) * 5 + b"\x00\x00\x00\x01",
    "an endless list of partitions": bytes([17]) + bytes(16) + b"\x7f\xff\xff\xff",
    "an answer": b"\x09" + bytes(16) + bytes(8),
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_messages_close_their_connection_only(connect: Peers, payload: bytes) -> None:
    victim, peer = await connect(4), await connect(4)
    await victim.mounted()
    await peer.mounted()
    peer.writer.write(struct.pack(">Bhi", ord("L"), 4, len(payload)) + payload)
    await peer.closed_by_server()
    assert await victim.mark() >= -1


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">Bhi", ord("L"), 4, -1),
        struct.pack(">Bhi", ord("L"), 4, (1 << 31) - 1) + bytes(17),
        struct.pack(">Bhi", ord("L"), 3, 17) + bytes(17),
        struct.pack(">Bhi", ord("S"), 4, 17) + bytes(17),
        SERVER_HELLO,
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100_000),
    ],
    ids=["negative length", "endless length", "other version", "other magic", "second hello", "http", "zeros"],
)
async def test_hostile_frames_close_their_connection_only(connect: Peers, frame: bytes) -> None:
    victim, peer = await connect(4), await connect(4)
    await peer.mounted()
    peer.writer.write(frame)
    await peer.closed_by_server()
    assert await victim.mark() >= -1
    before_hello = await asyncio.open_connection(connect.endpoint.host, connect.endpoint.port)
    before_hello[1].write(b"\x16\x03\x01\x02\x00 this is no hello")
    async with asyncio.timeout(TIMEOUT_S):
        with contextlib.suppress(ConnectionError):
            assert await before_hello[0].read() in (b"", SERVER_HELLO)
    before_hello[1].close()
    assert await victim.mark() >= -1


async def test_bulk_reads_end_at_the_committed_mark(connect: Peers) -> None:
    peer = await connect(5)
    mark = await peer.mounted()
    for number in range(20):
        peer.append(2 + number, mark, data=b"%d" % number)
    peer.send(8, 21)
    assert (await peer.receive())[0] == 9
    peer.send(28, 30, struct.pack(">qii", mark + 1, 1000, 1 << 20))
    kind, req_id, body = await peer.receive()
    assert (kind, req_id) == (29, peer.req_id(30))
    assert struct.unpack_from(">qiqi", body) == (mark + 1, 0, mark + 20, 20)
    position = 24
    for number in range(20):
        data = b"%d" % number
        record = struct.pack(">q", mark + 1 + number) + peer.req_id(2 + number) + struct.pack(">ii", 7, len(data))
        record += data + struct.pack(">I", crc32(data))
        assert body[position : position + len(record)] == record
        position += len(record)
    assert body[position:] == struct.pack(">i", -1)
