"""Clients in a process of their own: at the tip of a partition, behind, or idle in another one.

    python -m benchmarks.cluster.audience OPTIONS-AS-JSON

Says ``ready`` when all are there, and answers each line on standard input with what was seen since the last one, as
JSON.
"""

import asyncio
import contextlib
import json
import struct
import sys
import time
from array import array
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.cluster.load import STAMP
from benchmarks.cluster.summary import Metrics, latency_metrics
from waltz import Client, ClientConfig, Endpoint, ReqId, connect
from waltz.common.config.schemas import load
from waltz.common.net import channel
from waltz.common.net.limits import fit_to_open_files
from waltz.common.net.tls import client_context
from waltz.common.wire.client_server import FeedRequest, MountRequest, encode
from waltz.common.wire.frames import CLIENT_SERVER, Bounds

TIMEOUT_S = 30.0
FIRST_CLIENT_ID = 10_000
"""Far from the ids that the cluster gives to clients that ask."""

_FEED_DATA = 4
_ID = struct.Struct(">q")
_ID_OFFSET = 17  # behind the type byte and the request id


class Options(NamedTuple):
    """What the audience consists of."""

    config: str
    """Configuration file of a client."""
    endpoint: str
    """The server of both partitions."""
    partition: int
    generation: int
    mark: int
    """The last transaction of the partition."""
    readers: int
    behind: int
    idle: int
    idle_partition: int
    idle_generation: int


class Reader:
    """A client that counts its feed; it looks at no more than the last frame of a read."""

    def __init__(self, client_id: int, partition: int, generation: int, mark: int) -> None:
        self.mark = mark
        self.fed = 0
        self._session = ReqId.of(client_id, generation, partition, 1)
        self._changed = asyncio.Event()

    async def open(self, endpoint: Endpoint, config: ClientConfig) -> channel.Channel:
        """Join the partition."""
        opened = await channel.connect(
            endpoint, CLIENT_SERVER, "benchmark", self, tls=client_context(config.tls), timeout_s=TIMEOUT_S
        )
        opened.send(encode(MountRequest(self._session, self.mark, 0), opened.version))
        return opened

    async def reach(self, mark: int) -> None:
        """Return when this transaction was fed."""
        while self.mark < mark:
            self._changed.clear()
            await self._changed.wait()

    def channel_ready(self, channel: channel.Channel) -> None:
        pass

    def frames_received(self, channel: channel.Channel, buffer: bytes, bounds: Bounds) -> None:
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

    def channel_writable(self, channel: channel.Channel) -> None:
        pass

    def channel_closed(self, channel: channel.Channel, error: Exception | None) -> None:
        self._changed.set()


class Audience:
    """All of them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._config = load(Path(options.config), ClientConfig)
        self._endpoint = Endpoint.parse(options.endpoint)
        self._client_id = FIRST_CLIENT_ID
        self._readers: list[Reader] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._fed_before = 0
        self._fed_otherwise = 0
        self._since_s = time.perf_counter()
        self._latencies_s = array("d")

    async def open(self) -> None:
        """Have all of them join."""
        options = self._options
        for _ in range(options.readers - 1):
            await self._reader(options.partition, options.generation, options.mark)
        for _ in range(options.idle):
            await self._reader(options.idle_partition, options.idle_generation, -1)
        self._tasks += [asyncio.ensure_future(self._again_and_again()) for _ in range(options.behind)]
        if options.readers:
            client = await connect(self._config).open()
            self._tasks.append(asyncio.ensure_future(self._at_the_tip(client)))

    async def _reader(self, partition: int, generation: int, mark: int) -> tuple[Reader, channel.Channel]:
        self._client_id += 1
        reader = Reader(self._client_id, partition, generation, mark)
        opened = await reader.open(self._endpoint, self._config)
        self._readers.append(reader)
        return reader, opened

    async def _at_the_tip(self, client: Client) -> None:
        """A real client: how long after they were due it is given transactions."""
        async for batch in client.feed_batches(self._options.partition, after=self._options.mark):
            now_s = time.perf_counter()
            self._fed_otherwise += len(batch)
            self._latencies_s.extend(now_s - STAMP.unpack_from(each.data)[0] for each in batch)

    async def _again_and_again(self) -> None:
        """Read the log up to where its end was in the beginning."""
        while True:
            reader, opened = await self._reader(self._options.partition, self._options.generation, -1)
            await reader.reach(self._options.mark)
            opened.close()
            self._readers.remove(reader)
            self._fed_otherwise += reader.fed

    def seen(self) -> Metrics:
        """What was seen since the last call."""
        for task in self._tasks:
            if task.done():
                task.result()
        now_s = time.perf_counter()
        fed = self._fed_otherwise + sum(reader.fed for reader in self._readers)
        metrics = {"fed_per_s": (fed - self._fed_before) / (now_s - self._since_s)}
        metrics |= latency_metrics(self._latencies_s, "tip_")
        self._since_s, self._fed_before, self._latencies_s = now_s, fed, array("d")
        return metrics


async def run(options: Options) -> None:
    """Until standard input ends."""
    fit_to_open_files(options.readers + options.behind + options.idle, "the audience")
    audience = Audience(options)
    await audience.open()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(audience.seen()), flush=True)


def main() -> None:
    """The life of the process; it owns nothing that would have to be left in order."""
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(run(Options(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
