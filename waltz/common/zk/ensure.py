"""Bring a cluster's description in ZooKeeper to what is wanted, doing only what is missing."""

from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.ids import Endpoint
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import (
    StoreAdminError,
    add_storage_node,
    assign_partitions,
    create_cluster,
    read_cluster_params,
    read_connections,
    read_replica_assignments,
)


class StorageAddress(NamedTuple):
    """Where a storage node listens."""

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
) -> None:
    """Create the cluster with a replica of every partition on every one of ``storages``, or what is missing of that.

    Each storage becomes a group of its own. What exists is left as it is.

    Raises ``StoreAdminError`` when the cluster exists with another name, partition count or administration port.
    """
    await _ensure_tree(zookeeper, root, name, partition_count)
    for number, storage in enumerate(storages, 1):
        known = (await read_connections(zookeeper, root)).admin_ports.get(storage.connect_string)
        if known is None:
            await add_storage_node(zookeeper, root, storage.connect_string, number, storage.admin_port)
        elif known != storage.admin_port:
            raise StoreAdminError(
                f"storage node {storage.connect_string} is known with admin port {known}, not {storage.admin_port}"
            )
        held = (await read_replica_assignments(zookeeper, root)).partitions.get(storage.connect_string, ())
        missing = set(range(partition_count)) - set(held)
        if missing:
            await assign_partitions(zookeeper, root, storage.connect_string, missing)


async def _ensure_tree(zookeeper: ZooKeeper, root: str, name: str, partition_count: int) -> None:
    try:
        params = await read_cluster_params(zookeeper, root)
    except StoreAdminError:
        await create_cluster(zookeeper, root, name, partition_count)
        return
    if (params.name, params.partition_count) != (name, partition_count):
        raise StoreAdminError(
            f"{root} holds the cluster {params.name!r} with {params.partition_count} partitions, "
            f"not {name!r} with {partition_count}; choose another cluster.root"
        )
