"""What must hold of a lock table: it knows every transaction up to the mark behind which a session begins (rule S3).

A table that is kept over a change of session has given all ids since it was last set to a mark, and to what stands
there in the log: else it lacks the locks of somebody else's transactions.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from unittest import mock

from tests.simulation.checker import Entry
from waltz.server.partition.admission import Admission, Admitted
from waltz.server.partition.locks import LockTable
from waltz.server.requests.appends import AppendCall


@dataclass(slots=True)
class _Known:
    """What one table knows: everything up to a mark, and the appends that it has admitted since, by id."""

    table: LockTable
    mark: int
    admitted: dict[int, bytes] = field(default_factory=dict)


class LockTableChecks:
    """Follows all lock tables, and calls ``fail`` for one that has been kept and should not."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._known: dict[int, _Known] = {}

    def set_to(self, table: LockTable, mark: int) -> None:
        """All slots of a table hold the mark."""
        self._known[id(table)] = _Known(table, mark)

    def admitted(self, table: LockTable, appends: Sequence[AppendCall]) -> None:
        """A table has given ids."""
        known = self._known[id(table)].admitted
        known.update({append.transaction_id: bytes(append.req_id) for append in appends})

    def session_begun(self, table: LockTable, partition_id: int, mark: int, log: Mapping[int, Entry]) -> None:
        """A session has begun behind the mark, with this table; ``log`` is what has been seen of the partition's."""
        known = self._known[id(table)]
        for transaction_id in range(known.mark + 1, mark + 1):
            entry = log.get(transaction_id)
            if entry is None or known.admitted.get(transaction_id) != entry.req_id:
                self._fail(
                    f"a session of partition {partition_id} begins behind {mark} with a lock table that has not given "
                    f"{transaction_id} to what is there, and was last set to {known.mark}"
                )
                return
        self._known[id(table)] = _Known(table, mark, {key: at for key, at in known.admitted.items() if key > mark})

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """See how tables are made, set and used."""
        init, reset, admit = LockTable.__init__, LockTable.reset, Admission.admit

        def made(table: LockTable, size: int, high_water_mark: int) -> None:
            init(table, size, high_water_mark)
            self.set_to(table, high_water_mark)

        def set_anew(table: LockTable, high_water_mark: int) -> None:
            reset(table, high_water_mark)
            self.set_to(table, high_water_mark)

        def admitting(admission: Admission, requests: Sequence[AppendCall]) -> Admitted:
            admitted = admit(admission, requests)
            if admission._locks is not None:
                self.admitted(admission._locks, admitted.appends)
            return admitted

        with (
            mock.patch.object(LockTable, "__init__", made),
            mock.patch.object(LockTable, "reset", set_anew),
            mock.patch.object(Admission, "admit", admitting),
        ):
            yield
