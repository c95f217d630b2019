import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
import pytest_asyncio

from tests.unit.common.cluster.conftest import ROOT
from tests.unit.common.cluster.fakes import FakeCluster, FakeOwner
from waltz.common.zk.client import ConnectionLossError, ZooKeeper
from waltz.spark import planning, stream_planning
from waltz.spark.errors import DataLossError, PlanningError
from waltz.spark.offsets import OffsetRange
from waltz.spark.options import parse_options
from waltz.spark.stream_planning import StreamPlanner

OPTIONS = {"zookeeper": "zk:2181", "clusterRoot": ROOT, "tls.plaintext": "true", "planningTimeoutMs": "5000"}


class Shared:
    """A connection that others use, too: closing it does nothing."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    def __getattr__(self, name: str) -> object:
        return getattr(self._zookeeper, name)

    async def close(self) -> None:
        pass


class Connections:
    """What the planner connects to instead of a ZooKeeper; counts."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.made = 0
        self.fail_next = 0

    async def connect(self, options: object) -> ZooKeeper:
        if self.fail_next > 0:
            self.fail_next -= 1
            raise ConnectionLossError("gone")
        self.made += 1
        return cast("ZooKeeper", Shared(self.zookeeper))


@pytest_asyncio.fixture
async def connections(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connections]:
    connections = Connections(cluster.zookeeper)
    monkeypatch.setattr(stream_planning, "connect_zookeeper", connections.connect)
    monkeypatch.setattr(stream_planning, "PATIENCE_S", 0.3)
    yield connections


def make_planner(**options: str) -> StreamPlanner:
    return StreamPlanner(parse_options(OPTIONS | options))


def grow(cluster: FakeCluster, partition_id: int, mark: int) -> None:
    cluster.owner.marks[partition_id] = mark


async def test_a_stream_begins_at_the_latest_and_remembers(cluster: FakeCluster, connections: Connections) -> None:
    planner = make_planner()
    start = await planner.initial()
    assert start == {"0": 10, "1": 0, "2": 1, "initial": True}
    grow(cluster, 0, 20)
    assert await planner.initial() == start
    assert await planner.latest(start, None) == {"0": 21, "1": 0, "2": 1, "since": {"0": 10, "1": 0, "2": 1}}
    assert connections.made == 1


async def test_a_stream_begins_where_it_is_told(cluster: FakeCluster, connections: Connections) -> None:
    assert await make_planner(startingOffsets="earliest").initial() == {"0": 0, "1": 0, "2": 0, "initial": True}
    offsets = '{"0": 3, "1": "latest"}'
    start = await make_planner(startingOffsets=offsets, partitions="0-1").initial()
    assert start == {"0": 3, "1": 0, "initial": True}
    with pytest.raises(DataLossError, match="startingOffsets: 11 is beyond partition 0"):
        await make_planner(startingOffsets='{"0": 11}').initial()
    start = await make_planner(startingOffsets='{"0": 11}', failOnDataLoss="false", partitions="0").initial()
    assert start == {"0": 10, "initial": True}
    with pytest.raises(PlanningError, match="startingOffsets names partition 2"):
        await make_planner(startingOffsets='{"2": 0}', partitions="0").initial()


async def test_nothing_new_is_the_start(cluster: FakeCluster, connections: Connections) -> None:
    planner = make_planner()
    start = {"0": 10, "1": 0, "2": 1}
    assert await planner.latest(start, None) == start
    assert planner.reported() == start


async def test_a_micro_batch_is_bounded_and_the_rest_is_reported(
    cluster: FakeCluster, connections: Connections
) -> None:
    planner = make_planner()
    assert planner.reported() is None
    assert await planner.latest({"0": 0, "1": 0, "2": 0}, 6) == {"0": 5, "1": 0, "2": 1}
    assert planner.reported() == {"0": 10, "1": 0, "2": 1}


async def test_available_now_goes_no_further(cluster: FakeCluster, connections: Connections) -> None:
    planner = make_planner()
    await planner.freeze()
    grow(cluster, 0, 100)
    assert await planner.latest({"0": 0, "1": 0, "2": 0}, 8) == {"0": 7, "1": 0, "2": 1}
    assert await planner.latest({"0": 7, "1": 0, "2": 1}, 8) == {"0": 10, "1": 0, "2": 1}
    end = {"0": 10, "1": 0, "2": 1}
    assert await planner.latest(end, 8) == end


async def test_available_now_does_not_pass_over_a_loss(cluster: FakeCluster, connections: Connections) -> None:
    planner = make_planner()
    await planner.freeze()
    with pytest.raises(DataLossError, match="partition 0 ends before 10, and the stream has read up to 50"):
        await planner.latest({"0": 50, "1": 0, "2": 1}, None)


async def test_partitions_that_fail_over_stand_still(cluster: FakeCluster, connections: Connections) -> None:
    planner = make_planner()
    cluster.owner.silent = {0}
    for partition_id in range(3):
        grow(cluster, partition_id, 20)
    start = {"0": 10, "1": 0, "2": 1}
    middle = await planner.latest(start, None)
    assert middle == {"0": 10, "1": 21, "2": 21}
    successor = FakeOwner({0: 25, 1: 20, 2: 20})
    await successor.start()
    await cluster.register_server(2, successor.endpoint)
    await cluster.assign_to(2)
    assert await planner.latest(middle, None) == {"0": 26, "1": 21, "2": 21}
    await successor.stop()


async def test_nobody_stands_still_for_ever(cluster: FakeCluster, connections: Connections) -> None:
    planner = make_planner(failoverTimeoutMs="100")
    cluster.owner.silent = {0}
    start = {"0": 10, "1": 0, "2": 1}
    assert await planner.latest(start, None) == start
    await asyncio.sleep(0.11)
    with pytest.raises(PlanningError, match=r"partition 0 has stood still for .* did not answer"):
        await planner.latest(start, None)


async def test_an_owner_that_does_not_know_of_its_successor_is_no_loss(
    cluster: FakeCluster, connections: Connections
) -> None:
    """The offset stays, and goes on when the right owner is found."""
    planner = make_planner()
    start = {"0": 15, "1": 0, "2": 1}
    assert await planner.latest(start, None) == start
    grow(cluster, 0, 17)
    assert await planner.latest(start, None) == {"0": 18, "1": 0, "2": 1}


async def test_a_log_that_was_made_anew_is_a_loss(cluster: FakeCluster, connections: Connections) -> None:
    start = {"0": 15, "1": 0, "2": 1}
    planner = make_planner(failoverTimeoutMs="1")
    with pytest.raises(DataLossError, match="partition 0 ends before 10, and the stream has read up to 15"):
        for _ in range(3):
            await planner.latest(start, None)
            await asyncio.sleep(0.002)
    tolerant = make_planner(failoverTimeoutMs="1", failOnDataLoss="false")
    for _ in range(3):
        assert await tolerant.latest(start, None) == start
        await asyncio.sleep(0.002)


async def test_zookeeper_may_be_away_for_a_while(cluster: FakeCluster, connections: Connections) -> None:
    planner = make_planner()
    start = await planner.initial()
    await planner.close()
    connections.fail_next = 1
    assert await planner.latest(start, None) == start
    grow(cluster, 1, 4)
    assert await planner.latest(start, None) == {"0": 10, "1": 5, "2": 1, "since": {"0": 10, "1": 0, "2": 1}}


async def test_a_checkpoint_of_other_partitions(cluster: FakeCluster, connections: Connections) -> None:
    with pytest.raises(PlanningError, match="the checkpoint is of partitions 0, 1, this query reads 0, 1, 2"):
        await make_planner().latest({"0": 0, "1": 0}, None)


async def test_splits_of_a_micro_batch(cluster: FakeCluster, connections: Connections) -> None:
    planner = make_planner(maxRowsPerSplit="4")
    splits = await planner.splits({"0": 2, "1": 0, "2": 0}, {"0": 10, "1": 0, "2": 1})
    assert [split.range for split in splits] == [OffsetRange(0, 2, 6), OffsetRange(0, 6, 10), OffsetRange(2, 0, 1)]
    assert cluster.owner.requests == []


async def test_splits_survive_a_lost_session(
    cluster: FakeCluster, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = make_planner()
    await planner.initial()
    attempts = 0

    async def plan_ranges(*arguments: object) -> object:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionLossError("gone")
        return await planning.plan_ranges(*arguments)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(stream_planning, "plan_ranges", plan_ranges)
    assert len(await planner.splits({"0": 0, "1": 0, "2": 0}, {"0": 1, "1": 0, "2": 0})) == 1
    assert connections.made == 2


async def test_a_stream_begins_at_a_time_and_asks_once(connections: Connections, cluster: FakeCluster) -> None:
    cluster.owner.times = {0: {3: 1_000, 7: 2_000}, 2: {0: 2_500}}
    planner = make_planner(startingTimestamp="1970-01-01T00:00:01Z")
    expected = {"0": 4, "1": 0, "2": 0, "initial": True}
    assert await planner.initial() == expected
    cluster.owner.times = {0: {5: 1_000}}
    assert await planner.initial() == expected
    await planner.close()
