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

    @property
    def size_bytes(self) -> int:
        """Approximate memory of all that is undecided, without the bodies."""
        return _APPEND_SIZE_BYTES * self.count + LOCK_SIZE_BYTES * self._lock_count

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

    def end_session(
        self, high_water_mark: int, unwritten: Sequence[Append], awaiting: Sequence[Pending], first_order: int
    ) -> list[Pending]:
        """The session has ended: ids above the mark are void.

        Returns what is to be looked at again, in the order of arrival: requests that were ``awaiting`` a commit, and
        the appends that are ``unwritten``, as requests with the order ``first_order``.
        """
        links: dict[Append, ClientLink] = {
            append: run.link for run in self._runs for append in run.appends if append.transaction_id > high_water_mark
        }
        self._runs.clear()
        again = [((pending.next_id, 0, pending.order), pending) for pending in awaiting]
        for append in unwritten:
            assert isinstance(append, AppendCall)
            again.append(((append.transaction_id, 1, 0), Pending(links.pop(append), append, first_order)))
        self.count -= len(unwritten)
        self._links.update(links)
        return [pending for _, pending in sorted(again, key=itemgetter(0))]

    def settled(self) -> None:
        """A session has opened: nothing of an earlier one is undecided."""
        self._links.clear()
        self._lock_count = 0
