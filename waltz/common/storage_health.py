"""The troubles of a storage node in words, each with the command that mends it. Pure.

The node reports its health at ``/health`` and among its metrics; tools and the console read it there.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from waltz.common.partition_ids import named_partitions
from waltz.common.replica_states import Remedy

_NO_SPACE = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))


JOURNAL_PROBLEM = "the journal is "
"""Beginning of the disk's problems that concern the journal."""

ABSENT_VOLUME = "volume "
"""Beginning of the reason for which the partitions of a missing volume are not served."""

LOST_WITH_VOLUME = " is lost, and all records of the partition with it"
"""End of the reason for which the partitions of a forgotten volume are not served."""


class StorageHealth(NamedTuple):
    """Problems of a storage node's partitions and disk."""

    out_of_service: Mapping[int, str] = {}
    """The assigned partitions that are not served, and why."""
    damaged: Mapping[int, str] = {}
    """The partitions in service with damaged records, and these records."""
    stalled: Mapping[int, str] = {}
    """The partitions that wait for the disk, and the time of their wait."""
    disk: str | None = None
    """Problem of the whole disk."""

    def problems(self) -> dict[str, dict[str, str] | str]:
        """The health as JSON, for ``/health`` and metrics; empty for a healthy node."""
        found: dict[str, dict[str, str] | str] = {}
        for name, texts in (
            ("outOfService", self.out_of_service),
            ("damaged", self.damaged),
            ("stalled", self.stalled),
        ):
            if texts:
                found[name] = {str(partition_id): text for partition_id, text in texts.items()}
        if self.disk:
            found["disk"] = self.disk
        return found

    @classmethod
    def parse(cls, document: object) -> "StorageHealth":
        """The health of a JSON made by :meth:`problems`. Raises ``ValueError`` for anything else."""
        try:
            assert isinstance(document, Mapping)
            disk = document.get("disk")
            out_of_service, damaged, stalled = (
                {int(key): str(text) for key, text in document.get(name, {}).items()}
                for name in ("outOfService", "damaged", "stalled")
            )
            return cls(out_of_service, damaged, stalled, None if disk is None else str(disk))
        except (AssertionError, AttributeError, ValueError) as error:
            raise ValueError(f"this is not the health of a storage: {error!r}") from None


class Ailment(NamedTuple):
    """One trouble of a storage node."""

    text: str
    partition_ids: Sequence[int]
    """The partitions concerned; empty for the disk as a whole."""
    remedy: Remedy


def out_of_service_remedy(reason: str) -> Remedy:
    """The remedy for partitions that are out of service for this reason."""
    if reason.startswith(ABSENT_VOLUME):
        return Remedy("mount the volume, then restart the storage node", "missing-volume")
    if reason.endswith(LOST_WITH_VOLUME):
        return Remedy("waltz storage remove-partition -d; then waltz storage sync-partitions", "missing-volume")
    if any(text in reason for text in _NO_SPACE):
        return Remedy("make room on the disk; then waltz storage sync-partitions", "disk-full")
    return Remedy("look at the disk and at the node's log; then waltz storage sync-partitions", "out-of-service")


def _disk_remedy(problem: str) -> Remedy:
    if problem.startswith(JOURNAL_PROBLEM):
        return Remedy("look at the disk and at the node's log; then restart the storage node", "journal")
    return Remedy("make room on the disk, or move replicas away", "disk-full")


def find_ailments(health: StorageHealth, admin: str) -> list[Ailment]:
    """The troubles, the worst first; ``admin`` is the node's admin port as commands take it (``host:port``)."""
    found = []
    for partition_ids, reason in _by_reason(health.out_of_service):
        text = f"{named_partitions(partition_ids)} out of service: {reason}"
        found.append(Ailment(text, partition_ids, out_of_service_remedy(reason)))
    for partition_ids, reason in _by_reason(health.stalled):
        text = f"the disk hangs: {reason} ({named_partitions(partition_ids)})"
        found.append(Ailment(text, partition_ids, Remedy("look at the disk, or stop the node", "out-of-service")))
    if health.disk:
        found.append(Ailment(health.disk, (), _disk_remedy(health.disk)))
    for partition_id, reason in health.damaged.items():
        text = f"damaged records in partition {partition_id}: {reason}"
        found.append(
            Ailment(text, [partition_id], Remedy(f"waltz storage repair -s {admin} -p {partition_id}", "damaged-data"))
        )
    return found


def _by_reason(texts: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """The partitions grouped by reason."""
    found: dict[str, list[int]] = {}
    for partition_id, text in texts.items():
        found.setdefault(text, []).append(partition_id)
    return [(partition_ids, text) for text, partition_ids in found.items()]
