"""What operators are told in the log about the replicas of the partitions. Pure.

States are looked at again and again, and told when they have lasted: the moments in which a session is opened, or in
which a replica has fallen behind and caught up again, are nobody's business.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from waltz.server.store.replica_view import ReplicaStatus, ReplicaView

_LEVELS = {ReplicaStatus.CURRENT: logging.INFO, ReplicaStatus.REFUSED: logging.ERROR}
"""All other states are warnings."""

_MEANING = {
    ReplicaStatus.CURRENT: "is current",
    ReplicaStatus.LAGGING: "is lagging",
    ReplicaStatus.COPYING: "is copying",
    ReplicaStatus.BARRED: "is barred until the next session",
    ReplicaStatus.AWAY: "is away",
    ReplicaStatus.REFUSED: "is refused",
}


class Line(NamedTuple):
    """A line for the log."""

    level: int
    text: str
    partition_id: int
    storage: str


class ReplicaJournal:
    """Finds out what has changed since it was told last. A replica that is current at first is not worth a line."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, str], ReplicaStatus] = {}
        self._seen: dict[tuple[int, str], ReplicaStatus] = {}

    def look(self, partitions: Mapping[int, Sequence[ReplicaView]]) -> list[Line]:
        """The lines about states that are as they were at the last look, and not as they were told."""
        found = {
            (partition_id, view.storage): view for partition_id, views in sorted(partitions.items()) for view in views
        }
        lines = []
        for key, view in found.items():
            told = self._told.get(key)
            if view.status is not (told or ReplicaStatus.CURRENT) and self._seen.get(key) is view.status:
                lines.append(_line(key[0], view, told, partitions[key[0]]))
                self._told[key] = view.status
        self._seen = {key: view.status for key, view in found.items()}
        self._told = {key: status for key, status in self._told.items() if key in found}
        return lines


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
