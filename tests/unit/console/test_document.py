"""What the page gets to know of a cluster."""

import json
import math
from typing import Any

from tests.unit.console.fakes import HERE, cluster, facts_of, in_trouble
from waltz.common.replica_states import ReplicaStatus
from waltz.console.document import COLUMNS, PartitionFacts, ReplicaFacts, cluster_parts, reasons, rounded, series
from waltz.operations.survey.cluster_state import ClusterState


def document(state: ClusterState) -> dict[str, Any]:
    found: dict[str, Any] = json.loads("".join(cluster_parts(state, lambda each: facts_of(state, each))))
    return found


def partition(found: dict[str, Any], partition_id: int) -> dict[str, Any]:
    return dict(zip(found["columns"], found["partitions"][partition_id], strict=True))


def test_one_partition_is_one_part() -> None:
    state = cluster(100)
    assert len(list(cluster_parts(state, lambda _: None))) == 102


def test_a_thousand_partitions_are_told_in_few_bytes() -> None:
    state = cluster(1000)
    assert len("".join(cluster_parts(state, lambda each: facts_of(state, each)))) < 150_000


def test_a_partition_of_this_server_is_told_as_its_owner_sees_it() -> None:
    found = document(cluster(8))
    assert tuple(found["columns"]) == COLUMNS
    here, other = partition(found, 4), partition(found, 5)
    assert (here["owner"], other["owner"]) == (HERE, 2)
    assert (here["p99_ms"] > 0, other["p99_ms"]) == (True, None)
    assert (here["lag"], other["lag"]) == (0, None)
    assert here["replicas"] == [[0, "current", 0], [1, "current", 0], [4, "current", 0]]
    assert (here["severity"], here["problems"]) == (None, [])


def test_a_replica_that_lags_is_degraded_although_no_check_fails() -> None:
    state = cluster(8)
    lagging = state.partitions[1]._replace(
        replicas=(state.partitions[1].replicas[0]._replace(state="lagging", lag=812), *state.partitions[1].replicas[1:])
    )
    found = document(state._replace(partitions=(state.partitions[0], lagging)))
    assert partition(found, 1)["severity"] == "warning"
    assert partition(found, 1)["lag"] == 812


def test_lags_in_seconds_are_those_of_the_owner() -> None:
    state = cluster(8)
    late = state.partitions[1].replicas[0]._replace(state="lagging", lag=812, lag_s=3.14159)
    elsewhere = state.partitions[1]._replace(
        replicas=(late, *state.partitions[1].replicas[1:]), feed_lag=7, feed_lag_s=0.5
    )
    found = document(state._replace(partitions=(state.partitions[0], elsewhere)))
    told = partition(found, 1)
    assert (told["lag"], told["lag_s"]) == (812, 3.142)
    assert (told["feed_lag"], told["feed_lag_s"]) == (7, 0.5)
    assert told["replicas"][0][1:] == ["lagging", 812, 3.142]
    own = state.partitions[0]
    facts = PartitionFacts(
        None, [ReplicaFacts(each.storage, ReplicaStatus.COPYING, 9, 2.5) for each in own.replicas], 3, 1.25
    )
    told = partition(json.loads("".join(cluster_parts(state, lambda each: facts if each == 0 else None))), 0)
    assert (told["lag_s"], told["feed_lag"], told["feed_lag_s"]) == (2.5, 3, 1.25)
    assert {tuple(each[1:]) for each in told["replicas"]} == {("copying", 9, 2.5)}


def test_trouble() -> None:
    state = in_trouble(cluster(100))
    found = document(state)
    assert found["problems"][0]["severity"] == "critical"
    assert partition(found, 17)["severity"] == "critical"
    assert partition(found, 17)["problems"] == ["no quorum", "unhealthy"]
    assert partition(found, 2)["severity"] == "warning"
    assert found["storages"][4]["reason"].endswith("connection refused")
    (quorum, health) = reasons(state.partitions[17])
    assert isinstance(quorum, dict)
    assert quorum["details"] == ["1 of 3 replicas are online: storage-3.example:55280"]
    assert health != quorum


def test_a_storage_that_only_partitions_name_is_listed() -> None:
    state = cluster(8)
    found = document(state._replace(storages=state.storages[:2], servers=()))
    assert sorted(each["storage"] for each in found["storages"]) == [each.storage for each in state.storages]
    assert [each["answers"] for each in found["storages"]] == [True, True, False, False, False]


def test_names_stay_text() -> None:
    hostile = '</script><script>alert("1")</script>\u2028"\\'
    state = cluster(2)
    server = state.servers[0]._replace(endpoint=hostile)
    storage = state.storages[0]._replace(storage=hostile, answers=False, reason=hostile)
    found = document(state._replace(name=hostile, servers=(server,), storages=(storage,)))
    assert found["name"] == found["servers"][0]["endpoint"] == found["storages"][0]["reason"] == hostile


def test_numbers_are_short() -> None:
    assert rounded(12345.678) == 12350
    assert rounded(math.pi) == 3.142
    assert series({"a": [None, math.pi]}) == {"a": [None, 3.142]}
