"""The changes of one partition that go through the journal: a group of appends, a truncation, a fence, marks."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from waltz.common.records import Record
from waltz.storage.disk.journal.entries import Entry, Records, Settled, Truncated
from waltz.storage.disk.log.group_encoder import LogEnd
from waltz.storage.disk.log.log import PartitionLog, Prepared

T = TypeVar("T")

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost

NO_SESSION = -1
"""A session that is older than every real session. Also used in entries without a meaningful session."""


class Job(Generic[T]):
    """A change of a partition on its way through the journal."""

    __slots__ = (
        "_begin",
        "_end",
        "_ended",
        "begun",
        "entries",
        "error",
        "partition_id",
        "result",
        "size_bytes",
        "take_back",
    )

    def __init__(
        self,
        partition_id: int,
        ended: Callable[["Job[T]"], None],
        begin: Callable[[], list[Entry]],
        end: Callable[[], T],
        take_back: Callable[[], None] | None = None,
        size_bytes: int = 0,
    ) -> None:
        """``begin`` writes to the segment and returns the entries; ``end`` follows the sync of the entries. Both block.

        ``ended`` is called in the event loop after ``end``, or after a failure.
        ``take_back`` undoes ``begin``. A job with ``take_back`` may be refused or given back; if it is given back, the
        partition makes the change durable in its own files.
        """
        self.partition_id = partition_id
        self.take_back = take_back
        self.size_bytes = size_bytes
        self.begun = False
        """Whether ``begin`` has succeeded."""
        self.entries: list[Entry] = []
        """The entries of the change in the journal."""
        self.error: Exception | None = None
        self.result: list[T] = []
        self._begin = begin
        self._end = end
        self._ended: Callable[[Job[T]], None] | None = ended

    def begin(self) -> None:
        """Carry out the part before the sync of the journal; called in the thread."""
        try:
            self.entries = self._begin()
            self.begun = True
        except Exception as error:
            self.error = error

    def finish(self) -> None:
        """Carry out the part after the sync, unless something has failed; called in the thread."""
        if self.error is None:
            try:
                self.result.append(self._end())
            except Exception as error:
                self.error = error

    def tell(self) -> None:
        """Report the result or the error to the waiting caller. Only the first call has an effect."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(self)


class Append:
    """A group of appends."""

    __slots__ = ("_batches", "_log", "_prepared")

    def __init__(self, log: PartitionLog, batches: Sequence[Sequence[Record]]) -> None:
        self._log = log
        self._batches = batches
        self._prepared: Prepared | None = None

    def begin(self) -> list[Entry]:
        """Write the group to the segment."""
        log = self._log
        prepared = log.prepare(self._batches)
        if not log.write(prepared):
            return []
        self._prepared = prepared
        segment_first_id = prepared.start.segment_first_id
        if not prepared.writes:
            return []
        (write,) = prepared.writes
        first_id, _starts_segment, offset, chunks, record_offsets, _end_offset, _checkpoint = write
        fields = (log.partition_id, NO_SESSION, segment_first_id, offset, first_id, len(record_offsets), chunks)
        return [_new_tuple(Records, fields)]

    def end(self) -> Prepared | None:
        """Return the written group; ``None`` when nothing was written, because the group begins another segment."""
        if self._prepared is not None:
            self._log.index_written(self._prepared)
        return self._prepared

    def take_back(self) -> None:
        """Remove the group from the segment."""
        if self._prepared is not None:
            self._log.take_back(self._prepared)


class Truncation:
    """A truncation within the current segment. The truncation is in the journal before it is in the files."""

    __slots__ = ("_behind", "_log", "_transaction_id")

    def __init__(self, log: PartitionLog, transaction_id: int) -> None:
        self._log = log
        self._transaction_id = transaction_id
        self._behind: LogEnd | None = None

    def begin(self) -> list[Entry]:
        """Find the future end of the log."""
        behind = self._log.end_behind(self._transaction_id)
        if behind.segment_first_id != self._log.end.segment_first_id:
            return []
        last_id = behind.next_transaction_id - 1
        self._log.times.cut(last_id)
        self._behind = behind
        return [Truncated(self._log.partition_id, NO_SESSION, last_id, behind.segment_first_id, behind.offset)]

    def end(self) -> int | None:
        """Cut the log, and return the new maximum; ``None`` when nothing was cut, because the truncation removes
        segments."""
        if self._behind is None:
            return None
        self._log.cut(self._behind)
        return self._log.max_transaction_id


def settled(log: PartitionLog) -> list[Entry]:
    """The entry that tells that the segments of a partition are durable up to their end."""
    return [Settled(log.partition_id, *log.end)]


def nothing() -> None:
    """Do nothing: the ``end`` of a change that is complete with the sync of the journal."""
