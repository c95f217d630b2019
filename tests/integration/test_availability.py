"""What is promised while nodes fail, on clusters of real processes under load from several clients with locks.

Each test ends with the checker of :mod:`tests.smoke`: nothing lost, doubled, reordered or invented, and all replicas
equal. Deadlines here are generous, for slow machines; how long things take is measured by ``benchmarks.availability``.
"""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from tests.smoke.replicas import Replicas
from tests.smoke.trial import Trial, owner
from tests.smoke.workload import Load
from waltz.common.zk.store_admin import read_partition_metadata
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

MIB = 1 << 20


def resident_bytes(cluster: LocalCluster, node: Node) -> int:
    """Physical memory that a process uses."""
    status = Path(f"/proc/{cluster.child(node).process_id}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


async def test_a_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, partitions=2) as cluster, Trial.running(cluster) as trial:
        await trial.progress()
        victim = await owner(cluster, 0)
        await asyncio.to_thread(cluster.kill, victim)
        await trial.progress()
        assert await owner(cluster, 0) != victim
        cluster.start_server(victim)
        await trial.progress()
        await trial.finish()


@pytest.mark.deep
async def test_servers_are_stopped_one_after_the_other(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, servers=3, partitions=4) as cluster, Trial.running(cluster) as trial:
        await trial.progress(50)
        for victim in cluster.layout.servers[:2]:
            await asyncio.to_thread(cluster.terminate, victim)
            await trial.progress(100)
        assert {await owner(cluster, each) for each in range(4)} == {cluster.layout.servers[2]}
        await trial.finish()


@pytest.mark.deep
async def test_a_server_that_was_paused_does_no_harm_when_it_wakes_up(tmp_path: Path) -> None:
    """Longer than its ZooKeeper session: another one has the partitions then, which it does not know yet."""
    async with LocalCluster(tmp_path, partitions=2) as cluster, Trial.running(cluster) as trial:
        await trial.progress()
        victim = await owner(cluster, 0)
        cluster.child(victim).signal(signal.SIGSTOP)
        while await owner(cluster, 0) == victim:
            await asyncio.sleep(0.2)
        await trial.progress(50)
        cluster.child(victim).signal(signal.SIGCONT)
        await trial.progress()
        await trial.finish()


@pytest.mark.deep
async def test_one_of_three_storages_is_killed_and_comes_back(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, partitions=2) as cluster, Trial.running(cluster) as trial:
        await trial.progress()
        for victim in cluster.layout.storages[:2]:
            await asyncio.to_thread(cluster.kill, victim)
            await trial.progress()
            cluster.start_storage(victim)
            await trial.progress()
            await catch_up(trial, victim)
        await trial.finish()


@pytest.mark.deep
async def test_a_paused_storage_costs_the_server_no_memory_and_catches_up(tmp_path: Path) -> None:
    """The storage's backlog is a multiple of the memory by which the server may grow."""
    caches = {"server.feedCacheSize": MIB, "server.transactionDataCacheSize": 4 * MIB}
    load = Load(in_flight=32, rate=1000, size_bytes=16_000, locks=100_000)
    async with (
        LocalCluster(tmp_path, servers=1, server_overrides=caches) as cluster,
        Trial.running(cluster, clients=2, load=load) as trial,
    ):
        server, victim = cluster.layout.servers[0], cluster.layout.storages[1]
        await trial.progress(2000)
        cluster.child(victim).signal(signal.SIGSTOP)
        await trial.progress(1500)  # the window is full, and the replica is left alone
        before = resident_bytes(cluster, server)
        await trial.progress(10_000, timeout_s=240)  # 160 MB
        grown = resident_bytes(cluster, server) - before
        assert grown < 48 * MIB, f"the server grew by {grown / MIB:.0f} MiB"
        cluster.child(victim).signal(signal.SIGCONT)
        await catch_up(trial, victim)
        await trial.finish()


@pytest.mark.deep
async def test_appends_wait_while_two_of_three_storages_are_gone(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, partitions=2) as cluster, Trial.running(cluster) as trial:
        await trial.progress()
        dead, paused = cluster.layout.storages[0], cluster.layout.storages[2]
        await asyncio.to_thread(cluster.kill, dead)
        cluster.child(paused).signal(signal.SIGSTOP)
        await trial.pending_everywhere()
        cluster.start_storage(dead)
        await trial.progress()
        cluster.child(paused).signal(signal.SIGCONT)
        await trial.progress()
        await trial.finish()


async def test_all_storages_are_killed_at_once(tmp_path: Path) -> None:
    """Every acknowledged transaction is on the disks of the storages."""
    async with LocalCluster(tmp_path, partitions=2) as cluster, Trial.running(cluster) as trial:
        await trial.progress()
        for node in cluster.layout.storages:
            cluster.child(node).signal(signal.SIGKILL)
        for node in cluster.layout.storages:
            await asyncio.to_thread(cluster.kill, node)
        await trial.pending_everywhere()
        for node in cluster.layout.storages:
            cluster.start_storage(node)
        await trial.progress()
        await trial.finish()


@pytest.mark.deep
async def test_a_storage_with_an_uncommitted_tail_comes_back_late(tmp_path: Path) -> None:
    """Whatever it alone has was decided without it, so its tail goes before it takes part again."""
    async with LocalCluster(tmp_path, partitions=2) as cluster, Trial.running(cluster) as trial:
        await trial.progress()
        *others, late = cluster.layout.storages
        for node in others:
            cluster.child(node).signal(signal.SIGSTOP)
        await trial.pending_everywhere()
        for node in (*others, late):
            await asyncio.to_thread(cluster.kill, node)
        for node in others:
            cluster.start_storage(node)
        await trial.progress()
        cluster.start_storage(late)
        await trial.finish()


@pytest.mark.deep
async def test_appends_go_on_without_zookeeper(tmp_path: Path) -> None:
    """Killed and away for several of its session time-outs; then a server is killed to see that all is well again."""
    async with LocalCluster(tmp_path, partitions=2) as cluster, Trial.running(cluster) as trial:
        await trial.progress()
        await asyncio.to_thread(cluster.kill, "zookeeper")
        for _ in range(4):
            await asyncio.sleep(2)
            await trial.progress(50)
        await asyncio.to_thread(cluster.start_zookeeper)
        await trial.progress()
        await asyncio.to_thread(cluster.kill, await owner(cluster, 0))
        await trial.progress()
        await trial.finish()


@pytest.mark.deep
async def test_checkpoints_wait_for_zookeeper(tmp_path: Path) -> None:
    """A session is not renewed without ZooKeeper, and appends go on in it; a renewal that has begun has to wait."""
    often, slowly = {"storage.checkpointInterval": 1000}, Load(rate=150)
    async with (
        LocalCluster(tmp_path, server_overrides=often) as cluster,
        Trial.running(cluster, clients=2, load=slowly) as trial,
    ):
        await renewal(cluster)
        cluster.child("zookeeper").signal(signal.SIGSTOP)
        await trial.progress(1500, timeout_s=180)
        cluster.child("zookeeper").signal(signal.SIGCONT)
        await trial.progress(1000, timeout_s=120)
        await trial.finish()


async def renewal(cluster: LocalCluster, timeout_s: float = 120) -> None:
    """Return when a session of partition 0 has followed another one, and all replicas have come along."""
    zookeeper = await cluster.zookeeper()
    complete: set[int] = set()
    try:
        async with asyncio.timeout(timeout_s):
            while len(complete) < 2:
                metadata = await read_partition_metadata(zookeeper, ROOT, 0)
                assert metadata is not None
                if all(state.session_id == metadata.session_id for state in metadata.replicas.values()):
                    complete.add(metadata.session_id)
                await asyncio.sleep(0.01)
    finally:
        await zookeeper.close()


async def catch_up(trial: Trial, storage: Node, timeout_s: float = 60) -> None:
    """Return when the storage holds everything that is committed at this moment."""
    async with Replicas(trial.cluster) as replicas, asyncio.timeout(timeout_s):
        for partition_id in range(trial.cluster.layout.partitions):
            mark = trial.applied(partition_id)
            while not await replicas.holds(storage.name, partition_id, mark):
                await asyncio.sleep(0.05)
