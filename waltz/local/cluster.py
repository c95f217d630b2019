"""A whole cluster as separate processes on the loopback interface: ZooKeeper, storages and servers.

    with LocalCluster(Path("/tmp/waltz")) as cluster:
        config = load(cluster.layout.client_config_path, ClientConfig)

At the end of the context, or of this process, all processes end. The data stays in the directory: a later start there
continues the same cluster.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.config.schemas import CliConfig, load
from waltz.common.errors import WaltzError
from waltz.common.net.tls import client_context
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.ensure import StorageAddress, ensure_cluster
from waltz.common.zk.kazoo_client import connect
from waltz.common.zk.store_admin import (
    read_partition_assignment,
    read_partition_metadata,
    read_server_descriptors,
)
from waltz.common.zk.znodes import PartitionMetadata
from waltz.local.layout import NODE_HOST, ROOT, Layout, Node, Overrides
from waltz.local.processes import Child, Children
from waltz.local.zookeeper import zookeeper_command, zookeeper_ready
from waltz.operations.storages import sync_partitions

START_TIMEOUT_S = 60.0
"""Time limit of the start without progress. With progress, the start of many partitions may take longer."""
STOP_TIMEOUT_S = 15.0
POLL_INTERVAL_S = 0.05
CLUSTER_NAME = "local"


class LocalCluster:
    """A cluster in ``directory``: the existing cluster or, if there is none, a new one.

    Missing arguments are taken from the existing cluster; a new cluster has 3 storages, 2 servers, one partition and
    TLS. Every storage holds all partitions. ``plaintext`` means no TLS on any connection, for benchmarks.
    ``server_overrides`` are configuration keys for every server, under the original's names; ``storage_overrides`` the
    same for every storage node. ``log_format`` is the format of the nodes' logs, ``text`` or ``json``.

    Raises ``WaltzError`` when the directory has a cluster with other numbers of nodes or partitions, or other security.
    """

    def __init__(
        self,
        directory: Path,
        *,
        storages: int | None = None,
        servers: int | None = None,
        partitions: int | None = None,
        plaintext: bool | None = None,
        server_overrides: Overrides | None = None,
        storage_overrides: Overrides | None = None,
        log_format: str = "text",
    ) -> None:
        found = Layout.read(directory)
        if found is not None:
            there = (len(found.storages), len(found.servers), found.partitions, found.plaintext)
            asked = (storages, servers, partitions, plaintext)
            if any(wish not in (None, is_there) for wish, is_there in zip(asked, there, strict=True)):
                raise WaltzError(
                    f"{directory} holds a cluster of {len(found.storages)} storages, {len(found.servers)} servers and "
                    f"{found.partitions} partitions ({'plaintext' if found.plaintext else 'TLS'}); start it without "
                    "asking for another shape, or choose another directory"
                )
        self.layout = found or Layout.plan(
            directory,
            storages=3 if storages is None else storages,
            servers=2 if servers is None else servers,
            partitions=1 if partitions is None else partitions,
            plaintext=bool(plaintext),
            server_overrides=server_overrides or {},
            storage_overrides=storage_overrides or {},
        )
        self._log_format = log_format
        self._children: Children | None = None
        self._running: dict[str, Child] = {}
        self._sessions_before: dict[int, int] = {}

    def start(self) -> None:
        """Start all nodes. Return when all of them answer and every partition takes appends.

        Blocks; must not be called in an event loop.

        Raises ``WaltzError`` when a node does not start; the text ends with the log of the node.
        """
        self.layout.write()
        self._children = Children()
        try:
            self.start_zookeeper()
            asyncio.run(self._create())
            for node in self.layout.storages:
                self.start_storage(node)
            asyncio.run(self._assign())
            for node in self.layout.servers:
                self.start_server(node)
            asyncio.run(self._wait_until_open())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all nodes, servers first. May be called again."""
        if self._children is None:
            return
        try:
            for nodes in (self.layout.servers, self.layout.storages):
                children = [self._running.pop(node.name) for node in nodes if node.name in self._running]
                self._children.stop_all(children, STOP_TIMEOUT_S)
            if "zookeeper" in self._running:
                self._children.stop(self._running.pop("zookeeper"), STOP_TIMEOUT_S)
        finally:
            self._children.close()
            self._children = None
            self._running.clear()

    def child(self, node: Node | str) -> Child:
        """The running process of a node (or of ``"zookeeper"``)."""
        return self._running[node if isinstance(node, str) else node.name]

    def processes(self) -> dict[str, int]:
        """Process ids of the nodes by name."""
        return {name: child.process_id for name, child in self._running.copy().items() if child.running}

    def check(self) -> None:
        """Raise :class:`WaltzError` if a node has ended without a request.

        Other threads may end and start nodes at the same time.
        """
        for name, child in self._running.copy().items():
            if not child.running and self._running.get(name) is child:  # otherwise another thread has ended the node
                child.check()

    def kill(self, node: Node | str) -> None:
        """End a node with SIGKILL."""
        assert self._children is not None
        self._children.kill(self._running.pop(node if isinstance(node, str) else node.name))

    def terminate(self, node: Node | str) -> None:
        """End a node with SIGTERM and wait for it."""
        assert self._children is not None
        self._children.stop(self._running.pop(node if isinstance(node, str) else node.name), STOP_TIMEOUT_S)

    def bring_back(self, name: str) -> None:
        """Start the node of that name (or ``"zookeeper"``) again if it has ended. At the return it may not answer
        yet."""
        assert self._children is not None
        old = self._running[name]
        if old.running:
            return
        self._children.kill(old)
        if name == "zookeeper":
            self.start_zookeeper()
        else:
            start = {node.name: self.start_storage for node in self.layout.storages}
            start |= {node.name: self.start_server for node in self.layout.servers}
            start[name](self.layout.node(name))

    def start_zookeeper(self) -> None:
        """Start ZooKeeper. Return when it answers."""
        directory = self.layout.zookeeper_directory
        directory.mkdir(parents=True, exist_ok=True)
        child = self._start("zookeeper", zookeeper_command(directory, self.layout.zookeeper_port))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not zookeeper_ready(directory, self.layout.zookeeper_port):
            child.check()
            if time.monotonic() > deadline:
                raise WaltzError(f"ZooKeeper does not answer after {START_TIMEOUT_S:g} s; see {child.log}")
            time.sleep(POLL_INTERVAL_S)

    def start_storage(self, node: Node) -> None:
        """Start a storage node. At the return it may not answer yet."""
        self._start(node.name, [sys.executable, "-m", "waltz.storage", *self._arguments(node)])

    def start_server(self, node: Node) -> None:
        """Start a server. At the return it may not answer yet."""
        self._start(node.name, [sys.executable, "-m", "waltz.serving", *self._arguments(node)])

    def _arguments(self, node: Node) -> list[str]:
        return ["--log-format", self._log_format, str(self.layout.config_path(node.name))]

    def _start(self, name: str, command: list[str]) -> Child:
        assert self._children is not None, "the cluster is not started"
        child = self._children.start(name, command, self.layout.log_path(name))
        self._running[name] = child
        return child

    async def zookeeper(self) -> ZooKeeper:
        """A new connection to the cluster's ZooKeeper. The caller closes it."""
        return await connect(self.layout.zookeeper_connect_string, session_timeout_s=10, connect_timeout_s=20)

    async def _create(self) -> None:
        zookeeper = await self.zookeeper()
        try:
            storages = [StorageAddress(NODE_HOST, node.port, node.admin_port) for node in self.layout.storages]
            await ensure_cluster(zookeeper, ROOT, CLUSTER_NAME, self.layout.partitions, storages)
            for partition_id in range(self.layout.partitions):
                metadata = await read_partition_metadata(zookeeper, ROOT, partition_id)
                if metadata is not None:
                    self._sessions_before[partition_id] = metadata.session_id
        finally:
            await zookeeper.close()

    async def _assign(self) -> None:
        """Assign the partitions to the storages, when all of them listen."""
        await self._until_none(self._count_deaf_storages, "the storages do not listen")
        zookeeper = await self.zookeeper()
        try:
            tls = client_context(load(self.layout.cli_config_path, CliConfig).tls)
            await sync_partitions(ClusterHandle(zookeeper, ROOT, tls))
        finally:
            await zookeeper.close()

    async def _count_deaf_storages(self) -> int:
        deaf = 0
        for node in self.layout.storages:
            try:
                for port in (node.port, node.admin_port):
                    _, writer = await asyncio.open_connection(NODE_HOST, port)
                    writer.close()
            except OSError:
                deaf += 1
        return deaf

    async def _wait_until_open(self) -> None:
        """Wait until all servers own partitions, and each owner has a session with a quorum of its replicas.

        A server that joined later would take over partitions of the other servers.
        """
        zookeeper = await self.zookeeper()
        opened: dict[int, int] = {}

        async def count_absent() -> int:
            assignment = await read_partition_assignment(zookeeper, ROOT)
            servers = {each.server_id for each in await read_server_descriptors(zookeeper, ROOT)}
            return abs(len(self.layout.servers) - len(servers)) + len(servers ^ assignment.servers.keys())

        async def count_closed() -> int:
            assignment = await read_partition_assignment(zookeeper, ROOT)
            generations = dict(each for owned in assignment.servers.values() for each in owned)
            for partition_id, generation in generations.items():
                if opened.get(partition_id) == generation:
                    continue
                metadata = await read_partition_metadata(zookeeper, ROOT, partition_id)
                if (
                    metadata is not None
                    and metadata.generation == generation
                    and metadata.session_id > self._sessions_before.get(partition_id, -1)
                    and _members(metadata) > len(self.layout.storages) // 2
                ):
                    opened[partition_id] = generation
            return self.layout.partitions - len(opened.items() & generations.items())

        try:
            await self._until_none(count_absent, "the servers do not join the cluster")
            await self._until_none(count_closed, "the partitions do not open")
        finally:
            await zookeeper.close()

    async def _until_none(self, count_missing: Callable[[], Awaitable[int]], otherwise: str) -> None:
        """Return when nothing is missing. Raises ``WaltzError`` after too long a time without progress."""
        fewest, moved_at_s = -1, 0.0
        while missing := await count_missing():
            self.check()
            if fewest < 0 or missing < fewest:
                fewest, moved_at_s = missing, time.monotonic()
            elif time.monotonic() - moved_at_s > START_TIMEOUT_S:
                raise WaltzError(f"{otherwise} after {START_TIMEOUT_S:g} s; see the logs in {self.layout.directory}")
            await asyncio.sleep(POLL_INTERVAL_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


def _members(metadata: PartitionMetadata) -> int:
    """The number of replicas that have joined the present session."""
    return sum(state.is_member_of(metadata.session_id) for state in metadata.replicas.values())
