"""Counts the appends of one partition that the log has taken and not yet decided. Pure.

Appends are counted by the runs in which they were accepted, so that nothing is done per append.
"""

from collections.abc import Sequence

from waltz.server.requests.appends import LOCK_SIZE_BYTES, AcceptedRun, AppendCall
from waltz.server.store.interface import Append, record_bytes_of

_APPEND_SIZE_BYTES = 200
"""Memory of an append without its record and locks."""
_COPIES = 2
"""Records of undecided appends are there twice: as requests, and in the batches for the storages."""


class UndecidedAppends:
    """A counter."""

    __slots__ = ("count", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        """Approximate memory."""

    def accept(self, run: AcceptedRun, record_bytes: int) -> None:
        """The log takes these appends, of ``record_bytes`` as records."""
        self.count += run.size
        self.size_bytes += _APPEND_SIZE_BYTES * run.size + LOCK_SIZE_BYTES * run.lock_count + _COPIES * record_bytes

    def commit(self, appends: Sequence[AppendCall], record_bytes: int) -> list[AcceptedRun]:
        """These appends are committed, under ids without a gap; returns the runs that are committed as a whole."""
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
        """These appends are known to be absent from the log, or were given back."""
        self.count -= len(appends)
        self.size_bytes -= _APPEND_SIZE_BYTES * len(appends) + _COPIES * record_bytes_of(appends)

    def clear(self) -> None:
        """No append of an ended session is undecided any more."""
        self.count = self.size_bytes = 0
