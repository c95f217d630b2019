"""Counts the appends of one partition that the log has taken and not yet decided. Pure.

Appends are counted by the runs in which they were accepted, so that nothing is done per append.
"""

from collections.abc import Sequence

from waltz.server.requests.appends import LOCK_SIZE_BYTES, AcceptedRun, AppendCall

_APPEND_SIZE_BYTES = 200
"""Memory of an append without its body and locks."""


class UndecidedAppends:
    """A counter."""

    __slots__ = ("count", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        """Approximate memory, without the bodies that the log has."""

    def accept(self, run: AcceptedRun) -> None:
        """The log has taken these appends."""
        self.count += run.size
        self.size_bytes += _APPEND_SIZE_BYTES * run.size + LOCK_SIZE_BYTES * run.lock_count

    def commit(self, appends: Sequence[AppendCall]) -> list[AcceptedRun]:
        """These appends are committed, under ids without a gap; returns the runs that are committed as a whole."""
        self.count -= len(appends)
        self.size_bytes -= _APPEND_SIZE_BYTES * len(appends)
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

    def subtract(self, count: int) -> None:
        """``count`` appends are known to be absent from the log, or were given back."""
        self.count -= count
        self.size_bytes -= _APPEND_SIZE_BYTES * count

    def clear(self) -> None:
        """No append of an ended session is undecided any more."""
        self.count = self.size_bytes = 0
