"""Sequences of the protocol as raw bytes over a loopback connection, with a log that commits when it is told to."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from zlib import crc32

import pytest

from tests.unit.server.fakes import FakeChannel, PartitionSetup, record
from waltz.common.access import ALLOW_ALL
from waltz.common.errors import WaltzError
from waltz.common.net.guard import TrafficGuard
from waltz.common.net.limits import ListenerLimits, TrafficLimits
from waltz.common.net.listener import Listener
from waltz.common.records import encode_records
from waltz.common.wire.append_request import APPEND_REQUEST_TYPE
from waltz.common.wire.client_server import encode_feed_data
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.server.partition.partition import PartitionOptions, ServerPartition
from waltz.server.process.property_setting import PropertiesSet
from waltz.server.process.service import ServerService
from waltz.server.requests.appends import AppendLimits
from waltz.server.requests.connection import MAX_UNSENT_BYTES

SERVER_HELLO = bytes.fromhex("480000000000220000000700000001000200030004000500060000000c57616c747a20536572766572")
CLIENT = 7
GENERATION = 3
MAX_TRANSACTION_SIZE = 1000
MAX_FRAME_BYTES = 200_000


def client_hello(*versions: int) -> bytes:
    payload = struct.pack(">i", len(versions)) + b"".join(struct.pack(">h", version) for version in versions)
    payload += struct.pack(">i", 4) + b"test"
    return struct.pack(">Bhi", ord("H"), 0, len(payload)) + payload


def frame(
    kind: int, seq: int, body: bytes = b"", *, client: int = CLIENT, partition: int = 0, version: int = 4
) -> bytes:
    payload = struct.pack(">biiii", kind, client, GENERATION, partition, seq) + body
    return struct.pack(">Bhi", ord("L"), version, len(payload)) + payload


def mount(seq: int, mark: int, connection_seq: int = 0, **other: int) -> bytes:
    return frame(0, seq, struct.pack(">qq", mark, connection_seq), **other)


def mounted(seq: int, state: int) -> bytes:
    return frame(1, seq, struct.pack(">i", state))


def append(
    seq: int, mark: int, write: Sequence[int] = (), data: bytes = b"hello", checksum: int | None = None, **other: int
) -> bytes:
    body = struct.pack(">q", mark)
    body += struct.pack(f">i{len(write)}i", len(write), *write) + struct.pack(">ii", 0, 0)
    body += struct.pack(">ii", seq * 10, len(data)) + data
    body += struct.pack(">I", crc32(data) if checksum is None else checksum)
    return frame(2, seq, body, **other)


def feed(seq: int, mark: int) -> bytes:
    return frame(3, seq, struct.pack(">q", mark))


def fed(seq: int, transaction_id: int) -> bytes:
    """The feed of an append of this client."""
    return frame(4, seq, struct.pack(">qi", transaction_id, seq * 10))


def fed_stored(transaction_id: int, version: int = 4) -> bytes:
    """The feed of a transaction that was there from the beginning."""
    body = struct.pack(">qi", transaction_id, transaction_id * 10)
    return frame(4, transaction_id, body, client=9, version=version).replace(
        struct.pack(">iiii", 9, GENERATION, 0, transaction_id), struct.pack(">iiii", 9, 9, 0, transaction_id)
    )


class RawClient:
    """Bytes out, exactly the expected bytes in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def expect(self, *frames: bytes) -> None:
        expected = b"".join(frames)
        async with asyncio.timeout(60):
            assert await self.reader.readexactly(len(expected)) == expected

    async def expect_closed(self) -> None:
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                assert await self.reader.read() == b""

    async def expect_silence(self) -> None:
        """Nothing but the answer to a question that comes after everything else."""
        self.send(frame(15, 0))
        await self.expect(frame(16, 0, struct.pack(">ii", 1, 0)))


class Server:
    def __init__(self, records: int) -> None:
        self.setup = PartitionSetup(records, PartitionOptions(), GENERATION)
        self.log = self.setup.log
        self.service = ServerService(
            self.make_partition,
            partition_count=1,
            append_limits=AppendLimits(MAX_TRANSACTION_SIZE, 10_000),
            question_timeout_s=1000,
            check_storages=self.check_storages,
            set_preferred=self.set_preferred,
            set_properties=self.set_properties,
            access=ALLOW_ALL,
        )
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    def make_partition(self, partition_id: int, generation: int) -> ServerPartition:
        return self.setup.partition

    async def check_storages(self) -> Mapping[str, bool]:
        return {"h:1": True}

    async def set_preferred(self, partition_ids: Sequence[int]) -> None:
        pass

    async def set_properties(self, partition_id: int, change: int, properties: str) -> PropertiesSet:
        raise WaltzError("there is no ZooKeeper")

    async def connect(self, *versions: int) -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        client = RawClient(reader, writer)
        client.send(client_hello(*(versions or (0, 1, 2, 3, 4))))
        await client.expect(SERVER_HELLO)
        return client

    async def received(self, undecided: int) -> None:
        """Wait until the log has been given so many appends."""
        async with asyncio.timeout(60):
            while len(self.log.undecided) < undecided:
                await asyncio.sleep(0.001)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server(10)
    guard = TrafficGuard(TrafficLimits(max_receive_bytes=MAX_FRAME_BYTES + 7))
    listener = await Listener.open(
        "127.0.0.1",
        0,
        CLIENT_SERVER,
        "Waltz Server",
        made.service.connection,
        tls=None,
        limits=ListenerLimits(max_payload_bytes=MAX_FRAME_BYTES, abridged_type=APPEND_REQUEST_TYPE),
        guard=guard,
    )
    made.port = listener.port
    made.service.set_partitions({0: GENERATION})
    made.log.open_session()
    yield made
    for writer in made.writers:
        writer.close()
    await made.service.close()
    await listener.close()
    guard.close()


async def test_fresh_mount_and_append(server: Server) -> None:
    client = await server.connect()
    client.send(mount(1, -1))
    await client.expect(*(fed_stored(number) for number in range(10)), mounted(1, 0))
    client.send(feed(1, 9), append(2, 9, [3357067]))
    await server.received(1)
    server.log.commit()
    await client.expect(fed(2, 10))
    client.send(*(append(number, 10) for number in range(3, 102)))
    await server.received(99)
    server.log.commit(50)
    server.log.commit(49)
    await client.expect(*(fed(number, number + 8) for number in range(3, 102)), frame(5, 1))
    client.send(feed(1, 109))
    await client.expect_silence()


async def test_lock_failure(server: Server) -> None:
    client = await server.connect()
    client.send(mount(1, 9), feed(1, 9))
    await client.expect(mounted(1, 0))
    client.send(append(2, 9), append(3, 9, [5]), append(4, 9, [5]))
    await server.received(2)
    server.log.commit()
    await client.expect(fed(2, 10), fed(3, 11), frame(10, 4, struct.pack(">q", 11)))
    client.send(append(5, 11, [5]))
    await server.received(1)
    server.log.commit()
    await client.expect(fed(5, 12))


async def test_connection_loss_with_pending_appends(server: Server) -> None:
    first = await server.connect()
    first.send(mount(1, 9), feed(1, 9), append(5, 9), append(6, 9))
    await first.expect(mounted(1, 0))
    await server.received(2)
    first.writer.close()
    second = await server.connect()
    second.send(mount(7, 9, 1))
    server.log.end_session()
    server.log.reopen(committed=1)
    await second.expect(fed(5, 10), mounted(7, 0))
    second.send(frame(8, 6), feed(7, 10))
    await second.expect(frame(9, 6, struct.pack(">q", 10)))


async def test_a_client_that_is_ahead(server: Server) -> None:
    client = await server.connect()
    client.send(mount(1, 10))
    await client.expect(mounted(1, 2))
    old = await server.connect(0, 1, 2)
    old.send(mount(1, 10, client=8, version=2))
    await old.expect(frame(1, 1, b"\x00", client=8, version=2))
    old.send(mount(2, 9, client=8, version=2))
    await old.expect(frame(1, 2, b"\x01", client=8, version=2))


async def test_messages_of_one_read_keep_their_order(server: Server) -> None:
    client = await server.connect()
    client.send(mount(1, 9), append(2, 9), frame(8, 2), append(3, 9), frame(8, 3), append(4, 9, partition=5))
    await client.expect(mounted(1, 0))
    await server.received(2)
    server.log.commit(1)
    await client.expect(frame(9, 2, struct.pack(">q", 10)))
    server.log.commit(1)
    await client.expect(frame(9, 3, struct.pack(">q", 11)))


async def test_keep_alives_are_tolerated(server: Server) -> None:
    client = await server.connect()
    client.send(bytes.fromhex("4c000400000000"), mount(1, 9), bytes.fromhex("4c000400000000"))
    await client.expect(mounted(1, 0))


def versioned_append(version: int, seq: int, mark: int, write: Sequence[int], data: bytes = b"hello") -> bytes:
    """The append of each version: write locks, from 1 on read locks, from 2 append locks, from 5 a write session."""
    body = struct.pack(f">qi{len(write)}i", mark, len(write), *write)
    body += struct.pack(">i", 0) if version >= 1 else b""
    body += struct.pack(">i", 0) if version >= 2 else b""
    body += struct.pack(">ii", seq * 10, len(data)) + data + struct.pack(">I", crc32(data))
    body += struct.pack(">q", -1) if version >= 5 else b""
    return frame(2, seq, body, version=version)


@pytest.mark.parametrize("version", range(7))
async def test_every_version_mounts_appends_and_is_fed(server: Server, version: int) -> None:
    client = await server.connect(*range(version + 1))
    ready = struct.pack(">i", 0) if version >= 3 else b"\x01"
    ahead = struct.pack(">i", 2) if version >= 3 else b"\x00"
    client.send(mount(1, 8, version=version))
    await client.expect(fed_stored(9, version), frame(1, 1, ready, version=version))
    client.send(
        frame(3, 1, struct.pack(">q", 9), version=version),
        versioned_append(version, 2, 9, [3357067]),
        versioned_append(version, 3, 8, [3357067]),
        versioned_append(version, 4, 9, []),
    )
    await server.received(2)
    server.log.commit()
    await client.expect(
        frame(4, 2, struct.pack(">qi", 10, 20), version=version),
        frame(10, 3, struct.pack(">q", 10), version=version),
        frame(4, 4, struct.pack(">qi", 11, 40), version=version),
    )
    client.send(frame(8, 4, version=version))
    await client.expect(frame(9, 4, struct.pack(">q", 11), version=version))
    client.send(frame(6, 5, struct.pack(">q", 10), version=version))
    data = struct.pack(">qbi", 10, 1, 5) + b"hello" + struct.pack(">I", crc32(b"hello"))
    await client.expect(frame(7, 5, data, version=version))
    client.send(frame(11, 6, version=version))
    await client.expect(frame(12, 6, struct.pack(">q", 11), version=version))
    client.send(mount(7, 12, version=version))
    await client.expect(frame(1, 7, ahead, version=version))
    missing = {0: 13, 1: 15, 2: 21, 3: 21, 4: 28, 5: 33, 6: 23}[version]
    client.send(frame(missing, 8, struct.pack(">qii", 0, 1, 1) if missing == 28 else b"", version=version))
    await client.expect_closed()


@pytest.mark.parametrize("version", range(4))
async def test_locks_of_each_version(server: Server, version: int) -> None:
    """A lock array that a version does not have shifts what follows it: the frame is refused as a whole."""
    client = await server.connect(*range(version + 1))
    client.send(mount(1, 9, version=version))
    await client.expect(frame(1, 1, struct.pack(">i", 0) if version >= 3 else b"\x01", version=version))
    other = (version + 2) % 3 if version < 3 else 1
    wrong = versioned_append(other, 2, 9, [5])[7:]
    client.send(struct.pack(">Bhi", ord("L"), version, len(wrong)) + wrong)
    await client.expect_closed()
    assert server.log.undecided == []


async def test_bulk_reads_and_failures_of_version_5(server: Server) -> None:
    client = await server.connect(0, 4, 5)
    client.send(mount(1, 9, version=5))
    await client.expect(frame(1, 1, struct.pack(">i", 0), version=5))
    client.send(frame(28, 2, struct.pack(">qii", 8, 10, 1 << 20), version=5))
    records = encode_records(server.log.records[8:])
    head = struct.pack(">qiqi", 8, 0, 9, 2)
    await client.expect(frame(29, 2, head + records + struct.pack(">i", -1), version=5))
    client.send(versioned_append(5, 3, 9, [], data=bytes(MAX_TRANSACTION_SIZE + 1)), versioned_append(5, 4, 9, []))
    text = b"a transaction of 1001 bytes; server.maxTransactionSize is 1000"
    await client.expect(frame(30, 3, struct.pack(">iqi", 4, 9, len(text)) + text, version=5))
    await server.received(1)
    older = versioned_append(5, 5, 9, [])
    older = older[:12] + struct.pack(">i", GENERATION - 1) + older[16:]
    client.send(older)
    text = b"the partition has generation 3"
    answer = frame(30, 5, struct.pack(">iqi", 1, 9, len(text)) + text, version=5)
    await client.expect(answer[:12] + struct.pack(">i", GENERATION - 1) + answer[16:])
    client.send(frame(2, 6, older[24:], version=5, partition=3))
    text = b"the partition is not at this server"
    await client.expect(frame(30, 6, struct.pack(">iqi", 3, -(1 << 63), len(text)) + text, version=5, partition=3))
    server.service.set_partitions({})
    await client.expect(frame(31, 1, version=5))
    client.send(mount(7, 9, version=5))
    await client.expect(frame(1, 7, struct.pack(">i", 1), version=5))


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("size", [MAX_TRANSACTION_SIZE + 1, MAX_FRAME_BYTES + 1, 5_000_000])
async def test_a_large_transaction_is_refused_and_the_connection_stays(server: Server, version: int, size: int) -> None:
    """Beyond the limit of frames nothing of it is kept, or the guard would close the connection."""
    client = await server.connect(*range(version + 1))
    client.send(mount(1, 9, version=version))
    await client.expect(frame(1, 1, struct.pack(">i", 0) if version >= 3 else b"\x01", version=version))
    client.send(versioned_append(version, 2, 9, []), versioned_append(version, 3, 9, [], data=bytes(size)))
    client.send(versioned_append(version, 4, 9, []), frame(8, 4, version=version))
    await server.received(2)
    if version >= 5:
        what = f"of {size} bytes" if size < MAX_FRAME_BYTES else "larger than its frame may be"
        text = f"a transaction {what}; server.maxTransactionSize is 1000".encode()
        await client.expect(frame(30, 3, struct.pack(">iqi", 4, 9, len(text)) + text, version=version))
    server.log.commit()
    await client.expect(frame(9, 4, struct.pack(">q", 11), version=version))


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES, 70_000])
async def test_other_messages_may_not_be_large(server: Server, size: int) -> None:
    client = await server.connect()
    client.send(mount(1, 9))
    await client.expect(mounted(1, 0))
    client.send(frame(17, 2, struct.pack(">i", size // 4) + bytes(size)))
    await client.expect_closed()


@pytest.mark.parametrize("version", range(7))
async def test_an_append_whose_lock_array_is_null_is_dropped(server: Server, version: int) -> None:
    client = await server.connect(*range(version + 1))
    client.send(mount(1, 9, version=version))
    await client.expect(frame(1, 1, struct.pack(">i", 0) if version >= 3 else b"\x01", version=version))
    null = bytearray(versioned_append(version, 2, 9, []))
    null[32:36] = b"\xff\xff\xff\xff"
    client.send(bytes(null), versioned_append(version, 3, 9, []), frame(8, 3, version=version))
    await server.received(1)
    server.log.commit()
    await client.expect(frame(9, 3, struct.pack(">q", 10), version=version))


async def test_what_only_servers_send_is_ignored_for_a_partition_that_is_not_here(server: Server) -> None:
    client = await server.connect()
    client.send(frame(5, 1, partition=3), frame(9, 1, struct.pack(">q", 1), partition=3), mount(1, 9))
    await client.expect(mounted(1, 0))
    client.send(frame(5, 1))
    await client.expect_closed()


async def test_appends_of_another_write_session_are_refused(server: Server) -> None:
    client = await server.connect(5)
    client.send(mount(1, 9, version=5))
    await client.expect(frame(1, 1, struct.pack(">i", 0), version=5))
    get_session = b"\x02"
    client.send(frame(24, 2, get_session, version=5))
    await client.expect(frame(25, 2, struct.pack(">iqqb", 0, 9, 2, 0), version=5))
    client.send(versioned_append(5, 3, 9, [])[:-8] + struct.pack(">q", 1))
    await client.expect(frame(23, 3, struct.pack(">qq", 9, 2), version=5))


async def test_a_client_without_a_common_version_is_closed(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    server.writers.append(writer)
    client = RawClient(reader, writer)
    client.send(client_hello(98, 99))
    await client.expect(SERVER_HELLO)
    await client.expect_closed()


async def test_a_thousand_mounted_connections(server: Server) -> None:
    """Every one of them is fed, from one encoding; what they leave behind is nothing."""
    clients = [await server.connect() for _ in range(1000)]
    tasks_before = len(asyncio.all_tasks())
    for number, client in enumerate(clients):
        client.send(mount(1, 9, client=number), frame(3, 1, struct.pack(">q", 9), client=number))
    for number, client in enumerate(clients):
        await client.expect(frame(1, 1, struct.pack(">i", 0), client=number))
    assert len(asyncio.all_tasks()) == tasks_before, "no task per connection"
    clients[500].send(append(2, 9, client=500), append(3, 9, client=500))
    await server.received(2)
    server.log.commit()
    expected = frame(4, 2, struct.pack(">qi", 10, 20), client=500), frame(4, 3, struct.pack(">qi", 11, 30), client=500)
    for client in clients:
        await client.expect(*expected)
    for client in clients:
        client.writer.close()
    async with asyncio.timeout(60):
        while server.service.links:
            await asyncio.sleep(0.001)
    assert not server.setup.partition._registrations.sessions()


async def test_data_and_mark(server: Server) -> None:
    client = await server.connect()
    client.send(frame(11, 1))
    await client.expect(frame(12, 1, struct.pack(">q", 9)))
    client.send(frame(6, 2, struct.pack(">q", 4)))
    data = b"data 4"
    await client.expect(frame(7, 2, struct.pack(">qbi", 4, 1, len(data)) + data + struct.pack(">I", crc32(data))))
    client.send(frame(6, 3, struct.pack(">q", 10)))
    text = b"com.wepay.waltz.store.exception.TransactionNotFoundException: partition=0transactionId=10"
    await client.expect(frame(7, 3, struct.pack(">qbi", 10, 0, len(text)) + text))


async def test_administrative_requests(server: Server) -> None:
    client = await server.connect()
    client.send(frame(13, 0))
    await client.expect(frame(14, 0, struct.pack(">ii", 1, 3) + b"h:1\x01"))
    client.send(frame(15, 0))
    await client.expect(frame(16, 0, struct.pack(">ii", 1, 0)))
    client.send(frame(17, 0, struct.pack(">ii", 1, 0)))
    await client.expect(frame(18, 0, b"\x01"))
    client.send(frame(19, 0, struct.pack(">i", 0)))
    await client.expect(frame(20, 0, b"\x00"))
    client.send(frame(21, 0))
    await client.expect(frame(22, 0, struct.pack(">iib", 1, 0, 1)))


@pytest.mark.parametrize(
    "offence",
    [
        mount(1, -2),
        mount(1, -(1 << 63)),
        feed(1, -2),
        feed(1, 11),
        append(2, 9, checksum=1),
        append(2, 9, checksum=1, partition=5),
        append(2, 9, checksum=1, client=1234),
        mounted(1, 0),
        frame(4, 1, struct.pack(">qi", 1, 1)),
        frame(23, 1),
        frame(8, 1, b"left over"),
        bytes.fromhex("4c0003000000110800000007000000030000000200000102"),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=range(13),
)
async def test_offences_close_the_connection_and_only_that(server: Server, offence: bytes) -> None:
    other = await server.connect()
    client = await server.connect()
    client.send(mount(1, 9))
    await client.expect(mounted(1, 0))
    client.send(offence)
    await client.expect_closed()
    await other.expect_silence()
    assert server.log.undecided == []


async def test_the_largest_transaction_is_taken_and_what_surrounds_a_larger_one(server: Server) -> None:
    client = await server.connect()
    client.send(mount(1, 9))
    await client.expect(mounted(1, 0))
    client.send(
        append(2, 9, data=bytes(MAX_TRANSACTION_SIZE)), append(3, 9, data=bytes(MAX_TRANSACTION_SIZE + 1)), append(4, 9)
    )
    await server.received(2)
    assert [found.req_id[-1] for found in server.log.undecided] == [2, 4]


async def test_a_client_that_does_not_read_holds_up_nobody(server: Server) -> None:
    """Nor does it take more memory than its buffers; when it reads, it gets all of it."""
    count = 200_000
    server.log.records.extend(record(number, b"") for number in range(10, count))
    server.log.end_session()
    server.log.open_session(changed=True)
    slow, fast = await server.connect(), await server.connect()
    slow.send(mount(1, -1))
    fast.send(mount(1, count - 1, client=8), frame(3, 1, struct.pack(">q", count - 1), client=8))
    await fast.expect(frame(1, 1, struct.pack(">i", 0), client=8))
    (channel,) = [link.channel for link in server.service.links if link.client_id == CLIENT]
    async with asyncio.timeout(60):
        while channel.writable:
            await asyncio.sleep(0.001)
    assert channel.unsent_bytes < 2 << 20
    fast.send(append(2, count - 1, client=8))
    await server.received(1)
    server.log.commit()
    await fast.expect(frame(4, 2, struct.pack(">qi", count, 20), client=8))
    assert not channel.writable
    items = [(found.req_id, found.transaction_id, found.header) for found in server.log.records[:count]]
    await slow.expect(encode_feed_data(4, items), mounted(1, 0))


async def test_a_connection_that_closed_is_forgotten(server: Server) -> None:
    client = await server.connect()
    client.send(mount(1, 9), feed(1, 9))
    await client.expect(mounted(1, 0))
    client.writer.close()
    await client.writer.wait_closed()
    again = await server.connect()
    again.send(mount(2, 9, 1))
    await again.expect(mounted(2, 0))
    again.send(append(3, 9))
    await server.received(1)
    server.log.commit()
    await again.expect_silence()


async def test_a_mount_is_that_of_the_client_whose_id_came_first(server: Server) -> None:
    """The rule of the original, whatever ids the mount and later messages bear."""
    mixed, other = await server.connect(), await server.connect()
    mixed.send(frame(15, 0, client=8), mount(1, 9))
    await mixed.expect(frame(16, 0, struct.pack(">ii", 1, 0), client=8), mounted(1, 0))
    other.send(mount(2, 9, 1))
    await other.expect(mounted(2, 0))
    mixed.send(append(3, 9))
    await server.received(1)
    server.log.commit()
    successor = await server.connect()
    successor.send(mount(4, 10, 1, client=8))
    await successor.expect(frame(1, 4, struct.pack(">i", 0), client=8))
    mixed.send(append(5, 10))
    await mixed.expect_silence()
    other.send(append(6, 10))
    await server.received(1)
    server.log.commit()
    await mixed.expect_silence()
    assert len(server.log.records) == 12, "one that counts no more appends nothing"


async def test_a_client_that_leaves_answers_unread_is_held_until_it_reads() -> None:
    server = Server(10)
    server.service.set_partitions({0: GENERATION})
    server.log.open_session()
    channel, handler = FakeChannel(), server.service.connection()
    handler.channel_ready(channel)  # type: ignore[arg-type]  # what a handler needs of a channel is there
    question = frame(11, 1)[7:]

    def receive() -> None:
        handler.frames_received(channel, question, [(0, len(question))])  # type: ignore[arg-type]  # as above

    states: list[bool] = []
    channel.writable = False
    receive()
    states.append(channel.reading)  # a client that is slow to take its feed may still send
    channel.unsent_bytes = MAX_UNSENT_BYTES + 1
    receive()
    states.append(channel.reading)
    channel.writable = True
    handler.channel_writable(channel)  # type: ignore[arg-type]  # as above
    states.append(channel.reading)
    assert states == [True, False, True]
    assert len(channel.take()) == 2
    await server.service.close()
