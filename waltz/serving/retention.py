"""Keeps the partitions of a server within the limits of their properties: the owner of a partition trims it."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.config.schemas import ServerConfig
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json, Readings, Registry
from waltz.common.net.tls import client_context
from waltz.common.retention import Retention
from waltz.common.tasks import owned, restarting
from waltz.common.wall_clock import now_ms
from waltz.common.zk.client import ZooKeeper
from waltz.operations.archived import archived_end
from waltz.operations.retention import retain
from waltz.operations.trimming import OldNodesError, check_trims
from waltz.server.partition.append_rule import AppendRule
from waltz.server.partition.partition import ServerPartition
from waltz.server.process.descriptions import NODES_WITHOUT_TRIM, RETENTION_HELD, RETENTION_TRIMMED

logger = logging.getLogger(__name__)

Partitions = Callable[[], Mapping[int, ServerPartition]]
Rules = Callable[[], Mapping[int, AppendRule]]


class _Held(NamedTuple):
    """Transactions of a partition that are to be trimmed, and cannot be."""

    since_s: float
    reason: str
    kind: str
    """Who or what keeps them, without positions, which change all the time."""


class RetentionKeeper:
    """The retention of one server's partitions, from construction to :meth:`close`."""

    def __init__(
        self, partitions: Partitions, rules: Rules, registry: Registry, zookeeper: ZooKeeper, config: ServerConfig
    ) -> None:
        self._partitions = partitions
        self._rules = rules
        self._cluster = ClusterHandle(zookeeper, config.cluster_root, client_context(config.tls))
        self._interval_s = config.retention_interval_ms / 1000
        self._held: dict[int, _Held] = {}
        self._trimmed: dict[int, int] = {}
        self._old: tuple[str, ...] = ()
        registry.reading(RETENTION_HELD, self._read_held)
        registry.reading(RETENTION_TRIMMED, self._read_trimmed)
        registry.reading(NODES_WITHOUT_TRIM, lambda: [((), len(self._old))])
        what = "the retention of partitions"
        self._task = owned(restarting(self._run, what), what)

    async def close(self) -> None:
        """End the background task."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def health(self) -> Mapping[str, Json]:
        """The nodes that cannot live with trimmed partitions; and the partitions with transactions that are to be
        trimmed and cannot be, with the reason."""
        document: dict[str, Json] = {}
        if self._old:
            document["nodesWithoutTrim"] = list(self._old)
        if self._held:
            document["retentionHeld"] = {str(each): found.reason for each, found in sorted(self._held.items())}
        return document

    async def _run(self) -> None:
        # Servers that start together do not ask the storages together.
        await asyncio.sleep(random.random() * self._interval_s)
        while True:
            await self.look()
            await asyncio.sleep(self._interval_s)

    async def look(self) -> None:
        """Trim all partitions with limits once, one after the other; and look for nodes that cannot live with that."""
        limits = {each: rule.retention for each, rule in self._rules().items() if rule.retention != Retention()}
        concerned = {each: limits[each] for each in sorted(self._partitions()) if each in limits}
        for partition_id in self._held.keys() - concerned:
            del self._held[partition_id]
        try:
            await check_trims(self._cluster)
            self._note_old(())
        except (WaltzError, OSError) as error:
            self._note_old(error.nodes if isinstance(error, OldNodesError) else ())
            for partition_id in concerned:
                self._note(partition_id, str(error), str(error))
            return
        for partition_id, retention in concerned.items():
            await self._retain(partition_id, retention)

    def _note_old(self, nodes: tuple[str, ...]) -> None:
        """Note the nodes that cannot live with trimmed partitions, and log those that were not there before."""
        for node in nodes:
            if node not in self._old:
                text = "%s, and cannot live with trimmed partitions: nothing is trimmed; take it out of the cluster"
                logger.error(text, node)
        self._old = nodes

    async def _retain(self, partition_id: int, retention: Retention) -> None:
        end = partial(archived_end, self._cluster)
        try:
            found = await retain(self._cluster, partition_id, retention, now_ms(), end)
        except (WaltzError, OSError) as error:
            self._note(partition_id, str(error), type(error).__name__)
            return
        if found.point > found.before:
            self._trimmed[partition_id] = self._trimmed.get(partition_id, 0) + found.point - found.before
            text = "partition %d: transactions %d to %d are trimmed: they are beyond its retention"
            logger.info(text, partition_id, found.before, found.point - 1, extra={"partition": partition_id})
        kind = "the low-water mark" if found.held_by_mark else ", ".join(need.name for need in found.needs)
        self._note(partition_id, found.held, kind)
        partition = self._partitions().get(partition_id)
        if found.held_by_mark and partition is not None and (partition.high_water_mark or 0) > found.mark:
            partition.raise_low_water_mark()

    def _note(self, partition_id: int, reason: str | None, kind: str) -> None:
        """Note what keeps transactions beyond the limits, and log when that is something else than before."""
        before = self._held.pop(partition_id, None)
        if reason is None:
            if before is not None:
                text = "partition %d: nothing beyond its retention is kept any more"
                logger.info(text, partition_id, extra={"partition": partition_id})
            return
        if before is None or before.kind != kind:
            text = "partition %d: transactions beyond its retention are kept: %s"
            logger.warning(text, partition_id, reason, extra={"partition": partition_id})
        since_s = asyncio.get_running_loop().time() if before is None else before.since_s
        self._held[partition_id] = _Held(since_s, reason, kind)

    def _read_held(self) -> Readings:
        now_s = asyncio.get_running_loop().time()
        for partition_id in list(self._partitions()):
            held = self._held.get(partition_id)
            yield (str(partition_id),), 0.0 if held is None else now_s - held.since_s

    def _read_trimmed(self) -> Readings:
        for partition_id in list(self._partitions()):
            yield (str(partition_id),), self._trimmed.get(partition_id, 0)
