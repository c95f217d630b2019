"""The lean pipeline: what plain Python can do on this machine for the life of an append.

One client (``lean_client``), one server, three storages as processes on loopback: frames, optimistic locks checked,
checksums verified, records assembled once, three synced writes, quorum of two, feed back to the client. Batches of
several partitions that come together share one sync of a journal, and whatever one turn sends on a connection is one
write. No callbacks, no recovery, no checkpoints, no ZooKeeper, no bounds: a yardstick for shares in one run, not
something to build on.

    python -m benchmarks.cluster.lean storage PORT FILE_PREFIX [--tls]
    python -m benchmarks.cluster.lean server PORT STORAGE_PORT ... [--tls]

Either answers each line on standard input with what it has done so far, as JSON.
"""

import argparse
import asyncio
import collections
import json
import os
import ssl
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

import uvloop

from waltz.common.config.schemas import TlsConfig
from waltz.common.daemon import calm_garbage_collection
from waltz.common.net.tls import client_context, server_context

HOST = "127.0.0.1"
FRAME = struct.Struct(">bhi")  # magic, version, payload size
APPEND = struct.Struct(">bqqqi")  # type, request id (two longs), client high-water mark, write lock count
REQUEST_ID = struct.Struct(">bqq")
FEED = struct.Struct(">bhibqqqi")  # frame header, type, request id, transaction id, header
RECORD = struct.Struct(">qqqiii")  # transaction id, request id, header, data size, data checksum
BATCH = struct.Struct(">iqi")  # partition, sequence number, records
ACKNOWLEDGEMENT = struct.Struct(">bhiiq")  # frame header, partition, sequence number
PLACE = struct.Struct(">iq")
REST = struct.Struct(">iii")  # append locks, header, data size
INT = struct.Struct(">i")
UNSIGNED = struct.Struct(">I")
CLIENT = 1 << 32
QUORUM, TABLE, SLOTS, BATCHES_IN_FLIGHT = 2, 30_000, 3, 2
SEGMENT_HEADER_BYTES = 128
GATHERED_TURNS = 32
"""What is in the journal is written into the file of its partition once in so many turns of that partition."""
CONNECT_INTERVAL_S = 0.05

Bounds = list[tuple[int, int]]


class Frames(asyncio.Protocol):
    """Splits what arrives into frames and hands all complete ones over at once."""

    transport: asyncio.Transport
    _rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        bounds: Bounds = []
        while size - at >= FRAME.size:
            end = at + FRAME.size + FRAME.unpack_from(data, at)[2]
            if end > size:
                break
            bounds.append((at + FRAME.size, end))
            at = end
        self._rest = data[at:]
        self.frames(data, bounds)

    def frames(self, data: bytes, bounds: Bounds) -> None:
        """Payloads, as places in ``data``."""
        raise NotImplementedError


# A storage


Pieces = list[bytes | memoryview]


class Log:
    """The file of a partition."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        self.next_id = 0
        self._offset = SEGMENT_HEADER_BYTES
        self._index: list[int] = []
        self._gathered: Pieces = []
        self._gathered_turns = 0

    def take(self, bodies: Sequence[tuple[int, bytes]]) -> Pieces:
        """Check records and gather them with their checksums; what was gathered by this call."""
        out: Pieces = []
        next_id, offset, index, crc32 = self.next_id, self._offset, self._index, zlib.crc32
        for count, body in bodies:
            view, at = memoryview(body), 0
            for _ in range(count):
                transaction_id, _, _, _, size, checksum = RECORD.unpack_from(body, at)
                assert transaction_id == next_id
                next_id += 1
                index.append(offset)
                record = view[at : at + 36 + size]
                assert crc32(record[36:]) == checksum & 0xFFFFFFFF
                out += record, UNSIGNED.pack(crc32(record))
                offset += 40 + size
                at += 36 + size
        self.next_id, self._offset = next_id, offset
        self._gathered += out
        self._gathered_turns += 1
        return out

    @property
    def is_due(self) -> bool:
        """Whether enough is gathered for a write."""
        return self._gathered_turns >= GATHERED_TURNS

    def write(self) -> None:
        """Write what is gathered; it is not durable yet."""
        os.write(self.descriptor, b"".join(self._gathered))
        self._gathered = []
        self._gathered_turns = 0


class Received(NamedTuple):
    """A batch that waits to be written."""

    connection: Frames
    partition: int
    sequence: int
    records: int
    body: bytes


async def store(port: int, file_prefix: str, tls: ssl.SSLContext | None) -> None:
    """A storage: what has come together is written and synced at a time, into the journal if it is of several
    partitions."""
    waiting: collections.deque[Received] = collections.deque()
    wake = asyncio.Event()
    logs: dict[int, Log] = {}
    journal = os.open(f"{file_prefix}-journal", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    loop = asyncio.get_running_loop()

    class Storage(Frames):
        def frames(self, data: bytes, bounds: Bounds) -> None:
            for at, end in bounds:
                partition, sequence, count = BATCH.unpack_from(data, at)
                waiting.append(Received(self, partition, sequence, count, data[at + BATCH.size : end]))
            wake.set()

    await loop.create_server(Storage, HOST, port, ssl=tls)
    answer_lines(lambda: sum(log.next_id for log in logs.values()))
    while True:
        await wake.wait()
        wake.clear()
        batches = list(waiting)
        waiting.clear()
        bodies: dict[int, list[tuple[int, bytes]]] = {}
        for batch in batches:
            bodies.setdefault(batch.partition, []).append((batch.records, batch.body))
        pieces: Pieces = []
        descriptor = journal
        for partition, those in bodies.items():
            if partition not in logs:
                logs[partition] = Log(f"{file_prefix}-{partition}")
            log = logs[partition]
            pieces += log.take(those)
            if len(bodies) == 1:
                descriptor = log.descriptor
            if len(bodies) == 1 or log.is_due:
                log.write()
        if descriptor == journal:
            os.write(journal, b"".join(pieces))
        await loop.run_in_executor(None, os.fdatasync, descriptor)
        frames: dict[Frames, list[bytes]] = {}
        for batch in batches:
            acknowledgement = ACKNOWLEDGEMENT.pack(1, 0, PLACE.size, batch.partition, batch.sequence)
            frames.setdefault(batch.connection, []).append(acknowledgement)
        for connection, acknowledgements in frames.items():
            connection.transport.write(b"".join(acknowledgements))


# The server


Request = tuple[int, int, int, bytes, int, list[int]]
"""An append that waits to be sent: request id (two longs), header, data, checksum, places of its locks. Everything that
there is one of for each transaction is as plain as possible in here."""


class Batch:
    """Records that were sent to the storages together."""

    def __init__(self, first: int, feed: bytes, requests: list[Request]) -> None:
        self.first = first
        self.feed = feed
        self.requests = requests
        self.acknowledgements = 0


class Partition:
    """Locks and batches of a partition."""

    def __init__(self, partition_id: int) -> None:
        self.partition_id = partition_id
        self.marks = [-1] * TABLE
        self.queue: list[Request] = []
        self.in_flight: dict[int, Batch] = {}
        self.next_id = 0
        self.sequence = 0

    def next_batch(self) -> bytes | None:
        """A frame for the storages, if it is time for one."""
        queue = self.queue
        if not queue or len(self.in_flight) >= BATCHES_IN_FLIGHT:
            return None
        first = transaction_id = self.next_id
        records: list[bytes] = []
        feed: list[bytes] = []
        for high, low, header, data, checksum, _ in queue:
            records += RECORD.pack(transaction_id, high, low, header, len(data), checksum), data
            feed.append(FEED.pack(1, 4, 29, 5, high, low, transaction_id, header))
            transaction_id += 1
        self.next_id = transaction_id
        self.sequence += 1
        self.in_flight[self.sequence] = Batch(first, b"".join(feed), queue)
        self.queue = []
        body = b"".join(records)
        frame = FRAME.pack(1, 0, BATCH.size + len(body))
        return frame + BATCH.pack(self.partition_id, self.sequence, len(queue)) + body

    def acknowledged(self, sequence: int) -> Batch | None:
        """The batch, when it is committed by this."""
        batch = self.in_flight.get(sequence)
        if batch is None:
            return None
        batch.acknowledgements += 1
        if batch.acknowledgements < QUORUM:
            return None
        del self.in_flight[sequence]
        marks = self.marks
        for transaction_id, request in enumerate(batch.requests, batch.first):
            for slot in request[5]:
                marks[slot] = transaction_id
        return batch


async def serve(port: int, storage_ports: Sequence[int], listen: ssl.SSLContext | None, connect: bool) -> None:
    """The server. ``connect``: whether storages are reached with TLS."""
    partitions: dict[int, Partition] = {}
    clients: list[Frames] = []
    replicas: list[Frames] = []
    loop = asyncio.get_running_loop()

    def send(ready: Iterable[Partition]) -> None:
        frames = [frame for partition in ready if (frame := partition.next_batch()) is not None]
        if frames:
            data = b"".join(frames)
            for replica in replicas:
                replica.transport.write(data)

    class Replica(Frames):
        def frames(self, data: bytes, bounds: Bounds) -> None:
            feed: list[bytes] = []
            ready: list[Partition] = []
            for at, _ in bounds:
                partition_id, sequence = PLACE.unpack_from(data, at)
                partition = partitions[partition_id]
                batch = partition.acknowledged(sequence)
                if batch is not None:
                    feed.append(batch.feed)
                    ready.append(partition)
            if feed:
                committed = b"".join(feed)
                for client in clients:
                    client.transport.write(committed)
                send(ready)

    class Client(Frames):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            clients.append(self)

        def connection_lost(self, exc: Exception | None) -> None:
            clients.remove(self)

        def frames(self, data: bytes, bounds: Bounds) -> None:
            touched: dict[Partition, None] = {}
            for at, _ in bounds:
                _, high, low, _, write_count = APPEND.unpack_from(data, at)
                partition = partitions.get(low >> 32)
                if partition is None:
                    partition = partitions[low >> 32] = Partition(low >> 32)
                touched[partition] = None
                at += 29
                slots = checked_slots(partition.marks, struct.unpack_from(f">{write_count}i", data, at))
                at += 4 * write_count
                read_count = INT.unpack_from(data, at)[0]
                at += 4
                if read_count:
                    checked_slots(partition.marks, struct.unpack_from(f">{read_count}i", data, at))
                    at += 4 * read_count
                _, header, size = REST.unpack_from(data, at)
                at += 12
                payload = data[at : at + size]
                checksum = INT.unpack_from(data, at + size)[0]
                assert zlib.crc32(payload) == checksum & 0xFFFFFFFF
                partition.queue.append((high, low, header, payload, checksum, slots))
            send(touched)

    replicas += [await connected(Replica, storage_port, tls=connect) for storage_port in storage_ports]
    await loop.create_server(Client, HOST, port, ssl=listen)
    answer_lines(lambda: sum(partition.sequence for partition in partitions.values()))
    await asyncio.Event().wait()


def checked_slots(marks: list[int], locks: Sequence[int]) -> list[int]:
    """The places of locks in the table, several for each; the check finds no conflict."""
    slots: list[int] = []
    for value in locks:
        for _ in range(SLOTS):
            value = (value * 1103515245 + 12345) & 0xFFFFFFFF
            slots.append((value & 0x3FFFFFFF) % TABLE)
        min([marks[slot] for slot in slots[-SLOTS:]])
    return slots


async def connected(protocol: Callable[[], Frames], port: int, *, tls: bool) -> Frames:
    """A connection to a process that may have to start first."""
    context = client_context(TlsConfig()) if tls else None
    while True:
        try:
            return (await asyncio.get_running_loop().create_connection(protocol, HOST, port, ssl=context))[1]
        except OSError:
            await asyncio.sleep(CONNECT_INTERVAL_S)


def answer_lines(answer: Callable[[], int]) -> None:
    """Answer each line on standard input with a line; end with it."""

    def readable() -> None:
        lines = os.read(0, 4096)
        if not lines:
            raise SystemExit
        for _ in range(lines.count(b"\n")):
            print(json.dumps(answer()), flush=True)

    asyncio.get_running_loop().add_reader(0, readable)


def main() -> None:
    """A storage or the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=["storage", "server"])
    parser.add_argument("port", type=int)
    parser.add_argument("rest", nargs="+")
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    tls = server_context(TlsConfig()) if options.tls else None
    calm_garbage_collection()
    if options.role == "storage":
        uvloop.run(store(options.port, options.rest[0], tls))
    else:
        uvloop.run(serve(options.port, list(map(int, options.rest)), tls, options.tls))


if __name__ == "__main__":
    main()
