"""The appends of one partition that the log has taken and not yet decided: whose they are, and since when."""

from collections import deque
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from waltz.server.appends import LOCK_SIZE_BYTES, AppendCall
from waltz.server.link import ClientLink
from waltz.server.store.interface import Append
from waltz.server.waiting import Pending


class AcceptedRun(NamedTuple):
    """Appends that were accepted together."""

    last_id: int
    link: ClientLink
    appends: Sequence[AppendCall]
    accepted_s: float
    lock_count: int
    """Locks of all appends, apart from single write locks."""


_APPEND_SIZE_BYTES = 200
"""Memory of an append beside its body and a larger number of locks."""


class UndecidedAppends:
    """Kept by runs, so that nothing is done per append unless a session fails."""

    def __init__(self) -> None:
        self.count = 0
        self._lock_count = 0
        self._runs: deque[AcceptedRun] = deque()
        self._links: dict[Append, ClientLink] = {}  # of what an ended session left undecided
        self._unwritten: list[AppendCall] = []  # of those, what no replica was given
        self._unwritten_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Approximate memory of all that is undecided, without the bodies that the log has."""
        return _APPEND_SIZE_BYTES * self.count + LOCK_SIZE_BYTES * self._lock_count + self._unwritten_bytes

    def accept(self, run: AcceptedRun) -> None:
        """The log has taken these."""
        self._runs.append(run)
        self.count += len(run.appends)
        self._lock_count += run.lock_count

    def commit(self, appends: Sequence[Append]) -> Iterator[AcceptedRun]:
        """These are committed; the runs that have been committed as a whole."""
        self.count -= len(appends)
        for append in appends if self._links else ():
            self._links.pop(append, None)
        last_id = appends[-1].transaction_id
        while self._runs and self._runs[0].last_id <= last_id:
            run = self._runs.popleft()
            self._lock_count -= run.lock_count
            yield run

    def fail(self, append: Append) -> ClientLink | None:
        """This is known to be absent; whose it was."""
        self.count -= 1
        return self._links.pop(append, None)

    def end_session(self, high_water_mark: int, unwritten: Sequence[Append]) -> None:
        """The session has ended: ids above the mark are void unless the next one commits them.

        No replica was given the ``unwritten``, which the log has forgotten.
        """
        for run in self._runs:
            self._links.update((found, run.link) for found in run.appends if found.transaction_id > high_water_mark)
        self._runs.clear()
        for append in unwritten:
            assert isinstance(append, AppendCall)
            self._unwritten.append(append)
            self._unwritten_bytes += len(append.body)

    def give_back(self, awaiting: Sequence[Pending], order: int) -> list[Pending]:
        """Nothing that an ended session was given can be committed any more.

        Returns what is to be looked at again, in the order of arrival: requests that are still ``awaiting`` the commit
        of an id of that session, and the unwritten appends, as requests with this ``order``.

        No later append of the same client has been committed before any of these. What a session leaves undecided and
        the next one commits is a run from the oldest on; these, and whatever came behind them, lie beyond its end.
        """
        again = [((pending.next_id, 0, pending.order), pending) for pending in awaiting]
        again += [
            ((append.transaction_id, 1, 0), Pending(self._links[append], append, order)) for append in self._unwritten
        ]
        self.count -= len(self._unwritten)
        self._unwritten = []
        self._unwritten_bytes = self._lock_count = 0
        self._links.clear()
        return [pending for _, pending in sorted(again, key=itemgetter(0))]
