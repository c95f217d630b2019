"""Finds the partitions that the loss of one zone would stop. Pure."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from waltz.common.cluster.quorum import quorum_of
from waltz.common.partition_ids import named_partitions
from waltz.common.replica_states import Remedy
from waltz.common.zk.storage_labels import Labels, default_spread, labels_text

_REBALANCE = "waltz cluster rebalance --replicas --apply"
_MIN_REPLICAS = 3
"""With fewer replicas, the loss of any of their storages stops a partition, so zones make no difference."""


class ZoneRisk(NamedTuple):
    """Partitions that would lose the majority of their replicas with one zone."""

    zone: Labels
    """The labels of the zone."""
    partition_ids: tuple[int, ...]
    can_be_spread: bool
    """Whether the cluster has enough zones for replicas that survive the loss of any zone."""

    @property
    def text(self) -> str:
        """The risk as a sentence."""
        return f"the death of {labels_text(self.zone)} would stop {named_partitions(self.partition_ids)}"

    @property
    def remedy(self) -> Remedy:
        """The remedy, and the section of the runbook."""
        if self.can_be_spread:
            return Remedy(_REBALANCE, "zones")
        return Remedy(f"add storages in another {' and '.join(self.zone)}, then {_REBALANCE}", "zones")


def find_zone_risks(
    storages: Mapping[int, Collection[str]], labels: Mapping[str, Labels], partition_ids: Collection[int]
) -> list[ZoneRisk]:
    """The risks by datacenter, then by rack, if storages have such labels.

    For a cluster within one datacenter, or within one rack, no risk is reported: the operator has chosen that.

    Args:
        storages: The storages of each partition.
        labels: The labels of the storages with labels.
        partition_ids: The partitions to be examined.
    """
    together: dict[frozenset[str], list[int]] = {}
    for partition_id in sorted(partition_ids):
        held = frozenset(storages.get(partition_id, ()))
        if len(held) >= _MIN_REPLICAS:
            together.setdefault(held, []).append(partition_id)
    risks: list[ZoneRisk] = []
    spread = default_spread(labels.values())
    for width in range(1, len(spread) + 1):
        keys = spread[:width]
        zones = {
            storage: tuple(each[key] for key in keys)
            for storage, each in labels.items()
            if all(key in each for key in keys)
        }
        count = len(set(zones.values()))
        if count < 2:
            continue
        stopped: dict[tuple[tuple[str, ...], bool], list[int]] = {}
        for held, ids in together.items():
            fullest_if_even = -(-len(held) // count)
            can_be_spread = len(held) - fullest_if_even >= quorum_of(len(held))
            for zone in sorted({zones[storage] for storage in held if storage in zones}):
                outside = sum(zones.get(storage) != zone for storage in held)
                if outside < quorum_of(len(held)):
                    stopped.setdefault((zone, can_be_spread), []).extend(ids)
        risks += [
            ZoneRisk(dict(zip(keys, zone, strict=True)), tuple(sorted(ids)), can_be_spread)
            for (zone, can_be_spread), ids in sorted(stopped.items())
        ]
    return risks
