"""CPU time of the client library per transaction, against a server that does almost nothing.

    python -m benchmarks.client [--transactions 200000] [--in-flight 2048] [--size 128] [--partitions 16] [--tls]

The server is a process of its own: it keeps the log in memory, commits every append at once, and has no locks. What is
printed is the CPU time of this process divided by the number of transactions: ``submit`` (from ``submit`` to
``on_application``) and ``append`` of the plain face in turn, each with a client of its own. Then one partition is read
with ``feed`` and ``--partitions`` with ``feed_all``, which have the same number of transactions together, in turn as
well, and their best rounds are compared: what is read of many should cost little more. At last ``append_many``, and the
feed one by one and in batches. The settings of the garbage collector are those that the documentation advises;
``--default-collector`` leaves it as Python starts.
"""

import argparse
import asyncio
import multiprocessing
import ssl
import statistics
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection

import uvloop

from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.engine.environment import Environment
from waltz.client.mock.cluster import FixedCluster
from waltz.client.plain.client import Client
from waltz.client.transaction import Transaction
from waltz.common.checksum import checksum
from waltz.common.config.schemas import ClientConfig, TlsConfig, from_mapping
from waltz.common.daemon import calm_garbage_collection
from waltz.common.ids import Endpoint, ReqId
from waltz.common.net.channel import Channel
from waltz.common.net.limits import MAX_PAYLOAD_BYTES
from waltz.common.net.listener import Listener
from waltz.common.net.tls import server_context
from waltz.common.records import RECORD_ID_BYTES, Record, encode_record
from waltz.common.wire.append_request import collect_appends
from waltz.common.wire.client_server import (
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    Message,
    MountRequest,
    MountResponse,
    PartitionState,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    decode,
    encode,
    encode_feed_data,
)
from waltz.common.wire.frames import CLIENT_SERVER, Bounds
from waltz.common.wire.version5 import TransactionDataListRequest, encode_transaction_data_list
from waltz.common.zk.znodes import PartitionGeneration

RECORD_ID = struct.Struct(">q16s")
ROUNDS = 7


class Log:
    """The log of a partition, as encoded records."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.feeds: list[Channel] = []

    def append(self, appends: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Add what was sent as request id, header, and body."""
        items = []
        for transaction_id, (req_id, header, body) in enumerate(appends, len(self.records)):
            self.records.append(RECORD_ID.pack(transaction_id, req_id) + body)
            items.append((req_id, transaction_id, header))
        for channel in self.feeds:
            if not channel.closed:
                channel.send(encode_feed_data(channel.version, items))


class Server:
    """One connection."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self.logs = logs

    def channel_ready(self, channel: Channel) -> None:
        pass

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        for log in self.logs:
            if channel in log.feeds:
                log.feeds.remove(channel)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        frames = iter(bounds)
        runs: dict[bytes, list[tuple[bytes, int, bytes]]] = {}
        while other := collect_appends(
            buffer, frames, channel.version, append_of, runs, max_data_bytes=MAX_PAYLOAD_BYTES, max_locks=10_000
        ):
            self._answer(channel, decode(buffer, *other, channel.version))
        for run in runs.values():
            self.logs[ReqId(run[0][0]).partition_id].append(run)

    def _answer(self, channel: Channel, message: Message) -> None:
        log = self.logs[ReqId(message.req_id).partition_id]
        mark = len(log.records) - 1
        if isinstance(message, TransactionDataListRequest):
            first = message.transaction_id
            fitting = max(1, message.max_bytes // len(log.records[first]))
            records = log.records[first : first + min(message.max_count, fitting)]
            channel.send(
                encode_transaction_data_list(
                    channel.version, message.req_id, first, mark, len(records), b"".join(records)
                )
            )
        elif isinstance(message, MountRequest):
            channel.send(encode(MountResponse(message.req_id, PartitionState.READY), channel.version))
        elif isinstance(message, FeedRequest):
            log.feeds.append(channel)
        elif isinstance(message, HighWaterMarkRequest):
            channel.send(encode(HighWaterMarkResponse(message.req_id, mark), channel.version))
        elif isinstance(message, FlushRequest):
            channel.send(encode(FlushResponse(message.req_id, mark), channel.version))
        elif isinstance(message, ServerPartitionsAssignmentRequest):  # a sign of life is asked for
            channel.send(encode(ServerPartitionsAssignmentResponse(message.req_id, ()), channel.version))
        else:
            assert isinstance(message, FeedSuspended), message


def append_of(
    req_id: bytes,
    _client_high_water_mark: int,
    _write_locks: tuple[int, ...],
    _read_locks: tuple[int, ...],
    _append_locks: tuple[int, ...],
    header: int,
    body: bytes,
) -> tuple[bytes, int, bytes]:
    """What the server keeps of an append."""
    return req_id, header, body


def serve(port: "Connection", prefilled: Sequence[int], size: int, tls: bool) -> None:
    """The child process; ``prefilled`` says how many transactions each partition has."""

    async def run() -> None:
        data = bytes(size)
        body = encode_record(Record(0, ReqId.of(9, 0, 0, 0), 0, data, checksum(data)))[RECORD_ID_BYTES:]
        logs = []
        for partition_id, count in enumerate(prefilled):
            log = Log()
            log.append([(ReqId.of(9, 0, partition_id, n), 0, body) for n in range(count)])
            logs.append(log)
        context: ssl.SSLContext | None = server_context(TlsConfig()) if tls else None
        listener = await Listener.open("127.0.0.1", 0, CLIENT_SERVER, "server", lambda: Server(logs), tls=context)
        port.send(listener.port)
        while not port.poll():
            await asyncio.sleep(0.2)

    uvloop.run(run())


class Callbacks(WaltzClientCallbacks):
    """Applies nothing."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = counts

    def client_high_water_mark(self, partition_id: int) -> int:
        return self.counts[partition_id] - 1

    def apply_transaction(self, transaction: Transaction) -> None:
        return None

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        raise error


class Submitting:
    """Keeps ``in_flight`` transactions under way by submitting the next one when one is applied."""

    def __init__(self, client: WaltzClient, count: int, data: bytes) -> None:
        self.client = client
        self.left = count
        self.undecided = count
        self.data = data
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> None:
        while self.left:
            self.left -= 1
            await self.client.submit(Context(self))
        await self.done


class Context(TransactionContext):
    """One transaction."""

    __slots__ = ("_run",)

    def __init__(self, run: Submitting) -> None:
        self._run = run

    def partition_id(self, partition_count: int) -> int:
        return 0

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_data(self._run.data)
        return True

    def on_application(self) -> None:
        run = self._run
        run.undecided -= 1
        if not run.undecided:
            run.done.set_result(None)


async def cpu_s(work: Callable[[], Awaitable[None]]) -> float:
    """What ``work`` cost."""
    before_s = time.process_time()
    await work()
    return time.process_time() - before_s


async def measure(name: str, count: int, work: Callable[[], Awaitable[None]]) -> None:
    """Print what ``work`` cost."""
    wall = time.perf_counter()
    cpu = await cpu_s(work)
    wall = time.perf_counter() - wall
    print(f"{name:<14} {cpu / count * 1e6:6.2f} us of CPU per transaction, {count / wall:10,.0f} transactions/s")


async def compare(plain: Client, partitions: int, count: int) -> None:
    """Print what reading one partition costs, and many partitions that have as much together."""

    async def one() -> None:
        async for _transaction in plain.feed(0, after=-1, until=count - 1):
            pass

    async def many() -> None:
        last = count // partitions - 1
        ids = range(1, partitions + 1)
        async for _transaction in plain.feed_all(ids, after=-1, until=dict.fromkeys(ids, last)):
            pass

    rounds = [(await cpu_s(one), await cpu_s(many)) for _ in range(ROUNDS)]
    of_one, of_many = (min(costs) / count * 1e6 for costs in zip(*rounds, strict=True))
    print(
        f"feed, 1 partition {of_one:.2f} us of CPU per transaction, feed_all, {partitions} partitions {of_many:.2f}: "
        f"{of_one / of_many:.0%} of the rate (the best of {ROUNDS} rounds)"
    )


async def run(options: argparse.Namespace, port: int, prefilled: Sequence[int]) -> None:
    """All measurements."""
    config = from_mapping(
        {
            "zookeeper.connectString": "nowhere:1",
            "zookeeper.sessionTimeout": 30_000,
            "cluster.root": "/",
            "client.maxConcurrentTransactions": options.in_flight,
            "client.ssl.plaintext": not options.tls,
        },
        ClientConfig,
    )
    count, data = options.transactions, bytes(options.size)
    endpoints = {Endpoint("127.0.0.1", port): [PartitionGeneration(each, 0) for each in range(options.partitions + 1)]}

    environment = Environment(config, FixedCluster("benchmark", options.partitions + 1, endpoints))

    marks = list(prefilled)

    async def submitted() -> float:
        async with await WaltzClient.open_in(environment, Callbacks(marks)) as client:
            await Submitting(client, count // 4, data)()
            cost_s = await cpu_s(Submitting(client, count, data))
        marks[0] += count // 4 + count
        return cost_s

    async def append_one_by_one(plain: Client, count: int) -> None:
        left = count

        async def worker() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await plain.append(0, data)

        await asyncio.gather(*(worker() for _ in range(options.in_flight)))

    async def appended() -> float:
        async with Client(environment) as plain:
            await append_one_by_one(plain, count // 4)
            cost_s = await cpu_s(lambda: append_one_by_one(plain, count))
        marks[0] += count // 4 + count
        return cost_s

    rounds = [(await submitted(), await appended()) for _ in range(ROUNDS)]
    submit_us, append_us = (statistics.median(costs) / count * 1e6 for costs in zip(*rounds, strict=True))
    print(
        f"submit {submit_us:.2f} us of CPU per transaction, append {append_us:.2f}: "
        f"{statistics.median(each / other for other, each in rounds):.2f} times (medians of {ROUNDS} rounds)"
    )

    async with Client(environment) as plain:

        async def append_in_bulk() -> None:
            for _ in range(0, count, 10_000):
                await plain.append_many(0, [data] * 10_000)

        async def read_one_by_one() -> None:
            left = prefilled[0]
            async for _transaction in plain.feed(0, after=-1):
                left -= 1
                if not left:
                    break

        async def read_batches() -> None:
            left = prefilled[0]
            async for batch in plain.feed_batches(0, after=-1):
                left -= len(batch)
                if left <= 0:
                    break

        await compare(plain, options.partitions, prefilled[0])
        await measure("append_many", count, append_in_bulk)
        await measure("feed", prefilled[0], read_one_by_one)
        await measure("feed_batches", prefilled[0], read_batches)


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--in-flight", type=int, default=2048)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--partitions", type=int, default=16, help="that feed_all reads (default: 16)")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--default-collector", action="store_true")
    options = parser.parse_args()
    if not options.default_collector:
        calm_garbage_collection()
    count = 2 * options.transactions
    prefilled = [count] + [count // options.partitions] * options.partitions
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve,
        args=(theirs, prefilled, options.size, options.tls),
        daemon=True,
    )
    process.start()
    try:
        uvloop.run(run(options, ours.recv(), prefilled))
    finally:
        ours.send(None)
        process.join()


if __name__ == "__main__":
    main()
