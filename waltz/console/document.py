"""The data of the console's page, as JSON. Pure.

The format is short, is for that page only, and changes with it. Programs should use ``waltz status --json``.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from waltz.common.metrics.registry import Json
from waltz.common.replica_states import ReplicaStatus
from waltz.operations.survey.cluster_state import ClusterState, SurveyedPartition
from waltz.operations.survey.problems import (
    WARNING,
    WORDS,
    failed_checks,
    find_problems,
    shortened,
    silent_storages,
)
from waltz.operations.survey.replica_judgement import SurveyedReplica, with_owner_view

COLUMNS = (
    *("id", "owner", "generation", "session", "mark", "rate", "p99_ms", "lag", "lag_s"),
    *("feed_lag", "feed_lag_s", "replicas", "severity", "problems"),
)
"""Names of a partition's entries. A replica has the index of its storage in the list, its state, its lag in
transactions, and its lag in seconds if that is known and not 0."""


class ReplicaFacts(NamedTuple):
    """A replica as the owner of its partition sees it."""

    storage: str
    status: ReplicaStatus
    lag: int | None
    lag_s: float | None = None


class PartitionFacts(NamedTuple):
    """Facts that a server has about a partition that it owns."""

    p99_ms: float | None
    """99th percentile of the latency of appends in the last step of the history; ``None`` without appends."""
    replicas: Sequence[ReplicaFacts]
    feed_lag: int | None = None
    """Number of committed transactions not yet sent to the slowest feed, although the server has promised them."""
    feed_lag_s: float | None = None
    """Minimum time since the commit of the oldest such transaction of all feeds, in seconds."""


Facts = Callable[[int], PartitionFacts | None]
"""Returns facts about a partition; ``None`` if this server does not own it."""


def cluster_parts(state: ClusterState, facts: Facts) -> Iterator[str]:
    """The document in parts, one for each partition, so the loop can do other work in between."""
    silent = silent_storages(state)
    places = {storage: place for place, storage in enumerate(_storages(state))}
    head: dict[str, Json] = {
        "name": state.name,
        "root": state.root,
        "servers": [
            {
                "id": server.server_id,
                "endpoint": server.endpoint,
                "version": server.version,
                "partitions": server.partitions,
                "preferred": len(server.preferred),
                "reason": None if server.reason is None else shortened(server.reason),
            }
            for server in state.servers
        ],
        "storages": list(_storages(state).values()),
        "problems": [problem._asdict() for problem in find_problems(state)],
        "columns": COLUMNS,
    }
    yield f'{_compact(head)[:-1]},"partitions":['
    comma = ""
    for partition in state.partitions:
        yield f"{comma}{_compact(_row(partition, places, facts(partition.partition_id), silent))}"
        comma = ","
    yield "]}"


def _storages(state: ClusterState) -> dict[str, dict[str, Json]]:
    """All storages: those in the cluster, and those that only partitions name."""
    found: dict[str, dict[str, Json]] = {}
    for storage in state.storages:
        document: dict[str, Json] = storage._asdict()
        del document["told_at_s"]
        document["reason"] = None if storage.reason is None else shortened(storage.reason)
        document["ailments"] = None if storage.ailments is None else [each.text for each in storage.ailments]
        found[storage.storage] = document
    for partition in state.partitions:
        for replica in partition.replicas:
            if replica.storage not in found:
                found[replica.storage] = {"storage": replica.storage, "answers": False, "online": 0, "assigned": 0}
    return found


def _row(
    partition: SurveyedPartition, places: Mapping[str, int], facts: PartitionFacts | None, silent: Set[str]
) -> list[Json]:
    replicas = _replicas(partition, facts)
    failed = failed_checks(partition, silent)
    severity = WORDS[failed[0]].severity if failed else None
    if severity is None and any(each.state != ReplicaStatus.CURRENT.value for each in replicas):
        severity = WARNING
    return [
        partition.partition_id,
        partition.owner,
        partition.generation,
        partition.store_session,
        partition.high_water_mark,
        None if partition.rate_per_s is None else rounded(partition.rate_per_s),
        None if facts is None else facts.p99_ms,
        max((each.lag for each in replicas if each.lag is not None), default=None),
        _seconds(max((each.lag_s for each in replicas if each.lag_s is not None), default=None)),
        partition.feed_lag if facts is None else facts.feed_lag,
        _seconds(partition.feed_lag_s if facts is None else facts.feed_lag_s),
        [
            [places[each.storage], each.state, each.lag, *([_seconds(each.lag_s)] if each.lag_s else [])]
            for each in replicas
        ],
        severity,
        [WORDS[name].short for name in failed],
    ]


def _replicas(partition: SurveyedPartition, facts: PartitionFacts | None) -> list[SurveyedReplica]:
    """The replicas: as the owner sees them if this server owns the partition, else as the survey found them."""
    told = {} if facts is None else {replica.storage: replica for replica in facts.replicas}
    return [
        each if (facts_of := told.get(each.storage)) is None else with_owner_view(each, *facts_of[1:])
        for each in partition.replicas
    ]


def _seconds(lag_s: float | None) -> float | None:
    return None if lag_s is None else rounded(lag_s)


def reasons(partition: SurveyedPartition) -> list[Json]:
    """The problems of one partition, with their reasons."""
    return [
        {
            "severity": words.severity,
            "text": words.one,
            "details": [shortened(text) for text in partition.reasons[name]],
        }
        for name, words in WORDS.items()
        if name in partition.reasons
    ]


def rounded(value: float) -> float:
    """The number, rounded to the digits that are visible in a plot."""
    return float(f"{value:.4g}")


def series(values: Mapping[str, Sequence[float | None]]) -> dict[str, Json]:
    """Series of the history."""
    return {
        name: [None if value is None else rounded(value) for value in sequence] for name, sequence in values.items()
    }


def _compact(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"))
