"""The cluster manager: registers servers, assigns partitions, and reports the owners to servers and clients.

Every process runs a cluster manager. It is a reconciliation loop: after any change below ``serverDescriptors``, a
reconnection or a local request, it reads everything again and makes the missing changes. So no state has to survive a
lost connection or session: missing nodes are created, surplus nodes are deleted, and each read sets its watches. Only
nodes of servers with an active watch are taken from memory (:mod:`waltz.common.cluster.server_nodes`).
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar

from waltz.common.cluster.decisions import ClusterAction, ClusterSnapshot, ServerNode, decide, membership, registration
from waltz.common.cluster.managed import ManagedClient, ManagedServer
from waltz.common.cluster.policy import PolicyError, assign
from waltz.common.cluster.server_nodes import ServerNodes
from waltz.common.errors import DeadlineExceededError, ProtocolError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.backoff import Backoff
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import owned, restarting
from waltz.common.zk.client import (
    BadVersionError,
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    State,
    ZooKeeper,
)
from waltz.common.zk.paths import SERVER_NODE_PREFIX, ClusterPaths
from waltz.common.zk.store_admin import read_cluster_params
from waltz.common.zk.znodes import (
    ClusterParams,
    PartitionAssignment,
    PartitionGeneration,
    ServerDescriptor,
    decode_counter,
    encode_counter,
)

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 8.0
_FIRST_CONTENTION_S = 0.01
_MAX_CONTENTION_S = 1.0
_UNMANAGE_TIMEOUT_S = 10.0
_PREFERENCE_TIMEOUT_S = 60.0


class _Applied(NamedTuple):
    """The assignment that servers and clients know."""

    version: int
    servers: dict[int, ServerDescriptor]
    assignment: PartitionAssignment


class _Managed:
    """A server of this process, and its wanted descriptor in ZooKeeper."""

    __slots__ = ("descriptor", "registered", "server")

    def __init__(self, server: ManagedServer, server_id: int) -> None:
        self.server = server
        self.descriptor = ServerDescriptor(server_id, server.endpoint)
        self.registered = asyncio.Event()


class ClusterManager:
    """Membership and assignment of one cluster, for one process. The process takes part in both. Created by
    :meth:`open`."""

    def __init__(self, zookeeper: ZooKeeper, paths: ClusterPaths, params: ClusterParams) -> None:
        self._zookeeper = zookeeper
        self._paths = paths
        self._params = params
        self._servers: dict[int, _Managed] = {}
        self._retired: dict[int, asyncio.Event] = {}
        self._clients: list[ManagedClient] = []
        self._applied = _Applied(-1, {}, PartitionAssignment(-1, 0, {}))
        self._nodes = ServerNodes(zookeeper, paths, params.name, self._wake)
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._remove_listener = zookeeper.add_listener(self._state_changed)
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, zookeeper: ZooKeeper, root: str) -> "ClusterManager":
        """Read the parameters and the present state of the cluster, and follow the state from then on.

        Raises ``StoreAdminError`` when there is no cluster at ``root``, ``ProtocolError`` when the node has other
        content, and ``ZooKeeperError`` when ZooKeeper does not answer.
        """
        params = await read_cluster_params(zookeeper, root)
        manager = cls(zookeeper, ClusterPaths.of(root), params)
        try:
            await manager._refresh()
        except BaseException:
            manager._remove_listener()
            raise
        what = f"following the cluster {root}"
        manager._task = owned(restarting(manager._run, what), what)
        return manager

    @property
    def cluster_name(self) -> str:
        """The name that was chosen at the creation of the cluster."""
        return self._params.name

    @property
    def partition_count(self) -> int:
        """The number of partitions. It never changes."""
        return self._params.partition_count

    def endpoints(self) -> dict[Endpoint, list[PartitionGeneration]]:
        """The assignment that clients have: all servers with their partitions."""
        return _endpoints(self._applied.servers, self._applied.assignment) or {}

    async def manage_server(self, server: ManagedServer) -> int:
        """Assign an id to the server, register it, and return the id. The partitions of the server arrive by callback.

        Waits for ZooKeeper for ever. A cancellation undoes the call. Every call adds a new server to the cluster.
        """
        server_id = await self._next_id(self._paths.server_ids)
        managed = _Managed(server, server_id)
        self._servers[server_id] = managed
        _tell(server.cluster_joined, self.cluster_name, server_id)
        self._wake()
        try:
            await managed.registered.wait()
        except BaseException:
            self._retire(server_id)
            raise
        logger.info("Server %d at %s joined the cluster %s", server_id, server.endpoint, self.cluster_name)
        return server_id

    async def unmanage_server(self, server: ManagedServer) -> None:
        """Remove the server from the cluster immediately. It gets no further call, not even for its lost partitions."""
        server_id = self._server_id(server)
        gone = self._retire(server_id)
        if self._zookeeper.state is State.LOST:
            return  # the node has vanished together with the session
        try:
            async with asyncio.timeout(_UNMANAGE_TIMEOUT_S):
                await gone.wait()
        except TimeoutError:
            logger.warning("Server %d could not be taken out of the cluster: ZooKeeper is away", server_id)

    async def set_preferred_partitions(self, server: ManagedServer, partition_ids: Iterable[int]) -> None:
        """Make the server the owner of these partitions, in place of the present owners, in the order of preference.

        Raises ``PolicyError`` when the stored assignment does not fit the cluster, and ``DeadlineExceededError`` when,
        until the deadline, ZooKeeper did not answer or other processes were always writing.
        """
        managed = self._servers[self._server_id(server)]
        managed.descriptor = managed.descriptor._replace(preferred_partitions=tuple(dict.fromkeys(partition_ids)))
        try:
            async with asyncio.timeout(_PREFERENCE_TIMEOUT_S):
                await self._repeated(lambda: self._assign_with(managed))
        except TimeoutError:
            raise DeadlineExceededError(
                f"the preferred partitions were not applied within {_PREFERENCE_TIMEOUT_S:g} s"
            ) from None

    async def manage_client(self, client: ManagedClient, client_id: int | None = None) -> None:
        """Report the cluster to the client, now and at every change.

        Takes a client id, which is unique for the life of the cluster, unless one is given (-1 for tools without
        appends). Waits for ZooKeeper for ever.
        """
        if client_id is None:
            client_id = await self._next_id(self._paths.client_ids)
        _tell(client.cluster_joined, self.cluster_name, client_id, self.partition_count)
        _tell(client.set_endpoints, self.endpoints())
        self._clients.append(client)

    async def close(self) -> None:
        """Remove all servers from the cluster and stop. The ZooKeeper client stays open. May be called again."""
        self._clients.clear()
        if self._task is None:
            return
        await asyncio.gather(*(self.unmanage_server(managed.server) for managed in list(self._servers.values())))
        self._remove_listener()
        task, self._task = self._task, None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def _server_id(self, server: ManagedServer) -> int:
        for server_id, managed in self._servers.items():
            if managed.server is server:
                return server_id
        raise WaltzError(f"the server at {server.endpoint} is not a member of the cluster, or not yet")

    def _retire(self, server_id: int) -> asyncio.Event:
        """Remember a retired server for ever: the node of a creation with a lost answer may appear at any time."""
        self._servers.pop(server_id, None)
        gone = self._retired[server_id] = asyncio.Event()
        self._wake()
        return gone

    def _wake(self) -> None:
        self._changed.set()

    def _state_changed(self, state: State) -> None:
        if state is State.CONNECTED:
            self._wake()

    async def _run(self) -> None:
        pause_s = 0.0
        outage = OutageLog(logger, asyncio.get_running_loop().time)
        while True:
            # After a failure there is another attempt without an event, because no event will arrive.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s or None):
                    await self._changed.wait()
            self._changed.clear()
            try:
                async with self._lock:
                    await self._refresh()
                pause_s = 0.0
                outage.over()
            except (ConnectionLossError, SessionExpiredError) as error:
                outage.failed(f"Cluster {self.cluster_name}: waiting for ZooKeeper ({error})")
                pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _MAX_PAUSE_S)
            except WaltzError as error:
                logger.error("Cluster %s: %s", self.cluster_name, error)
                pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _MAX_PAUSE_S)
            except Exception:
                # A defect. But a process that ignores its cluster from now on would be worse than a process that logs
                # errors.
                logger.exception("Cluster %s: unexpected failure", self.cluster_name)
                pause_s = _MAX_PAUSE_S

    async def _refresh(self) -> None:
        """Read everything, make missing registrations, and act on the state."""
        snapshot = await self._reconcile()
        if snapshot is None:
            return
        action = decide(self._applied.version, snapshot, self._servers.keys())
        if action is ClusterAction.APPLY:
            self._apply(snapshot)
        elif action is ClusterAction.CLEAR:
            self._clear(snapshot)
        elif action is ClusterAction.WRITE:
            await self._write(snapshot)

    async def _reconcile(self) -> ClusterSnapshot | None:
        """Read everything below ``serverDescriptors``; ``None`` when the value of the node cannot be used."""
        path = self._paths.server_descriptors
        # Taken before the read, which then has all nodes that these servers have ever created.
        retired = tuple(self._retired.items())
        # The order matters: see ClusterSnapshot.
        data, stat = await self._zookeeper.get(path, self._wake)
        names = await self._zookeeper.children(path, self._wake)
        nodes = await self._nodes.read(set(names))
        await self._register(nodes)
        await self._unregister(retired, nodes)
        try:
            assignment = PartitionAssignment.decode(data, path)
        except ProtocolError as error:
            logger.error("Cluster %s: no partitions can be assigned: %s", self.cluster_name, error)
            return None
        return ClusterSnapshot(stat.version, stat.cversion, assignment, membership(nodes))

    async def _register(self, nodes: list[ServerNode]) -> None:
        """Make sure that each server of this process has exactly one node, in the present session."""
        session_id = self._zookeeper.session_id
        for managed in list(self._servers.values()):
            found = registration(managed.descriptor, nodes, session_id)
            if found.name is None:
                prefix = self._paths.server_descriptor(SERVER_NODE_PREFIX)
                await self._zookeeper.create(prefix, managed.descriptor.encode(), ephemeral=True, sequential=True)
            elif found.stale:
                await self._zookeeper.set(self._paths.server_descriptor(found.name), managed.descriptor.encode())
            managed.registered.set()
            await self._delete(found.surplus)

    async def _unregister(self, retired: Iterable[tuple[int, asyncio.Event]], nodes: list[ServerNode]) -> None:
        session_id = self._zookeeper.session_id
        for server_id, gone in retired:
            own = [node for node in nodes if node.descriptor is not None and node.descriptor.server_id == server_id]
            await self._delete([node.name for node in own if node.owner == session_id])
            gone.set()

    async def _delete(self, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(NoNodeError):
                await self._zookeeper.delete(self._paths.server_descriptor(name))

    async def _write(self, snapshot: ClusterSnapshot) -> None:
        """As coordinator: renew the assignment."""
        servers = await self._read_servers_again()
        if not servers:
            return  # no server is left; the stored assignment stays, so that generations survive
        try:
            assignment = assign(snapshot.cversion, snapshot.assignment, self.partition_count, servers.values())
        except PolicyError as error:
            logger.error("Cluster %s: partitions cannot be assigned: %s", self.cluster_name, error)
            return
        # Bad version: another process has made a change, and the event of the change is on the way.
        with contextlib.suppress(BadVersionError):
            await self._zookeeper.set(self._paths.server_descriptors, assignment.encode(), snapshot.version)
            logger.info("Cluster %s: partitions assigned to servers %s", self.cluster_name, sorted(servers))

    async def _read_servers_again(self) -> dict[int, ServerDescriptor]:
        """The live servers with their present preferences, for an assignment."""
        return membership(await self._nodes.read_again())

    async def _assign_with(self, managed: _Managed) -> None:
        """Write an assignment with the preferences of the server, on the basis of the present state."""
        async with self._lock:
            snapshot = await self._reconcile()
            server_id = managed.descriptor.server_id
            if snapshot is None:
                raise PolicyError("the stored partition assignment cannot be used")
            if server_id not in snapshot.servers:
                return  # the server is being registered again, which leads to a new assignment
            servers = {**await self._read_servers_again(), server_id: managed.descriptor}
            assignment = assign(snapshot.cversion, snapshot.assignment, self.partition_count, servers.values())
            await self._zookeeper.set(self._paths.server_descriptors, assignment.encode(), snapshot.version)

    def _apply(self, snapshot: ClusterSnapshot) -> None:
        applied, self._applied = self._applied, _Applied(snapshot.version, snapshot.servers, snapshot.assignment)
        for server_id, managed in self._servers.items():
            _tell(managed.server.set_partitions, list(snapshot.assignment.servers.get(server_id, ())))
        self._remove_servers(applied.servers.keys() - snapshot.servers.keys(), applied.servers)
        endpoints = _endpoints(snapshot.servers, snapshot.assignment)
        if endpoints is None:
            logger.error("Cluster %s: the assignment names a server that does not exist", self.cluster_name)
            return
        for client in tuple(self._clients):
            _tell(client.set_endpoints, {endpoint: list(owned) for endpoint, owned in endpoints.items()})

    def _clear(self, snapshot: ClusterSnapshot) -> None:
        applied = self._applied
        self._applied = _Applied(snapshot.version, {}, PartitionAssignment(snapshot.cversion, 0, {}))
        self._remove_servers(applied.servers.keys(), applied.servers)

    def _remove_servers(self, server_ids: Iterable[int], servers: dict[int, ServerDescriptor]) -> None:
        for server_id in sorted(server_ids):
            for client in tuple(self._clients):
                _tell(client.remove_server, servers[server_id].endpoint)

    async def _next_id(self, path: str) -> int:
        """Increment a counter. Ids may be skipped, but are never used twice."""

        async def increment() -> int:
            data, stat = await self._zookeeper.get(path)
            next_id = decode_counter(data, path) + 1
            await self._zookeeper.set(path, encode_counter(next_id), stat.version)
            return next_id

        return await self._repeated(increment)

    async def _repeated(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat an operation until it succeeds, with a pause when ZooKeeper does not answer or another process has
        written first.

        When many processes start together, only one gets its id at a time. The pauses grow and are random, so that the
        others do not all collide again.
        """
        contention: Backoff | None = None
        while True:
            try:
                return await attempt()
            except BadVersionError:
                if contention is None:
                    source = random.Random(self._zookeeper.session_id)
                    contention = Backoff(_FIRST_CONTENTION_S, _MAX_CONTENTION_S, source, jitter=1.0)
                await asyncio.sleep(contention.next_delay_s())
            except (ConnectionLossError, SessionExpiredError):
                await asyncio.sleep(_FIRST_PAUSE_S)


def _endpoints(
    servers: dict[int, ServerDescriptor], assignment: PartitionAssignment
) -> dict[Endpoint, list[PartitionGeneration]] | None:
    """The servers with their partitions, including servers without partitions; ``None`` if the assignment names an
    unknown server."""
    if assignment.servers.keys() - servers.keys():
        return None
    endpoints: dict[Endpoint, list[PartitionGeneration]] = {}
    for server_id, descriptor in servers.items():
        # Extended, not replaced: the predecessor of a restarted server may still be listed with the same endpoint.
        endpoints.setdefault(descriptor.endpoint, []).extend(assignment.servers.get(server_id, ()))
    return endpoints


def _tell(callback: Callable[..., None], *arguments: object) -> None:
    """Inform one server or client. A failure must not prevent the calls to the others."""
    try:
        callback(*arguments)
    except Exception:
        logger.exception("A cluster callback failed")
