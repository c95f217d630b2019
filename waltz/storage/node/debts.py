"""The groups that the journal still has to keep: for each partition, the groups that are durable in the journal only.
Pure."""


class Debts:
    """For each partition, the numbers of the oldest and the newest group that are durable in the journal only."""

    def __init__(self) -> None:
        self._owed: dict[int, tuple[int, int]] = {}

    def __contains__(self, partition_id: int) -> bool:
        return partition_id in self._owed

    def owe(self, partition_id: int, number: int) -> None:
        """Note that a group has changes of the partition. The numbers ascend."""
        owed = self._owed.get(partition_id)
        self._owed[partition_id] = number if owed is None else owed[0], number

    def paid(self, partition_id: int, covered: int) -> None:
        """Note that the changes of the partition in the groups up to ``covered`` are durable in their own files."""
        owed = self._owed.get(partition_id)
        if owed is None:
            return
        oldest, newest = owed
        if newest <= covered:
            del self._owed[partition_id]
        else:
            self._owed[partition_id] = max(oldest, covered + 1), newest

    def oldest(self, partition_id: int) -> int:
        """The oldest group that the partition owes. The partition has to owe at least one group."""
        return self._owed[partition_id][0]

    def forgive(self, partition_id: int) -> None:
        """Forget the debts of a partition that was removed from the node."""
        self._owed.pop(partition_id, None)

    def clear(self) -> None:
        """Note that all changes are durable in their own files."""
        self._owed.clear()

    def by_age(self) -> list[int]:
        """The partitions that owe something, the oldest debt first."""
        return sorted(self._owed, key=lambda partition_id: self._owed[partition_id])

    def floor(self, next_number: int) -> int:
        """The oldest group that any partition owes; ``next_number`` when no partition owes anything."""
        return min((oldest for oldest, _ in self._owed.values()), default=next_number)
