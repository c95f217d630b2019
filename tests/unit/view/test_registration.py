"""What a view node says of itself, through changes of the tree by others."""

import asyncio
from pathlib import Path
from typing import NamedTuple, cast

import pytest

import waltz
from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.view.node import TIMEOUT_S, view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.zk.client import NotPermittedError, ZooKeeper
from waltz.table.served.nodes import view_nodes
from waltz.table.served.registration import ViewNode
from waltz.view import registration
from waltz.view.partitions import Partitions
from waltz.view.registration import Registration

pytestmark = pytest.mark.timeout(60)


async def test_the_applied_transaction_is_told_and_a_lost_node_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "TELL_S", 0.01)
    cluster = MockServerPartition.create(1)
    async with waltz.connect(MockDriver(cluster)) as client:
        await waltz.table.configure(client, 0, {"format": "table"})
        nodes, root = client.directory
        async with view_node(cluster, tmp_path, zone="a") as node, client.table(0) as table:
            await node.served()
            last = -1
            for _ in range(2):
                last = await table.put(b"k", b"v")
                wanted = [ViewNode(node.endpoint, last, "a")]
                async with asyncio.timeout(TIMEOUT_S):
                    while await view_nodes(client, 0) != wanted:
                        await asyncio.sleep(0.005)
                await nodes.delete(f"{root}/ext/view/0/{node.endpoint.removeprefix('http://')}")
        assert await view_nodes(client, 0) == []


async def test_what_others_have_left_is_passed_over() -> None:
    async with waltz.connect(MockDriver(MockServerPartition.create(1))) as client:
        nodes, root = client.directory
        await nodes.create(f"{root}/ext/view/0/x:1", b"nonsense", make_path=True)
        good = ViewNode("http://y:2", 5)
        await nodes.create(f"{root}/ext/view/0/y:2", good.encode())
        assert await view_nodes(client, 0) == [good]


class Applied(NamedTuple):
    """A partition that is served."""

    applied: int


class Serves:
    """The partitions of a view node."""

    def __init__(self, *partition_ids: int) -> None:
        self.changed = asyncio.Event()
        self.served = {each: Applied(0) for each in partition_ids}

    def all(self) -> dict[int, Applied]:
        return self.served


async def test_a_refusal_is_met_with_a_pause_and_keeps_no_other_partition_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "TELL_S", 0.0)
    monkeypatch.setattr(registration, "RETRY_INITIAL_S", 1000.0)
    monkeypatch.setattr(registration, "RETRY_MAXIMUM_S", 1000.0)
    zookeeper = await MemoryZooKeeperServer().connect()
    create, refused = zookeeper.create, []

    async def refusing(path: str, data: bytes | None, **more: bool) -> str:
        if path.startswith("/r/ext/view/0/"):
            refused.append(path)
            raise NotPermittedError("no")
        return await create(path, data, **more)

    monkeypatch.setattr(zookeeper, "create", refusing)
    serves = Serves(0, 1)
    made = Registration(cast("ZooKeeper", zookeeper), "/r", cast("Partitions", serves), "x:1", "http://x:1", None)
    async with asyncio.timeout(TIMEOUT_S):
        while await zookeeper.exists("/r/ext/view/1/x:1") is None:
            await asyncio.sleep(0)
    for _ in range(200):
        serves.changed.set()
        await asyncio.sleep(0)
    assert len(refused) == 1
    await made.close()
    assert await zookeeper.exists("/r/ext/view/1/x:1") is None


async def test_a_node_is_taken_away_although_its_creation_was_broken_off_or_its_deletion_unanswered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "RETRY_INITIAL_S", 0.001)
    zookeeper = await MemoryZooKeeperServer().connect()
    serves = Serves(0, 1)
    create, made, breaks_off = zookeeper.create, asyncio.Event(), asyncio.Event()

    async def creating(path: str, data: bytes | None, **more: bool) -> str:
        created = await create(path, data, **more)
        if path == "/r/ext/view/1/x:1":
            made.set()
            await breaks_off.wait()
        return created

    monkeypatch.setattr(zookeeper, "create", creating)
    told = Registration(cast("ZooKeeper", zookeeper), "/r", cast("Partitions", serves), "x:1", "http://x:1", None)
    async with asyncio.timeout(TIMEOUT_S):
        await made.wait()
        await told.close()
        assert await zookeeper.exists("/r/ext/view/1/x:1") is None
        breaks_off.set()
        told = Registration(cast("ZooKeeper", zookeeper), "/r", cast("Partitions", serves), "x:1", "http://x:1", None)
        while await zookeeper.exists("/r/ext/view/1/x:1") is None:
            await asyncio.sleep(0.001)
        zookeeper.lose_request("delete")
        del serves.served[1]
        serves.changed.set()
        while await zookeeper.exists("/r/ext/view/1/x:1") is not None:
            await asyncio.sleep(0.001)
        await told.close()
