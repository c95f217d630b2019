"""The state of a cluster at one moment: what ZooKeeper, servers and storages say, put together by partition."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from waltz.cli.checks import find_failures
from waltz.cli.replica_reports import ask_last_ids
from waltz.cli.session import Session
from waltz.cli.survey import Survey, read_survey
from waltz.cli.write_sessions import Told, ask_owners
from waltz.common.cluster.marks import ask_committed_marks
from waltz.common.cluster.owners import Owner, read_owners
from waltz.common.errors import WaltzError
from waltz.common.metrics import Json
from waltz.common.zk.store_admin import read_cluster_params


class ReplicaState(NamedTuple):
    """One copy of a partition."""

    storage: str
    state: str
    """``current`` (it takes full part in the store session), ``behind`` (it does not), ``offline`` (switched off, or
    not there), ``silent`` (its storage does not answer)."""
    lag: int | None
    """Committed transactions that it has not got; None if it is not known."""


class PartitionState(NamedTuple):
    """One partition. What is None nobody told."""

    partition_id: int
    owner: int | None
    endpoint: str | None
    generation: int | None
    store_session: int | None
    write_session: int | None
    high_water_mark: int | None
    rate_per_s: float | None
    """Of committed transactions."""
    replicas: tuple[ReplicaState, ...]
    problems: tuple[str, ...]
    """The checks of ``waltz cluster verify`` that fail."""


class ServerState(NamedTuple):
    """One server."""

    server_id: int
    endpoint: str
    version: int | None
    """Of the protocol; None if it does not answer."""
    partitions: int
    preferred: tuple[int, ...]


class StorageState(NamedTuple):
    """One storage node."""

    storage: str
    answers: bool
    online: int
    """Partitions that servers may use."""
    assigned: int


class ClusterState(NamedTuple):
    """Everything."""

    name: str
    root: str
    at_s: float
    """When the marks were read, in the time of the loop."""
    servers: tuple[ServerState, ...]
    storages: tuple[StorageState, ...]
    partitions: tuple[PartitionState, ...]

    @property
    def unwell(self) -> int:
        """How many partitions have problems."""
        return sum(bool(partition.problems) for partition in self.partitions)

    def document(self) -> dict[str, Json]:
        """It in JSON."""
        return {
            "name": self.name,
            "root": self.root,
            "healthy": not self.unwell,
            "servers": [{**each._asdict(), "preferred": list(each.preferred)} for each in self.servers],
            "storages": [each._asdict() for each in self.storages],
            "partitions": [
                {
                    **each._asdict(),
                    "replicas": [replica._asdict() for replica in each.replicas],
                    "problems": list(each.problems),
                }
                for each in self.partitions
            ],
        }


async def read_state(
    session: Session, partition_ids: Sequence[int], timeout_s: float, before: "ClusterState | None" = None
) -> ClusterState:
    """Ask everybody; ``timeout_s`` is for each answer. Rates are those since ``before``.

    Raises ``WaltzError`` of ZooKeeper; who does not answer is part of the state.
    """
    zookeeper, root = session.zookeeper, session.root
    loop = asyncio.get_running_loop()
    survey = await read_survey(zookeeper, root, partition_ids, tls=session.tls, timeout_s=timeout_s)
    owners = await read_owners(zookeeper, root)
    name = (await read_cluster_params(zookeeper, root)).name
    last_ids, told = await asyncio.gather(
        ask_last_ids(session, survey, timeout_s),
        _ask_write_sessions(session, {each: owners[each] for each in partition_ids if each in owners}, timeout_s),
    )
    # After the storages: what they have is committed by then, or it is counted as lag.
    marks, _ = await ask_committed_marks(
        zookeeper, root, partition_ids, tls=session.tls, deadline_s=loop.time() + min(timeout_s, 1.0)
    )
    at_s = loop.time()
    rates = {} if before is None else _rates(before, marks, at_s)
    partitions = tuple(
        _partition(each, survey, owners.get(each), marks.get(each), told.get(each), last_ids, rates.get(each))
        for each in partition_ids
    )
    servers = tuple(
        ServerState(
            server_id,
            str(server.endpoint),
            survey.server_reports[server_id].version,
            sum(server_id in owning for owning in survey.owners.values()),
            server.preferred_partitions,
        )
        for server_id, server in sorted(survey.servers.items())
    )
    storages = tuple(
        StorageState(storage, False, 0, 0)
        if isinstance(report, str)
        else StorageState(storage, True, sum(report.values()), len(report))
        for storage, report in sorted(survey.storage_reports.items())
    )
    return ClusterState(name, root, at_s, servers, storages, partitions)


def _partition(
    partition_id: int,
    survey: Survey,
    owner: Owner | None,
    mark: int | None,
    told: Told | str | None,
    last_ids: Mapping[str, Mapping[int, int]],
    rate_per_s: float | None,
) -> PartitionState:
    metadata = survey.metadata[partition_id]
    replicas = tuple(
        _replica(partition_id, storage, survey, mark, last_ids.get(storage, {}).get(partition_id))
        for storage in sorted(survey.storages.get(partition_id, ()))
    )
    try:
        problems = tuple(check.name for check in find_failures(survey, partition_id))
    except WaltzError:
        problems = ("NO_REPLICA",)
    return PartitionState(
        partition_id,
        None if owner is None else owner.server_id,
        None if owner is None or owner.endpoint is None else str(owner.endpoint),
        None if owner is None else owner.generation,
        None if metadata is None else metadata.session_id,
        told.number if isinstance(told, Told) else None,
        mark,
        rate_per_s,
        replicas,
        problems,
    )


def _rates(before: ClusterState, marks: Mapping[int, int], at_s: float) -> dict[int, float]:
    """Of the partitions whose marks are known both times."""
    return {
        partition.partition_id: max(0, marks[partition.partition_id] - partition.high_water_mark) / (at_s - before.at_s)
        for partition in before.partitions
        if partition.high_water_mark is not None and partition.partition_id in marks
    }


def _replica(partition_id: int, storage: str, survey: Survey, mark: int | None, last_id: int | None) -> ReplicaState:
    report, metadata = survey.storage_reports.get(storage, ""), survey.metadata[partition_id]
    if isinstance(report, str):
        return ReplicaState(storage, "silent", None)
    if not report.get(partition_id, False):
        return ReplicaState(storage, "offline", None)
    states = {} if metadata is None else {each.connect_string: state for each, state in metadata.replicas.items()}
    is_member = metadata is not None and storage in states and states[storage].is_member_of(metadata.session_id)
    lag = None if mark is None or last_id is None else max(0, mark - last_id)
    return ReplicaState(storage, "current" if is_member else "behind", lag)


async def _ask_write_sessions(session: Session, owners: Mapping[int, Owner], timeout_s: float) -> dict[int, Told | str]:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            return await ask_owners(owners, session.tls)
    return {}
