"""Which partitions are due: those with a full object, and those with an old rest. Pure functions."""

from typing import NamedTuple

from waltz.archive.object_format import Limit


class Backlog(NamedTuple):
    """The transactions of a partition that are committed, but not archived."""

    first: int
    """Id of the first of the transactions."""
    transactions: int
    age_ms: int
    """Age of the first one, in milliseconds since its commit."""
    record_bytes: float | None
    """Average size of the last records read; ``None`` before the first read."""

    @property
    def size_bytes(self) -> int:
        """Estimated size of the transactions, in bytes, by the average of the last records."""
        return int(self.transactions * (self.record_bytes or 0))


class Policy(NamedTuple):
    """The limits by which partitions are due."""

    limit: Limit
    max_age_ms: int


def is_due(backlog: Backlog, policy: Policy) -> bool:
    """Whether to read a partition: an object may be full, the rest is old, or the size of records is unknown.

    The size is an estimate. Only reading shows whether the object is full.
    """
    if backlog.transactions <= 0:
        return False
    return (
        backlog.transactions >= policy.limit.max_records
        or is_old(backlog, policy)
        or backlog.record_bytes is None
        or backlog.size_bytes >= policy.limit.max_bytes
    )


def is_old(backlog: Backlog, policy: Policy) -> bool:
    """Whether the rest is old enough to be archived, although it does not fill an object."""
    return backlog.transactions > 0 and backlog.age_ms >= policy.max_age_ms
