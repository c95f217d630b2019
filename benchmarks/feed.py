"""What the feed costs the server: clients at the tip, and clients that read the log from its beginning meanwhile.

    python -m benchmarks.feed [--clients 0 10 100] [--behind 4] [--transactions 40000] [--size 128]

For each number of clients at the tip, one client appends, with the others fed; printed are the appends per second and
the CPU time of the server per transaction. In the end clients that have seen nothing join, while appends go on:
printed are the transactions per second that they are fed, and those that are appended meanwhile. Plaintext.
"""

import argparse
import asyncio
import struct
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.append import WARM_UP, Callbacks, Run, cpu_seconds
from waltz.client.callbacks import WaltzClient
from waltz.common.config import ClientConfig, load
from waltz.common.ids import Endpoint, ReqId
from waltz.common.net.channel import Channel, connect
from waltz.common.wire.client_server import FeedRequest, MountRequest, encode
from waltz.common.wire.frames import CLIENT_SERVER, Bounds
from waltz.common.zk.store_admin import read_partition_assignment
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT

_FEED_DATA = 4
_ID = struct.Struct(">q")
_ID_OFFSET = 17  # behind the type byte and the request id


class Reader:
    """A client that counts its feed; it looks at no more than the last frame of a read."""

    def __init__(self, number: int, generation: int, mark: int) -> None:
        self.mark = mark
        self.fed = 0
        self._session = ReqId.of(10_000 + number, generation, 0, 1)
        self._changed = asyncio.Event()

    async def open(self, endpoint: Endpoint) -> Channel:
        channel = await connect(endpoint, CLIENT_SERVER, "benchmark", self, tls=None, timeout_s=10)
        channel.send(encode(MountRequest(self._session, self.mark, 0), channel.version))
        return channel

    async def reach(self, mark: int) -> None:
        while self.mark < mark:
            self._changed.clear()
            await self._changed.wait()

    def channel_ready(self, channel: Channel) -> None:
        pass

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        others = 0
        for start, _ in reversed(bounds):
            if buffer[start] == _FEED_DATA:
                (self.mark,) = _ID.unpack_from(buffer, start + _ID_OFFSET)
                break
            others += 1
        self.fed += len(bounds) - others
        if others:  # mounted, or the promise of the last request is kept
            channel.send(encode(FeedRequest(self._session, self.mark), channel.version))
        self._changed.set()

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        pass


class Bench:
    """One cluster, one client that appends, any number that read."""

    def __init__(
        self, cluster: LocalCluster, client: WaltzClient, generation: int, options: argparse.Namespace
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.options = options
        self.appended = 0
        self._endpoint = Endpoint.parse(cluster.layout.servers[0].connect_string)
        self._generation = generation
        self._readers = 0
        self._channels: list[Channel] = []

    async def reader(self, mark: int) -> Reader:
        self._readers += 1
        reader = Reader(self._readers, self._generation, mark)
        self._channels.append(await reader.open(self._endpoint))
        return reader

    async def append(self, count: int) -> float:
        """Seconds that it took."""
        seconds = await Run(self.client, count, self.options, first_lock=self.appended)()
        self.appended += count
        return seconds

    async def at_the_tip(self, readers: list[Reader]) -> str:
        server = self.cluster.processes()["server-1"]
        cpu_before, fed_before = cpu_seconds(server), sum(reader.fed for reader in readers)
        count = self.options.transactions
        seconds = await self.append(count)
        for reader in readers:
            await reader.reach(self.appended - 1)
        cpu = (cpu_seconds(server) - cpu_before) / count * 1e6
        fed = sum(reader.fed for reader in readers) - fed_before
        return (
            f"{len(readers)} clients at the tip: {count / seconds:,.0f} appends/s, "
            f"{fed / seconds:,.0f} transactions fed/s, server CPU per append {cpu:.1f} µs"
        )

    async def behind(self) -> str:
        end = self.appended - 1
        appending = asyncio.create_task(self.append(self.options.transactions))
        started = time.perf_counter()
        readers = [await self.reader(-1) for _ in range(self.options.behind)]
        for reader in readers:
            await reader.reach(end)
        seconds = time.perf_counter() - started
        append_seconds = await appending
        return (
            f"{len(readers)} clients {end + 1:,} behind: {len(readers) * (end + 1) / seconds:,.0f} transactions fed/s; "
            f"meanwhile {self.options.transactions / append_seconds:,.0f} appends/s"
        )

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


async def measure(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """Run everything against the cluster."""
    config = load(cluster.layout.client_config_path, ClientConfig).model_copy(
        update={"max_concurrent_transactions": options.in_flight}
    )
    zookeeper = await cluster.zookeeper()
    ((owned,),) = (await read_partition_assignment(zookeeper, ROOT)).servers.values()
    await zookeeper.close()
    client = await WaltzClient.open(Callbacks(), config)
    bench = Bench(cluster, client, owned.generation, options)
    try:
        await bench.append(WARM_UP)
        readers: list[Reader] = []
        for count in options.clients:
            readers += [await bench.reader(bench.appended - 1) for _ in range(count - len(readers))]
            print(await bench.at_the_tip(readers), flush=True)
        print(await bench.behind(), flush=True)
    finally:
        bench.close()
        await client.close()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clients", type=int, nargs="+", default=[0, 10, 100], help="clients at the tip, ascending")
    parser.add_argument("--behind", type=int, default=4, help="clients that begin with the first transaction")
    parser.add_argument("--size", type=int, default=128, help="bytes of data per transaction")
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--transactions", type=int, default=40_000)
    parser.add_argument("--locks", type=int, default=1, help="write locks per transaction")
    parser.add_argument("--directory", type=Path, help="where the storages write (default: a temporary directory)")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        LocalCluster(Path(directory), servers=1, plaintext=True) as cluster,
    ):
        uvloop.run(measure(cluster, options))


if __name__ == "__main__":
    main()
