"""Clusters as a survey finds them, made up; and what a server knows of its own partitions in them."""

import math

from waltz.common.replica_states import REMEDIES, ReplicaStatus
from waltz.console.document import PartitionFacts, ReplicaFacts
from waltz.console.history import STEPS, History
from waltz.console.pages import Here
from waltz.operations.survey.cluster_state import (
    ClusterState,
    SurveyedPartition,
    SurveyedServer,
    SurveyedStorage,
)
from waltz.operations.survey.replica_judgement import SurveyedReplica

STATES = {status.value: status for status in ReplicaStatus}

HERE = 1
"""The server that shows the console."""


def well(partition_id: int, servers: int, storages: int) -> SurveyedPartition:
    """A partition whose replicas are on three storages, or on all if there are fewer."""
    holders = sorted((partition_id + place) % storages for place in range(min(3, storages)))
    owner = partition_id % servers + 1
    return SurveyedPartition(
        partition_id,
        owner,
        f"server-{owner}.example:55180",
        3,
        40 + partition_id % 7,
        None,
        1_000_000 + 7919 * partition_id,
        20 + 15 * math.sin(partition_id),
        tuple(SurveyedReplica(storage_name(holder), "current", None) for holder in holders),
        (),
    )


def storage_name(place: int) -> str:
    """How the cluster knows a storage."""
    return f"storage-{place + 1}.example:55280"


def cluster(partitions: int = 1000, servers: int = 4, storages: int = 5) -> ClusterState:
    """One that is well."""
    return ClusterState(
        "payments",
        "/waltz/payments",
        0.0,
        tuple(
            SurveyedServer(each, f"server-{each}.example:55180", 5, len(range(each - 1, partitions, servers)), (), None)
            for each in range(1, servers + 1)
        ),
        tuple(
            SurveyedStorage(
                storage_name(each),
                True,
                3 * partitions // storages,
                3 * partitions // storages,
                None,
                (750 - 7 * each) << 30,
                "0.1.0",
                (),
            )
            for each in range(storages)
        ),
        tuple(well(each, servers, storages) for each in range(partitions)),
    )


def in_trouble(state: ClusterState) -> ClusterState:
    """The last storage is dead; one partition has lost its quorum, and another one's replica is behind."""
    dead = state.storages[-1].storage
    away = SurveyedReplica(dead, "away", None, "its storage does not answer", *REMEDIES[ReplicaStatus.AWAY])
    partitions = []
    for partition in state.partitions:
        replicas = tuple(away if each.storage == dead else each for each in partition.replicas)
        reasons: dict[str, list[str]] = {}
        if partition.partition_id == 17:
            replicas = (replicas[0], *(each._replace(state="offline", lag=None) for each in replicas[1:]))
            reasons["PARTITION_QUORUM_STATUS"] = [f"1 of 3 replicas are online: {replicas[0].storage}"]
            reasons["SERVER_PARTITION_HEALTH_CHECK"] = [f"server {partition.endpoint} calls it unhealthy"]
        if partition.partition_id == 40:
            replicas = (*replicas[:2], replicas[2]._replace(state="behind", lag=18_231))
            reasons["REPLICA_RECOVERY_STATUS"] = [f"storage {replicas[2].storage} was left in session 41"]
        elif any(each.state == "away" for each in replicas):
            text = f"storage {dead} was left in session {(partition.store_session or 1) - 1}"
            reasons["REPLICA_RECOVERY_STATUS"] = [f"{text}; session {partition.store_session} is the present one"]
        partitions.append(partition._replace(replicas=replicas, problems=tuple(reasons), reasons=reasons))
    silent = SurveyedStorage(dead, False, 0, 0, f"no connection to {dead}: connection refused")
    return state._replace(storages=(*state.storages[:-1], silent), partitions=tuple(partitions))


def facts_of(state: ClusterState, partition_id: int) -> PartitionFacts | None:
    """What the server here knows of its own partitions."""
    partition = state.partitions[partition_id]
    if partition.owner != HERE:
        return None
    replicas = [
        ReplicaFacts(each.storage, STATES.get(each.state, ReplicaStatus.AWAY), each.lag or partition_id % 3)
        for each in partition.replicas
    ]
    return PartitionFacts(2.5 + 2 * math.sin(partition_id), replicas)


def hour(names: list[str], commits_per_s: float = 21.0) -> History:
    """An hour of something that looks like measurements."""
    history = History()
    for step in range(STEPS):
        wave = 1 + 0.5 * math.sin(step / 40) + 0.12 * math.sin(step * 1.7) + 0.07 * math.sin(step * 0.61)
        gap = 150 <= step < 158
        values = {
            "commits": commits_per_s * wave,
            "p50_ms": 1.4 * wave,
            "p99_ms": 4.0 * wave * (3 if step % 97 == 5 else 1),
        }
        values.update({name: max(0.0, 300 * (wave - 1.4)) for name in names})
        values["degraded"] = 0.0 if step < 330 else 24.0
        history.record(step, {name: None if gap else value for name, value in values.items()})
    return history


def here(state: ClusterState) -> Here:
    """What the server that shows the console tells of itself."""
    own = [partition for partition in state.partitions if partition.owner == HERE]
    total = hour(["lag"], sum(partition.rate_per_s or 0.0 for partition in own) / 1.2)
    return Here(
        lambda: {
            "id": HERE,
            "endpoint": "server-1.example:55180",
            "version": "0.1.0",
            "zookeeper": True,
            "partitions": len(own),
        },
        lambda partition_id: facts_of(state, partition_id),
        lambda: total.series(STEPS - 1),
        lambda partition_id: (
            hour([f"lag:{each.storage}" for each in state.partitions[partition_id].replicas]).series(STEPS - 1)
            if state.partitions[partition_id].owner == HERE
            else None
        ),
    )
