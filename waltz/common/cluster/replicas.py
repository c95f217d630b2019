"""Chooses the replicas that may serve a bulk read, a repair or a comparison.

The second half of rule S6 (the first is :mod:`waltz.common.cluster.marks`): the metadata have to be read *after* the
high-water mark. An unresolved replica of the current session took part in the recovery of this session. So all its
records up to a committed mark are right, and stay right in all later sessions. Any other replica may have a tail that a
recovery will truncate.

The server that has reported the mark may have changed the metadata just before, and members of the ensemble that lag
may answer reads. So the metadata come from :func:`read_replicas` only, which never returns a state older than the call.
"""

from collections.abc import Iterable
from typing import NamedTuple

from waltz.common.ids import Endpoint
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import (
    read_connections,
    read_partition_metadata,
    read_replica_assignments,
    sync_cluster,
)
from waltz.common.zk.znodes import (
    UNRESOLVED,
    ConnectionMetadata,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaId,
    ReplicaState,
)


class Source(NamedTuple):
    """A storage node that may serve reads."""

    storage: str
    """The connect string, which is the name of the storage in the cluster."""
    admin: Endpoint
    """The admin port, which serves reads."""


class Choice(NamedTuple):
    """The replicas that may serve reads, and the reasons against the others."""

    sources: tuple[Source, ...]
    refused: dict[str, str]


class Replicas(NamedTuple):
    """The assignments and the metadata of some partitions, all read after one moment."""

    assignments: ReplicaAssignments
    connections: ConnectionMetadata
    metadata: dict[int, PartitionMetadata | None]

    def choose(self, partition_id: int) -> Choice:
        """Judge every assigned replica of the partition."""
        return choose_replicas(partition_id, self.metadata[partition_id], self.assignments, self.connections)

    def name_of(self, admin: Endpoint) -> str | None:
        """The connect string of the storage node with that admin port; ``None`` without such a node in the cluster."""
        for storage, port in self.connections.admin_ports.items():
            if port == admin.port and Endpoint.parse(storage).host == admin.host:
                return storage
        return None

    def may_vote(self, partition_id: int, storage: str) -> bool:
        """Whether the next recovery counts the records of that storage. Then none of them may be removed.

        Also true during a recovery that has not written its participants yet.
        """
        metadata = self.metadata[partition_id]
        state = None if metadata is None else metadata.replicas.get(ReplicaId(partition_id, storage))
        return state is not None and state.closing_high_water_mark == UNRESOLVED


async def read_replicas(zookeeper: ZooKeeper, root: str, partition_ids: Iterable[int]) -> Replicas:
    """The replicas of some partitions, at least as new as any state that was reported to any process before the call.

    Raises ``StoreAdminError`` (no cluster), ``ZooKeeperError``, ``ProtocolError``.
    """
    wanted = sorted(set(partition_ids))
    while True:
        session_id = zookeeper.session_id
        await sync_cluster(zookeeper, root)
        assignments = await read_replica_assignments(zookeeper, root)
        connections = await read_connections(zookeeper, root)
        metadata = {each: await read_partition_metadata(zookeeper, root, each) for each in wanted}
        if zookeeper.session_id == session_id:  # only the ensemble member of this session was synced
            return Replicas(assignments, connections, metadata)


def choose_replicas(
    partition_id: int,
    metadata: PartitionMetadata | None,
    assignments: ReplicaAssignments,
    connections: ConnectionMetadata,
) -> Choice:
    """Judge every assigned replica."""
    sources: list[Source] = []
    refused: dict[str, str] = {}
    for storage in sorted(assignments.storages_of(partition_id)):
        state = None if metadata is None else metadata.replicas.get(ReplicaId(partition_id, storage))
        port = connections.admin_ports.get(storage)
        reason = _objection(state, metadata)
        if reason is not None:
            refused[storage] = reason
        elif port is None:
            refused[storage] = "no admin port is registered for it"
        else:
            try:
                sources.append(Source(storage, Endpoint(Endpoint.parse(storage).host, port)))
            except ValueError as error:
                refused[storage] = str(error)
    return Choice(tuple(sources), refused)


def _objection(state: ReplicaState | None, metadata: PartitionMetadata | None) -> str | None:
    if state is None or metadata is None:
        return "it takes no part in the current session"
    if state.is_member_of(metadata.session_id):
        return None
    if state.session_id != metadata.session_id:
        return f"it was left behind in session {state.session_id}, session {metadata.session_id} is current"
    return "it was left behind in the current session"
