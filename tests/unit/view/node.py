"""A view node in this process, over a cluster in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp

import waltz
from tests.unit.view.contract import Contract
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.access import ALLOW_ALL, Access
from waltz.common.metrics.registry import Registry
from waltz.common.net.http import Readers
from waltz.common.quiet_log import QuietLog
from waltz.view.exchange import Exchanges, logger
from waltz.view.limits import Limits
from waltz.view.partitions import Partitions
from waltz.view.registration import Registration
from waltz.view.service import Port
from waltz.view.view_metrics import ViewMetrics

TIMEOUT_S = 30.0


class Node(NamedTuple):
    """A view node that serves."""

    endpoint: str
    partitions: Partitions
    limits: Limits
    metrics: ViewMetrics
    registry: Registry
    listening: Port

    async def served(self, partition_id: int = 0) -> None:
        """Wait until a partition is served, and said to be."""
        async with asyncio.timeout(TIMEOUT_S):
            while partition_id not in self.partitions.all():
                await asyncio.sleep(0.005)
            nodes, root = self.partitions.client.directory
            while await nodes.exists(f"{root}/ext/view/{partition_id}/{self.endpoint.removeprefix('http://')}") is None:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def view_node(
    cluster: Sequence[MockServerPartition],
    directory: Path,
    *,
    given: Sequence[int] | None = None,
    store: str = "memory",
    limits: Limits | None = None,
    access: Access = ALLOW_ALL,
    port: int = 0,
    zone: str | None = None,
    snapshots: str | None = None,
) -> AsyncIterator[Node]:
    """A view node of a cluster in memory."""
    registry = Registry()
    limits = limits or Limits(64, 16, 64 << 20)
    async with waltz.connect(MockDriver(list(cluster))) as client:
        partitions = Partitions(client, given, store, directory, snapshots)
        metrics = ViewMetrics(registry, partitions.states)
        exchanges = Exchanges(partitions, limits, metrics, Readers(access, None, QuietLog(logger)))
        listening = Port(exchanges, 100)
        contract = Contract()
        listening.application.on_response_prepare.append(contract.check)
        await partitions.start()
        number = await listening.open("127.0.0.1", port, None)
        name = f"127.0.0.1:{number}"
        nodes, root = client.directory
        registration = Registration(nodes, root, partitions, name, f"http://{name}", zone)
        try:
            yield Node(f"http://{name}", partitions, limits, metrics, registry, listening)
        finally:
            await registration.close()
            await listening.close()
            await partitions.close()
        assert contract.broken == [], contract.broken


@asynccontextmanager
async def session(node: Node) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client of a view node."""
    async with aiohttp.ClientSession(node.endpoint) as opened:
        yield opened
