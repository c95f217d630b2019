"""Decides which appends enter the log, and assigns their ids. Pure.

While a store session is open, appends are checked one by one, in the order of their arrival. An append that passes gets
the next transaction id, and its locks are immediately raised to that id.
"""

from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.ids import GENERATION_PART, NO_TRANSACTION
from waltz.server.partition.locks import Conflict, LockTable
from waltz.server.requests.appends import AppendCall

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost


class Admitted(NamedTuple):
    """Outcome of a list of requests."""

    appends: list[AppendCall]
    """Appends for the log, each with its transaction id."""
    conflicts: list[Conflict[AppendCall]]
    """Appends refused by a lock."""
    of_other_generation: list[AppendCall]
    """Appends refused because their client knows another generation of the partition."""
    lock_count: int
    """The number of locks of the admitted appends, apart from single write locks."""


class Admission:
    """Lock table, next transaction id and generation of one partition. Nothing is admitted before :meth:`begin`."""

    def __init__(self, lock_table_size: int, generation: int) -> None:
        self.next_id = 0
        self._lock_table_size = lock_table_size
        self._locks: LockTable | None = None
        self.set_generation(generation)

    def set_generation(self, generation: int) -> None:
        """Admit appends of this generation only."""
        self.generation = generation
        self._generation_bytes = generation.to_bytes(4, "big", signed=True)

    def begin(self, high_water_mark: int, changed: bool) -> None:
        """Begin a session behind the mark.

        If it does not begin exactly at the end of the session before (``changed``, or some assigned ids are void now),
        all locks count as changed by the transaction at the mark (rule S3).
        """
        if self._locks is None:
            self._locks = LockTable(self._lock_table_size, high_water_mark)
        elif changed or self.next_id != high_water_mark + 1:
            self._locks.reset(high_water_mark)
        self.next_id = high_water_mark + 1

    def admit(self, requests: Sequence[AppendCall]) -> Admitted:
        """Check requests of one generation, in order."""
        locks = self._locks
        assert locks is not None, "a session has begun"
        if requests[0].req_id[GENERATION_PART] != self._generation_bytes:
            return self._refuse(locks, requests)
        appends, conflicts, lock_count = locks.admit_run(requests, self.next_id)
        self.next_id += len(appends)
        admitted: Admitted = _new_tuple(Admitted, (appends, conflicts, [], lock_count))
        return admitted

    def _refuse(self, locks: LockTable, requests: Sequence[AppendCall]) -> Admitted:
        """Refuse appends of another generation. Locks are checked first, as in the original, and a lock failure is
        reported."""
        conflicts: list[Conflict[AppendCall]] = []
        others: list[AppendCall] = []
        for request in requests:
            estimate = locks.estimate(request.write_locks, request.read_locks)
            if estimate > max(request.client_high_water_mark, NO_TRANSACTION):
                conflicts.append(Conflict(request, estimate, self.next_id))
            else:
                others.append(request)
        return Admitted([], conflicts, others, 0)
