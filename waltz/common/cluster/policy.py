"""Assigns partitions to servers: the dynamic assignment policy, as a pure function.

The policy is compatible with that of the original in everything that other processes can see: the stored assignment is
the base, preferences come first, generations grow by one with every change of owner, and the result is complete. It
differs where the original makes one of many possible choices: here servers are taken by ascending id, and lists are
stored sorted. It also differs where the original fails: it is complete for uneven preferences, too.
"""

import itertools
from collections.abc import Iterable

from waltz.common.errors import WaltzError
from waltz.common.zk.znodes import PartitionAssignment, PartitionGeneration, ServerDescriptor


class PolicyError(WaltzError):
    """The stored assignment does not fit the cluster. A repeat would fail, too."""


class _Partition:
    """A partition with its stored owner (``None``: unknown) and generation."""

    __slots__ = ("generation", "owner", "partition_id")

    def __init__(self, partition_id: int) -> None:
        self.partition_id = partition_id
        self.generation = 0
        self.owner: int | None = None

    def given_to(self, server_id: int) -> PartitionGeneration:
        return PartitionGeneration(self.partition_id, self.generation + (server_id != self.owner))


def assign(
    cversion: int, stored: PartitionAssignment, partition_count: int, servers: Iterable[ServerDescriptor]
) -> PartitionAssignment:
    """Compute the assignment of all partitions to the servers.

    A preferred partition goes to the server with the smallest id among those that prefer it, for any number of
    partitions of that server. The other partitions are spread so that the numbers become as equal as possible. Each
    server keeps its partitions up to its share.

    ``cversion`` is the child version of the membership ``servers``, ``stored`` the assignment in ZooKeeper, from which
    the policy starts. Raises ``PolicyError`` when it has more partitions than the cluster.
    """
    by_id = {server.server_id: server for server in sorted(servers, key=lambda server: server.server_id)}
    pool = _pool(stored, partition_count)
    if not by_id:
        return PartitionAssignment(cversion, partition_count, {})
    given: dict[int, list[PartitionGeneration]] = {server_id: [] for server_id in by_id}

    def give(partition_id: int, server_id: int) -> None:
        given[server_id].append(pool.pop(partition_id).given_to(server_id))

    for server in by_id.values():
        for partition_id in server.preferred_partitions:
            if partition_id in pool:
                give(partition_id, server.server_id)
    own: dict[int, list[int]] = {server_id: [] for server_id in by_id}
    for partition in pool.values():
        if partition.owner in own:
            own[partition.owner].append(partition.partition_id)
    shares = _shares(
        {server_id: len(items) for server_id, items in given.items()},
        {server_id: len(ids) for server_id, ids in own.items()},
        len(pool),
    )
    for server_id, ids in own.items():
        for partition_id in ids[: shares[server_id]]:
            give(partition_id, server_id)
            shares[server_id] -= 1
    homeless = iter(tuple(pool))
    for server_id, share in shares.items():
        for partition_id in itertools.islice(homeless, share):
            give(partition_id, server_id)
    return PartitionAssignment(
        cversion, partition_count, {server_id: tuple(sorted(items)) for server_id, items in given.items()}
    )


def _pool(stored: PartitionAssignment, partition_count: int) -> dict[int, _Partition]:
    """All partitions by ascending id. Of two entries the one with the higher generation counts. A missing partition
    begins with the first generation."""
    if stored.partition_count > partition_count:
        raise PolicyError(
            f"the stored assignment has {stored.partition_count} partitions, the cluster has {partition_count}"
        )
    pool = {partition_id: _Partition(partition_id) for partition_id in range(partition_count)}
    for server_id, owned in stored.servers.items():
        for partition_id, generation in owned:
            partition = pool.get(partition_id)
            if partition is None:
                raise PolicyError(
                    f"the stored assignment names partition {partition_id}, the cluster has {partition_count}"
                )
            if partition.owner is None or generation > partition.generation:
                partition.owner, partition.generation = server_id, generation
    return pool


def _shares(held: dict[int, int], own: dict[int, int], remaining: int) -> dict[int, int]:
    """The number of remaining partitions for each server, so that the totals become as equal as possible.

    The remainder of the division goes to the servers that would otherwise have to give away the most partitions, one to
    each.
    """
    level = _level(sorted(held.values()), remaining)
    shares = {server_id: max(0, level - count) for server_id, count in held.items()}
    extra = remaining - sum(shares.values())
    candidates = [server_id for server_id, count in held.items() if count <= level]
    candidates.sort(key=lambda server_id: shares[server_id] - own[server_id])
    for server_id in candidates[:extra]:
        shares[server_id] += 1
    return shares


def _level(held: list[int], remaining: int) -> int:
    """The level to which the remaining partitions fill the servers with the fewest; ``held`` is ascending."""
    total = remaining
    for count, next_held in enumerate([*held[1:], None], start=1):
        total += held[count - 1]
        if next_held is None or total // count < next_held:
            break
    return total // count
