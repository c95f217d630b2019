"""Counts the appends of one partition that the log has taken and not decided yet. Pure.

Appends are counted by the runs in which they were accepted, so that there is no work per append.
"""

from collections.abc import Sequence

from waltz.server.requests.appends import LOCK_SIZE_BYTES, AcceptedRun, AppendCall
from waltz.server.store.interface import Append, record_bytes_of

_APPEND_SIZE_BYTES = 200
"""The memory of an append without its record and locks."""
_COPIES = 2
"""The number of copies of each undecided record: one in the request, one in a batch for the storages."""


class UndecidedAppends:
    """The counter."""

    __slots__ = ("count", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        """The approximate memory."""

    def accept(self, run: AcceptedRun, record_bytes: int) -> None:
        """Count appends that the log takes; ``record_bytes`` is their size as records."""
        self.count += run.size
        self.size_bytes += _APPEND_SIZE_BYTES * run.size + LOCK_SIZE_BYTES * run.lock_count + _COPIES * record_bytes

    def commit(self, appends: Sequence[AppendCall], record_bytes: int) -> list[AcceptedRun]:
        """Note that these appends are committed, under ids without a gap. Returns the completely committed runs."""
        self.count -= len(appends)
        self.size_bytes -= _APPEND_SIZE_BYTES * len(appends) + _COPIES * record_bytes
        first_id = appends[0].transaction_id
        whole: list[AcceptedRun] = []
        index, end = 0, len(appends)
        while index < end:
            run = appends[index].run
            index = run.last_id - first_id + 1
            if index <= end:
                self.size_bytes -= LOCK_SIZE_BYTES * run.lock_count
                whole.append(run)
        return whole

    def subtract(self, appends: Sequence[Append]) -> None:
        """Note that these appends are certainly not in the log, or were given back."""
        self.count -= len(appends)
        self.size_bytes -= _APPEND_SIZE_BYTES * len(appends) + _COPIES * record_bytes_of(appends)

    def clear(self) -> None:
        """Note that no append of an ended session is undecided any more."""
        self.count = self.size_bytes = 0
