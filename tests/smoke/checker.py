"""What must hold after a run, whatever happened to the nodes meanwhile.

- Every transaction that was reported committed is in the log exactly once, at the reported id, with equal bytes.
- No attempt of a transaction that was reported failed is in the log, nor any but the last one of a committed one.
- What is in the log was submitted by somebody, to that partition.
- Every client applied exactly the log, in order.
- No transaction is in the log whose write or read locks were changed after the transaction that it was built on.
- Nothing of an older write session is behind the transaction at which a session began, and nothing of anybody else
  among what was appended in an exclusive one.
- Everything that was submitted has ended.

That all replicas agree is checked where they are read, by :mod:`tests.smoke.replicas`.
"""

import struct
from collections import deque
from collections.abc import Iterator, Sequence

from tests.smoke.journal import Fence, Journal, Outcome
from tests.smoke.payload import Payload, digest
from waltz.common.records import Record

SHOWN = 20
"""Violations that are listed; one defect easily makes thousands."""


class SessionCheck:
    """The write sessions of one partition. Some begin without a journal that says so: with a new owner, for example."""

    def __init__(self) -> None:
        self._expected: deque[Fence] = deque()
        self._present: Fence | None = None
        self._intruder: int | None = None  # the last one that may have come when the exclusive session had ended

    def expect(self, fence: Fence) -> Iterator[str]:
        """The sessions that clients have begun, by their numbers."""
        before = self._expected[-1] if self._expected else None
        if before is not None and (before.number == fence.number or before.transaction_id > fence.transaction_id):
            yield f"{before} and {fence}: both have grown, or neither"
        self._expected.append(fence)

    def take(self, transaction_id: int, session: int) -> Iterator[str]:
        """The next record, and the session that it was appended in."""
        while self._expected and self._expected[0].transaction_id < transaction_id:
            self._present = self._expected.popleft()
            self._intruder = None
        present = self._present
        if present is None:
            return
        place = f"{transaction_id} of partition {present.partition_id}"
        if 0 <= session < present.number:
            yield f"{place} was appended in session {session}, behind {present}"
        if present.exclusive and session != present.number:
            self._intruder = transaction_id
        elif present.exclusive and self._intruder is not None:
            yield f"{self._intruder} is before {place}, but not of its exclusive session, which began with {present}"
            self._intruder = None


class Checker:
    """Takes the journals, then the committed records of every partition in order, then tells what is wrong."""

    def __init__(self, journals: Sequence[Journal], partitions: int) -> None:
        self._journals = {journal.client: journal for journal in journals}
        self._changed_at: list[dict[int, int]] = [{} for _ in range(partitions)]
        self._expected = [0] * partitions
        self._found_at: dict[tuple[int, int], int] = {}
        self._sessions = [SessionCheck() for _ in range(partitions)]
        self._violations = [
            f"client {journal.client}: {violation}" for journal in journals for violation in journal.violations
        ]
        fences = [fence for journal in journals for fence in journal.fences]
        for fence in sorted(fences, key=lambda fence: fence.number):
            self._violations += self._sessions[fence.partition_id].expect(fence)

    @property
    def records(self) -> int:
        """Committed records seen so far."""
        return sum(self._expected)

    def take(self, partition_id: int, records: Sequence[Record]) -> None:
        """The next committed records of a partition."""
        for record in records:
            place = f"{record.transaction_id} of partition {partition_id}"
            if record.transaction_id != self._expected[partition_id]:
                self._fail(f"the log has {place} where {self._expected[partition_id]} is next")
            self._expected[partition_id] = record.transaction_id + 1
            self._compare_applied(partition_id, record, place)
            try:
                payload = Payload.decode(record.data)
            except struct.error:
                self._fail(f"nobody can have submitted what is at {place}")
                continue
            self._compare_submitted(partition_id, record, payload, place)
            self._check_locks(partition_id, record.transaction_id, payload)
            self._violations += self._sessions[partition_id].take(record.transaction_id, payload.session)

    def violations(self) -> list[str]:
        """Everything that is wrong, after the last record."""
        for journal in self._journals.values():
            for partition_id, applied in enumerate(journal.applied):
                if len(applied) != self._expected[partition_id]:
                    self._fail(
                        f"client {journal.client} applied {len(applied)} of the {self._expected[partition_id]} "
                        f"transactions of partition {partition_id}"
                    )
            for submitted in journal.submitted:
                name = f"transaction {submitted.number} of client {journal.client}"
                if submitted.outcome is Outcome.PENDING:
                    self._fail(f"{name} has not ended")
                elif submitted.outcome is Outcome.COMMITTED:
                    found_at = self._found_at.get((journal.client, submitted.number))
                    if found_at is None:
                        self._fail(f"{name} was reported committed and is not in the log")
                    elif found_at != submitted.transaction_id:
                        self._fail(f"{name} was reported at {submitted.transaction_id} and is at {found_at}")
        left = len(self._violations) - SHOWN
        return self._violations if left <= 0 else [*self._violations[:SHOWN], f"... and {left} more"]

    def _fail(self, violation: str) -> None:
        self._violations.append(violation)

    def _compare_applied(self, partition_id: int, record: Record, place: str) -> None:
        expected = digest(record.header, record.data)
        for journal in self._journals.values():
            applied = journal.applied[partition_id]
            if record.transaction_id < len(applied) and applied[record.transaction_id] != expected:
                self._fail(f"client {journal.client} applied something else at {place}")

    def _compare_submitted(self, partition_id: int, record: Record, payload: Payload, place: str) -> None:
        journal = self._journals.get(payload.client)
        if journal is None or not 0 <= payload.number < len(journal.submitted):
            self._fail(f"nobody submitted what is at {place}")
            return
        submitted = journal.submitted[payload.number]
        name = f"transaction {payload.number} of client {payload.client}"
        first_at = self._found_at.setdefault((payload.client, payload.number), record.transaction_id)
        if first_at != record.transaction_id:
            self._fail(f"{name} is at {place} and at {first_at}")
        if submitted.partition_id != partition_id:
            self._fail(f"{name} was submitted to partition {submitted.partition_id} and is at {place}")
        if submitted.outcome is Outcome.FAILED:
            self._fail(f"{name} was reported failed ({submitted.reason}) and is at {place}")
        elif submitted.attempts != payload.attempt + 1:
            self._fail(f"attempt {payload.attempt} of {name}, of {submitted.attempts}, is at {place}")
        elif submitted.digest != digest(record.header, record.data):
            self._fail(f"{name} is at {place} with other content")

    def _check_locks(self, partition_id: int, transaction_id: int, payload: Payload) -> None:
        changed_at = self._changed_at[partition_id]
        for lock in (*payload.write_locks, *payload.read_locks):
            if changed_at.get(lock, -1) > payload.built_on:
                self._fail(
                    f"transaction {transaction_id} of partition {partition_id} was built on {payload.built_on}; "
                    f"its lock {lock} was changed at {changed_at[lock]}"
                )
        for lock in (*payload.write_locks, *payload.append_locks):
            changed_at[lock] = transaction_id
