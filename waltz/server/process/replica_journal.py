"""The log lines for operators about the replicas of the partitions. Pure.

States are checked regularly, and reported when they have lasted: the short moments of a session's opening, or of a
replica that falls behind and catches up, are not reported.
"""

import logging
from collections.abc import Container, Sequence
from typing import NamedTuple

from waltz.common.replica_states import ReplicaStatus
from waltz.server.store.replica.replica_view import ReplicaView

_LEVELS = {ReplicaStatus.CURRENT: logging.INFO, ReplicaStatus.REFUSED: logging.ERROR}
"""Log levels of states; all others are warnings."""

_MEANING = {
    ReplicaStatus.CURRENT: "is current",
    ReplicaStatus.LAGGING: "is lagging",
    ReplicaStatus.COPYING: "is copying",
    ReplicaStatus.BEHIND: "is behind",
    ReplicaStatus.BARRED: "is barred until the next session",
    ReplicaStatus.AWAY: "is away",
    ReplicaStatus.REFUSED: "is refused",
    ReplicaStatus.OFFLINE: "is offline",
}


class Line(NamedTuple):
    """A line for the log."""

    level: int
    text: str
    partition_id: int
    storage: str


class _Seen(NamedTuple):
    """A replica at the last check."""

    status: ReplicaStatus
    told: ReplicaStatus | None


class ReplicaJournal:
    """Finds changes since the last reports. A replica that is current at first needs no line."""

    def __init__(self) -> None:
        self._seen: dict[int, dict[str, _Seen]] = {}

    def look(self, partition_id: int, views: Sequence[ReplicaView]) -> list[Line]:
        """The lines about states that are the same as at the last check, and differ from the last report."""
        before = self._seen.get(partition_id, {})
        now: dict[str, _Seen] = {}
        lines = []
        for view in views:
            seen, told = before.get(view.storage, (None, None))
            if view.status is seen and view.status is not (told or ReplicaStatus.CURRENT):
                lines.append(_line(partition_id, view, told, views))
                told = view.status
            now[view.storage] = _Seen(view.status, told)
        self._seen[partition_id] = now
        return lines

    def keep(self, partition_ids: Container[int]) -> None:
        """Forget all other partitions."""
        self._seen = {partition_id: seen for partition_id, seen in self._seen.items() if partition_id in partition_ids}


def under_replicated(views: Sequence[ReplicaView]) -> bool:
    """Whether a replica of a partition does not follow the log."""
    return any(view.status is not ReplicaStatus.CURRENT for view in views)


def _line(partition_id: int, view: ReplicaView, told: ReplicaStatus | None, views: Sequence[ReplicaView]) -> Line:
    behind = f", {view.lag_transactions} transactions behind" if view.lag_transactions else ""
    before = f" (was {told.value})" if told is not None else ""
    current = sum(each.status is ReplicaStatus.CURRENT for each in views)
    return Line(
        _LEVELS.get(view.status, logging.WARNING),
        f"partition {partition_id}: replica {view.storage} {_MEANING[view.status]}{behind}{before}; "
        f"{current} of {len(views)} replicas are current",
        partition_id,
        view.storage,
    )
