"""The questions of a stream to a cluster before each micro-batch, over one lasting connection to ZooKeeper.

While a server fails over, no server tells the marks of its partitions: those partitions wait, and the others go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import ask_committed_marks
from waltz.common.net.tls import client_context
from waltz.common.zk.client import ZooKeeper, ZooKeeperError
from waltz.common.zk.znodes import StoreParams
from waltz.spark.errors import DataLossError, PlanningError
from waltz.spark.offsets import (
    LATEST,
    STARTING_OFFSETS,
    OffsetRange,
    OffsetSpec,
    check_named_partitions,
    resolve_bound,
    select_partitions,
)
from waltz.spark.options import RangeOptions
from waltz.spark.planning import (
    Split,
    committed_marks,
    connect_zookeeper,
    plan_ranges,
    read_store,
    with_offsets_of_times,
)
from waltz.spark.stream_offsets import (
    Offset,
    Positions,
    advance,
    batch_ranges,
    check_partitions,
    end_offset,
    initial_offset,
    positions,
    reported_offset,
)

logger = logging.getLogger(__name__)

PATIENCE_S = 2.0
"""How long a micro-batch waits for marks that no server tells at once; then it begins without those partitions."""

_T = TypeVar("_T")

_FROM_LATEST = OffsetSpec(LATEST, {})


class StreamPlanner:
    """Lives as long as the query, beside the driver. Raises ``PlanningError`` and ``ZooKeeperError``."""

    def __init__(self, options: RangeOptions) -> None:
        self.options = options
        self._tls = client_context(options.tls)
        self._zookeeper: ZooKeeper | None = None
        self._store: StoreParams | None = None
        self._initial: Offset | None = None
        self._target: Positions | None = None
        self._newest: Positions = {}
        self._stuck_since_s: dict[int, float] = {}

    async def initial(self) -> Offset:
        """The offset at which the stream begins without a checkpoint; the same at every call."""
        if self._initial is None:
            options = self.options
            selected = await self.selected()
            if options.starting_time_ms is not None:
                zookeeper, _ = await self._connected()
                deadline_s = asyncio.get_running_loop().time() + options.planning_timeout_s
                options = await with_offsets_of_times(
                    zookeeper, options, selected, tls=self._tls, deadline_s=deadline_s
                )
            starting = options.starting_offsets or _FROM_LATEST
            check_named_partitions(STARTING_OFFSETS, starting, selected)
            ends = await self._all_ends(selected)
            self._initial = initial_offset(
                {
                    partition_id: resolve_bound(
                        STARTING_OFFSETS, starting, partition_id, end, fail_on_data_loss=options.fail_on_data_loss
                    )
                    for partition_id, end in ends.items()
                }
            )
        return self._initial

    async def freeze(self) -> None:
        """Settle the end of a query that reads the transactions available now."""
        self._target = self._newest = await self._all_ends(await self.selected())

    async def latest(self, start: Mapping[str, object], max_rows: int | None) -> Offset:
        """The end of the micro-batch that begins at ``start``; ``start`` if there is nothing new."""
        check_partitions(start, await self.selected())
        places = positions(start)
        ends = self._target if self._target is not None else await self._known_ends(places)
        for partition_id, end in ends.items():
            if end < places[partition_id] and self.options.fail_on_data_loss:
                raise DataLossError(_loss(partition_id, places[partition_id], end))
        self._newest = {
            partition_id: max(place, ends.get(partition_id, place)) for partition_id, place in places.items()
        }
        return end_offset(start, advance(places, self._newest, max_rows))

    def reported(self) -> Offset | None:
        """The newest offset that was seen."""
        return reported_offset(self._newest) if self._newest else None

    async def splits(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[Split]:
        """The splits of one micro-batch, whose end was committed when it was first planned."""
        return await self.splits_of(batch_ranges(start, end))

    async def splits_of(self, ranges: Sequence[OffsetRange]) -> list[Split]:
        """The splits of ranges that are known to be committed."""
        options = self.options
        timeout_s = max(options.planning_timeout_s, options.failover_timeout_s)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        return await self.in_session(
            lambda zookeeper, store: plan_ranges(zookeeper, options, store, ranges, deadline_s)
        )

    async def in_session(self, ask: Callable[[ZooKeeper, StoreParams], Awaitable[_T]]) -> _T:
        """The answer to a question to ZooKeeper, asked again in a new session if this one has just ended."""
        try:
            return await ask(*await self._connected())
        except ZooKeeperError:
            await self.close()
            return await ask(*await self._connected())

    async def close(self) -> None:
        """Close the connection to ZooKeeper; a later question opens another one."""
        zookeeper, self._zookeeper = self._zookeeper, None
        if zookeeper is not None:
            await zookeeper.close()

    async def selected(self) -> list[int]:
        """The partitions that are read."""
        if self._store is None:
            await self._connected()
        assert self._store is not None
        return select_partitions(self.options.partitions, self._store.partition_count)

    async def cluster_key(self) -> UUID:
        """The key of the cluster."""
        _, store = await self._connected()
        return store.key

    async def _connected(self) -> tuple[ZooKeeper, StoreParams]:
        if self._zookeeper is None:
            self._zookeeper = await connect_zookeeper(self.options)
        if self._store is None:
            self._store = await read_store(self._zookeeper, self.options)
        return self._zookeeper, self._store

    async def _all_ends(self, selected: list[int]) -> Positions:
        """The first uncommitted id of every partition; waits for servers that fail over."""
        options = self.options
        deadline_s = asyncio.get_running_loop().time() + options.planning_timeout_s
        zookeeper, _ = await self._connected()
        marks = await committed_marks(zookeeper, options, selected, tls=self._tls, deadline_s=deadline_s)
        return {partition_id: mark + 1 for partition_id, mark in sorted(marks.items())}

    async def _known_ends(self, places: Positions) -> Positions:
        """Ends of the partitions whose owners answer."""
        options = self.options
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(PATIENCE_S, options.planning_timeout_s)
        try:
            zookeeper, _ = await self._connected()
            marks, reasons = await ask_committed_marks(
                ClusterHandle(zookeeper, options.cluster_root, self._tls), places, deadline_s=deadline_s
            )
        except ZooKeeperError as error:
            await self.close()
            marks, reasons = {}, dict.fromkeys(places, str(error))
        stuck = {partition_id: PlanningError(reason) for partition_id, reason in reasons.items()}
        ends = {partition_id: mark + 1 for partition_id, mark in marks.items()}
        for partition_id, end in ends.items():
            if end < places[partition_id]:
                # A former owner that does not know it yet is no loss of data; an owner that stays behind is one.
                stuck[partition_id] = DataLossError(_loss(partition_id, places[partition_id], end))
        self._check_patience(stuck)
        return {partition_id: end for partition_id, end in ends.items() if partition_id not in stuck}

    def _check_patience(self, stuck: Mapping[int, PlanningError]) -> None:
        """Raise an error if a partition has been standing still for too long."""
        now_s = asyncio.get_running_loop().time()
        since_s = self._stuck_since_s
        self._stuck_since_s = {partition_id: since_s.get(partition_id, now_s) for partition_id in stuck}
        for partition_id, error in stuck.items():
            waited_s = now_s - self._stuck_since_s[partition_id]
            tolerated = isinstance(error, DataLossError) and not self.options.fail_on_data_loss
            if waited_s > self.options.failover_timeout_s and not tolerated:
                raise type(error)(f"partition {partition_id} has stood still for {waited_s:.3g} s: {error}")
            logger.warning("partition %d has stood still for %.3g s: %s", partition_id, waited_s, error)


def _loss(partition_id: int, place: int, end: int) -> str:
    return (
        f"partition {partition_id} ends before {end}, and the stream has read up to {place}; the log was made "
        "anew, or this is another cluster. Start with another checkpoint, or set failOnDataLoss=false to wait there"
    )
