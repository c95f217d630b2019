"""The owner of a partition carries its retention out, and tells what keeps it from that."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.config.schemas import ServerConfig
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Registry
from waltz.common.retention import Retention
from waltz.operations.retention import Retained
from waltz.operations.trimming import ArchivedEnd, Need, OldNodesError
from waltz.server.partition.append_rule import AppendRule
from waltz.serving import retention
from waltz.serving.retention import RetentionKeeper

LIMITS = Retention(1000, 0)
HELD = "waltz_server_partition_retention_held_seconds"
TRIMMED = "waltz_server_partition_retention_trimmed_total"


class FakePartition:
    def __init__(self) -> None:
        self.high_water_mark: int | None = 50
        self.raised = 0

    def raise_low_water_mark(self) -> None:
        self.raised += 1


class World:
    """Two partitions of a server, and what the operations say about them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.partitions: dict[int, Any] = {0: FakePartition(), 1: FakePartition()}
        self.rules = {0: AppendRule(retention=LIMITS)}
        self.registry = Registry()
        self.refusal: WaltzError | None = None
        self.outcome: Retained | WaltzError = Retained(0, 0, 0, -1, ())
        self.asked: list[tuple[int, Retention]] = []
        monkeypatch.setattr(retention, "check_trims", self.check_trims)
        monkeypatch.setattr(retention, "retain", self.retain)

    async def check_trims(self, _: ClusterHandle) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def retain(
        self, cluster: ClusterHandle, partition_id: int, limits: Retention, now_ms: int, archived_end: ArchivedEnd
    ) -> Retained:
        self.asked.append((partition_id, limits))
        if isinstance(self.outcome, WaltzError):
            raise self.outcome
        return self.outcome

    def values(self, name: str) -> dict[str, float]:
        return {labels[0]: float(value) for labels, value in self.registry.readings[name]()}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
async def keeper(world: World) -> AsyncIterator[RetentionKeeper]:
    zookeeper = await MemoryZooKeeperServer().connect()
    config = ServerConfig.model_validate(
        {
            "cluster.root": "/waltz",
            "zookeeper.connectString": "unused:1",
            "zookeeper.sessionTimeout": 30000,
            "server.port": 55180,
            "server.host": "localhost",
            "server.retentionInterval": 3_600_000,
        }
    )
    made = RetentionKeeper(lambda: world.partitions, lambda: world.rules, world.registry, zookeeper, config)
    yield made
    await made.close()
    await zookeeper.close()


async def test_only_partitions_with_limits_are_looked_at(world: World, keeper: RetentionKeeper) -> None:
    await keeper.look()
    assert world.asked == [(0, LIMITS)]
    assert keeper.health() == {}
    assert world.values(HELD) == world.values(TRIMMED) == {"0": 0, "1": 0}
    world.rules = {1: AppendRule(retention=LIMITS), 2: AppendRule(retention=LIMITS)}
    await keeper.look()
    assert world.asked == [(0, LIMITS), (1, LIMITS)], "partition 2 is at another server"


async def test_trims_are_logged_and_counted(
    world: World, keeper: RetentionKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.outcome = Retained(3, 10, 10, 20, ())
    await keeper.look()
    world.outcome = Retained(10, 15, 15, 20, ())
    await keeper.look()
    assert world.values(TRIMMED) == {"0": 12, "1": 0}
    assert [record.getMessage() for record in caplog.records] == [
        "partition 0: transactions 3 to 9 are trimmed: they are beyond its retention",
        "partition 0: transactions 10 to 14 are trimmed: they are beyond its retention",
    ]


async def test_who_keeps_transactions_is_told_once(
    world: World, keeper: RetentionKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for position in (3, 4):
        world.outcome = Retained(3, 3, 10, 20, (Need("cursor a", position, "it stands there"),))
        await keeper.look()
    reason = "cursor a needs those from 4 on (it stands there)"
    assert keeper.health() == {"retentionHeld": {"0": reason}}
    before = world.values(HELD)["0"]
    await asyncio.sleep(0.002)
    assert world.values(HELD)["0"] > before >= 0
    world.outcome = WaltzError("no replica answers")
    await keeper.look()
    world.outcome = Retained(3, 10, 10, 20, ())
    await keeper.look()
    assert keeper.health() == {}
    assert world.values(HELD)["0"] == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "partition 0: transactions beyond its retention are kept: cursor a needs those from 3 on (it stands there)",
        "partition 0: transactions beyond its retention are kept: no replica answers",
    ]
    assert caplog.records[-1].getMessage() == "partition 0: nothing beyond its retention is kept any more"
    assert world.partitions[0].raised == 0


async def test_a_cluster_that_does_not_allow_trims(world: World, keeper: RetentionKeeper) -> None:
    world.refusal = WaltzError("the cluster does not have the feature trim")
    await keeper.look()
    assert world.asked == []
    assert keeper.health() == {"retentionHeld": {"0": "the cluster does not have the feature trim"}}
    world.rules = {}
    await keeper.look()
    assert keeper.health() == {}, "without limits nothing is kept beyond them"


async def test_nodes_that_cannot_live_with_trims_are_named_whether_or_not_there_are_limits(
    world: World, keeper: RetentionKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    world.rules = {}
    world.refusal = OldNodesError(["server a:1 is old"])
    await keeper.look()
    await keeper.look()
    assert keeper.health() == {"nodesWithoutTrim": ["server a:1 is old"]}
    world.rules = {0: AppendRule(retention=LIMITS)}
    world.refusal = OldNodesError(["server a:1 is old", "storage b:2 is old"])
    await keeper.look()
    assert world.asked == []
    assert set(keeper.health()) == {"nodesWithoutTrim", "retentionHeld"}
    assert [value for _, value in world.registry.readings["waltz_server_nodes_without_trim"]()] == [2]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        f"{node} is old, and cannot live with trimmed partitions: nothing is trimmed; take it out of the cluster"
        for node in ("server a:1", "storage b:2")
    ]
    world.refusal = None
    await keeper.look()
    assert keeper.health() == {}
    assert world.asked == [(0, LIMITS)]


@pytest.mark.parametrize(("mark", "raised"), [(20, 1), (50, 0)])
async def test_a_low_water_mark_that_holds_is_raised(
    world: World, keeper: RetentionKeeper, mark: int, raised: int
) -> None:
    world.outcome = Retained(3, mark + 1, 60, mark, ())
    await keeper.look()
    assert world.partitions[0].raised == raised
    assert "low-water mark" in str(keeper.health())


async def test_it_looks_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = await MemoryZooKeeperServer().connect()
    config = ServerConfig.model_validate(
        {
            "cluster.root": "/waltz",
            "zookeeper.connectString": "unused:1",
            "zookeeper.sessionTimeout": 30000,
            "server.port": 55180,
            "server.host": "localhost",
            "server.retentionInterval": 1,
        }
    )
    keeper = RetentionKeeper(lambda: world.partitions, lambda: world.rules, world.registry, zookeeper, config)
    async with asyncio.timeout(10):
        while len(world.asked) < 3:
            await asyncio.sleep(0)
    await keeper.close()
    await zookeeper.close()
