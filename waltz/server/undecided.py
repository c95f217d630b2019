"""How much of one partition the log has taken and not yet decided: pure.

Appends are counted by the runs in which they were accepted, so that nothing is done per append.
"""

from collections.abc import Iterator, Sequence

from waltz.server.appends import LOCK_SIZE_BYTES, AcceptedRun, AppendCall

_APPEND_SIZE_BYTES = 200
"""Memory of an append beside its body and a larger number of locks."""


class UndecidedAppends:
    """A counter."""

    __slots__ = ("_lock_count", "count")

    def __init__(self) -> None:
        self.count = 0
        self._lock_count = 0

    @property
    def size_bytes(self) -> int:
        """Approximate memory, without the bodies that the log has."""
        return _APPEND_SIZE_BYTES * self.count + LOCK_SIZE_BYTES * self._lock_count

    def accept(self, run: AcceptedRun) -> None:
        """The log has taken these."""
        self.count += run.size
        self._lock_count += run.lock_count

    def commit(self, appends: Sequence[AppendCall]) -> Iterator[AcceptedRun]:
        """These are committed, under ids without a gap; yields the runs that have been committed as a whole."""
        self.count -= len(appends)
        first_id = appends[0].transaction_id
        index, end = 0, len(appends)
        while index < end:
            run = appends[index].run
            index = run.last_id - first_id + 1
            if index <= end:
                self._lock_count -= run.lock_count
                yield run

    def subtract(self, count: int) -> None:
        """So many are known to be absent, or were given back."""
        self.count -= count

    def clear(self) -> None:
        """Nothing that an ended session was given is undecided any more."""
        self.count = self._lock_count = 0
