"""A server process: its parts, and the order of their start and stop."""

import asyncio
import dataclasses
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from waltz.common.access import ALLOW_ALL, Access
from waltz.common.cluster.manager import ClusterManager
from waltz.common.config.schemas import ServerConfig
from waltz.common.daemon import calm_garbage_collection, close_step, stop_signals, unless_stopped
from waltz.common.errors import ConfigError
from waltz.common.ids import Endpoint
from waltz.common.metrics.process_metrics import watched_process
from waltz.common.metrics.registry import GaugeForm, Json, Readings, Registry
from waltz.common.net.guard import TrafficGuard
from waltz.common.net.http import HttpServer, Page
from waltz.common.net.limits import listener_limits, traffic_limits
from waltz.common.net.listener import Listener
from waltz.common.net.port_metrics import watch_ports
from waltz.common.net.tls import client_context, server_context
from waltz.common.replica_states import REMEDIES
from waltz.common.version import installed_version
from waltz.common.wall_clock import now_ms
from waltz.common.wire.append_request import APPEND_REQUEST_TYPE
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.zk.client import State, ZooKeeper
from waltz.common.zk.kazoo_client import connect_configured
from waltz.common.zk.store_admin import read_store_params
from waltz.common.zk.znodes import PartitionGeneration, ReplicaAssignments, StoreParams
from waltz.server.feeding.caches import FeedCache, TransactionCache
from waltz.server.partition.append_rule import AppendRule
from waltz.server.partition.partition import PartitionOptions, ServerPartition
from waltz.server.partition.partition_metrics import SERVER_GROUP, PartitionMetrics
from waltz.server.process.descriptions import (
    DESCRIPTIONS,
    FEED_LAG,
    FEED_LAG_SECONDS,
    ZOOKEEPER_LOSSES,
    ZOOKEEPER_STATE,
)
from waltz.server.process.property_setting import set_properties
from waltz.server.process.property_watch import PropertyWatch
from waltz.server.process.replica_journal import under_replicated
from waltz.server.process.replica_rounds import ReplicaRounds
from waltz.server.process.replica_watch import ReplicaWatch
from waltz.server.process.service import ServerService
from waltz.server.requests.appends import AppendLimits
from waltz.server.store.connections import ConnectFunction, StorageConnections, storage_connector
from waltz.server.store.interface import StoreOptions
from waltz.server.store.log.log import ReplicatedLog
from waltz.server.store.memory import MemoryBudget
from waltz.server.store.replica.replica_view import ReplicaView
from waltz.server.store.timings import StoreTimings

if TYPE_CHECKING:
    from waltz.common.acl.node import NodeIdentities, NodeRules

logger = logging.getLogger(__name__)

HELLO_TEXT = "Waltz Server"

FRAME_SLACK_BYTES = 4 << 20
"""Room in a frame beside the largest transaction data, mostly for locks."""

CONNECTIVITY_TIMEOUT_S = 5.0
"""Time limit of a storage's check when a tool asks for connectivity."""

HEALTHY_SESSION_TIMEOUTS = 2
"""Number of session time-outs without ZooKeeper after which it counts as unhealthy."""

RING_DIVISOR = 8
"""Divisor of the free memory that one partition may use for storages that lag: an eighth."""


def _storage_connector(params: StoreParams, config: ServerConfig) -> ConnectFunction:
    return storage_connector(
        cluster_key=params.key, partition_count=params.partition_count, tls=client_context(config.tls)
    )


class Console(Protocol):
    """Pages that are served beside the server's own."""

    @property
    def pages(self) -> Mapping[str, Page]:
        """Pages by method and path."""
        ...

    async def close(self) -> None:
        """End its background tasks."""
        ...


MakeConsole = Callable[
    [Callable[[], Mapping[int, ServerPartition]], Callable[[], dict[str, Json]], ZooKeeper, ServerConfig], Console
]
"""Makes the console of a server from its partitions, a function with facts about the server, ZooKeeper and its
configuration."""


class Keeper(Protocol):
    """What carries out the retention of the server's partitions."""

    def health(self) -> Mapping[str, Json]:
        """What the document about health says of it, by key."""
        ...

    async def close(self) -> None:
        """End its background task."""
        ...


MakeKeeper = Callable[
    [
        Callable[[], Mapping[int, ServerPartition]],
        Callable[[], Mapping[int, AppendRule]],
        Registry,
        ZooKeeper,
        ServerConfig,
    ],
    Keeper,
]
"""Makes the keeper of a server from its partitions and the rules in their properties, its metrics, ZooKeeper and its
configuration."""


class WaltzServer:
    """One server. The cluster manager tells it which partitions it owns.

    ``make_connector`` makes the function that connects to storages; tests and simulations replace it. ``access``
    decides on the requests to all its ports, in place of the configured rules. ``make_console`` makes the console, if
    there is one; ``make_keeper`` makes what carries out the retention of partitions.
    """

    def __init__(
        self,
        config: ServerConfig,
        zookeeper: ZooKeeper,
        *,
        registry: Registry | None = None,
        random_source: random.Random | None = None,
        clock_ms: Callable[[], int] = now_ms,
        make_connector: Callable[[StoreParams, ServerConfig], ConnectFunction] = _storage_connector,
        access: Access = ALLOW_ALL,
        make_console: MakeConsole | None = None,
        make_keeper: MakeKeeper | None = None,
    ) -> None:
        self.endpoint = Endpoint(config.server_host, config.server_port)
        self.cluster_name: str | None = None
        self.server_id: int | None = None
        self.registry = Registry() if registry is None else registry
        self.registry.describe(DESCRIPTIONS)
        self.http_port: int | None = None
        self._config = config
        self._zookeeper = zookeeper
        self._random = random.Random() if random_source is None else random_source
        self._make_connector = make_connector
        self._access = access
        self._make_console = make_console
        self._make_keeper = make_keeper
        self._keeper: Keeper | None = None
        self._feed_cache = FeedCache(config.feed_cache_size_bytes)
        self._transaction_cache = TransactionCache(config.transaction_data_cache_size_bytes)
        self._memory = MemoryBudget(config.append_memory_bytes)
        self._partition_options = PartitionOptions(
            lock_table_size=config.optimistic_lock_table_size,
            min_fetch_size=config.min_fetch_size,
            min_fence_interval_s=config.min_fence_interval_ms / 1000,
            clock_ms=clock_ms,
        )
        self._store_options = StoreOptions(
            max_batch_size=config.storage_max_batch_size,
            initial_retry_interval_s=config.storage_initial_retry_interval_ms / 1000,
            max_retry_interval_s=config.storage_max_retry_interval_ms / 1000,
            checkpoint_interval=config.storage_checkpoint_interval,
            random_source=self._random,
            timings=StoreTimings(self.registry),
        )
        self._rules: NodeRules | None = None
        self._identities: NodeIdentities | None = None
        self._manager: ClusterManager | None = None
        self._connections: StorageConnections | None = None
        self._watch: ReplicaWatch | None = None
        self._replicas: dict[int, frozenset[str]] = {}
        """Storages of the partitions, as the watch has told them."""
        self._service: ServerService | None = None
        self._append_rules: Mapping[int, AppendRule] = {}
        self._listener: Listener | None = None
        self._guard = TrafficGuard(traffic_limits(config.connections))
        self._http: HttpServer | None = None
        self._console: Console | None = None
        self._remove_listener: Callable[[], None] | None = None
        self._zookeeper_away_since_s: float | None = None
        self._zookeeper_losses = 0
        self._managed = False
        self._closed = False
        self._rounds = ReplicaRounds(lambda: self.partitions, clock_ms)

    # Start and stop

    async def start(self) -> None:
        """Open everything, and join the cluster when the port listens.

        Raises ``WaltzError`` for anything missing or wrong, after closing all parts that were opened. Waits for
        ZooKeeper for ever.
        """
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        config = self._config
        self._follow_zookeeper()
        self._manager = manager = await ClusterManager.open(self._zookeeper, config.cluster_root)
        params = await read_store_params(self._zookeeper, config.cluster_root)
        if params.partition_count != manager.partition_count:
            raise ConfigError(
                f"the cluster at {config.cluster_root} is damaged: it has {manager.partition_count} partitions "
                f"and its store has {params.partition_count}"
            )
        if config.acl.enabled:
            await self._start_rules(params.partition_count, str(params.key))
        self._watch = ReplicaWatch(self._zookeeper, config.cluster_root, self._replicas_changed, self._random)
        await self._watch.start()
        self._replicas = self._watch.assignments.storages_by_partition()
        self._connections = StorageConnections(self._make_connector(params, config), _storages(self._watch.assignments))
        self._service = ServerService(
            self._make_partition,
            partition_count=params.partition_count,
            append_limits=AppendLimits(config.max_transaction_size_bytes, config.max_locks_per_transaction),
            question_timeout_s=self._partition_options.answer_timeout_s,
            check_storages=self._check_storages,
            set_preferred=self._set_preferred,
            set_properties=partial(set_properties, self._zookeeper, config.cluster_root),
            access=self._access,
        )
        if self._rules is not None:
            self._rules.watch.on_lost = self._service.rights_lost
        self._service.set_append_rules(self._append_rules)
        await self._listen(self._service)
        self._add_gauges()
        await manager.manage_server(self)
        self._managed = True
        self._rounds.start()
        if self._make_keeper is not None:
            self._keeper = self._make_keeper(
                lambda: self.partitions, lambda: self._append_rules, self.registry, self._zookeeper, config
            )

    async def _start_rules(self, partition_count: int, cluster_key: str) -> None:
        from waltz.common.acl.node import start_identities, start_rules  # only nodes with rules need them

        config = self._config
        self._rules = await start_rules(
            config.acl,
            self._zookeeper,
            config.cluster_root,
            f"server-{config.server_host}:{config.server_port}",
            partition_count,
            self.registry,
            self._random,
        )
        self._access = self._rules.access
        self._identities = start_identities(config.acl, cluster_key, self.registry, self._rules.access.audit)

    async def _listen(self, service: ServerService) -> None:
        config = self._config
        identities = None if self._identities is None else self._identities.identities
        self._listener = await Listener.open(
            config.server_bind_address,
            config.server_port,
            CLIENT_SERVER,
            HELLO_TEXT,
            service.connection,
            tls=server_context(config.tls, optional_certificate=config.acl.token_keys is not None),
            limits=dataclasses.replace(
                listener_limits(
                    config.connections, "server.connections.max", config.max_transaction_size_bytes + FRAME_SLACK_BYTES
                ),
                abridged_type=APPEND_REQUEST_TYPE,
            ),
            guard=self._guard,
            identities=identities,
            name_of=None if self._rules is None else self._rules.access.counted_name,
        )
        self.endpoint = Endpoint(config.server_host, self._listener.port)
        if config.server_jetty_port is not None:
            if config.console_enabled and self._make_console is not None:
                self._console = self._make_console(lambda: self.partitions, self._about, self._zookeeper, config)
            self._http = await HttpServer.open(
                config.server_bind_address,
                config.server_jetty_port,
                self.registry,
                health=self.health,
                more={
                    **({} if self._console is None else self._console.pages),
                    **({} if self._rules is None else self._rules.pages),
                },
                access=self._access,
                tls=server_context(config.tls, optional_certificate=config.acl.enabled) if config.http.tls else None,
                identities=identities,
                open_paths=config.http.open_paths,
            )
            self.http_port = self._http.port
        asks = config.http.tls or config.acl.enabled
        watch_ports(self.registry, {"client": self._listener}, self._http if asks else None)
        logger.info("listening on %s", self.endpoint)

    async def close(self) -> None:
        """Leave the cluster, so that others take the partitions over at once, then close everything.

        Every step has a deadline, and its failure does not affect the next step. The ZooKeeper client stays open.
        """
        if self._closed:
            return
        self._closed = True
        self._rounds.close()
        if self._keeper is not None:
            await close_step("ending the retention of partitions", self._keeper.close())
        if self._manager is not None and self._managed:
            await close_step("leaving the cluster", self._manager.unmanage_server(self))
        if self._service is not None:
            await close_step("closing the partitions", self._service.close())
        if self._listener is not None:
            await close_step("closing the client port", self._listener.close())
        self._guard.close()
        if self._watch is not None:
            await close_step("ending the watch of the replica assignments", self._watch.close())
        if self._rules is not None:
            await close_step("ending the watch of the access rules", self._rules.close())
        if self._identities is not None:
            await close_step("ending the watch of the keys of tokens", self._identities.close())
        if self._connections is not None:
            await close_step("closing the connections to the storages", self._connections.close())
        if self._console is not None:
            await close_step("closing the console", self._console.close())
        if self._http is not None:
            await close_step("closing the HTTP port", self._http.close())
        if self._manager is not None:
            await close_step("closing the cluster manager", self._manager.close())
        if self._remove_listener is not None:
            self._remove_listener()
        self.registry.remove_group(SERVER_GROUP)

    # Calls of the cluster manager

    def cluster_joined(self, cluster_name: str, server_id: int) -> None:
        """The server is part of a cluster."""
        self.cluster_name = cluster_name
        self.server_id = server_id

    def set_partitions(self, partitions: list[PartitionGeneration]) -> None:
        """Take the partitions that this server owns now."""
        if self._service is not None and not self._closed:
            self._service.set_partitions({found.partition_id: found.generation for found in partitions})

    # Partitions and their storages

    @property
    def partitions(self) -> Mapping[int, ServerPartition]:
        """The partitions that are open, by id."""
        return {} if self._service is None else self._service.partitions

    def set_append_rules(self, rules: Mapping[int, AppendRule]) -> None:
        """Take appends by these rules, and by the default where there is none."""
        self._append_rules = rules
        if self._service is not None:
            self._service.set_append_rules(rules)

    def _make_partition(self, partition_id: int, generation: int) -> ServerPartition:
        connections = self._connections
        assert connections is not None
        return ServerPartition(
            partition_id,
            generation,
            self._partition_options,
            feed_cache=self._feed_cache,
            transaction_cache=self._transaction_cache,
            metrics=PartitionMetrics(self.registry, partition_id),
            random_source=self._random,
            memory=self._memory,
            log_factory=lambda listener: ReplicatedLog(
                partition_id,
                generation,
                self._replicas.get(partition_id, frozenset()),
                connections,
                self._zookeeper,
                self._config.cluster_root,
                listener,
                self._store_options,
                self._memory.account(RING_DIVISOR),
            ),
        )

    def _replicas_changed(self, assignments: ReplicaAssignments) -> None:
        if self._connections is not None:
            self._connections.update(_storages(assignments))
            self._store_options.timings.set_storages(_storages(assignments))
        self._replicas = assignments.storages_by_partition()
        for partition in self.partitions.values():
            partition.set_replicas(self._replicas.get(partition.partition_id, frozenset()))

    async def _check_storages(self) -> Mapping[str, bool]:
        assert self._connections is not None
        return await self._connections.check_connectivity(CONNECTIVITY_TIMEOUT_S)

    async def _set_preferred(self, partition_ids: Sequence[int]) -> None:
        assert self._manager is not None
        await self._manager.set_preferred_partitions(self, partition_ids)

    # Health and metrics

    def health(self) -> tuple[bool, Json]:
        """Whether ZooKeeper and all partitions are healthy, and the original's document about it."""
        away_since_s = self._zookeeper_away_since_s
        session_timeout_s = self._config.zookeeper_session_timeout_ms / 1000
        zookeeper = (
            away_since_s is None
            or asyncio.get_running_loop().time() - away_since_s < HEALTHY_SESSION_TIMEOUTS * session_timeout_s
        )
        partitions: dict[str, Json] = {
            str(partition_id): partition.healthy for partition_id, partition in sorted(self.partitions.items())
        }
        healthy = zookeeper and all(partitions.values())
        document: dict[str, Json] = {"healthy": healthy, "zookeeper": zookeeper, "partitions": partitions}
        replicas: dict[str, Json] = {
            str(partition_id): {view.storage: _replica(view) for view in views}
            for partition_id, views in sorted(self._replica_views().items())
            if under_replicated(views)
        }
        if replicas:
            document["underReplicated"] = replicas
        warnings: dict[str, Json] = {
            str(partition_id): list(partition.warnings)
            for partition_id, partition in sorted(self.partitions.items())
            if partition.warnings
        }
        if warnings:
            document["warnings"] = warnings
        if self._keeper is not None:
            document.update(self._keeper.health())
        return healthy, {"server-health-check": document}

    def _about(self) -> dict[str, Json]:
        """Facts about this server for the console."""
        return {
            "id": self.server_id,
            "endpoint": str(self.endpoint),
            "zookeeper": self._zookeeper_away_since_s is None,
            "partitions": len(self.partitions),
        }

    def _replica_views(self) -> dict[int, Sequence[ReplicaView]]:
        return {partition_id: partition.replica_views for partition_id, partition in self.partitions.items()}

    def _follow_zookeeper(self) -> None:
        self._zookeeper_changed(self._zookeeper.state)
        self._remove_listener = self._zookeeper.add_listener(self._zookeeper_changed)

    def _zookeeper_changed(self, state: State) -> None:
        if state is State.LOST:
            self._zookeeper_losses += 1
        if state is not State.SUSPENDED and self._service is not None:
            self._service.set_in_doubt(state is State.LOST)
        if state is State.CONNECTED:
            self._zookeeper_away_since_s = None
        elif self._zookeeper_away_since_s is None:
            self._zookeeper_away_since_s = asyncio.get_running_loop().time()

    def _add_gauges(self) -> None:
        gauges: dict[str, Callable[[], Json]] = {
            "is-closed": lambda: self._closed,
            "cluster-name": lambda: self.cluster_name,
            "server-id": lambda: self.server_id,
            "endpoint": lambda: str(self.endpoint),
            "waltz-server-num-partitions": lambda: len(self.partitions),
            "replica-info": self._replica_info,
            "under-replicated-partitions": lambda: sum(map(under_replicated, self._replica_views().values())),
            "unhealthy-partitions": lambda: sum(not partition.healthy for partition in self.partitions.values()),
            "zookeeper-connected": lambda: self._zookeeper_away_since_s is None,
            "waltz-version-id": lambda: installed_version() or "unknown",
        }
        for name, gauge in gauges.items():
            self.registry.gauge(SERVER_GROUP, name, gauge)
        form = GaugeForm(name="append-memory-bytes")
        self.registry.gauge(SERVER_GROUP, "append-memory", lambda: self._memory.used_bytes, form)
        self.registry.reading(
            ZOOKEEPER_STATE, lambda: [((state.value,), int(state is self._zookeeper.state)) for state in State]
        )
        self.registry.reading(ZOOKEEPER_LOSSES, lambda: [((), self._zookeeper_losses)])
        self.registry.reading(FEED_LAG, self._feed_lags)
        self.registry.reading(FEED_LAG_SECONDS, self._feed_lags_s)

    def _feed_lags(self) -> Readings:
        for partition_id, partition in list(self.partitions.items()):
            yield (str(partition_id),), partition.feed_lag_transactions

    def _feed_lags_s(self) -> Readings:
        for partition_id, partition in list(self.partitions.items()):
            yield (str(partition_id),), partition.feed_lag_s

    def _replica_info(self) -> dict[int, Json]:
        replicas: dict[int, list[str]] = {}
        if self._watch is not None:
            for storage, partition_ids in sorted(self._watch.assignments.partitions.items()):
                for partition_id in partition_ids:
                    replicas.setdefault(partition_id, []).append(storage)
        return dict(sorted(replicas.items()))


def _replica(view: ReplicaView) -> dict[str, Json]:
    """A replica in the document about health, with its remedy."""
    document: dict[str, Json] = {"state": view.status.value, "lag": view.lag_transactions}
    if view.status in REMEDIES:
        document["do"] = str(REMEDIES[view.status])
    return document


def _storages(assignments: ReplicaAssignments) -> set[str]:
    """The storages that hold at least one replica."""
    return {storage for storage, partition_ids in assignments.partitions.items() if partition_ids}


async def run(
    config: ServerConfig, *, make_console: MakeConsole | None = None, make_keeper: MakeKeeper | None = None
) -> None:
    """Be a server until SIGTERM or SIGINT, then hand the partitions over and return.

    Waits for ZooKeeper for ever. Raises ``WaltzError``, one line, when the server cannot start.
    """
    registry = Registry()
    with stop_signals() as stop, watched_process(registry):
        await _serve(config, stop, registry, make_console, make_keeper)


async def _serve(
    config: ServerConfig,
    stop: asyncio.Event,
    registry: Registry,
    make_console: MakeConsole | None,
    make_keeper: MakeKeeper | None,
) -> None:
    logger.info("connecting to ZooKeeper at %s", config.zookeeper_connect_string)
    zookeeper = await unless_stopped(stop, connect_configured(config, connect_timeout_s=None))
    if zookeeper is None:
        return
    try:
        server = WaltzServer(config, zookeeper, registry=registry, make_console=make_console, make_keeper=make_keeper)
        watch = PropertyWatch(zookeeper, config.cluster_root, server.set_append_rules, random.Random())
        try:
            await unless_stopped(stop, watch.start())  # before the first append is taken
            await unless_stopped(stop, server.start())
            if not stop.is_set():
                calm_garbage_collection()
                logger.info(
                    "server %s of cluster %s is up at %s", server.server_id, server.cluster_name, server.endpoint
                )
            await stop.wait()
            logger.info("stopping")
        finally:
            await server.close()
            await close_step("ending the watch of the partitions' properties", watch.close())
    finally:
        await close_step("closing ZooKeeper", zookeeper.close())
