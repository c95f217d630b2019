"""Admission of appends to the log, and their ids."""

from tests.unit.server.fakes import GENERATION, append
from waltz.server.partition.admission import Admission


def admission(high_water_mark: int = 9) -> Admission:
    admitting = Admission(1 << 14, GENERATION)
    admitting.begin(high_water_mark, True)
    return admitting


def test_who_passes_gets_the_next_id_and_nobody_else_one() -> None:
    admitting = admission()
    requests = [append(1, 9, [5]), append(2, 9, [5]), append(3), append(4, 9, [], [], [6, 7]), append(5, 9, [6], [7])]
    admitted = admitting.admit(requests)
    assert [(found.header, found.transaction_id) for found in admitted.appends] == [(1, 10), (3, 11), (4, 12)]
    assert [(found.request.header, found.estimate, found.next_id) for found in admitted.conflicts] == [
        (2, 10, 11),
        (5, 12, 13),
    ]
    assert admitting.next_id == 13
    assert [found.transaction_id for found in admitting.admit([append(6)]).appends] == [13]


def test_another_generation_gets_no_id() -> None:
    admitting = admission()
    admitted = admitting.admit([append(1, generation=GENERATION + 1), append(2, 8, [5], generation=GENERATION + 1)])
    assert not admitted.appends
    assert [found.header for found in admitted.of_other_generation] == [1]
    assert [(found.request.header, found.estimate) for found in admitted.conflicts] == [(2, 9)]
    assert admitting.next_id == 10


def test_a_session_that_goes_on_where_the_last_one_ended_keeps_the_locks() -> None:
    admitting = admission()
    admitting.admit([append(1, 9, [5])])
    admitting.begin(10, False)
    assert not admitting.admit([append(2, 10, [5])]).conflicts
    assert not admitting.admit([append(3, 9, [6])]).conflicts


def test_void_ids_leave_no_lock_behind() -> None:
    """The session has ended without the append that it was given: every lock is taken as changed at the mark."""
    admitting = admission()
    admitting.admit([append(1, 9, [5])])
    admitting.begin(9, False)
    (conflict,) = admitting.admit([append(2, 8, [6])]).conflicts
    assert conflict.estimate == 9
    assert [found.transaction_id for found in admitting.admit([append(3, 9, [5])]).appends] == [10]
