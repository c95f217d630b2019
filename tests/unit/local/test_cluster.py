"""Local clusters: when they are up, and whose end is a failure."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.cluster.policy import assign
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import create_cluster, read_partition_assignment
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState, ServerDescriptor
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT
from waltz.local.processes import Children

PATHS = ClusterPaths.of(ROOT)


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """A cluster whose nodes only sleep."""
    cluster = LocalCluster(tmp_path)
    cluster.layout.write()
    return cluster


def test_a_node_that_another_thread_ends_during_a_check_has_not_failed(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Children() as children:
        cluster._children = children
        first = cluster._start("first", ["sleep", "60"])
        cluster._start("second", ["sleep", "60"])
        cluster._start("third", ["sleep", "60"])
        poll = subprocess.Popen.poll
        to_end = ["second"]

        def poll_while_another_is_ended(process: subprocess.Popen[bytes]) -> int | None:
            if process is first._process and to_end:
                cluster.kill(to_end.pop())
            return poll(process)

        monkeypatch.setattr(subprocess.Popen, "poll", poll_while_another_is_ended)
        cluster.check()
        assert not to_end
        assert sorted(cluster.processes()) == ["first", "third"]


def test_a_node_that_ends_by_itself_has_failed(cluster: LocalCluster) -> None:
    with Children() as children:
        cluster._children = children
        child = cluster._start("first", ["sleep", "60"])
        os.killpg(child.process_id, signal.SIGKILL)
        child.wait(10)
        with pytest.raises(WaltzError, match="first ended with exit code -9"):
            cluster.check()


async def test_it_is_up_when_all_servers_share_the_partitions(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second server takes a partition away from the first one, however late it comes."""
    server = MemoryZooKeeperServer()
    zookeeper = await server.connect()
    await create_cluster(zookeeper, ROOT, "local", 1)
    looks = asyncio.Queue[None]()
    monkeypatch.setattr(cluster, "zookeeper", server.connect)
    monkeypatch.setattr(cluster, "check", lambda: looks.put_nowait(None))
    waiting = asyncio.create_task(cluster._wait_until_open())

    async def closed() -> None:
        """It has looked at what there is, and goes on to wait."""
        while not looks.empty():
            looks.get_nowait()
        for _ in range(2):  # the first look may have begun before
            look = asyncio.create_task(looks.get())
            await asyncio.wait({look, waiting}, return_when=asyncio.FIRST_COMPLETED)
            assert not waiting.done()

    await closed()
    await join(zookeeper, 1)
    await open_session(zookeeper, generation=1, members=3)
    await closed()
    await join(zookeeper, 2, preferred=(0,))
    await closed()
    await open_session(zookeeper, generation=2, members=1)
    await closed()
    await open_session(zookeeper, generation=2, members=2)
    await waiting
    await zookeeper.close()


async def join(zookeeper: MemoryZooKeeper, server_id: int, preferred: tuple[int, ...] = ()) -> None:
    """A server comes, and has its share at once."""
    descriptors = [ServerDescriptor(each, Endpoint("localhost", each)) for each in range(1, server_id)]
    descriptors.append(ServerDescriptor(server_id, Endpoint("localhost", server_id), preferred))
    await zookeeper.create(PATHS.server_descriptor(f"s{server_id}"), descriptors[-1].encode())
    stored = await read_partition_assignment(zookeeper, ROOT)
    await zookeeper.set(PATHS.server_descriptors, assign(server_id, stored, 1, descriptors).encode())


async def open_session(zookeeper: MemoryZooKeeper, *, generation: int, members: int) -> None:
    """The owner of that generation begins a store session with so many of three replicas."""
    ids = [ReplicaId(0, f"localhost:{number}") for number in range(3)]
    states = {each: ReplicaState(each, generation if n < members else -1, UNRESOLVED) for n, each in enumerate(ids)}
    value = PartitionMetadata(generation, generation, states).encode()
    if await zookeeper.exists(PATHS.partition(0)):
        await zookeeper.set(PATHS.partition(0), value)
    else:
        await zookeeper.create(PATHS.partition(0), value)
