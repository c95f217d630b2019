"""Durable appends to one storage node, over loopback, without TLS.

    python -m benchmarks.storage [--seconds 3] [--directory DIR] [--connections 1,16,256] [--sizes 128,1024,16384]
                                 [--partitions 1,64] [--journal] [--syncs]

Every combination prints records/s, MB/s, latency of a batch from sending to acknowledgement (p50, p99), syncs/s of the
node, bytes per sync, CPU time of the node per record, and the rate of the bare disk: one thread that writes pieces of
about the same size and syncs each, measured right before and after. ``--syncs`` compares ways to make a write durable
instead: fdatasync, RWF_DSYNC, files filled with zeros beforehand, many files with many threads or with one syncfs.
"""

import argparse
import asyncio
import ctypes
import itertools
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import uvloop

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common.checksum import checksum
from waltz.common.config.schemas import StorageConfig, TlsConfig
from waltz.common.daemon import calm_garbage_collection
from waltz.common.ids import Endpoint, ReqId
from waltz.common.metrics.registry import Registry
from waltz.common.records import Record, encode_record
from waltz.common.zk.znodes import StoreParams
from waltz.storage.disk.files.files import OsFile, OsFiles
from waltz.storage.node.node import SWITCH_INTERVAL_S, StorageNode
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

KEY = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
ROOT = "/bench"
BATCH = 100
IN_FLIGHT_BATCHES = 8
"""So many batches of one partition are under way, as a server keeps several storage requests in flight; of several
partitions fewer each, but two at least."""
TURN_BATCHES = 128
"""Records of a partition have to arrive in order, so of several connections one at a time appends, so many batches.
When the turn passes to the next one nothing is in flight."""
TIMEOUT_S = 60.0


# The node, in a process of its own


class CountingFile(OsFile):
    """Counts the syncs of the process."""

    syncs = 0

    def datasync(self) -> None:
        CountingFile.syncs += 1
        super().datasync()


class CountingFiles(OsFiles):
    """The operating system's files with counted syncs."""

    def open(self, path: str, *, create: bool) -> OsFile:
        file = super().open(path, create=create)
        file.__class__ = CountingFile
        return file


async def serve(directory: str, partitions: int, journal: bool) -> None:
    """Run a node; say where it listens; answer each line on standard input with CPU seconds and syncs so far."""
    server = MemoryZooKeeperServer()
    zookeeper = await server.connect()
    await zookeeper.create(f"{ROOT}/store", StoreParams(KEY, partitions).encode(), make_path=True)
    config = StorageConfig.model_validate(
        {
            "zookeeper_connect_string": "memory",
            "zookeeper_session_timeout_ms": 10_000,
            "cluster_root": ROOT,
            "storage_port": 0,
            "storage_admin_port": 0,
            "storage_directory": directory,
            "storage_bind_address": "127.0.0.1",
            "journal_enabled": journal,
            "tls": TlsConfig(plaintext=True),
        }
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    files = CountingFiles()
    node = await StorageNode.start(config, files=files, zookeeper=zookeeper, metrics=Registry())
    calm_garbage_collection()
    print(json.dumps([node.port, node.admin_port]), flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps([usage.ru_utime + usage.ru_stime, CountingFile.syncs]), flush=True)
    await node.close()
    await zookeeper.close()
    files.close()


class NodeProcess:
    """The node as the load generator sees it."""

    def __init__(self, directory: str, partitions: int, *, journal: bool) -> None:
        command = [sys.executable, "-m", "benchmarks.storage", "--serve", directory, "--partitions", str(partitions)]
        command += ["--journal"] if journal else []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port, self.admin_port = self._line()

    def _line(self) -> list[int]:
        assert self._process.stdout is not None
        line: list[int] = json.loads(self._process.stdout.readline())
        return line

    def usage(self) -> tuple[float, int]:
        """CPU seconds and syncs so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        cpu_s, syncs = self._line()
        return cpu_s, syncs

    def stop(self) -> None:
        """End the node."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)


# The load


class Writer:
    """Appends to one partition, its connections taking turns, always so many batches under way."""

    def __init__(self, partition_id: int, clients: list[StorageClient], payload: bytes, in_flight: int) -> None:
        self.partition_id = partition_id
        self._in_flight = in_flight
        self.clients = clients
        self.latencies_s: list[float] = []
        self.records = 0
        self.stopped = False
        record = encode_record(Record(0, bytes(ReqId.of(1, 2, partition_id, 4)), 7, payload, checksum(payload)))
        self._rest = record[8:]
        self._next_id = 0
        self._turn = 0
        self._left = 0
        self._sent: deque[float] = deque()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Begin the turn of a connection."""
        self._left = TURN_BATCHES
        for _ in range(self._in_flight):
            self._send()

    def _send(self) -> None:
        first, rest = self._next_id, self._rest
        body = b"".join([struct.pack(">q", transaction_id) + rest for transaction_id in range(first, first + BATCH)])
        self._next_id = first + BATCH
        self._sent.append(time.perf_counter())
        self._left -= 1
        self.clients[self._turn].append_encoded(1, self.partition_id, body, BATCH, self._acknowledged)

    def _acknowledged(self, error: Exception | None) -> None:
        if error is not None:
            if not self.done.done():
                self.done.set_exception(error)
            return
        self.latencies_s.append(time.perf_counter() - self._sent.popleft())
        self.records += BATCH
        if self.stopped:
            if not self._sent:
                self.done.set_result(None)
        elif self._left > 0 or len(self.clients) == 1:
            self._send()
        elif not self._sent:
            self._turn = (self._turn + 1) % len(self.clients)
            self.start()


class Result(NamedTuple):
    """One measurement."""

    records_per_s: float
    megabytes_per_s: float
    p50_ms: float
    p99_ms: float
    syncs_per_s: float
    bytes_per_sync: float
    cpu_us_per_record: float
    generator_cpu_us_per_record: float

    def __str__(self) -> str:
        return (
            f"{self.records_per_s:>9,.0f} records/s {self.megabytes_per_s:>6.1f} MB/s  p50 {self.p50_ms:6.2f} ms"
            f"  p99 {self.p99_ms:7.2f} ms  {self.syncs_per_s:>6,.0f} syncs/s of {self.bytes_per_sync / 1024:>6,.0f} KiB"
            f"  node CPU {self.cpu_us_per_record:5.2f} us/record  generator {self.generator_cpu_us_per_record:5.2f}"
        )


async def measure(node: NodeProcess, partitions: int, connections: int, size: int, seconds: float) -> Result:
    """Load the node for some seconds."""
    admin = await StorageAdminClient.connect(
        Endpoint("127.0.0.1", node.admin_port),
        cluster_key=KEY,
        partition_count=partitions,
        tls=None,
        timeout_s=TIMEOUT_S,
    )
    await admin.set_assigned(range(partitions), True)
    clients = [
        await StorageClient.connect(
            Endpoint("127.0.0.1", node.port), cluster_key=KEY, partition_count=partitions, tls=None, timeout_s=TIMEOUT_S
        )
        for _ in range(connections)
    ]
    payload = os.urandom(size)
    writers = []
    for partition_id in range(partitions):
        await clients[0].set_low_water_mark(1, partition_id, -1, timeout_s=TIMEOUT_S)
        mine = clients[partition_id::partitions] or [clients[partition_id % connections]]
        writers.append(Writer(partition_id, mine, payload, max(2, IN_FLIGHT_BATCHES // partitions)))
    for writer in writers:
        writer.start()
    await asyncio.sleep(min(0.5, seconds / 4))  # warm
    for writer in writers:
        writer.latencies_s.clear()
    before, (cpu_s, syncs), began_s = sum(w.records for w in writers), node.usage(), time.perf_counter()
    own_cpu_s = time.process_time()
    await asyncio.sleep(seconds)
    own_cpu_s = time.process_time() - own_cpu_s
    records, elapsed_s = sum(w.records for w in writers) - before, time.perf_counter() - began_s
    cpu_after_s, syncs_after = node.usage()
    for writer in writers:
        writer.stopped = True
    await asyncio.gather(*(writer.done for writer in writers))
    for client in clients:
        await client.close()
    await admin.close()
    latencies_s = sorted(latency_s for writer in writers for latency_s in writer.latencies_s)
    size_bytes = records * (size + 40)
    return Result(
        records / elapsed_s,
        size_bytes / elapsed_s / 1e6,
        latencies_s[len(latencies_s) // 2] * 1e3,
        latencies_s[int(len(latencies_s) * 0.99)] * 1e3,
        (syncs_after - syncs) / elapsed_s,
        size_bytes / max(1, syncs_after - syncs),
        (cpu_after_s - cpu_s) / max(1, records) * 1e6,
        own_cpu_s / max(1, records) * 1e6,
    )


# The bare disk


def timed(step: Callable[[], None], seconds: float) -> tuple[int, float]:
    """How often a step was done, and in how many seconds."""
    began_s = time.perf_counter()
    count = 0
    while (elapsed_s := time.perf_counter() - began_s) < seconds:
        step()
        count += 1
    return count, elapsed_s


def raw_rate(directory: str, size_bytes: int, seconds: float) -> float:
    """Bytes per second of one thread that appends pieces to a file and syncs each of them."""
    piece = os.urandom(size_bytes)
    path = Path(directory) / "raw"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    offsets = itertools.count(0, size_bytes)

    def step() -> None:
        os.pwrite(descriptor, piece, next(offsets))
        os.fdatasync(descriptor)

    try:
        count, elapsed_s = timed(step, seconds)
    finally:
        os.close(descriptor)
        path.unlink()
    return count * size_bytes / elapsed_s


# Ways to sync


def compare_syncs(directory: str, seconds: float) -> None:
    """Print how fast single writes become durable, in several ways, each measured three times in turn."""
    ways = ("fdatasync", "RWF_DSYNC", "fdatasync, zero-filled", "RWF_DSYNC, zero-filled")
    for size in (4_200, 16_800, 131_072, 1 << 20, 4 << 20):
        rates: dict[str, list[str]] = {way: [] for way in ways}
        for way in ways * 3:
            rates[way].append(_sync_rate(Path(directory), way, size, seconds / 3))
        for way in ways:
            print(f"{size:>9,} B  {way:24} {'  '.join(rates[way])}", flush=True)
    for files, threads in ((1, 1), (64, 1), (64, 16), (64, 64)):
        rate = _side_by_side(Path(directory), files, threads, seconds)
        print(f"{files:>3} files of 16,800 B writes, {threads:>2} threads with fdatasync: {rate:>7,.0f} writes/s")
    for files in (1, 64):
        rate = _syncfs(Path(directory), files, seconds)
        print(f"{files:>3} files of 16,800 B writes, one syncfs: {rate:>7,.0f} writes/s")


def _sync_rate(directory: Path, way: str, size: int, seconds: float) -> str:
    path = directory / "sync"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    limit = 256 << 20
    if "zero-filled" in way:
        for offset in range(0, limit, 1 << 20):
            os.pwrite(descriptor, bytes(1 << 20), offset)
        os.fsync(descriptor)
    piece = os.urandom(size)
    position = 0
    latencies_s = []

    def step() -> None:
        nonlocal position
        if position + size > limit:
            position = 0
            if "zero-filled" not in way:
                os.ftruncate(descriptor, 0)
        began_s = time.perf_counter()
        if way.startswith("RWF_DSYNC"):
            os.pwritev(descriptor, [piece], position, os.RWF_DSYNC)
        else:
            os.pwrite(descriptor, piece, position)
            os.fdatasync(descriptor)
        latencies_s.append(time.perf_counter() - began_s)
        position += size

    try:
        count, elapsed_s = timed(step, seconds)
    finally:
        os.close(descriptor)
        path.unlink()
    latencies_s.sort()
    return f"{count / elapsed_s:>6,.0f}/s (p50 {latencies_s[len(latencies_s) // 2] * 1e3:5.2f} ms)"


class OpenFiles:
    """Some files, each with the position of the next write."""

    def __init__(self, directory: Path, count: int) -> None:
        self._paths = [directory / f"sync-{number}" for number in range(count)]
        self.descriptors = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for path in self._paths]
        self.piece = os.urandom(16_800)

    def close(self) -> None:
        """Close and remove them."""
        for descriptor, path in zip(self.descriptors, self._paths, strict=True):
            os.close(descriptor)
            path.unlink()


def _side_by_side(directory: Path, count: int, threads: int, seconds: float) -> float:
    opened = OpenFiles(directory, count)
    counts = [0] * threads

    def work(number: int) -> None:
        mine = opened.descriptors[number::threads]
        position = 0

        def step() -> None:
            nonlocal position
            for descriptor in mine:
                os.pwrite(descriptor, opened.piece, position)
                os.fdatasync(descriptor)
            position += len(opened.piece)

        counts[number] = timed(step, seconds)[0] * len(mine)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    opened.close()
    return sum(counts) / seconds


def _syncfs(directory: Path, count: int, seconds: float) -> float:
    system = ctypes.CDLL(None, use_errno=True)
    opened = OpenFiles(directory, count)
    position = 0

    def step() -> None:
        nonlocal position
        for descriptor in opened.descriptors:
            os.pwrite(descriptor, opened.piece, position)
        position += len(opened.piece)
        assert system.syncfs(opened.descriptors[0]) == 0

    done, elapsed_s = timed(step, seconds)
    opened.close()
    return done * count / elapsed_s


def numbers(text: str) -> list[int]:
    """``1,16`` as integers."""
    return [int(part) for part in text.split(",")]


def combinations(options: argparse.Namespace) -> Iterator[tuple[int, int, int]]:
    """Partitions, size, connections."""
    yield from itertools.product(options.partitions, options.sizes, options.connections)


def main() -> None:
    """Measure all combinations, or the ways to sync."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--directory", type=Path, help="where the node writes (default: a temporary directory)")
    parser.add_argument("--connections", type=numbers, default=[1, 16, 256])
    parser.add_argument("--sizes", type=numbers, default=[128, 1024, 16384])
    parser.add_argument("--partitions", type=numbers, default=[1, 64])
    parser.add_argument("--journal", action="store_true", help="the node keeps a journal")
    parser.add_argument("--syncs", action="store_true", help="compare ways to sync instead")
    parser.add_argument("--serve", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        uvloop.run(serve(options.serve, options.partitions[0], options.journal))
        return
    if options.syncs:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            compare_syncs(directory, options.seconds)
        return
    print(f"batches of {BATCH} records, {IN_FLIGHT_BATCHES} batches in flight for each partition")
    for partitions, size, connections in combinations(options):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            node = NodeProcess(directory, partitions, journal=options.journal)
            try:
                # The disk's rate wanders: it is measured on both sides of the node's.
                guess = min(8 << 20, BATCH * (size + 40) * 4)
                raw = raw_rate(directory, guess, options.seconds / 2)
                result = uvloop.run(measure(node, partitions, connections, size, options.seconds))
                raw = (raw + raw_rate(directory, int(result.bytes_per_sync), options.seconds / 2)) / 2
            finally:
                node.stop()
        share = result.megabytes_per_s * 1e6 / raw
        print(
            f"{partitions:>3} partitions {connections:>4} connections {size:>6} B: {result}"
            f"  bare disk {raw / 1e6:6.1f} MB/s ({share:.0%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
