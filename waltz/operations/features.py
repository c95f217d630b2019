"""Features that need all nodes of a cluster: what stands in the way of them."""

import asyncio
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.partition_ids import named_partitions
from waltz.common.wire.versions import FIRST_WITH_TRIM
from waltz.common.zk.features import TRIM, read_features, write_features
from waltz.common.zk.store_admin import read_connections, read_server_descriptors, read_store_params, sync_cluster
from waltz.common.zk.trim_points import read_trim_point
from waltz.operations.storages import connection
from waltz.operations.survey.survey import ask_server
from waltz.storage.remote.client import StorageClient

_TIMEOUT_S = 10.0
_OLD = "a node of the original, or of an older version"


class _Obstacle(NamedTuple):
    """A registered node that stands in the way of trims."""

    text: str
    is_old: bool
    """Whether the node has answered, and cannot live with trimmed partitions."""


async def obstacles(cluster: ClusterHandle) -> list[str]:
    """The registered nodes that cannot live with trimmed partitions, or do not answer, in words. Raises
    ``WaltzError``."""
    return [each.text for each in await _obstacles(cluster)]


async def old_nodes(cluster: ClusterHandle) -> list[str]:
    """The registered nodes that answer, and cannot live with trimmed partitions, in words. Raises ``WaltzError``."""
    return [each.text for each in await _obstacles(cluster) if each.is_old]


async def _obstacles(cluster: ClusterHandle) -> list[_Obstacle]:
    await sync_cluster(cluster.zookeeper, cluster.root)
    descriptors = await read_server_descriptors(cluster.zookeeper, cluster.root)
    storages = (await read_connections(cluster.zookeeper, cluster.root)).admin_ports
    found = await asyncio.gather(
        *(_obstacle_of_server(cluster, each.endpoint) for each in descriptors),
        *(_obstacle_of_storage(cluster, storage) for storage in sorted(storages)),
    )
    return [obstacle for obstacle in found if obstacle is not None]


async def _obstacle_of_server(cluster: ClusterHandle, endpoint: Endpoint) -> _Obstacle | None:
    report = await ask_server(endpoint, cluster.tls, _TIMEOUT_S)
    if report.version is None:
        return _Obstacle(f"server {endpoint} cannot be asked: {report.partitions}", is_old=False)
    return None if report.version >= FIRST_WITH_TRIM else _Obstacle(f"server {endpoint} is {_OLD}", is_old=True)


async def _obstacle_of_storage(cluster: ClusterHandle, storage: str) -> _Obstacle | None:
    try:
        async with connection(StorageClient, cluster, Endpoint.parse(storage)) as client:
            return None if client.trims else _Obstacle(f"storage {storage} is {_OLD}", is_old=True)
    except (WaltzError, ValueError) as error:
        return _Obstacle(f"storage {storage} cannot be asked: {error}", is_old=False)


async def enable_trim(cluster: ClusterHandle) -> None:
    """Allow to trim partitions of the cluster. Raises ``WaltzError`` while one of its nodes cannot live with that."""
    before = await read_features(cluster.zookeeper, cluster.root)
    found = await obstacles(cluster)
    if found:
        raise WaltzError(f"the feature {TRIM} needs other nodes: {'; '.join(found)}")
    await write_features(cluster.zookeeper, cluster.root, before.names | {TRIM}, before)


async def disable_trim(cluster: ClusterHandle) -> None:
    """Allow no further trim. Raises ``WaltzError`` while a partition is trimmed: its nodes still need the feature."""
    before = await read_features(cluster.zookeeper, cluster.root)
    count = (await read_store_params(cluster.zookeeper, cluster.root)).partition_count
    trimmed = [each for each in range(count) if await read_trim_point(cluster.zookeeper, cluster.root, each)]
    if trimmed:
        raise WaltzError(f"{named_partitions(trimmed)} trimmed: the feature {TRIM} stays")
    await write_features(cluster.zookeeper, cluster.root, before.names - {TRIM}, before)
