"""Levels of consistency over real processes: a storage stands still and goes on, dies and comes back; an owner dies."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import waltz
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.deep]

LONG_S = 120.0
"""A deadline that is never reached."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(
        tmp_path / "levels",
        storages=3,
        servers=2,
        partitions=1,
        plaintext=True,
        server_overrides={"storage.maxRetryInterval": 1000},
    ) as running:
        yield running


async def append_to_all(client: waltz.Client, data: bytes) -> int:
    """Append as soon as no storage is known to be away."""
    async with asyncio.timeout(LONG_S):
        while True:
            try:
                return await client.append(0, data, consistency="leader_all", timeout_s=LONG_S)
            except waltz.ConsistencyRefusedError:
                await asyncio.sleep(0.05)


async def until_committed(client: waltz.Client, transaction_id: int) -> None:
    async with asyncio.timeout(LONG_S):
        while await client.high_water_mark(0, confirmed=True) < transaction_id:
            await asyncio.sleep(0.05)


def owner(client: waltz.Client, cluster: LocalCluster) -> Node:
    assert client._engine is not None
    link = client._engine.partitions[0].mount.link
    assert link is not None
    (found,) = [node for node in cluster.layout.servers if node.port == link.endpoint.port]
    return found


async def test_a_storage_that_stands_still_dies_or_outlives_the_owner(cluster: LocalCluster) -> None:
    slow = cluster.layout.storages[2]
    async with waltz.connect(str(cluster.layout.client_config_path)) as client:
        assert await append_to_all(client, b"0") == 0

        cluster.child(slow).signal(signal.SIGSTOP)
        late = asyncio.create_task(client.append(0, b"1", consistency="leader_all", timeout_s=1.0))
        waiting = asyncio.create_task(client.append(0, b"2", consistency="write_all_read_one", timeout_s=LONG_S))
        await until_committed(client, 2)
        with pytest.raises(waltz.NotGuaranteedError) as raised:
            await late
        assert raised.value.transaction_id == 1
        assert not waiting.done()
        assert await client.append(0, b"3", timeout_s=LONG_S) == 3, "the commit needs a quorum only"
        cluster.child(slow).signal(signal.SIGCONT)
        assert await waiting == 2

        assert await append_to_all(client, b"4") == 4
        cluster.kill(slow)
        with pytest.raises(waltz.ConsistencyRefusedError, match=f"does not reach {slow.connect_string}"):
            async with asyncio.timeout(LONG_S):
                while True:  # until the server has noticed
                    with pytest.raises(waltz.NotGuaranteedError):
                        await client.append(0, b"5", consistency="leader_all", timeout_s=1.0)
        last = await client.append(0, b"6", timeout_s=LONG_S)
        cluster.start_storage(slow)
        assert await append_to_all(client, b"7") == last + 1, "what was refused is not in the log"

        cluster.child(slow).signal(signal.SIGSTOP)
        waiting = asyncio.create_task(client.append(0, b"8", consistency="leader_all", timeout_s=LONG_S))
        await until_committed(client, last + 2)
        cluster.kill(owner(client, cluster))
        assert await client.append(0, b"9", timeout_s=LONG_S) == last + 3, "the next owner goes on"
        assert not waiting.done()
        cluster.child(slow).signal(signal.SIGCONT)
        assert await waiting == last + 2, "the next owner answers what the first one did not"
        read = [each.data async for each in client.feed(0, after=-1, until=last + 3)]
        assert read[-4:] == [b"6", b"7", b"8", b"9"]


async def append_early(client: waltz.Client, data: bytes) -> waltz.Acknowledgement:
    """Append at ``leader`` as soon as the owner knows that the partition allows that."""
    async with asyncio.timeout(LONG_S):
        while True:
            try:
                return await client.append(0, data, consistency="leader", timeout_s=LONG_S)
            except waltz.ConsistencyRefusedError:
                await asyncio.sleep(0.05)


async def test_an_acknowledgement_below_the_quorum_is_kept_or_taken_back(cluster: LocalCluster) -> None:
    alone, *others = cluster.layout.storages
    async with waltz.connect(str(cluster.layout.client_config_path)) as client:
        await waltz.table.configure(client, 0, {"consistency": "leader"})
        first = await append_early(client, b"0")
        assert await first.committed(timeout_s=LONG_S) == 0

        for other in others:
            cluster.child(other).signal(signal.SIGSTOP)
        kept = await append_early(client, b"1")
        with pytest.raises(waltz.DeadlineExceededError, match="transaction 1 of partition 0 is acknowledged"):
            await kept.committed(timeout_s=0.5)
        for other in others:
            cluster.child(other).signal(signal.SIGCONT)
        assert await kept.committed(timeout_s=LONG_S) == 1

        for other in others:
            cluster.child(other).signal(signal.SIGSTOP)
        lost = await append_early(client, b"2")
        for node in (owner(client, cluster), alone, *others):
            cluster.kill(node)  # the others with what they have not read yet of their connections
        for other in others:
            cluster.start_storage(other)
        with pytest.raises(waltz.AckRetracted, match="acknowledged as transaction 2 before its commit"):
            await lost.committed(timeout_s=LONG_S)
        assert await client.append(0, b"3", timeout_s=LONG_S) == 2
        read = [each.data async for each in client.feed(0, after=-1, until=2)]
        assert read == [b"0", b"1", b"3"], "it is in no log, and was not sent again"
