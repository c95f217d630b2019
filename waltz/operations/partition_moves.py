"""Plans the changes of preferences by which an operator moves partitions from server to server. Pure.

The owner of a partition follows from preferences and from the policy. Servers keep their preferences while they run.
The policy spreads the other partitions evenly. So a plan has to fix the other partitions, too; otherwise the policy
would move them in exchange.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from waltz.common.cluster.policy import assign
from waltz.common.errors import WaltzError
from waltz.common.partition_ids import named_partitions
from waltz.common.zk.znodes import PartitionAssignment, ServerDescriptor


class PreferenceChange(NamedTuple):
    """A change of one server's preferred partitions."""

    server_id: int
    add: bool
    """Whether the partitions are added to the preferred partitions, or removed."""
    partition_ids: tuple[int, ...]


class PartitionMove(NamedTuple):
    """A partition that gets another owner."""

    partition_id: int
    source: int | None
    target: int | None


class Ownership(NamedTuple):
    """The servers of a cluster, their preferred partitions, and the assignment."""

    assignment: PartitionAssignment
    partition_count: int
    servers: tuple[ServerDescriptor, ...]

    def owners(self) -> dict[int, int]:
        """The server of each partition with a server."""
        return {
            partition_id: server_id for server_id, owned in self.assignment.servers.items() for partition_id, _ in owned
        }

    def after(self, changes: Iterable[PreferenceChange]) -> "Ownership":
        """The ownership after the changes, made one by one, according to the policy."""
        now = self
        for change in changes:
            servers = tuple(_changed(server, change) for server in now.servers)
            assignment = assign(now.assignment.cversion, now.assignment, now.partition_count, servers)
            now = now._replace(assignment=assignment, servers=servers)
        return now

    def follows(self, change: PreferenceChange) -> bool:
        """Whether the server has made the change; true for a server that has left the cluster."""
        for server in self.servers:
            if server.server_id == change.server_id:
                preferred = set(server.preferred_partitions)
                return (
                    preferred.issuperset(change.partition_ids)
                    if change.add
                    else preferred.isdisjoint(change.partition_ids)
                )
        return True

    def counts(self) -> dict[int, int]:
        """The number of partitions of each server."""
        owners = list(self.owners().values())
        return {server.server_id: owners.count(server.server_id) for server in self.servers}


def _changed(server: ServerDescriptor, change: PreferenceChange) -> ServerDescriptor:
    if server.server_id != change.server_id:
        return server
    preferred = set(server.preferred_partitions)
    preferred = preferred.union(change.partition_ids) if change.add else preferred.difference(change.partition_ids)
    return server._replace(preferred_partitions=tuple(sorted(preferred)))


def moves_between(before: Ownership, after: Ownership) -> list[PartitionMove]:
    """The partitions with different owners."""
    old, new = before.owners(), after.owners()
    return [
        PartitionMove(partition_id, old.get(partition_id), new.get(partition_id))
        for partition_id in range(before.partition_count)
        if old.get(partition_id) != new.get(partition_id)
    ]


def plan_drain(now: Ownership, server_id: int) -> list[PreferenceChange]:
    """Move all partitions of a server to the others, as evenly as possible; all other partitions stay.

    Partitions that stay become preferred partitions of their servers; otherwise the policy would give them to the empty
    server. Raises ``WaltzError`` when there is no other server.
    """
    others = {server.server_id: set(server.preferred_partitions) for server in now.servers}
    preferred_here = others.pop(server_id)
    if not others:
        raise WaltzError("this is the only server: no other server could take its partitions")
    owners = now.owners()
    changes = []
    for other, preferred in sorted(others.items()):
        kept = tuple(sorted({each for each, owner in owners.items() if owner == other} - preferred))
        if kept:
            changes.append(PreferenceChange(other, True, kept))
    counts = {other: count for other, count in now.counts().items() if other in others}
    for partition_id in range(now.partition_count):
        if owners.get(partition_id, server_id) == server_id:
            target = min(counts, key=lambda each: (counts[each], each))
            takers = [other for other, preferred in others.items() if partition_id in preferred]
            if takers:  # among the servers that prefer a partition, the one with the smallest id gets it
                target = min(takers)
            else:
                changes.append(PreferenceChange(target, True, (partition_id,)))
            counts[target] += 1
        if partition_id in preferred_here:
            changes.append(PreferenceChange(server_id, False, (partition_id,)))
    return changes


def plan_rebalance(now: Ownership) -> list[PreferenceChange]:
    """Even out the numbers of partitions, to a difference of at most one, by taking back as few preferences as
    possible.

    The policy spreads partitions without a preference. Raises ``WaltzError`` when there is no server.
    """
    if not now.servers:
        raise WaltzError("there is no server")
    preferred = {server.server_id: set(server.preferred_partitions) for server in now.servers}
    changes: list[PreferenceChange] = []
    for _ in range(sum(map(len, preferred.values()))):
        after = now.after(changes[-1:])
        now = after
        counts = after.counts()
        most, fewest = max(counts.values()), min(counts.values())
        if most - fewest <= 1:
            break
        owners = after.owners()
        change = _take_back(counts, owners, preferred)
        if change is None:
            break
        changes.append(change)
        preferred[change.server_id].difference_update(change.partition_ids)
    return changes


def _take_back(
    counts: dict[int, int], owners: dict[int, int], preferred: dict[int, set[int]]
) -> PreferenceChange | None:
    """Take back one preference: of the fullest server among the servers that exceed their share because of
    preferences."""
    share = math.floor(sum(counts.values()) / len(counts))
    for server_id in sorted(counts, key=lambda each: (-counts[each], each)):
        if counts[server_id] <= share:
            return None
        held = [each for each in preferred[server_id] if owners[each] == server_id]
        if held:
            return PreferenceChange(server_id, False, (max(held),))
    return None


def describe_change(change: PreferenceChange, names: dict[int, str]) -> str:
    """The change as a sentence; ``names`` are the endpoints of the servers by id."""
    verb = "prefers" if change.add else "no longer prefers"
    return f"server {names[change.server_id]} {verb} {named_partitions(change.partition_ids)}"
