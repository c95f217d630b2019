"""Chooses the number of records in a request for a target size in bytes. Pure."""

from collections.abc import Sequence

from waltz.common.records import RECORD_OVERHEAD_BYTES, Record

MAX_COUNT = 4000
"""The largest number of records in one request, even for small records: storages of the original do not limit their
answers."""

FIRST_MEAN_BYTES = 50_000
"""The assumed size of a record before the first answer: the first megabyte is about 20 records, as in the original."""


class Share:
    """The share of the wanted records in a request. Late answers reduce it, answers in time increase it."""

    __slots__ = ("_share",)

    def __init__(self) -> None:
        self._share = 1.0

    def of(self, count: float) -> int:
        """The present share of ``count``, at least one."""
        return max(1, int(count * self._share))

    def shrink(self) -> None:
        """After a late answer: halve the share, down to single records."""
        self._share = max(self._share / 2, 1 / MAX_COUNT)

    def grow(self) -> None:
        """After an answer in time: double the share, up to all records."""
        self._share = min(self._share * 2, 1.0)


class RecordSizer:
    """Learns the mean size of records. Growing sizes count immediately, shrinking sizes gradually."""

    __slots__ = ("_mean_bytes", "_share")

    def __init__(self) -> None:
        self._mean_bytes = float(FIRST_MEAN_BYTES)
        self._share = Share()

    def count(self, size_bytes: int) -> int:
        """The number of records with an expected size of ``size_bytes``, at least one."""
        return min(MAX_COUNT, self._share.of(size_bytes / self._mean_bytes))

    def shrink(self) -> None:
        """After a late answer: halve the share, down to single records."""
        self._share.shrink()

    def learn(self, records: Sequence[Record]) -> None:
        """Learn from the sizes of an answer."""
        if records:
            mean_bytes = RECORD_OVERHEAD_BYTES + sum(len(record.data) for record in records) / len(records)
            self._share.grow()
            self._mean_bytes = max(mean_bytes, (self._mean_bytes + mean_bytes) / 2)
