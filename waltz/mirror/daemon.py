"""The mirror as a process: its two clusters, the HTTP endpoints, the end."""

import asyncio
import logging

from pydantic import BaseModel

from waltz.common.config.schemas import ClientConfig, MirrorConfig, load
from waltz.common.daemon import close_step, stop_signals
from waltz.common.errors import ConfigError
from waltz.common.metrics.process_metrics import watched_process
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.config_files import file_problems
from waltz.common.net.http import HttpServer
from waltz.common.net.tls import server_context
from waltz.common.wall_clock import now_ms
from waltz.common.zk.addresses import address_problems
from waltz.mirror.mirror import Mirror
from waltz.mirror.mirror_metrics import MirrorState, Stage, show_metrics
from waltz.mirror.window import WindowLimit

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
"""Pause between two looks at the lags."""


def cluster_problems(config: BaseModel, _name: str) -> list[str]:
    """What is wrong with the files of the two clusters."""
    assert isinstance(config, MirrorConfig)
    problems: list[str] = []
    for key, path in (("mirror.source", config.source), ("mirror.target", config.target)):
        try:
            found = load(path, ClientConfig)
        except ConfigError as error:
            problems.append(f"{key}: {error}")
        else:
            problems += [*address_problems(found, path), *file_problems(found, path)]
    return problems


async def run(config: MirrorConfig) -> None:
    """Mirror until SIGTERM or SIGINT. For the daemon: it takes over the process's signals.

    Raises ``WaltzError``, one line, when the clusters do not go together. A cluster that is away is no reason: it is
    waited for.
    """
    mirror = Mirror(
        load(config.source, ClientConfig),
        load(config.target, ClientConfig),
        config.partition_ids,
        WindowLimit(config.window_transactions, config.window_size_bytes),
        table_ids=config.table_ids,
        interval_s=LOOK_INTERVAL_S,
        now_ms=now_ms,
    )
    registry = Registry()
    show_metrics(registry, mirror.state, now_ms)
    with stop_signals() as stop, watched_process(registry):
        http: HttpServer | None = None
        if config.mirror_jetty_port is not None:
            http = await HttpServer.open(
                config.mirror_bind_address,
                config.mirror_jetty_port,
                registry,
                health=lambda: health(mirror.state, now_ms(), config.max_lag_ms),
                tls=server_context(config.tls) if config.http_tls else None,
            )
        stopping = asyncio.ensure_future(stop.wait())
        working = asyncio.ensure_future(mirror.run())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            logger.info("stopping")
        finally:
            stopping.cancel()
            working.cancel()
            await close_step("ending the mirror", _ended(working))
            if http is not None:
                await close_step("closing the HTTP endpoints", http.close())


async def _ended(working: "asyncio.Future[None]") -> None:
    await asyncio.gather(working, return_exceptions=True)


def health(state: MirrorState, now_ms: int, max_lag_ms: int) -> tuple[bool, Json]:
    """Healthy while both clusters answer, no partition is given up, and none is later than ``max_lag_ms``.

    A partition that was promoted, or that another process mirrors, is as it should be.
    """
    partitions: dict[str, Json] = {}
    late = 0
    for partition_id, each in sorted(state.partitions.items()):
        age_ms = None if each.lag is None else each.lag.age_ms(now_ms)
        partitions[str(partition_id)] = {
            "state": each.stage.value,
            "reason": each.reason,
            "mirrored": each.mirrored_id,
            "lag_transactions": None if each.lag is None else each.lag.transactions,
            "lag_ms": age_ms,
        }
        late += each.stage is Stage.WORKING and age_ms is not None and age_ms > max_lag_ms
    stages = [each.stage for each in state.partitions.values()]
    unhealthy = {Stage.STOPPED, Stage.WAITING, Stage.WAITING_FOR_SOURCE}
    healthy = not state.trouble and state.is_source_available and not late and unhealthy.isdisjoint(stages)
    check: dict[str, Json] = {
        "healthy": healthy,
        "trouble": state.trouble,
        "source": state.is_source_available,
        "target": state.is_target_available,
        "partitions": partitions,
    }
    return healthy, {"mirror-health-check": check}
