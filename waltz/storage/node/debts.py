"""What the journal still has to hold: of each partition the oldest group that is not durable where it belongs. Pure."""


class Debts:
    """Numbers of groups by partition: the oldest that is owed, and the newest."""

    def __init__(self) -> None:
        self._owed: dict[int, tuple[int, int]] = {}

    def __contains__(self, partition_id: int) -> bool:
        return partition_id in self._owed

    def owe(self, partition_id: int, number: int) -> None:
        """A group concerns the partition; numbers ascend."""
        oldest, _ = self._owed.get(partition_id, (number, number))
        self._owed[partition_id] = oldest, number

    def paid(self, partition_id: int, covered: int) -> None:
        """What the groups up to ``covered`` hold of the partition is durable where it belongs."""
        owed = self._owed.get(partition_id)
        if owed is None:
            return
        oldest, newest = owed
        if newest <= covered:
            del self._owed[partition_id]
        else:
            self._owed[partition_id] = max(oldest, covered + 1), newest

    def oldest(self, partition_id: int) -> int:
        """The oldest group that the partition owes, which it has to."""
        return self._owed[partition_id][0]

    def forgive(self, partition_id: int) -> None:
        """Nothing of the partition counts any more."""
        self._owed.pop(partition_id, None)

    def clear(self) -> None:
        """Everything is durable where it belongs."""
        self._owed.clear()

    def by_age(self) -> list[int]:
        """The partitions that owe something, the oldest debt first."""
        return sorted(self._owed, key=lambda partition_id: self._owed[partition_id])

    def floor(self, next_number: int) -> int:
        """The oldest group that is needed; ``next_number`` when none is."""
        return min((oldest for oldest, _ in self._owed.values()), default=next_number)
