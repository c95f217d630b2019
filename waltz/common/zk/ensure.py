"""Create a cluster with its storage nodes and replicas, in steps that may be interrupted and repeated."""

from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.ids import Endpoint
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import (
    StoreAdminError,
    add_storage_node,
    assign_all_partitions,
    create_cluster,
    read_cluster_params,
    read_connections,
    read_replica_assignments,
)


class StorageAddress(NamedTuple):
    """The ports of a storage node."""

    host: str
    port: int
    admin_port: int

    @classmethod
    def parse(cls, text: str) -> "StorageAddress":
        """Parse ``host:port:admin_port``; raises ``ValueError``."""
        front, _, admin_port = text.rpartition(":")
        try:
            host, port = Endpoint.parse(front)
            return cls(host, port, Endpoint.parse(f"{host}:{admin_port}").port)
        except ValueError:
            raise ValueError(f"not of the form host:port:admin_port: {text!r}") from None

    @property
    def connect_string(self) -> str:
        """The name of the storage node in the cluster."""
        return f"{self.host}:{self.port}"


async def ensure_cluster(
    zookeeper: ZooKeeper, root: str, name: str, partition_count: int, storages: Sequence[StorageAddress]
) -> list[str]:
    """Create the cluster with a replica of every partition on every one of ``storages``; each is a group of its own.

    The replicas come last, all at once. So a cluster without any is an unfinished creation, and is completed; a cluster
    with replicas is left unchanged, whatever its state. Returns those of ``storages``, as ``host:port``, that are no
    storage nodes of the cluster.

    Raises ``StoreAdminError`` when the cluster exists with another name, partition count or administration port.
    """
    await _ensure_tree(zookeeper, root, name, partition_count)
    known = (await read_connections(zookeeper, root)).admin_ports
    for storage in storages:
        if known.get(storage.connect_string, storage.admin_port) != storage.admin_port:
            raise StoreAdminError(
                f"storage node {storage.connect_string} is known with admin port {known[storage.connect_string]}, "
                f"not {storage.admin_port}"
            )
    missing = [storage.connect_string for storage in storages if storage.connect_string not in known]
    if any((await read_replica_assignments(zookeeper, root)).partitions.values()):
        return missing
    for number, storage in enumerate(storages, 1):
        if storage.connect_string in missing:
            await add_storage_node(zookeeper, root, storage.connect_string, number, storage.admin_port)
    await assign_all_partitions(zookeeper, root, [storage.connect_string for storage in storages])
    return []


async def _ensure_tree(zookeeper: ZooKeeper, root: str, name: str, partition_count: int) -> None:
    try:
        await create_cluster(zookeeper, root, name, partition_count)
        return
    except StoreAdminError as error:
        try:
            params = await read_cluster_params(zookeeper, root)
        except StoreAdminError:
            raise error from None
    if (params.name, params.partition_count) != (name, partition_count):
        raise StoreAdminError(
            f"{root} holds the cluster {params.name!r} with {params.partition_count} partitions, "
            f"not {name!r} with {partition_count}; choose another cluster.root"
        )
