"""Which partitions are due for the archive: those with a full object, and those with an old rest. Pure."""

from typing import NamedTuple

from waltz.archive.object_format import Limit


class Backlog(NamedTuple):
    """What of a partition is committed, and not archived."""

    first: int
    """The first such transaction."""
    transactions: int
    age_ms: int
    """How long ago the first one was committed."""
    record_bytes: float | None
    """The average size of the last records that were read; ``None`` as long as none was."""

    @property
    def size_bytes(self) -> int:
        """An estimate by the last records."""
        return int(self.transactions * (self.record_bytes or 0))


class Policy(NamedTuple):
    """When partitions are due."""

    limit: Limit
    max_age_ms: int


def is_due(backlog: Backlog, policy: Policy) -> bool:
    """Whether a partition is to be read: an object may be full, the rest is old, or the size of records is unknown.

    The size is an estimate: whether an object is really full is known only when it was read.
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
    """Whether the rest is archived although it does not fill an object."""
    return backlog.transactions > 0 and backlog.age_ms >= policy.max_age_ms
