"""Accepted appends that wait for a session, and their batches. Pure."""

from collections.abc import Sequence

from waltz.common.records import RECORD_ID_BYTES
from waltz.server.store.interface import Append, record_bytes_of

MAX_BATCH_SIZE_BYTES = 1 << 20
"""A batch is full with this number of bytes, or with the configured number of records."""


class PendingAppends:
    """A queue of appends, in the order of their ids."""

    __slots__ = ("_appends", "_head", "_max_batch_size", "size_bytes")

    def __init__(self, max_batch_size: int) -> None:
        """``max_batch_size`` is the number of records in a full batch."""
        self.size_bytes = 0
        """The size of the appends as records; 0 without appends."""
        self._max_batch_size = max_batch_size
        self._appends: list[Append] = []
        self._head = 0  # the appends before this index have been taken

    def __len__(self) -> int:
        return len(self._appends) - self._head

    def add(self, appends: Sequence[Append]) -> None:
        """Put appends at the end."""
        self._appends += appends
        self.size_bytes += record_bytes_of(appends)

    def take_batch(self) -> list[Append]:
        """Take the next batch: at least one append, if there is any."""
        if len(self._appends) - self._head <= self._max_batch_size and self.size_bytes <= MAX_BATCH_SIZE_BYTES:
            if self._head:
                return self.take_all()
            batch, self._appends = self._appends, []  # the same as take_all, without the cost of a call for every batch
            self.size_bytes = 0
            return batch
        batch = self._appends[self._head : self._head + self._max_batch_size]
        size_bytes = record_bytes_of(batch)
        if size_bytes > MAX_BATCH_SIZE_BYTES:
            count = size_bytes = 0
            while size_bytes < MAX_BATCH_SIZE_BYTES:
                size_bytes += len(batch[count].body) + RECORD_ID_BYTES
                count += 1
            del batch[count:]
        self._head += len(batch)
        self.size_bytes -= size_bytes
        if 2 * self._head > len(self._appends):  # seldom enough: each append is moved once on average
            del self._appends[: self._head]
            self._head = 0
        return batch

    def take_all(self) -> list[Append]:
        """Take all pending appends, oldest first."""
        appends = self._appends[self._head :] if self._head else self._appends
        self._appends = []
        self._head = self.size_bytes = 0
        return appends
