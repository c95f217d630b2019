"""Ids of partitions: the check of an id, and lists of ids as text."""

from collections.abc import Callable, Collection, Iterable

from waltz.common.errors import WaltzError


def check_partition(partition_id: int, count: int, error: Callable[[str], Exception] = WaltzError) -> None:
    """Raise ``error`` unless a cluster of ``count`` partitions has this one."""
    if not 0 <= partition_id < count:
        raise error(f"there is no partition {partition_id}; the cluster has {count} (0 to {count - 1})")


def id_ranges(ids: Iterable[int], separator: str = ", ") -> str:
    """Ids as text, in ascending order, consecutive ones as a range: ``0-3, 7``."""
    ranges: list[list[int]] = []
    for each in sorted(ids):
        if ranges and ranges[-1][1] == each - 1:
            ranges[-1][1] = each
        else:
            ranges.append([each, each])
    return separator.join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def named_partitions(ids: Collection[int], separator: str = ", ") -> str:
    """``partition 7``, ``partitions 0-3, 7``."""
    return f"{'partition' if len(ids) == 1 else 'partitions'} {id_ranges(ids, separator)}"


def ids_in(text: str) -> list[int]:
    """The ids of ``0-6,7,10-16``: sorted, without duplicates. Raises ``ValueError``."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        try:
            low, high = int(first), int(last) if dash else int(first)
        except ValueError:
            raise ValueError(f"not a list of partitions like 0-6,7,10-16: {text!r}") from None
        if low > high or high - low > 1_000_000:
            raise ValueError(f"not a range of partitions: {part.strip()!r}")
        found.update(range(low, high + 1))
    return sorted(found)
