"""The view node as a process: the client of the cluster, the stores, the port, the HTTP endpoints, the end."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from waltz.asynchronous import connect
from waltz.common.access import ALLOW_ALL, Access
from waltz.common.config.schemas import ClientConfig, ViewConfig
from waltz.common.daemon import calm_garbage_collection, close_step, stop_signals, unless_stopped
from waltz.common.errors import ConfigError
from waltz.common.metrics.process_metrics import watched_process
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.http import HttpServer, Readers
from waltz.common.net.tls import server_context
from waltz.common.net.token_gate import Identities
from waltz.common.quiet_log import QuietLog
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.kazoo_client import connect_configured
from waltz.common.zk.store_admin import read_store_params
from waltz.table.face.saved import check_saved
from waltz.view.exchange import Exchanges
from waltz.view.limits import Limits
from waltz.view.partitions import Partitions
from waltz.view.registration import Registration
from waltz.view.service import Port
from waltz.view.view_metrics import ViewMetrics

logger = logging.getLogger(__name__)


async def run(config: ViewConfig) -> None:
    """Serve until SIGTERM or SIGINT. For the daemon: it takes over the signals of the process.

    Raises ``WaltzError``, one line, when the node cannot start.
    """
    registry = Registry()
    with stop_signals() as stop, watched_process(registry):
        zookeeper = await unless_stopped(stop, connect_configured(config, connect_timeout_s=None))
        if zookeeper is None:
            return
        try:
            async with serving(config, zookeeper, registry) as (partitions, endpoint):
                logger.info("view node is up at %s", endpoint)
                calm_garbage_collection()
                await stop.wait()
                logger.info("stopping; %d partitions are served", len(partitions.all()))
        finally:
            await close_step("closing ZooKeeper", zookeeper.close())


@contextlib.asynccontextmanager
async def serving(
    config: ViewConfig, zookeeper: ZooKeeper, registry: Registry
) -> AsyncIterator[tuple[Partitions, str]]:
    """A view node that serves meanwhile: its partitions, and its endpoint."""
    directory = Path(config.view_directory)
    if not await asyncio.to_thread(directory.is_dir):
        raise ConfigError(f"view.directory {config.view_directory!r} is no directory; make it, owned by this user")
    if config.view_snapshots is not None:
        await asyncio.to_thread(check_saved, config.view_snapshots)
    client_config = ClientConfig(
        zookeeper_connect_string=config.zookeeper_connect_string, cluster_root=config.cluster_root, tls=config.tls
    )
    async with contextlib.AsyncExitStack() as stack:

        def at_end(name: str, close: Callable[[], Awaitable[None]]) -> None:
            async def step() -> None:
                await close_step(name, close())

            stack.push_async_callback(step)

        client = await stack.enter_async_context(connect(client_config, zookeeper=zookeeper))
        partitions = Partitions(client, config.partition_ids, config.view_store, directory, config.view_snapshots)
        metrics = ViewMetrics(registry, partitions.states)
        access: Access = ALLOW_ALL
        identities: Identities | None = None
        if config.acl.enabled:
            access, identities = await _rules(config, zookeeper, registry, at_end)
        at_end("closing the views", partitions.close)
        await partitions.start()
        limits = Limits(config.max_requests, config.max_watches, config.request_memory_bytes)
        exchanges = Exchanges(partitions, limits, metrics, Readers(access, identities, QuietLog(logger)))
        port = Port(exchanges, config.max_connections)
        at_end("closing the port", port.close)
        tls = server_context(config.tls, optional_certificate=config.acl.enabled)
        number = await port.open(config.view_bind_address, config.view_port, tls)
        if config.view_jetty_port is not None:
            http = await HttpServer.open(
                config.view_bind_address,
                config.view_jetty_port,
                registry,
                health=lambda: health(partitions),
                access=access,
                tls=tls if config.http.tls else None,
                identities=identities,
                open_paths=config.http.open_paths,
            )
            at_end("closing the HTTP endpoints", http.close)
        name = f"{config.view_host}:{number}"
        endpoint = f"{'http' if tls is None else 'https'}://{name}"
        registration = Registration(zookeeper, config.cluster_root, partitions, name, endpoint, config.view_zone)
        at_end("withdrawing the registration", registration.close)
        yield partitions, endpoint


async def _rules(
    config: ViewConfig,
    zookeeper: ZooKeeper,
    registry: Registry,
    at_end: Callable[[str, Callable[[], Awaitable[None]]], None],
) -> tuple[Access, Identities]:
    """The access rules, and how callers are known."""
    from waltz.common.acl.node import start_identities, start_rules  # only nodes with rules need them

    params = await read_store_params(zookeeper, config.cluster_root)
    name = f"view-{config.view_host}:{config.view_port}"
    rules = await start_rules(
        config.acl, zookeeper, config.cluster_root, name, params.partition_count, registry, random.Random()
    )
    at_end("closing the access rules", rules.close)
    rules.access.owns(range(params.partition_count))  # callers have their whole quotas here: no other node counts them
    identities = start_identities(config.acl, str(params.key), registry, rules.access.audit)
    at_end("closing the keys of tokens", identities.close)
    return rules.access, identities.identities


def health(partitions: Partitions) -> tuple[bool, Json]:
    """Healthy while all partitions are served."""
    served = partitions.all()
    problems: dict[str, Json] = {str(partition_id): text for partition_id, text in sorted(partitions.problems.items())}
    check: dict[str, Json] = {"healthy": not problems, "served": list(served), "problems": problems}
    return not problems, {"view-health-check": check}
