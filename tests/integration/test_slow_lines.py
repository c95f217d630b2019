"""Lines that are slow, long or dead, between real processes: what moves is never given up, what is silent is replaced.

Nothing here asserts how long anything takes: the limits are far above what the lines need, and only bound a failure.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.test_availability import catch_up
from tests.smoke.line import Shape
from tests.smoke.lines import Lines
from tests.smoke.proxy import Connection, Proxy
from tests.smoke.trial import Trial, owner
from tests.smoke.workload import Load
from waltz.client.options import ClientOptions
from waltz.common.zk.store_admin import read_partition_metadata
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Node, Overrides

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

MIB = 1 << 20
LIMIT_S = 120.0
EAGER: Overrides = {"storage.maxRetryInterval": 1000}
"""Servers do not let a storage wait for long that was away for long."""
SMALL = Load(in_flight=8, rate=50)
"""The load of the other clients."""


async def sessions(cluster: LocalCluster) -> list[int]:
    """The session of each partition."""
    zookeeper = await cluster.zookeeper()
    try:
        found = []
        for partition_id in range(cluster.layout.partitions):
            metadata = await read_partition_metadata(zookeeper, ROOT, partition_id)
            assert metadata is not None
            found.append(metadata.session_id)
        return found
    finally:
        await zookeeper.close()


async def append_large(trial: Trial, size_bytes: int) -> None:
    """By one of the clients, to partition 0."""
    async with asyncio.timeout(LIMIT_S):
        await trial.workloads[0].append_large(0, size_bytes)


@contextlib.asynccontextmanager
async def at_work(
    directory: Path, load: Load = SMALL, options: ClientOptions | None = None
) -> AsyncIterator[tuple[Lines, Trial]]:
    """A cluster behind fast lines and clients that append; everything is checked at the end, on fast lines again."""
    async with Lines.running(directory, server_overrides=EAGER) as lines:
        settings = {"zookeeper_connect_string": lines.zookeeper_for_clients, "long_wait_threshold_ms": 1000}
        running = Trial.running(lines.cluster, clients=2, load=load, settings=settings, options=options)
        async with running as trial:
            await trial.progress(20)
            yield lines, trial
            for node in (*lines.cluster.layout.storages, *lines.cluster.layout.servers):
                lines.to(node).shape(Shape())
            await trial.finish()


@pytest.mark.deep
async def test_a_large_transaction_commits_over_slow_lines_while_others_append(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (lines, trial):
        before = await sessions(lines.cluster)
        for node in lines.cluster.layout.storages:
            lines.to(node).shape(Shape.of(megabits=10, round_trip_s=0.1))
        await append_large(trial, 8 * MIB)
        await trial.progress(20, LIMIT_S)
        assert await sessions(lines.cluster) == before


@pytest.mark.deep
async def test_a_large_transaction_commits_over_long_lines_in_one_session(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (lines, trial):
        for node in lines.cluster.layout.storages[1:]:
            lines.to(node).shape(Shape.of(megabits=100, round_trip_s=0.5))
        await trial.progress(20, LIMIT_S)  # a server knows by its answers that a line is long
        before = await sessions(lines.cluster)
        await append_large(trial, 30 * MIB)
        await trial.progress(20, LIMIT_S)
        assert await sessions(lines.cluster) == before


@pytest.mark.deep
async def test_appends_go_on_with_a_storage_that_has_to_get_a_large_transaction_over_a_slow_line(
    tmp_path: Path,
) -> None:
    """The quorum after the loss of another storage needs the slow one, which is behind."""
    async with at_work(tmp_path) as (lines, trial):
        slow, victim, _ = lines.cluster.layout.storages
        lines.to(slow).shape(Shape.of(megabits=20, round_trip_s=0.3))
        await append_large(trial, 16 * MIB)
        await asyncio.to_thread(lines.cluster.kill, victim)
        await trial.progress(20, LIMIT_S)
        lines.cluster.start_storage(victim)


@pytest.mark.deep
async def test_a_storage_comes_back_and_catches_up_over_a_slow_and_long_line(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (lines, trial):
        late = lines.cluster.layout.storages[0]
        await asyncio.to_thread(lines.cluster.kill, late)
        for _ in range(3):
            await append_large(trial, 2 * MIB)
        await trial.progress(100, LIMIT_S)
        lines.to(late).shape(Shape.of(megabits=10, round_trip_s=0.5))
        lines.cluster.start_storage(late)
        await catch_up(trial, late, LIMIT_S)


@pytest.mark.deep
async def test_a_client_appends_large_transactions_to_its_server_over_a_slow_line(tmp_path: Path) -> None:
    options = ClientOptions(silence_limit_s=2.0, mount_timeout_s=2.0)
    async with at_work(tmp_path, options=options) as (lines, trial):
        for node in lines.cluster.layout.servers:
            lines.to(node).shape(Shape.of(megabits=10, round_trip_s=0.1))
        links = {connection for node in lines.cluster.layout.servers for connection in lines.to(node).connections}
        await append_large(trial, 8 * MIB)
        await trial.progress(20, LIMIT_S)
        assert links == {each for node in lines.cluster.layout.servers for each in lines.to(node).connections}


@pytest.mark.deep
async def test_dead_connections_are_replaced(tmp_path: Path) -> None:
    """One kind after the other: whoever waits on it makes another."""
    options = ClientOptions(silence_limit_s=2.0, mount_timeout_s=2.0)
    async with at_work(tmp_path, options=options) as (lines, trial):
        cluster = lines.cluster
        lines.to(await owner(cluster, 0)).blackhole()  # client - server
        await trial.progress(20, LIMIT_S)

        first, second, third = cluster.layout.storages
        busiest(lines.to(first)).blackhole()  # server - storage, where the records go
        await trial.progress(20, LIMIT_S)
        await catch_up(trial, first, LIMIT_S)

        await come_back(trial, first)  # has to be read for: now there are connections for reading
        for storage in (second, third):
            lines.to(storage).blackhole()
        await come_back(trial, first)

        lines.zookeeper_of_servers.blackhole()
        lines.zookeeper_of_clients.blackhole()
        await trial.progress(20, LIMIT_S)
        await asyncio.to_thread(cluster.kill, victim := await owner(cluster, 0))
        await trial.progress(20, LIMIT_S)
        cluster.start_server(victim)


async def come_back(trial: Trial, storage: Node) -> None:
    """The storage is killed, misses something, is started again and catches up."""
    await asyncio.to_thread(trial.cluster.kill, storage)
    await append_large(trial, 3 * MIB)
    await trial.progress(20, LIMIT_S)
    trial.cluster.start_storage(storage)
    await catch_up(trial, storage, LIMIT_S)


def busiest(proxy: Proxy) -> Connection:
    """The connection over which most has been sent to the node."""
    return max(proxy.connections, key=lambda connection: connection.to_node.passed_bytes)
