"""All partitions of a source, mirrored into a target, and how far the target is behind."""

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection

from waltz.asynchronous import Client, connect
from waltz.client.errors import TimesNotSupportedError
from waltz.common.config.schemas import ClientConfig
from waltz.common.errors import ConfigError, WaltzError
from waltz.common.iso_time import to_milliseconds
from waltz.common.net.backoff import Backoff
from waltz.common.net.tls import client_context
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import restarting
from waltz.common.zk.client import NodeExistsError
from waltz.common.zk.paths import ClusterPaths
from waltz.mirror.lag import NO_LAG, lag_of
from waltz.mirror.mirror_metrics import MirrorState, PartitionState, Stage
from waltz.mirror.partition_mirror import PartitionMirror, Target
from waltz.mirror.source_log import ClientLog
from waltz.mirror.window import WindowLimit

logger = logging.getLogger(__name__)

RETRY_INITIAL_S = 1.0
RETRY_MAXIMUM_S = 30.0
QUESTION_TIMEOUT_S = 5.0
"""Time limit of a question for a lag."""


class Mirror:
    """The work of one process."""

    def __init__(
        self,
        source: ClientConfig,
        target: ClientConfig,
        partition_ids: Collection[int] | None,
        limit: WindowLimit,
        *,
        interval_s: float,
        now_ms: Callable[[], int],
    ) -> None:
        """``partition_ids``: those to be mirrored; ``None``: all. ``interval_s``: between two looks at the lags."""
        self.state = MirrorState()
        self._source = source
        self._target = target
        self._partition_ids = partition_ids
        self._limit = limit
        self._interval_s = interval_s
        self._now_ms = now_ms
        self._source_outage = OutageLog(logger)

    async def run(self) -> None:
        """Mirror for ever. While a cluster is away: wait, with growing pauses. Raises ``ConfigError`` when the clusters
        are not two with the same number of partitions."""
        async with self._opened(self._source, "source") as source, self._opened(self._target, "target") as target:
            self.state.trouble = ""
            await self._mirror(source, target)

    @contextlib.asynccontextmanager
    async def _opened(self, config: ClientConfig, name: str) -> AsyncIterator[Client]:
        backoff, outage = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random()), OutageLog(logger)
        while True:
            try:
                client = await connect(config)
                break
            except ConfigError:
                raise
            except WaltzError as error:
                self.state.trouble = f"the {name} cannot be reached: {error}"
                outage.failed(self.state.trouble)
                await asyncio.sleep(backoff.next_delay_s())
        async with client:
            yield client

    async def _mirror(self, source: Client, target: Client) -> None:
        source_key, target_key = await source.cluster_key(), await target.cluster_key()
        if source_key == target_key:
            raise ConfigError("mirror.source and mirror.target name the same cluster; a mirror needs two")
        if source.partition_count != target.partition_count:
            raise ConfigError(
                f"the source has {source.partition_count} partitions, and the target {target.partition_count}: ids are "
                "equal only with the same number"
            )
        wanted = range(source.partition_count) if self._partition_ids is None else sorted(self._partition_ids)
        if wanted and wanted[-1] >= source.partition_count:
            raise ConfigError(
                f"mirror.partitions has {wanted[-1]}: the clusters have {source.partition_count} partitions"
            )
        nodes, root = target.directory
        with contextlib.suppress(NodeExistsError):
            await nodes.create(ClusterPaths.of(root).mirrors, None, make_path=True)
        tls = client_context(self._target.tls)
        connections = itertools.count()
        logger.info(
            "mirror of cluster %s (%s) into %s (%s)", source.cluster_name, source_key, target.cluster_name, target_key
        )
        async with asyncio.TaskGroup() as group:
            for partition_id in wanted:
                mirror = PartitionMirror(
                    partition_id,
                    ClientLog(source, partition_id),
                    source_key,
                    Target(nodes, root, tls, target.client_id),
                    self._limit,
                    self.state,
                    connections.__next__,
                )
                group.create_task(restarting(mirror.run, f"the mirror of partition {partition_id}"))
            group.create_task(restarting(lambda: self._look_for_ever(source, target), "the look at the lags"))

    async def _look_for_ever(self, source: Client, target: Client) -> None:
        while True:
            await self._look(source, target)
            await asyncio.sleep(self._interval_s)

    async def _look(self, source: Client, target: Client) -> None:
        """Look at all lags at once."""
        looks = [self._look_at(source, target, key, state) for key, state in self.state.partitions.items()]
        troubles = [trouble for trouble in await asyncio.gather(*looks) if trouble]
        self.state.is_source_available = not troubles
        if troubles:
            self._source_outage.failed(f"the source does not tell its marks: {troubles[0]}")
        else:
            self._source_outage.over()

    async def _look_at(self, source: Client, target: Client, partition_id: int, state: PartitionState) -> str:
        """Look at the lag of one partition; the reason why the source does not tell it, if it does not."""
        if state.stage is Stage.PROMOTED:
            state.lag = None
            return ""
        await _look_at_end(target, partition_id, state)
        try:
            mark = await source.high_water_mark(partition_id, timeout_s=QUESTION_TIMEOUT_S)
            mirrored_id = state.mirrored_id
            if mirrored_id is None:
                return ""
            commit_ms = None
            if mark > mirrored_id:
                with contextlib.suppress(TimesNotSupportedError):
                    time = await source.time_of(partition_id, mirrored_id + 1, timeout_s=QUESTION_TIMEOUT_S)
                    commit_ms = None if time is None else to_milliseconds(time)
            state.lag = lag_of(mark, mirrored_id, commit_ms, state.lag or NO_LAG, self._now_ms())
        except WaltzError as error:
            return str(error)
        return ""


async def _look_at_end(target: Client, partition_id: int, state: PartitionState) -> None:
    """Ask for the end of a partition that another process may be mirroring. Without an answer the last one stays."""
    sessions = state.sessions
    if state.stage is Stage.WORKING:
        return
    with contextlib.suppress(WaltzError):
        mark = await target.high_water_mark(partition_id, timeout_s=QUESTION_TIMEOUT_S)
        if state.sessions == sessions:  # else the mirror knows better
            state.mirrored_id = mark
