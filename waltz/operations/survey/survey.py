"""Reads the state of a cluster from all its nodes and from ZooKeeper."""

import asyncio
import ssl
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.owners import OwnerConnection
from waltz.common.cluster.replicas import Replicas, read_replicas
from waltz.common.errors import ConnectFailedError, ProtocolError, WaltzError
from waltz.common.ids import Endpoint, ReqId
from waltz.common.wire.client_server import (
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    Message,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
)
from waltz.common.wire.lags import LagsRequest, LagsResponse, PartitionLags
from waltz.common.wire.versions import FIRST_WITH_LAGS
from waltz.common.zk.store_admin import (
    read_partition_assignment,
    read_server_descriptors,
    read_store_params,
    sync_cluster,
)
from waltz.common.zk.znodes import PartitionMetadata, ServerDescriptor, StoreParams
from waltz.storage.remote.admin_client import StorageAdminClient

_Response = TypeVar("_Response", bound=Message)


class ServerReport(NamedTuple):
    """The answers of a server. A text in place of an answer is the reason why there is none."""

    version: int | None
    """Version of the protocol; None without a connection."""
    partitions: frozenset[int] | str
    """The partitions of the server."""
    storages: Mapping[str, bool] | str
    """Whether the server reaches each storage, by ``host:port``."""
    healthy: Mapping[int, bool] | str
    """Whether each of its partitions is healthy."""
    lags: Mapping[int, PartitionLags] | str = {}
    """What replicas and feeds lack of each of its partitions; empty before version 6."""


StorageReport = Mapping[int, bool] | str
"""The partitions assigned to a storage node, and whether each is online. A text is the reason why there is no
answer."""


class Survey(NamedTuple):
    """All answers. Nodes are asked after ZooKeeper, so a change in between looks like a contradiction."""

    partition_count: int
    servers: dict[int, ServerDescriptor]
    """The servers in the cluster, by id."""
    owners: Mapping[int, tuple[int, ...]]
    """For each partition, the ids of the servers to which the assignment gives it."""
    storages: Mapping[int, frozenset[str]]
    """For each partition, the connect strings of the storages to which it is assigned."""
    metadata: Mapping[int, PartitionMetadata | None]
    server_reports: Mapping[int, ServerReport]
    """The answers of the servers, by id."""
    storage_reports: Mapping[str, StorageReport]
    """The answers of the storages with replicas or an admin port, by connect string."""
    admin_ports: Mapping[str, int] = {}
    """The registered admin ports, by connect string."""


async def read_survey(cluster: ClusterHandle, partition_ids: Collection[int], *, timeout_s: float) -> Survey:
    """Ask all nodes. ``timeout_s`` limits each connection and each answer. Raises ``WaltzError`` of ZooKeeper."""
    zookeeper, root, tls = cluster
    await sync_cluster(zookeeper, root)
    params = await read_store_params(zookeeper, root)
    assignment = await read_partition_assignment(zookeeper, root)
    servers = {server.server_id: server for server in await read_server_descriptors(zookeeper, root)}
    owners: dict[int, tuple[int, ...]] = {}
    for server_id, owned in sorted(assignment.servers.items()):
        for partition_id, _ in owned:
            owners[partition_id] = (*owners.get(partition_id, ()), server_id)
    replicas = await read_replicas(zookeeper, root, partition_ids)
    storages = sorted(replicas.assignments.partitions.keys() | replicas.connections.admin_ports.keys())
    server_reports, storage_reports = await asyncio.gather(
        asyncio.gather(*(ask_server(server.endpoint, tls, timeout_s) for server in servers.values())),
        asyncio.gather(*(ask_storage(storage, replicas, params, tls, timeout_s) for storage in storages)),
    )
    return Survey(
        params.partition_count,
        servers,
        owners,
        replicas.assignments.storages_by_partition(),
        replicas.metadata,
        dict(zip(servers, server_reports, strict=True)),
        dict(zip(storages, storage_reports, strict=True)),
        dict(replicas.connections.admin_ports),
    )


async def ask_server(endpoint: Endpoint, tls: ssl.SSLContext | None, timeout_s: float) -> ServerReport:
    """Ask a server for its partitions, their health and its storages. Errors of the server are not raised, but part of
    the report."""
    try:
        connection = await OwnerConnection.open(endpoint, tls=tls, timeout_s=timeout_s)
    except ConnectFailedError as error:
        return ServerReport(None, str(error), str(error), str(error))
    try:
        version = connection.channel.version
        partitions, storages, healthy = await asyncio.gather(
            _ask(connection, ServerPartitionsAssignmentRequest, ServerPartitionsAssignmentResponse, timeout_s),
            _ask(connection, CheckStorageConnectivityRequest, CheckStorageConnectivityResponse, timeout_s),
            _ask(connection, ServerPartitionsHealthStatRequest, ServerPartitionsHealthStatResponse, timeout_s),
        )
        lags: LagsResponse | str = LagsResponse(b"", [])
        if version >= FIRST_WITH_LAGS:
            lags = await _ask(connection, LagsRequest, LagsResponse, timeout_s)
    except WaltzError as error:
        return ServerReport(None, str(error), str(error), str(error))
    finally:
        await connection.close()
    return ServerReport(
        version,
        partitions if isinstance(partitions, str) else frozenset(partitions.partition_ids),
        storages if isinstance(storages, str) else dict(storages.connectivity),
        healthy if isinstance(healthy, str) else dict(healthy.health),
        lags if isinstance(lags, str) else {each.partition_id: each for each in lags.lags},
    )


async def _ask(
    connection: OwnerConnection, request: Callable[[ReqId], Message], response: type[_Response], timeout_s: float
) -> _Response | str:
    """Send a request to the server itself. Such a request names no partition, and the answer has the id of the
    request."""
    try:
        async with asyncio.timeout(timeout_s):
            message = (await connection.send(0, 0, request)).decode()
    except TimeoutError:
        return f"{connection.endpoint} did not send {response.__name__} within {timeout_s:g} s"
    except ProtocolError as error:
        return f"{connection.endpoint} cannot tell: {error}"
    except WaltzError as error:
        return str(error)
    if not isinstance(message, response):
        return f"{connection.endpoint} sent {type(message).__name__} in place of {response.__name__}"
    return message


async def ask_storage(
    storage: str, replicas: Replicas, params: StoreParams, tls: ssl.SSLContext | None, timeout_s: float
) -> StorageReport:
    """Ask a storage node for its partitions. Errors of the storage are not raised, but part of the report."""
    admin_port = replicas.connections.admin_ports.get(storage)
    if admin_port is None:
        return "no admin port is registered for it"
    try:
        client = await StorageAdminClient.connect(
            Endpoint(Endpoint.parse(storage).host, admin_port),
            cluster_key=params.key,
            partition_count=params.partition_count,
            tls=tls,
            timeout_s=timeout_s,
        )
        try:
            return await client.assigned_partition_status()
        finally:
            await client.close()
    except (WaltzError, ValueError) as error:
        return str(error)
