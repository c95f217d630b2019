"""A storage node: the storage directory behind a data port, an admin port and HTTP endpoints."""

import asyncio
import logging
import os
import random
import socket
import ssl
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from waltz.common.access import ALLOW_ALL, Access
from waltz.common.config.schemas import AclConfig, StorageConfig
from waltz.common.daemon import calm_garbage_collection, stop_signals, unless_stopped
from waltz.common.errors import WaltzError
from waltz.common.metrics.exposition import to_json
from waltz.common.metrics.process_metrics import watched_process
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.guard import TrafficGuard
from waltz.common.net.http import HttpServer
from waltz.common.net.limits import RESERVED_FILES, listener_limits, raise_open_files, traffic_limits
from waltz.common.net.listener import Listener
from waltz.common.net.port_metrics import watch_ports
from waltz.common.net.tls import server_context
from waltz.common.replica_states import RUNBOOK
from waltz.common.storage_health import find_ailments
from waltz.common.version import installed_version
from waltz.common.wire.frames import STORAGE, STORAGE_ADMIN, Family
from waltz.common.zk.client import ConnectionLossError, NoNodeError, SessionExpiredError, ZooKeeper
from waltz.common.zk.kazoo_client import connect_configured
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import read_connections
from waltz.common.zk.znodes import StoreParams
from waltz.storage.disk.files.files import Files, OsFiles
from waltz.storage.errors import StorageError
from waltz.storage.node import admin_port as admin_service
from waltz.storage.node import data_port as data_service
from waltz.storage.node.admin_port import AdminService
from waltz.storage.node.data_port import DataConnection
from waltz.storage.node.descriptions import DESCRIPTIONS
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.partition_metrics import GROUP
from waltz.storage.node.request_queue import DEFAULT_LIMITS, QueueLimits

if TYPE_CHECKING:
    from waltz.common.acl.node import NodeIdentities, NodeRules

logger = logging.getLogger(__name__)

ZOOKEEPER_CONNECT_TIMEOUT_S = 30.0
"""Time limit for the connection to ZooKeeper, and again for the answer."""
ZOOKEEPER_PAUSE_S = 0.2
CLOSE_TIMEOUT_S = 30.0
"""Time limit of an orderly end; afterwards the process exits. All acknowledged changes are on disk."""


class StorageNode:
    """A running storage node. It reads the cluster's identity from ZooKeeper once. With access rules it follows the
    rules in ZooKeeper, and writes there which rules it applies. Without access rules it never writes to ZooKeeper."""

    def __init__(self, manager: StorageManager, registry: Registry, access: Access) -> None:
        """Use :meth:`start`."""
        self.manager = manager
        self._registry = registry
        self._access = access
        self._admin_service = AdminService(manager, registry, access)
        self._data_listener: Listener | None = None
        self._admin_listener: Listener | None = None
        self._http_server: HttpServer | None = None
        self._guard: TrafficGuard | None = None
        self._rules: NodeRules | None = None
        self._identities: NodeIdentities | None = None

    @classmethod
    async def start(
        cls,
        config: StorageConfig,
        *,
        files: Files,
        zookeeper: ZooKeeper,
        metrics: Registry,
        limits: QueueLimits = DEFAULT_LIMITS,
        access: Access = ALLOW_ALL,
        family: Family = STORAGE,
    ) -> "StorageNode":
        """Open the storage directory and listen. At the return the node serves. ``files`` must outlive the node.

        ``access`` decides about the requests of all ports, in place of the configured rules. ``family`` has the
        versions that the data port offers. With access rules ``zookeeper`` must outlive the node, too.

        Raises ``WaltzError`` with one line that tells the remedy: no cluster in ZooKeeper, a directory that cannot be
        used or belongs to another cluster, a port that cannot be bound, a key store that cannot be read.
        """
        tls = server_context(config.tls, optional_certificate=config.acl.token_keys is not None)
        store = await _read_store_params(config, zookeeper)
        metrics.describe(DESCRIPTIONS)
        metrics.gauge(GROUP, "waltz-version-id", lambda: installed_version() or "unknown")
        rules = await _start_rules(config, zookeeper, store.partition_count, metrics) if config.acl.enabled else None
        # Before the partitions are opened: each needs two open files, and all partitions may be assigned to this node.
        raise_open_files(_files_of(store.partition_count, config) + config.connections.max)
        try:
            manager = await StorageManager.open(
                files,
                config.storage_directory,
                store.key,
                store.partition_count,
                metrics,
                segment_size_threshold_bytes=config.segment_size_threshold_bytes,
                segment_cache_capacity=config.segment_cache_capacity,
                limits=limits,
                journal=JournalSizes() if config.journal_enabled else None,
                further_directories=config.further_directories,
            )
        except (StorageError, OSError) as error:
            if rules is not None:
                await rules.close()
            raise WaltzError(_explain(config, store, error)) from error
        node = cls(manager, metrics, access if rules is None else rules.access)
        node._rules = rules
        try:
            if rules is not None:
                node._start_identities(config.acl, str(store.key), rules)
            await node._listen(config, tls, family)
        except BaseException:
            await node.close()
            raise
        logger.info(
            "storage node is up: data port %d, admin port %d, directory %s, %d partitions assigned",
            node.port,
            node.admin_port,
            config.storage_directory,
            len(manager.assigned_partition_status()),
        )
        return node

    def _start_identities(self, config: AclConfig, cluster_key: str, rules: "NodeRules") -> None:
        from waltz.common.acl.node import start_identities  # only nodes with rules need them

        self._identities = start_identities(config, cluster_key, self._registry, rules.access.audit)

    async def _listen(self, config: StorageConfig, tls: ssl.SSLContext | None, family: Family) -> None:
        host, manager = config.storage_bind_address, self.manager
        limits = listener_limits(
            config.connections,
            "storage.connections.max",
            config.max_request_size_bytes,
            reserved_files=_files_of(len(manager.assigned_partition_status()), config),
        )
        self._guard = TrafficGuard(traffic_limits(config.connections))
        identities = None if self._identities is None else self._identities.identities
        name_of = None if self._rules is None else self._rules.access.counted_name
        self._data_listener = await Listener.open(
            host,
            config.storage_port,
            family,
            data_service.HELLO_TEXT,
            lambda: DataConnection(manager, self._access),
            tls=tls,
            limits=limits,
            guard=self._guard,
            identities=identities,
            name_of=name_of,
        )
        self._admin_listener = await Listener.open(
            host,
            config.storage_admin_port,
            STORAGE_ADMIN,
            admin_service.HELLO_TEXT,
            self._admin_service.connection,
            tls=tls,
            limits=replace(limits, max_connections=config.connections.max_admin),
            guard=self._guard,
            identities=identities,
            name_of=name_of,
        )
        if config.storage_jetty_port is None:
            logger.warning("storage.jetty.port is not set: there are no HTTP endpoints")
        else:
            port = config.storage_jetty_port
            self._http_server = await HttpServer.open(
                host,
                port,
                self._registry,
                health=self.health,
                more={} if self._rules is None else self._rules.pages,
                access=self._access,
                tls=server_context(config.tls, optional_certificate=config.acl.enabled) if config.http.tls else None,
                identities=identities,
                open_paths=config.http.open_paths,
            )
        asks = config.http.tls or config.acl.enabled
        listeners = {"data": self._data_listener, "admin": self._admin_listener}
        watch_ports(self._registry, listeners, self._http_server if asks else None)

    @property
    def port(self) -> int:
        """The data port."""
        return self._data_listener.port if self._data_listener is not None else 0

    @property
    def admin_port(self) -> int:
        """The admin port."""
        return self._admin_listener.port if self._admin_listener is not None else 0

    @property
    def http_port(self) -> int | None:
        """The port of the HTTP endpoints; ``None`` without them."""
        return self._http_server.port if self._http_server is not None else None

    def health(self) -> tuple[bool, Json]:
        """The node is healthy unless a partition or the disk needs attention.

        The body has the check of the original, whose message is JSON in a string, and beside it the same in plain JSON.
        """
        health = self.manager.health()
        problems: dict[str, Json] = {**health.problems()}
        notes: dict[str, Json] = {
            name: list(partition_ids) for name, partition_ids in self.manager.findings.notes().items()
        }
        message: dict[str, Json] = {"storage": "false" if problems else "true", **problems}
        if notes:
            message["notes"] = notes
        check: dict[str, Json] = {"healthy": not problems, "message": to_json(message)}
        ailments = find_ailments(health, f"HOST:{self.admin_port}")
        storage: dict[str, Json] = {
            "healthy": not problems,
            "problems": [
                {
                    "problem": ailment.text,
                    "partitions": list(ailment.partition_ids),
                    "do": ailment.remedy.do,
                    "runbook": f"{RUNBOOK}#{ailment.remedy.section}",
                }
                for ailment in ailments
            ],
            "notes": notes,
        }
        return not problems, {"storage-health-check": check, "storage": storage}

    async def close(self) -> None:
        """Close partitions, connections, files and HTTP. Queued requests are answered. May be called twice."""
        await self.manager.close()
        for listener in (self._admin_listener, self._data_listener):
            if listener is not None:
                await listener.close()
        if self._guard is not None:
            self._guard.close()
        await self._admin_service.close()
        if self._http_server is not None:
            await self._http_server.close()
        if self._rules is not None:
            await self._rules.close()
        if self._identities is not None:
            await self._identities.close()


SWITCH_INTERVAL_S = 0.0005
"""The longest time for which a thread that checks or encodes records may keep the interpreter from the thread that
acknowledges appends."""


async def run(config: StorageConfig) -> None:
    """Run a storage node until SIGTERM or SIGINT. For the daemon: takes over the signals of the process.

    Raises ``WaltzError`` as :meth:`StorageNode.start` does, and when ZooKeeper is not reached. If the end takes longer
    than :data:`CLOSE_TIMEOUT_S`, because a disk hangs, the process exits with status 1.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    files = OsFiles()
    try:
        registry = Registry()
        with stop_signals() as stop, watched_process(registry):
            started = await unless_stopped(stop, _start_with_zookeeper(config, files, registry))
            if started is not None:
                node, zookeeper = started
                calm_garbage_collection()
                await stop.wait()
                await _close_in_time(node)
                await zookeeper.close()
    finally:
        files.close()


async def _close_in_time(node: StorageNode) -> None:
    logger.info("storage node is closing")
    closing = asyncio.create_task(node.close())
    await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_S)
    if not closing.done():
        logger.critical("the disk did not let the node close within %g s; exiting without it", CLOSE_TIMEOUT_S)
        os._exit(1)
    closing.result()
    logger.info("storage node is closed")


async def _start_with_zookeeper(
    config: StorageConfig, files: Files, registry: Registry
) -> tuple[StorageNode, ZooKeeper]:
    """Start a node. The connection to ZooKeeper is closed unless the node has access rules to follow."""
    zookeeper = await connect_configured(config, connect_timeout_s=ZOOKEEPER_CONNECT_TIMEOUT_S)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + ZOOKEEPER_CONNECT_TIMEOUT_S
    followed = False
    try:
        while True:
            try:
                node = await StorageNode.start(config, files=files, zookeeper=zookeeper, metrics=registry)
                followed = config.acl.enabled
                return node, zookeeper
            except (ConnectionLossError, SessionExpiredError) as error:
                # ZooKeeper was lost again before the first question. Nothing else has been done by then.
                if loop.time() >= deadline_s:
                    raise
                logger.warning("%s; trying again", error)
                await asyncio.sleep(ZOOKEEPER_PAUSE_S)
    finally:
        if not followed:
            await zookeeper.close()


async def _start_rules(
    config: StorageConfig, zookeeper: ZooKeeper, partition_count: int, registry: Registry
) -> "NodeRules":
    from waltz.common.acl.node import start_rules  # only nodes with rules need them

    ports = (await read_connections(zookeeper, config.cluster_root)).admin_ports
    name = _registered_name(config, ports)
    return await start_rules(
        config.acl, zookeeper, config.cluster_root, f"storage-{name}", partition_count, registry, random.Random()
    )


def _registered_name(config: StorageConfig, admin_ports: Mapping[str, int]) -> str:
    """The registered name of this node in the cluster, found by its ports and the first part of its host name."""
    here = {host.split(".")[0] for host in (config.storage_bind_address, socket.gethostname(), "localhost")}
    named = [
        name
        for name, admin_port in sorted(admin_ports.items())
        if (name.rpartition(":")[2], admin_port) == (str(config.storage_port), config.storage_admin_port)
    ]
    of_host = [name for name in named if name.rpartition(":")[0].split(".")[0] in here]
    found = of_host if len(of_host) == 1 else named
    return found[0] if len(found) == 1 else f"{config.storage_bind_address}:{config.storage_port}"


def _files_of(partition_count: int, config: StorageConfig) -> int:
    """The largest number of files that a node with this number of partitions has open, without connections."""
    segments = 1 + config.segment_cache_capacity  # the current segment, and others for reads
    return RESERVED_FILES + 2 * segments * partition_count


async def _read_store_params(config: StorageConfig, zookeeper: ZooKeeper) -> StoreParams:
    path = ClusterPaths.of(config.cluster_root).store
    try:
        data, _ = await zookeeper.get(path)
    except NoNodeError as error:
        raise WaltzError(
            f"there is no cluster at {config.cluster_root} in ZooKeeper {config.zookeeper_connect_string}:"
            f" correct cluster.root or create the cluster"
        ) from error
    return StoreParams.decode(data, path)


def _explain(config: StorageConfig, store: StoreParams, error: Exception) -> str:
    """One line for a storage directory that cannot be opened."""
    text = f"cannot use storage directory {config.storage_directory}: "
    if isinstance(error, OSError):
        return text + f"{error.strerror or error}; check its path, owner and permissions"
    if str(error) in ("the cluster key does not match", "the number of partitions does not match"):
        return text + (
            f"{error}: it belongs to another cluster than {config.cluster_root} (key {store.key},"
            f" {store.partition_count} partitions); correct cluster.root or give the node a directory of its own"
        )
    return text + str(error)
