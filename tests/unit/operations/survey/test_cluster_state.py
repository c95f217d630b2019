"""The state of a cluster put together from what its nodes tell, and what is missing when they do not."""

import json
from collections.abc import Mapping

import pytest

from tests.unit.common.cluster.fakes import GENERATION, SESSION
from tests.unit.operations.survey.nodes import ORIGINAL, OURS, STORAGES, WRITE_SESSION, Nodes, running
from waltz.cli import status
from waltz.common.cluster.owners import Owner
from waltz.common.storage_health import StorageHealth
from waltz.common.wire.client_server import HighWaterMarkRequest
from waltz.common.wire.lags import PartitionLags, ReplicaLag
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import ReplicaAssignments
from waltz.operations.survey import cluster_state, evidence
from waltz.operations.survey.cluster_state import ClusterState, SurveyedStorage, choose_storages, read_state

TIMEOUT_S = 10


async def look(nodes: Nodes, partition_ids: list[int], before: ClusterState | None = None) -> ClusterState:
    return await status.look(nodes.session, partition_ids, TIMEOUT_S, before)


async def test_a_cluster_that_is_well_and_a_replica_that_lags() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for _ in range(3):
            nodes.logs[0].add(b"")
        for storage, last_id in zip(nodes.storages, (2, 2, 0), strict=True):
            storage.last_ids[0] = last_id
        state = await look(nodes, [0, 1])
        zero, one = state.partitions
        assert (zero.owner, zero.endpoint) == (1, str(nodes.servers[0].endpoint))
        assert (zero.generation, zero.store_session, zero.high_water_mark) == (GENERATION, SESSION, 2)
        assert [(each.state, each.lag) for each in zero.replicas] == [("current", 0), ("current", 0), ("lagging", 2)]
        assert {each.state for each in one.replicas} == {"current"}
        assert (one.high_water_mark, one.write_session) == (-1, WRITE_SESSION)
        assert (zero.write_session, zero.rate_per_s) == (None, None)
        assert [each.version for each in state.servers] == [4, 5]
        assert [(each.online, each.assigned) for each in state.storages] == [(2, 2)] * 3
        assert (state.unwell, state.unwell_nodes) == (1, 0)
        assert zero.reasons == {"REPLICA_RECOVERY_STATUS": [f"storage {STORAGES[2]} lacks 2 committed transactions"]}
        document = json.loads(json.dumps(state.document()))
        assert document["healthy"] is False
        lagging = document["partitions"][0]["replicas"][2]
        assert (lagging["storage"], lagging["state"], lagging["lag"]) == (STORAGES[2], "lagging", 2)
        assert document["storages"][0]["problems"] is None


async def test_lags_in_seconds_are_those_of_the_owners() -> None:
    async with running(ORIGINAL, (*OURS, 6)) as nodes:
        nodes.logs[1].add(b"")
        nodes.logs[1].add(b"")
        for storage, last_id in zip(nodes.storages, (1, 1, 0), strict=True):
            storage.last_ids[1] = last_id
        nodes.servers[1].lags = [PartitionLags(1, 9, 1500, [ReplicaLag(STORAGES[2], 1, 2500)])]
        zero, one = (await look(nodes, [0, 1])).partitions
        assert (zero.feed_lag, zero.feed_lag_s) == (None, None)
        assert (one.feed_lag, one.feed_lag_s) == (9, 1.5)
        assert [(each.state, each.lag, each.lag_s) for each in one.replicas] == [
            ("current", 0, 0.0),
            ("current", 0, 0.0),
            ("lagging", 1, 2.5),
        ]
        text = "\n".join(status.lines_of(await look(nodes, [1]), None))
        assert f"-9 (1.5 s)  2 of 3 current, {STORAGES[2]} lagging -1 (2.5 s)" in text


async def test_rates_are_those_since_the_look_before() -> None:
    async with running(OURS, OURS) as nodes:
        before = (await look(nodes, [0]))._replace(at_s=0.0)
        for _ in range(8):
            nodes.logs[0].add(b"")
        state = await look(nodes, [0, 1], before)
        assert state.partitions[0].rate_per_s == pytest.approx(8 / state.at_s)
        assert state.partitions[1].rate_per_s is None


async def test_nodes_that_do_not_answer_and_replicas_that_are_off() -> None:
    async with running(OURS, OURS) as nodes:
        nodes.storages[0].status[1] = False
        await nodes.storages[1].stop()
        await nodes.servers[0].close()
        state = await look(nodes, [0, 1])
        zero, one = state.partitions
        assert (zero.high_water_mark, one.high_water_mark) == (None, -1)
        off, away, _ = one.replicas
        assert off[:4] == (STORAGES[0], "offline", None, "switched off")
        admin = f"127.0.0.1:{nodes.storages[0].admin_port}"
        assert off.do == f"waltz storage availability -s {admin} -p 1 -o true"
        assert away[:3] == (STORAGES[1], "away", None)
        assert str(away.cause).startswith("its storage does not answer: ")
        assert "SERVER_PARTITION_HEALTH_CHECK" in zero.problems
        assert "PARTITION_QUORUM_STATUS" in one.problems
        assert (state.unwell, state.unwell_nodes) == (2, 2)
        assert state.servers[0].version is None
        assert state.storages[1]._replace(reason=None) == SurveyedStorage(STORAGES[1], False, 0, 0)
        assert str(nodes.storages[1].admin_port) in str(state.storages[1].reason)
        assert str(state.servers[0].endpoint) in str(state.servers[0].reason)
        assert one.reasons["PARTITION_QUORUM_STATUS"] == [f"1 of 3 replicas are online: {STORAGES[2]}"]


async def test_a_partition_without_replicas_or_without_an_owner() -> None:
    async with running(OURS, OURS) as nodes:
        elsewhere = ReplicaAssignments(dict.fromkeys(STORAGES, (1,)))
        await nodes.zookeeper.set(ClusterPaths.of(nodes.session.root).assignment, elsewhere.encode())
        await nodes.assign({1: (0,)})
        zero, one = (await look(nodes, [0, 1])).partitions
        assert (zero.replicas, zero.problems) == ((), ("NO_REPLICA",))
        assert (one.owner, one.endpoint, one.generation) == (None, None, None)
        assert "PARTITION_ASSIGNMENT_ZK_VALIDITY" in one.problems


async def test_an_owner_that_tells_no_mark_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(OURS, OURS) as nodes:
        monkeypatch.setattr(evidence, "MARK_TIMEOUT_S", 0.05)
        tell = nodes.servers[0].filter
        nodes.servers[0].filter = lambda connection, message: (
            isinstance(message, HighWaterMarkRequest) or tell(connection, message)
        )
        asked = []

        async def ask(owners: Mapping[int, Owner]) -> Mapping[int, int]:
            asked.append(set(owners))
            return {}

        await read_state(nodes.session.cluster, [0, 1], timeout_s=TIMEOUT_S, ask_write_sessions=ask)
        assert asked == [{1}]


async def test_storages_with_many_replicas_are_asked_in_turn_and_what_they_told_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(OURS, OURS) as nodes:
        monkeypatch.setattr(cluster_state, "LARGE_INTERVAL_S", 0.0)
        for storage in nodes.storages:
            storage.health = StorageHealth(disk="full")
            storage.last_ids[0] = -5  # a lag that would be known only now and then
        state = None
        for count in (1, 2, 3, 3):
            state = await read_state(
                nodes.session.cluster, [0, 1], timeout_s=TIMEOUT_S, before=state, max_metrics_partitions=1
            )
            assert sum(each.ailments is not None for each in state.storages) == count
            assert {each.state for each in state.partitions[0].replicas} == {"current"}
        assert state is not None
        assert state.unwell_nodes == 3


def test_the_storage_that_told_longest_ago_is_asked_but_not_too_often() -> None:
    def told(*ats_s: float | None) -> ClusterState:
        storages = [SurveyedStorage(name, True, 9, 9, told_at_s=at_s) for name, at_s in zip("ab", ats_s, strict=True)]
        return ClusterState("c", "/c", 0.0, (), tuple(storages), ())

    for before, expected in (
        (None, ["small", "a"]),
        (told(None, None), ["small", "a"]),
        (told(90.0, None), ["small", "b"]),
        (told(60.0, 50.0), ["small", "b"]),
        (told(80.0, 90.0), ["small"]),
    ):
        assert choose_storages(["a", "b", "small"], ["a", "b"], before, 100.0) == expected
