"""What a server adds to its console, and the console of a server that runs."""

import asyncio
import json
from typing import Any

import pytest

from tests.unit.common.net.test_http import get
from tests.unit.server.process.test_node import PARTITIONS, ROOT, Cluster, NodeLog, until
from tests.unit.server.process.test_node import cluster as cluster  # the fixture
from waltz.common.metrics.durations import DurationCounts
from waltz.common.replica_states import ReplicaStatus
from waltz.console import surveyor
from waltz.console.history import STEPS
from waltz.server.store.replica.replica_view import ReplicaView
from waltz.serving.console import Sampler


class FakePartition:
    """What is sampled of a partition."""

    def __init__(self) -> None:
        self.committed_count = 0
        self.latencies = DurationCounts(0.0)
        self.replica_views = (
            ReplicaView("s1:6000", ReplicaStatus.CURRENT, 3),
            ReplicaView("s2:6000", ReplicaStatus.AWAY, None),
        )
        self.feed_lag_transactions = 4
        self.feed_lag_s = 0.25

    def replica_lags_s(self) -> dict[str, float | None]:
        return {"s1:6000": 1.5, "s2:6000": None}

    @property
    def healthy(self) -> bool:
        raise AssertionError("health is not looked at: storages would be asked for it")

    def latency_counts(self) -> dict[int, int]:
        return self.latencies.counts()

    def commit(self, count: int, duration_s: float) -> None:
        self.committed_count += count
        self.latencies.add(duration_s, count, 0.0)


class Sampled:
    """A sampler of made-up partitions."""

    def __init__(self, count: int) -> None:
        self.partitions: dict[int, Any] = {each: FakePartition() for each in range(count)}
        self.sampler = Sampler(lambda: self.partitions)

    def last(self, partition_id: int | None = None) -> dict[str, float | None]:
        total = self.sampler.total
        values = total.series(total.last_step) if partition_id is None else self.sampler.history_of(partition_id)
        assert values is not None
        return {name: sequence[-1] for name, sequence in values.items()}


async def test_commits_latencies_and_lags_of_a_step() -> None:
    sampled = Sampled(2)
    await sampled.sampler.sample(1)
    assert sampled.last(0) == {"lag:s1:6000": 3.0}
    sampled.partitions[0].commit(99, 0.001)
    sampled.partitions[0].commit(1, 1.0)
    await asyncio.sleep(0.01)
    await sampled.sampler.sample(2)
    zero, one, total = sampled.last(0), sampled.last(1), sampled.last()
    assert zero["p50_ms"] == total["p50_ms"] == pytest.approx(1, rel=0.1)
    assert zero["commits"] == total["commits"]
    assert (zero["commits"] or 0) > 0
    assert (one["commits"], one.get("p50_ms")) == (0.0, None)
    assert (total["lag"], total["degraded"]) == (3.0, 2.0)
    assert (total["lag_s"], total["feed_lag_s"]) == (1.5, 0.25)
    facts = sampled.sampler.facts(0)
    assert facts is not None
    assert facts.p99_ms == pytest.approx(1, rel=0.1)
    assert [tuple(each) for each in facts.replicas] == [
        ("s1:6000", ReplicaStatus.CURRENT, 3, 1.5),
        ("s2:6000", ReplicaStatus.AWAY, None, None),
    ]
    assert (facts.feed_lag, facts.feed_lag_s) == (4, 0.25)


async def test_a_partition_that_is_opened_anew_counts_from_its_beginning() -> None:
    sampled = Sampled(1)
    sampled.partitions[0].commit(1000, 0.001)
    await sampled.sampler.sample(1)
    sampled.partitions[0] = FakePartition()
    await sampled.sampler.sample(2)
    assert sampled.last(0).get("commits") is None


async def test_a_partition_that_has_left_keeps_its_history_for_an_hour() -> None:
    sampled = Sampled(1)
    await sampled.sampler.sample(1)
    del sampled.partitions[0]
    await sampled.sampler.sample(2)
    assert sampled.sampler.facts(0) is None
    assert sampled.last(0) == {"lag:s1:6000": None}
    await sampled.sampler.sample(1 + STEPS)
    assert sampled.sampler.history_of(0) is None
    assert sampled.sampler.total.last_step == 1 + STEPS


async def test_others_have_their_turn_while_many_partitions_are_sampled() -> None:
    sampled = Sampled(100)
    sampling = asyncio.create_task(sampled.sampler.sample(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not sampling.done()
    await sampling


# A server that runs


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveyor, "INTERVAL_S", 0.0)
    monkeypatch.setattr(surveyor, "PAUSE_SHARE", 0)


async def survey(port: int) -> dict[str, Any]:
    """The next answer with something new."""
    found: dict[str, Any] = {}
    async with asyncio.timeout(60):
        while "cluster" not in found:
            found = json.loads((await get(port, f"/console/cluster.json?after={found.get('number', 0)}"))[2])
    return found


@pytest.mark.usefixtures("often")
async def test_the_console_of_a_server(cluster: Cluster) -> None:
    server = await cluster.server(server_jetty_port=0)
    await until(lambda: len(server.partitions) == PARTITIONS)
    for log in NodeLog.made:
        log.replica_views = (ReplicaView("s1:6000", ReplicaStatus.LAGGING, 5),)
    assert server.http_port is not None
    found = await survey(server.http_port)
    here, told = found["here"], found["cluster"]
    assert here["id"] == told["servers"][0]["id"] == 1
    assert (here["zookeeper"], here["partitions"]) == (True, PARTITIONS)
    assert (told["name"], told["root"]) == ("test", ROOT)
    assert [each[0] for each in told["partitions"]] == [0, 1, 2]
    assert told["storages"][0]["storage"] == "s1:6000"
    assert told["storages"][0]["answers"] is False
    assert told["partitions"][0][told["columns"].index("replicas")] == [[0, "lagging", 5]]
    texts = [problem["text"] for problem in told["problems"]]
    assert "3 partitions have no quorum of replicas online: appends wait" in texts
    for path in ("/console", "/console/history.json", "/console/partition.json?partition=0", "/ping", "/metrics"):
        assert (await get(server.http_port, path))[0] == 200


@pytest.mark.usefixtures("often")
async def test_what_was_known_is_shown_when_zookeeper_loses_the_cluster(cluster: Cluster) -> None:
    server = await cluster.server(server_jetty_port=0)
    await until(lambda: len(server.partitions) == PARTITIONS)
    assert server.http_port is not None
    known = await survey(server.http_port)
    client = cluster.clients[-1]
    cluster.tree.disconnect(client)
    try:
        found: dict[str, Any] = known
        async with asyncio.timeout(60):
            while found["here"]["zookeeper"]:
                found = json.loads((await get(server.http_port, "/console/cluster.json?after=0"))[2])
        assert found["cluster"]["name"] == "test"
        assert found["age_s"] is not None
    finally:
        cluster.tree.reconnect(client)


async def test_it_can_be_turned_off(cluster: Cluster) -> None:
    server = await cluster.server(server_jetty_port=0, console_enabled=False)
    assert server.http_port is not None
    assert (await get(server.http_port, "/console"))[0] == 404
    assert (await get(server.http_port, "/ping"))[0] == 200
