"""Waltz, as a target: a local cluster of real processes with a real ZooKeeper, and a client in this process."""

import asyncio
import itertools
import json
import os
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.cluster import boot
from benchmarks.cluster.audience import Options
from benchmarks.cluster.line import Line
from benchmarks.cluster.load import OPEN_LOOP_WINDOW, AwaitLoad, CallbackLoad, Callbacks, Load
from benchmarks.cluster.measurement import Target
from benchmarks.cluster.scenarios import CALLBACKS, FEED, Scenario, Shape
from benchmarks.cluster.summary import Metrics
from benchmarks.cluster.window import Progress
from waltz import Client, ClientConfig, WaltzClient, connect
from waltz.common.config.schemas import load
from waltz.common.zk.store_admin import read_partition_assignment
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Node

BULK = 10_000
Tell = Callable[[str], None]


class WaltzTarget(Target):
    """A cluster in a directory. ``tree`` is the checkout that this process runs."""

    def __init__(self, directory: Path, tree: Path, tell: Tell) -> None:
        self._directory = directory
        self._tree = tree
        self._tell = tell
        self._shapes = itertools.count(1)
        self._numbers = itertools.count()
        self._load: Load | None = None
        self._callback_client: WaltzClient | None = None
        self._plain_client: Client | None = None
        self._audience: Line | None = None

    async def open(self, shape: Shape) -> None:
        self._cluster = LocalCluster(
            self._directory / f"cluster-{next(self._shapes)}",
            servers=1,
            partitions=shape.partitions,
            plaintext=not shape.tls,
            storage_overrides={"storage.journal.enabled": True} if shape.journal else None,
        )
        await asyncio.to_thread(self._cluster.start)

    async def prepare(self, scenario: Scenario) -> None:
        self._scenario = scenario
        config = load(self._cluster.layout.client_config_path, ClientConfig)
        client = self._plain_client = await connect(
            config, max_in_flight=OPEN_LOOP_WINDOW if scenario.rate else max(scenario.in_flight, 1)
        ).open()
        await self._fill(client, scenario.log_length)
        marks = [await client.high_water_mark(partition) for partition in range(scenario.partitions)]
        if scenario.readers or scenario.behind or scenario.idle_clients:
            await self._invite(scenario, marks[0])
        if scenario.reads:
            self._load = None
        elif scenario.face != CALLBACKS:
            self._load = AwaitLoad(client, scenario, self._numbers)
        else:
            await self._close_plain_client()
            settings = {
                "auto_mount": False,
                "max_concurrent_transactions": OPEN_LOOP_WINDOW if scenario.rate else scenario.in_flight,
            }
            self._callback_client = await WaltzClient.open(Callbacks(marks), config.model_copy(update=settings))
            await self._callback_client.set_partitions(range(scenario.partitions))
            self._load = CallbackLoad(self._callback_client, scenario, self._numbers)

    async def _fill(self, client: Client, length: int) -> None:
        """Append until the first partition has so many transactions."""
        if not length:
            return
        data = os.urandom(self._scenario.size_bytes)
        there = first = await client.high_water_mark(0) + 1
        while there < length:
            count = min(BULK, length - there)
            await client.append_many(0, [data] * count, timeout_s=300)
            there += count
            self._tell(f"the log has {there:,} of {length:,} transactions")
        if there > first:
            self._tell("")

    async def _invite(self, scenario: Scenario, mark: int) -> None:
        """Start the audience."""
        zookeeper = await self._cluster.zookeeper()
        ((*owned,),) = (await read_partition_assignment(zookeeper, ROOT)).servers.values()
        await zookeeper.close()
        generations = {each.partition_id: each.generation for each in owned}
        idle_partition = scenario.partitions if scenario.idle_partitions else 0
        layout = self._cluster.layout
        options = Options(
            str(layout.client_config_path),
            layout.servers[0].connect_string,
            0,
            generations[0],
            mark,
            scenario.readers,
            scenario.behind,
            scenario.idle_clients,
            idle_partition,
            generations[idle_partition],
        )
        command = boot.command("audience", json.dumps(options._asdict()), tree=self._tree)
        self._audience = await Line.open("audience", command, self._directory / "audience.log")
        await self._audience.read()

    @property
    def load(self) -> Load | None:
        return self._load

    async def read(self) -> int:
        assert self._plain_client is not None
        count, last = 0, self._scenario.log_length - 1
        if self._scenario.face == FEED:
            async with self._plain_client.feed(0, after=-1, until=last) as transactions:
                async for _ in transactions:
                    count += 1
        else:
            async with self._plain_client.feed_batches(0, after=-1, until=last) as batches:
                async for batch in batches:
                    count += len(batch)
        return count

    def processes(self) -> Mapping[str, int]:
        others = {} if self._audience is None else {"audience": self._audience.process_id}
        return {"client": os.getpid(), **self._cluster.processes(), **others}

    async def progress(self) -> Progress:
        documents = await asyncio.gather(*map(_metrics, self._cluster.layout.storages))
        return progress_in(documents, asyncio.get_running_loop().time())

    async def audience_seen(self) -> Metrics:
        if self._audience is None:
            return {}
        seen: Metrics = await self._audience.ask()
        return seen

    async def finish(self) -> None:
        if self._audience is not None:
            await self._audience.close()
            self._audience = None
        await self._close_plain_client()
        client, self._callback_client = self._callback_client, None
        if client is not None:
            await client.close()

    async def _close_plain_client(self) -> None:
        client, self._plain_client = self._plain_client, None
        if client is not None:
            await client.close()

    async def close(self) -> None:
        await asyncio.to_thread(self._cluster.stop)


async def _metrics(node: Node) -> dict[str, Any]:
    def get() -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{node.connect_string.partition(':')[0]}:{node.http_port}/metrics") as page:
            document: dict[str, Any] = json.load(page)
            return document

    return await asyncio.to_thread(get)


def progress_in(documents: list[dict[str, Any]], at_s: float) -> Progress:
    """What the metrics of the storages say."""
    batches = [
        sum(meter["count"] for name, meter in each["meters"].items() if name.endswith(".append")) for each in documents
    ]
    positions = tuple(
        sum(gauge["value"] + 1 for name, gauge in each["gauges"].items() if name.endswith(".max-transaction-id"))
        for each in documents
    )
    return Progress(at_s, mean(batches), positions)
