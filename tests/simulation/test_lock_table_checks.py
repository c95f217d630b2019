"""A lock table that is kept over a change of session has given every id up to its mark."""

from collections.abc import Iterator

import pytest

from tests.simulation.checker import Entry
from tests.simulation.lock_table_checks import LockTableChecks
from tests.unit.server.fakes import append
from waltz.server.partition.admission import Admission


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def checks(failures: list[str]) -> Iterator[LockTableChecks]:
    made = LockTableChecks(failures.append)
    with made.observing():
        yield made


def begun(checks: LockTableChecks, mark: int, log: dict[int, Entry], admission: Admission, changed: bool) -> None:
    admission.begin(mark, changed)
    assert admission._locks is not None
    checks.session_begun(admission._locks, 0, mark, log)


@pytest.mark.parametrize(
    ("by_others", "changed", "found"), [((), False, False), ((5,), False, True), ((5,), True, False)]
)
def test_a_table_that_lacks_what_others_wrote_must_not_be_kept(
    checks: LockTableChecks, failures: list[str], by_others: tuple[int, ...], changed: bool, found: bool
) -> None:
    admission = Admission(100, 3)
    log = {number: Entry(b"x", 0) for number in range(4)}
    begun(checks, 3, log, admission, False)
    for each in admission.admit([append(1), append(2)]).appends:
        log[each.transaction_id] = Entry(bytes(each.req_id), 0)
    log.update({number: Entry(b"y", 0) for number in by_others})
    begun(checks, 5, log, admission, changed)
    assert bool(failures) is found
