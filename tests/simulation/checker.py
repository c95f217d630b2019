"""What must hold: while a simulation runs, and at its end.

The checker sees what servers commit, what clients apply and report, and at the end what the disks hold. It knows
nothing of how any of it came about.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from waltz.common.records import Record


class Attempt(NamedTuple):
    """An append as the client built it."""

    client: str
    partition_id: int
    high_water_mark: int
    """The mark against which the locks are checked."""
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    data: bytes


class Outcome(enum.Enum):
    """The final answer of the client library about a transaction."""

    PENDING = "pending"
    COMMITTED = "committed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The client crashed or was closed before it said anything."""


class Entry(NamedTuple):
    """A transaction in the log, as clients see it."""

    req_id: bytes
    header: int


@dataclass(slots=True)
class Submitted:
    """One transaction that an application wants; its number is the header of every attempt."""

    number: int
    client: str
    partition_id: int
    attempts: list[Attempt] = field(default_factory=list)
    since_s: float = 0.0
    """When it was submitted."""
    outcome: Outcome = Outcome.PENDING
    seen_at: int | None = None
    """The transaction's id in the log, once anybody has seen it there."""
    told_at: int | None = None
    """The id that its author was told."""


@dataclass(slots=True)
class OpenedSession:
    """A store session, as far as its marks go."""

    session_id: int
    version: int
    """Of the partition's metadata, by the write that opened the session: it orders sessions, while the answers to these
    writes may come in any order."""
    begins_behind: int
    told: int
    """The highest mark that its owner has told in it."""


class Checker:
    """Collects what happens and calls ``fail`` when it must not happen."""

    def __init__(self, partitions: int, fail: Callable[[str], None]) -> None:
        self.submitted: list[Submitted] = []
        self.log: list[dict[int, Entry]] = [{} for _ in range(partitions)]
        """The log of each partition as far as anybody has seen it."""
        self.marks = [-1] * partitions
        """The highest high-water mark of each partition that a server has had."""
        self.lock_failures = 0
        self.on_landed: Callable[[int, int, bytes], None] | None = None
        """Told of every transaction that is seen in the log for the first time: partition, id, request id."""
        self.mirror_of: dict[int, int] = {}
        """The source of each partition that is a mirror: it has the same transactions at the same ids."""
        self._sessions: list[dict[int, OpenedSession]] = [{} for _ in range(partitions)]
        self._low_water_marks: list[dict[int, int]] = [{} for _ in range(partitions)]
        self._may_hold_out = False
        self._fail = fail

    # While it runs

    def submit(self, client: str, partition_id: int) -> Submitted:
        """An application begins with another transaction."""
        submitted = Submitted(len(self.submitted), client, partition_id)
        self.submitted.append(submitted)
        return submitted

    def unavailable(self, partition_id: int, why: str) -> None:
        """A partition takes no appends at a moment at which it has to."""
        self._fail(f"partition {partition_id} takes no appends, {why}")

    def attempted(self, submitted: Submitted, attempt: Attempt, applied: int, together: int = 1) -> None:
        """``execute`` was called; ``applied`` is the last transaction that the application has applied.

        It was applied ``together`` with others, of all of which the client may not have heard yet.
        """
        if submitted.outcome is not Outcome.PENDING:
            self._fail(f"transaction {submitted.number} is built again although it is {submitted.outcome.value}")
        if submitted.seen_at is not None:
            self._fail(f"transaction {submitted.number} is built again; it is in the log at {submitted.seen_at}")
        if not applied - together <= attempt.high_water_mark <= applied:
            self._fail(
                f"{submitted.client} builds on {attempt.high_water_mark} in partition {attempt.partition_id}, "
                f"and has applied {applied}"
            )
        submitted.attempts.append(attempt)

    def decided(self, submitted: Submitted, outcome: Outcome, reason: str = "") -> None:
        """The client library says what became of a transaction."""
        before = submitted.outcome
        if before is not Outcome.PENDING:
            self._fail(f"transaction {submitted.number} is {outcome.value} after it was {before.value} {reason}")
        if outcome is Outcome.FAILED and submitted.seen_at is not None:
            self._fail(
                f"transaction {submitted.number} is reported failed ({reason}); it is in the log of partition "
                f"{submitted.partition_id} at {submitted.seen_at}"
            )
        submitted.outcome = outcome

    def committed(
        self, server: str, partition_id: int, session_id: int, first_id: int, entries: Sequence[Entry]
    ) -> None:
        """A server has committed a batch, or has found it committed, in a session."""
        self.mark(server, partition_id, session_id, first_id + len(entries) - 1)
        for number, entry in enumerate(entries):
            self._see(f"{server} commits", partition_id, first_id + number, entry)

    def mark(self, server: str, partition_id: int, session_id: int, high_water_mark: int) -> None:
        """A server says, in a session, that everything up to here is committed."""
        self.marks[partition_id] = max(self.marks[partition_id], high_water_mark)
        sessions = self._sessions[partition_id]
        session = sessions[session_id]
        session.told = max(session.told, high_water_mark)
        for later in sessions.values():
            if later.version > session.version and later.begins_behind < high_water_mark:
                self._fail(
                    f"{server} commits up to {high_water_mark} in session {session_id} of partition {partition_id}; "
                    f"session {later.session_id} follows it and has begun behind {later.begins_behind}"
                )

    def low_water_mark_set(self, storage: str, partition_id: int, session_id: int, mark: int) -> None:
        """A storage was told that the log of a session begins behind this mark."""
        if mark < 0:
            return  # no claim
        marks = self._low_water_marks[partition_id]
        known = marks.setdefault(session_id, mark)
        if known != mark:
            self._fail(
                f"{storage} gets low-water mark {mark} of session {session_id} of partition {partition_id}; "
                f"another got {known}"
            )

    def session_opened(self, server: str, partition_id: int, session_id: int, mark: int, version: int) -> None:
        """A session begins behind this mark: no earlier one may have used a higher mark (rule S7), and no process may
        have been told of one (rule S10).

        ``version`` is that of the metadata by the write that opened it. The answer to that write may be so late that
        the next session has opened and committed before the owner of this one hears of its own.
        """
        sessions = self._sessions[partition_id]
        opened = OpenedSession(session_id, version, mark, mark)
        for other in sessions.values():
            if (other.session_id < session_id) != (other.version < version):
                self._fail(
                    f"{server} opens session {session_id} of partition {partition_id} by version {version} of the "
                    f"metadata; session {other.session_id} was opened by version {other.version}"
                )
            before, after = (other, opened) if other.version < version else (opened, other)
            if before.told > after.begins_behind:
                self._fail(
                    f"{server} opens session {session_id} of partition {partition_id} behind {mark}; transactions up "
                    f"to {before.told} have been told as committed in session {before.session_id}, and session "
                    f"{after.session_id} begins behind {after.begins_behind}"
                )
        sessions[session_id] = opened
        for earlier, used in self._low_water_marks[partition_id].items():
            if earlier < session_id and used > mark:
                self._fail(
                    f"{server} opens session {session_id} of partition {partition_id} behind {mark}; session {earlier} "
                    f"gave low-water mark {used} to a storage"
                )

    def disk_of_the_same_session(self) -> None:
        """A storage gets back an older disk, and its session cannot show it."""
        self._may_hold_out = True

    def holds_out(self, server: str, partition_id: int, mark: int) -> None:
        """A recovery would decide a mark below what its owner has told as committed: only an older disk explains it."""
        if not self._may_hold_out:
            self._fail(
                f"{server} would begin a session of partition {partition_id} behind {mark}; transactions up to "
                f"{self.marks[partition_id]} have been told as committed"
            )

    def read_in_bulk(self, reader: str, partition_id: int, transaction_id: int, entry: Entry, data: bytes) -> None:
        """A reader of replicas takes this for a committed transaction (rule S6)."""
        self._see(f"{reader} reads", partition_id, transaction_id, entry)
        self.read(reader, partition_id, entry.header, data)

    def certain(self, who: str, partition_id: int, transaction_id: int, entry: Entry) -> None:
        """Somebody takes this for a part of the log."""
        self._see(f"{who} takes for certain", partition_id, transaction_id, entry)

    def mark_answered(self, who: str, partition_id: int, mark: int, committed_before: int) -> None:
        """Somebody was told a high-water mark, and had asked when everything up to ``committed_before`` was committed.

        It may be neither less than that nor more than what is committed by now; at the end all of it is on a quorum.
        """
        if not committed_before <= mark <= self.marks[partition_id]:
            self._fail(
                f"{who} is told that partition {partition_id} is committed up to {mark}; it was up to "
                f"{committed_before} when the question was asked, and is up to {self.marks[partition_id]} by now"
            )

    def lock_failure(self, client: str, submitted: Submitted, transaction_id: int) -> None:
        """A client was told that a lock was changed by a transaction."""
        self.lock_failures += 1
        if transaction_id > self.marks[submitted.partition_id]:
            self._fail(
                f"{client} is told that {transaction_id} of partition {submitted.partition_id} holds a lock, and no "
                f"server has committed anything above {self.marks[submitted.partition_id]}"
            )

    def applied(self, client: str, partition_id: int, expected: int, transaction_id: int, entry: Entry) -> None:
        """A client applies a transaction; ``expected`` is the one after the last that it has applied."""
        if transaction_id != expected:
            self._fail(f"{client} applies {transaction_id} of partition {partition_id}; {expected} is next")
        self._see(f"{client} applies", partition_id, transaction_id, entry)

    def appended(self, submitted: Submitted, transaction_id: int) -> None:
        """A client was told the id of its transaction; perhaps nobody has seen it there yet."""
        submitted.told_at = transaction_id
        if submitted.seen_at is not None:
            self._check_told(submitted)

    def _check_told(self, submitted: Submitted) -> None:
        if submitted.seen_at != submitted.told_at:
            self._fail(
                f"{submitted.client} was told that transaction {submitted.number} is at {submitted.told_at} of "
                f"partition {submitted.partition_id}; it is at {submitted.seen_at}"
            )

    def read(self, client: str, partition_id: int, header: int, data: bytes) -> None:
        """A client has read the data of a transaction."""
        if not 0 <= header < len(self.submitted):
            self._fail(f"{client} reads a transaction that nobody has submitted: header {header}")
        elif data not in [attempt.data for attempt in self.submitted[header].attempts]:
            self._fail(f"{client} reads data of transaction {header} in partition {partition_id} that nobody has built")

    def _see(self, what: str, partition_id: int, transaction_id: int, entry: Entry) -> None:
        log = self.log[partition_id]
        known = log.get(transaction_id)
        if known is not None:
            if known != entry:
                self._fail(
                    f"{what} transaction {entry.header} at {transaction_id} of partition {partition_id}, "
                    f"where transaction {known.header} was seen before"
                )
            return
        log[transaction_id] = entry
        if self.on_landed is not None:
            self.on_landed(partition_id, transaction_id, entry.req_id)
        if partition_id in self.mirror_of:
            self._see_mirrored(what, partition_id, transaction_id, entry)
            return
        if not 0 <= entry.header < len(self.submitted):
            self._fail(f"{what} {entry} at {transaction_id} of partition {partition_id}, which nobody has submitted")
            return
        submitted = self.submitted[entry.header]
        place = f"at {transaction_id} of partition {partition_id}"
        if submitted.seen_at is not None:
            self._fail(f"{what} transaction {submitted.number} {place}; it is also at {submitted.seen_at}")
        if submitted.outcome is Outcome.FAILED:
            self._fail(f"{what} transaction {submitted.number} {place}, which was reported failed")
        if submitted.partition_id != partition_id:
            self._fail(f"{what} transaction {submitted.number} {place}, not of partition {submitted.partition_id}")
        submitted.seen_at = transaction_id

    def _see_mirrored(self, what: str, partition_id: int, transaction_id: int, entry: Entry) -> None:
        source = self.log[self.mirror_of[partition_id]].get(transaction_id)
        if source is None or source.header != entry.header:
            there = "nothing" if source is None else f"transaction {source.header}"
            self._fail(
                f"{what} transaction {entry.header} at {transaction_id} of partition {partition_id}, a mirror; its "
                f"source has {there} there"
            )

    # At the end

    def check_clients(self, applied: Mapping[str, Sequence[Sequence[Entry]]]) -> None:
        """Every client has applied the whole log, in order."""
        for client, partitions in applied.items():
            for partition_id, entries in enumerate(partitions):
                log = self.log[partition_id]
                if len(entries) != len(log):
                    self._fail(f"{client} has applied {len(entries)} of {len(log)} in partition {partition_id}")
                for transaction_id, entry in enumerate(entries):
                    if log.get(transaction_id) != entry:
                        self._fail(f"{client} has applied something else at {transaction_id} of {partition_id}")

    def check_disks(self, partition_id: int, replicas: Mapping[str, Sequence[Record]]) -> None:
        """The durable records of every replica of one partition."""
        quorum = len(replicas) // 2 + 1
        log = self.log[partition_id]
        final: dict[int, Record] = {}
        copies = dict.fromkeys(range(len(log)), 0)
        for storage, records in replicas.items():
            for record in records:
                if record.transaction_id >= len(log):
                    continue
                copies[record.transaction_id] += 1
                known = final.setdefault(record.transaction_id, record)
                if known != record:
                    self._fail(f"{storage} differs at {record.transaction_id} of partition {partition_id}")
        for transaction_id in range(len(log)):
            if copies[transaction_id] < quorum:
                self._fail(
                    f"transaction {transaction_id} of partition {partition_id} is committed and on "
                    f"{copies[transaction_id]} of {len(replicas)} disks"
                )
                return
        self._check_log(partition_id, [final[transaction_id] for transaction_id in range(len(log))])

    def check_outcomes(self) -> None:
        """Compare the reported outcomes with the log."""
        for submitted in self.submitted:
            if submitted.told_at is not None:
                self._check_told(submitted)
            if submitted.outcome is Outcome.COMMITTED and submitted.seen_at is None:
                self._fail(f"transaction {submitted.number} is reported committed and is not in the log")
            if submitted.outcome is Outcome.PENDING:
                self._fail(f"transaction {submitted.number} of {submitted.client} has not ended")

    def _check_log(self, partition_id: int, records: Sequence[Record]) -> None:
        changed_at: dict[int, int] = {}
        requests: dict[bytes, int] = {}
        for record in records:
            transaction_id = record.transaction_id
            first_id = requests.setdefault(bytes(record.req_id), transaction_id)
            if first_id != transaction_id:
                self._fail(f"one request is at {first_id} and at {transaction_id} of partition {partition_id}")
            place = f"{transaction_id} of partition {partition_id}"
            entry = self.log[partition_id][transaction_id]
            if Entry(bytes(record.req_id), record.header) != entry:
                self._fail(f"the disks hold something else than was applied at {place}")
                continue
            submitted = self.submitted[entry.header]
            attempts = [attempt for attempt in submitted.attempts if attempt.data == record.data]
            if not attempts:
                self._fail(f"the disks hold data that nobody has built at {place}")
                continue
            if submitted.outcome is Outcome.COMMITTED and attempts[0] is not submitted.attempts[-1]:
                self._fail(f"an earlier attempt of transaction {submitted.number} is in the log at {place}")
            self._check_locks(attempts[0], transaction_id, changed_at)

    def _check_locks(self, attempt: Attempt, transaction_id: int, changed_at: dict[int, int]) -> None:
        for lock in (*attempt.write_locks, *attempt.read_locks):
            if changed_at.get(lock, -1) > attempt.high_water_mark:
                self._fail(
                    f"transaction {transaction_id} of partition {attempt.partition_id} was built on "
                    f"{attempt.high_water_mark}; its lock {lock} was changed at {changed_at[lock]}"
                )
        for lock in (*attempt.write_locks, *attempt.append_locks):
            changed_at[lock] = transaction_id
