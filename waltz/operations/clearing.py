"""Deletes the files of a replica that has left a partition, while no store session counts them.

A server that has not heard of the last change of the replicas may begin a store session with the former ones at any
moment, and a session that begins does not show in the metadata before it opens. So the replica is switched off before
the metadata are read: no session that begins later can take the replica in, and the metadata tell of all others. They
are only read: servers of the original need not know of a deletion.
"""

from collections.abc import Awaitable, Callable

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import read_replicas
from waltz.common.zk.znodes import ReplicaId
from waltz.storage.remote.admin_client import StorageAdminClient


async def reason_to_keep(cluster: ClusterHandle, partition_id: int, storage: str) -> str | None:
    """Why a storage may need its files of a partition, by what ZooKeeper has now; None: no session can count them.

    That holds for the sessions that have begun until now. Raises ``WaltzError``.
    """
    replicas = await read_replicas(cluster.zookeeper, cluster.root, [partition_id])
    metadata = replicas.metadata[partition_id]
    if storage in replicas.assignments.storages_of(partition_id):
        return f"{storage} is assigned to it"
    if metadata is None:
        return None
    if ReplicaId(partition_id, storage) in metadata.replicas:
        return f"a store session has begun with {storage}"
    # The write that opens a session lists all its storages. Later writes of the same session list no others.
    if not any(state.is_member_of(metadata.session_id) for state in metadata.replicas.values()):
        return f"store session {metadata.session_id} is not open yet, and may take {storage} in"
    return None


async def delete_files(
    admin: StorageAdminClient, partition_id: int, reason: Callable[[], Awaitable[str | None]]
) -> str | None:
    """Delete the files, unless they are found to be needed; returns why they are.

    Args:
        admin: The storage node, which has the partition.
        partition_id: The partition.
        reason: Tells why the files are needed, as :func:`reason_to_keep` does.

    Raises:
        WaltzError: ZooKeeper or the storage failed. The replica may be switched off.
    """
    await admin.set_available([partition_id], False)
    found: str | None = "it could not be found out whether they are needed"
    try:
        found = await reason()
    finally:
        if found is not None:
            await admin.set_available([partition_id], True)
    if found is None:
        await admin.set_assigned([partition_id], False, delete_files=True)
    return found
