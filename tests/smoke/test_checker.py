"""The checker finds what it is for."""

from array import array
from collections.abc import Callable

import pytest

from tests.smoke.checker import Checker
from tests.smoke.journal import Fence, Journal, Outcome, Submitted
from tests.smoke.payload import Payload, digest
from waltz.common.records import Record

LOCK = 7


def payload(client: int, number: int, built_on: int, attempt: int = 0) -> Payload:
    return Payload(client, number, attempt, built_on, -1, (LOCK,), (), (LOCK + 1,))


class Run:
    """Two clients; the log of the only partition holds 0, 1, 2 of the first and then 0, 1 of the second."""

    def __init__(self) -> None:
        self.payloads = [
            *(payload(0, number, number - 1) for number in range(3)),
            *(payload(1, number, number + 2, attempt=number) for number in range(2)),
        ]
        self.datas = [each.encode(b"filling") for each in self.payloads]
        self.journals = [Journal(client, applied=[array("Q")]) for client in range(2)]
        for transaction_id, (each, data) in enumerate(zip(self.payloads, self.datas, strict=True)):
            content = digest(each.number, data)
            self.journals[each.client].submitted.append(
                Submitted(each.number, 0, Outcome.COMMITTED, each.attempt + 1, content, transaction_id)
            )
            for journal in self.journals:
                journal.applied[0].append(content)
        self.journals[1].submitted.append(Submitted(2, 0, Outcome.FAILED, 1, 1, reason="given up"))

    def records(self) -> list[Record]:
        return [
            Record(transaction_id, bytes(16), each.number, data, 0)
            for transaction_id, (each, data) in enumerate(zip(self.payloads, self.datas, strict=True))
        ]

    def violations(self) -> list[str]:
        checker = Checker(self.journals, 1)
        checker.take(0, self.records())
        return checker.violations()

    def put_into_sessions(self, *numbers: int) -> None:
        """Of the transactions in the log, one after the other; -1 for none."""
        for transaction_id, number in enumerate(numbers):
            each = self.payloads[transaction_id] = self.payloads[transaction_id]._replace(session=number)
            data = self.datas[transaction_id] = each.encode(b"filling")
            content = digest(each.number, data)
            self.journals[each.client].submitted[each.number].digest = content
            for journal in self.journals:
                journal.applied[0][transaction_id] = content

    def append(self, extra: Payload) -> None:
        """One more in the log, which both clients have applied."""
        self.payloads.append(extra)
        self.datas.append(extra.encode(b""))
        for journal in self.journals:
            journal.applied[0].append(digest(extra.number, self.datas[-1]))


def test_a_good_run() -> None:
    assert Run().violations() == []


def test_good_sessions() -> None:
    run = Run()
    run.put_into_sessions(4, 5, 5, -1, 8)
    run.journals[0].fences += [Fence(0, 4, -1, False), Fence(0, 7, 3, False)]
    run.journals[1].fences += [Fence(0, 5, 0, True), Fence(0, 8, 3, True)]
    assert run.violations() == []


def lost(run: Run) -> None:
    run.payloads.pop()
    run.datas.pop()
    for journal in run.journals:
        journal.applied[0].pop()


def doubled(run: Run) -> None:
    run.append(run.payloads[4]._replace(built_on=4))


def failed_is_in(run: Run) -> None:
    run.append(payload(1, 2, 4))


def old_attempt(run: Run) -> None:
    run.journals[1].submitted[1].attempts = 3


def other_content(run: Run) -> None:
    run.journals[0].submitted[0].digest += 1


def other_id(run: Run) -> None:
    run.journals[0].submitted[0].transaction_id = 4


def other_partition(run: Run) -> None:
    run.journals[0].submitted[0].partition_id = 1


def invented(run: Run) -> None:
    run.append(payload(1, 99, 4))


def garbage(run: Run) -> None:
    run.datas[4] = b"garbage"
    for journal in run.journals:
        journal.applied[0][4] = digest(1, b"garbage")


def unlocked(run: Run) -> None:
    run.append(payload(1, 3, 3))
    run.journals[1].submitted.append(Submitted(3, 0, Outcome.COMMITTED, 1, digest(3, run.datas[-1]), 5))


def applied_too_little(run: Run) -> None:
    run.journals[0].applied[0].pop()


def applied_too_much(run: Run) -> None:
    run.journals[0].applied[0].append(0)


def applied_in_another_order(run: Run) -> None:
    applied = run.journals[1].applied[0]
    applied[0], applied[1] = applied[1], applied[0]


def never_ended(run: Run) -> None:
    run.journals[1].submitted.append(Submitted(3, 0))


def seen_by_the_client(run: Run) -> None:
    run.journals[0].violations.append("something odd")


def older_session(run: Run) -> None:
    run.put_into_sessions(4, -1, 4, 5, 4)
    run.journals[0].fences.append(Fence(0, 5, 2, False))


def not_exclusive(run: Run) -> None:
    run.put_into_sessions(4, 5, -1, 5, -1)
    run.journals[1].fences.append(Fence(0, 5, 0, True))


def newer_in_an_exclusive_one(run: Run) -> None:
    run.put_into_sessions(4, 5, 6, 5, 6)
    run.journals[1].fences.append(Fence(0, 5, 0, True))


def the_same_number_twice(run: Run) -> None:
    run.journals[0].fences.append(Fence(0, 5, 0, False))
    run.journals[1].fences.append(Fence(0, 5, 3, False))


def a_newer_session_before_an_older_one(run: Run) -> None:
    run.journals[0].fences.append(Fence(0, 5, 3, False))
    run.journals[1].fences.append(Fence(0, 6, 2, False))


@pytest.mark.parametrize(
    ("defect", "text"),
    [
        (lost, "reported committed and is not in the log"),
        (doubled, "transaction 1 of client 1 is at 5 of partition 0 and at 4"),
        (failed_is_in, r"reported failed \(given up\) and is at 5"),
        (old_attempt, "attempt 1 of transaction 1 of client 1, of 3"),
        (other_content, "with other content"),
        (other_id, "was reported at 4 and is at 0"),
        (other_partition, "was submitted to partition 1 and is at 0 of partition 0"),
        (invented, "nobody submitted what is at 5"),
        (garbage, "nobody can have submitted what is at 4"),
        (unlocked, "was built on 3; its lock 7 was changed at 4"),
        (applied_too_little, "client 0 applied 4 of the 5"),
        (applied_too_much, "client 0 applied 6 of the 5"),
        (applied_in_another_order, "client 1 applied something else at 0"),
        (never_ended, "transaction 3 of client 1 has not ended"),
        (seen_by_the_client, "something odd"),
        (older_session, "4 of partition 0 was appended in session 4, behind"),
        (not_exclusive, "2 is before 3 of partition 0, but not of its exclusive session"),
        (newer_in_an_exclusive_one, "2 is before 3 of partition 0, but not of its exclusive session"),
        (the_same_number_twice, "both have grown, or neither"),
        (a_newer_session_before_an_older_one, "both have grown, or neither"),
    ],
)
def test_it_finds(defect: Callable[[Run], None], text: str) -> None:
    run = Run()
    defect(run)
    found = run.violations()
    assert found
    with pytest.raises(AssertionError, match=text):
        raise AssertionError("\n".join(found))


def test_it_finds_a_gap_in_the_log() -> None:
    run = Run()
    checker = Checker(run.journals, 1)
    checker.take(0, run.records()[1:])
    assert any("where 0 is next" in violation for violation in checker.violations())
