"""Deletes the files of a replica that has left a partition, when no store session can count the replica.

A server without knowledge of the last change of the replicas may begin a store session with the former replicas at any
moment, and such a session is not in the metadata before it opens. So the replica is switched off before the metadata
are read: no session that begins later can include the replica, and all other sessions are in the metadata. The metadata
are only read: servers of the original need not know of a deletion.
"""

from collections.abc import Awaitable, Callable

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import read_replicas
from waltz.common.zk.znodes import ReplicaId
from waltz.storage.remote.admin_client import StorageAdminClient


async def reason_to_keep(cluster: ClusterHandle, partition_id: int, storage: str) -> str | None:
    """The reason why a storage may need its files of a partition, according to ZooKeeper; None: no session can count
    the files.

    The answer holds for the sessions that have begun until now. Raises ``WaltzError``.
    """
    replicas = await read_replicas(cluster.zookeeper, cluster.root, [partition_id])
    metadata = replicas.metadata[partition_id]
    if storage in replicas.assignments.storages_of(partition_id):
        return f"{storage} is assigned to it"
    if metadata is None:
        return None
    if ReplicaId(partition_id, storage) in metadata.replicas:
        return f"a store session has begun with {storage}"
    # The write that opens a session lists all its storages. Later writes of the session never add storages.
    if not any(state.is_member_of(metadata.session_id) for state in metadata.replicas.values()):
        return f"store session {metadata.session_id} is not open yet, and may take {storage} in"
    return None


async def delete_files(
    admin: StorageAdminClient, partition_id: int, reason: Callable[[], Awaitable[str | None]]
) -> str | None:
    """Delete the files, unless they are needed. Returns the reason in that case.

    Args:
        admin: The admin port of the storage node with the files.
        partition_id: The partition.
        reason: Returns the reason why the files are needed, like :func:`reason_to_keep`.

    Raises:
        WaltzError: ZooKeeper or the storage failed. The replica may be switched off.
    """
    await admin.set_available([partition_id], False)
    found: str | None = "it is unknown whether they are needed"
    try:
        found = await reason()
    finally:
        if found is not None:
            await admin.set_available([partition_id], True)
    if found is None:
        await admin.set_assigned([partition_id], False, delete_files=True)
    return found
