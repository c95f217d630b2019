"""The archiver as a process: access to the cluster, HTTP endpoints, shutdown."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from waltz.archive.chain import Place
from waltz.archive.object_format import Limit
from waltz.archive.process.archive_metrics import ArchiveMetrics
from waltz.archive.process.archiver import Archiver
from waltz.archive.process.due import Policy
from waltz.archive.process.source import AnyReplica, RecordSource, choose
from waltz.archive.process.times import ask_commit_times
from waltz.archive.store import open_store
from waltz.common.access import ALLOW_ALL
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import MarkUnknownError, ask_committed_marks
from waltz.common.config.schemas import ArchiveConfig
from waltz.common.daemon import close_step, stop_signals, unless_stopped
from waltz.common.metrics.process_metrics import watched_process
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.http import Health, HttpServer
from waltz.common.net.port_metrics import watch_ports
from waltz.common.net.tls import client_context, server_context
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import owned, restarting
from waltz.common.wall_clock import now_ms
from waltz.common.zk.client import NodeExistsError, ZooKeeper
from waltz.common.zk.kazoo_client import connect_configured
from waltz.common.zk.mutex import mutex
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import read_store_params
from waltz.common.zk.trim_points import read_trim_point
from waltz.common.zk.znodes import StoreParams

if TYPE_CHECKING:
    from waltz.common.acl.node import PageAccess

logger = logging.getLogger(__name__)

MARKS_TIMEOUT_S = 10.0
LOCK_TIMEOUT_S = 1.0
"""Maximum wait for another archiver of a partition. After that the partition is left to the other one."""


NICENESS = 15
"""Low priority: nodes on the same machine go first, since appends are urgent and archiving is not."""


class RunningCluster:
    """A real cluster: ZooKeeper, servers and storages; implements :class:`LoggedCluster`."""

    def __init__(self, cluster: ClusterHandle, store: StoreParams) -> None:
        self._cluster = cluster
        self._store = store
        self._outage = OutageLog(logger)

    async def committed_marks(self) -> Mapping[int, int]:
        deadline_s = asyncio.get_running_loop().time() + MARKS_TIMEOUT_S
        wanted = range(self._store.partition_count)
        marks, reasons = await ask_committed_marks(self._cluster, wanted, deadline_s=deadline_s)
        if not reasons:
            self._outage.over()
            return marks
        partition_id = min(reasons)
        text = f"no server told the mark of {len(reasons)} partitions, such as {partition_id}: {reasons[partition_id]}"
        if not marks:
            raise MarkUnknownError(text)
        self._outage.failed(text)
        return marks

    async def commit_times(self, wanted: Mapping[int, int]) -> Mapping[int, int]:
        return await ask_commit_times(self._cluster, wanted)

    async def alone(self, partition_id: int, work: Callable[[], Awaitable[None]]) -> None:
        path = ClusterPaths.of(self._cluster.root).archive_lock(partition_id)
        async with mutex(self._cluster.zookeeper, path, timeout_s=LOCK_TIMEOUT_S):
            await work()

    async def trim_point(self, partition_id: int) -> int:
        return await read_trim_point(self._cluster.zookeeper, self._cluster.root, partition_id)

    async def source(self, partition_id: int) -> RecordSource:
        return AnyReplica(self._cluster, self._store, partition_id, await choose(self._cluster, partition_id))

    async def prepare(self) -> None:
        """Create the parent znode of the locks."""
        parent = ClusterPaths.of(self._cluster.root).archive
        try:
            await self._cluster.zookeeper.create(parent, None, make_path=True)
        except NodeExistsError:
            return


async def run(config: ArchiveConfig) -> None:
    """Archive until SIGTERM or SIGINT. Sets the signal handlers and the priority of the process.

    An unavailable object store does not prevent the start: the archiver waits for the store.

    Raises:
        WaltzError: The archiver cannot start; the text is one line.
    """
    os.nice(NICENESS)
    store = open_store(config.archive_url)
    tls = client_context(config.tls)
    registry = Registry()
    with stop_signals() as stop, watched_process(registry):
        zookeeper = await unless_stopped(stop, connect_configured(config, connect_timeout_s=None))
        if zookeeper is None:
            return
        try:
            handle = ClusterHandle(zookeeper, config.cluster_root, tls)
            params = await read_store_params(zookeeper, config.cluster_root)
            cluster = RunningCluster(handle, params)
            await cluster.prepare()
            metrics = ArchiveMetrics(registry)
            archiver = Archiver(
                cluster,
                lambda partition_id: Place(store, params.key, partition_id),
                Policy(Limit(config.object_transactions, config.object_size_bytes), config.max_age_ms),
                metrics,
                rate_bytes=config.rate_bytes,
                at_once=config.partitions_at_once,
                interval_s=config.interval_ms / 1000,
                wall_clock_ms=now_ms,
            )
            async with serving(config, zookeeper, params, registry, lambda: health(archiver, metrics)):
                logger.info("archiver of cluster %s is up, into %s", params.key, store.url)
                working = owned(restarting(archiver.run, "the archiver"), "the archiver")
                await stop.wait()
                logger.info("stopping")
                working.cancel()
                await close_step("ending the archiver", _ended(working))
        finally:
            await close_step("closing ZooKeeper", zookeeper.close())


@contextlib.asynccontextmanager
async def serving(
    config: ArchiveConfig, zookeeper: ZooKeeper, store: StoreParams, registry: Registry, health: Health
) -> AsyncIterator[HttpServer | None]:
    """The HTTP endpoints, if the configuration has a port for them. With access rules these say who may read them."""
    async with contextlib.AsyncExitStack() as stack:
        port = config.archive_jetty_port
        if port is None:
            yield None
            return
        asked: PageAccess | None = None
        if config.acl.enabled:
            from waltz.common.acl.node import start_page_access  # only processes with rules need it

            name = f"archiver-{socket.gethostname()}:{port}"
            asked = await start_page_access(config.acl, zookeeper, config.cluster_root, name, store, registry)
            stack.push_async_callback(_close, "closing the access rules", asked.close)
        http = await HttpServer.open(
            config.archive_bind_address,
            port,
            registry,
            health=health,
            more={} if asked is None else asked.rules.pages,
            access=ALLOW_ALL if asked is None else asked.rules.access,
            tls=server_context(config.tls, optional_certificate=config.acl.enabled) if config.http.tls else None,
            identities=None if asked is None else asked.identities.identities,
            open_paths=config.http.open_paths,
        )
        stack.push_async_callback(_close, "closing the HTTP endpoints", http.close)
        if config.http.tls or config.acl.enabled:
            watch_ports(registry, {}, http)
        yield http


async def _close(what: str, close: Callable[[], Awaitable[None]]) -> None:
    await close_step(what, close())


async def _ended(working: asyncio.Task[None]) -> None:
    await asyncio.gather(working, return_exceptions=True)


def health(archiver: Archiver, metrics: ArchiveMetrics) -> tuple[bool, Json]:
    """The answer of ``/health``: healthy while store and cluster answer, no manifest is damaged, and all partitions
    can be archived."""
    stuck = archiver.damaged or archiver.trimmed
    healthy = metrics.is_store_available and metrics.is_cluster_available and not stuck
    damaged: dict[str, Json] = {str(partition_id): text for partition_id, text in sorted(archiver.damaged.items())}
    check: dict[str, Json] = {
        "healthy": healthy,
        "store": metrics.is_store_available,
        "cluster": metrics.is_cluster_available,
        "damaged": damaged,
    }
    if archiver.trimmed:
        check["trimmed"] = {str(partition_id): text for partition_id, text in sorted(archiver.trimmed.items())}
    return healthy, {"archive-health-check": check}
