"""Appends that a log has accepted and not given to a session yet, and how they become batches. Pure."""

from collections import deque
from collections.abc import Sequence

from waltz.common.records import RECORD_ID_BYTES
from waltz.server.store.interface import Append

MAX_BATCH_SIZE_BYTES = 1 << 20
"""A batch is full when it has reached so many bytes, or the configured number of records."""


class PendingAppends:
    """A queue of appends, in the order of their ids."""

    __slots__ = ("_appends", "_max_batch_size", "size_bytes")

    def __init__(self, max_batch_size: int) -> None:
        """``max_batch_size`` is the number of records in a batch that is full."""
        self.size_bytes = 0
        """What the appends take as records."""
        self._max_batch_size = max_batch_size
        self._appends: deque[Append] = deque()

    def __len__(self) -> int:
        return len(self._appends)

    def add(self, appends: Sequence[Append]) -> None:
        """Put appends at the end."""
        self._appends.extend(appends)
        self.size_bytes += size_of(appends)

    def take_batch(self) -> list[Append]:
        """The next batch; at least one append if there is one."""
        if len(self._appends) <= self._max_batch_size and self.size_bytes <= MAX_BATCH_SIZE_BYTES:
            return self.take_all()
        batch: list[Append] = []
        size_bytes = 0
        while self._appends and len(batch) < self._max_batch_size and size_bytes < MAX_BATCH_SIZE_BYTES:
            append = self._appends.popleft()
            size_bytes += len(append.body) + RECORD_ID_BYTES
            batch.append(append)
        self.size_bytes -= size_bytes
        return batch

    def take_all(self) -> list[Append]:
        """Everything."""
        appends = list(self._appends)
        self._appends.clear()
        self.size_bytes = 0
        return appends


def size_of(appends: Sequence[Append]) -> int:
    """What the appends take as records, in bytes."""
    size_bytes = RECORD_ID_BYTES * len(appends)
    for append in appends:
        size_bytes += len(append.body)
    return size_bytes
