"""Carries out how much of a partition its properties keep: what is beyond that is trimmed, unless somebody needs it."""

from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.retention import Retention
from waltz.common.zk.trim_points import read_trim_point
from waltz.operations.trimming import (
    ArchivedEnd,
    Need,
    first_within,
    last_committed_at,
    low_water_mark,
    needs_of,
    plan_allowed,
    trim,
)


class Retained(NamedTuple):
    """What was done for the retention of a partition, and what was not."""

    before: int
    """The trim point before."""
    point: int
    """The trim point after that."""
    due: int
    """The first transaction within the limits: all before it are to be trimmed."""
    mark: int
    """The low-water mark of the present store session; only of interest when something is :attr:`held`."""
    needs: tuple[Need, ...]
    """Those who need transactions that are to be trimmed."""

    @property
    def held(self) -> str | None:
        """What keeps transactions that are to be trimmed; ``None`` if there are none."""
        if self.point >= self.due:
            return None
        if self.held_by_mark:
            return f"only transactions up to the low-water mark, {self.mark}, are certain to be on a quorum"
        return "; ".join(f"{need.name} needs those from {need.first} on ({need.reason})" for need in self.needs)

    @property
    def held_by_mark(self) -> bool:
        """Whether the low-water mark keeps them, which rises with the next store session."""
        bounds = (self.due, *(need.first for need in self.needs))
        return self.point < self.due and self.mark + 1 < min(bounds)


async def retain(
    cluster: ClusterHandle, partition_id: int, retention: Retention, now_ms: int, archived_end: ArchivedEnd
) -> Retained:
    """Trim what is beyond the limits, as far as nobody is known to need it.

    The caller has made sure that partitions may be trimmed (:func:`~waltz.operations.trimming.check_trims`). Raises
    ``WaltzError``.
    """
    before = await read_trim_point(cluster.zookeeper, cluster.root, partition_id)
    due = await _due(cluster, partition_id, retention, now_ms)
    if due <= before:
        return Retained(before, before, due, before - 1, ())
    mark = await low_water_mark(cluster, partition_id)
    needs = tuple(need for need in await needs_of(cluster, partition_id, archived_end) if need.first < due)
    first = min([due, mark + 1, *(need.first for need in needs)])
    point = before
    if first > before:
        # Whoever has come to need transactions since makes the trim fail; the next attempt takes that into account.
        point = await trim(cluster, await plan_allowed(cluster, partition_id, first, archived_end), ())
    return Retained(before, point, due, mark, needs)


async def _due(cluster: ClusterHandle, partition_id: int, retention: Retention, now_ms: int) -> int:
    due = 0
    if retention.age_ms:
        due = await last_committed_at(cluster, partition_id, now_ms - retention.age_ms) + 1
    if retention.size_bytes:
        due = max(due, await first_within(cluster, partition_id, retention.size_bytes))
    return due
