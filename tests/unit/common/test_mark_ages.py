"""Ages of what somebody lacks, against all marks there ever were."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.common.mark_ages import MAX_NOTED, MarkAges

STEPS = st.lists(st.tuples(st.integers(0, 5), st.floats(0.5, 3)), max_size=300)


@given(STEPS, st.integers(-1, 1500))
def test_an_age_is_never_too_large_and_exact_for_the_latest(steps: list[tuple[int, float]], position: int) -> None:
    ages, mark, now_s = MarkAges(), -1, 0.0
    committed: list[tuple[int, float]] = []
    for count, pause_s in steps:
        now_s += pause_s
        if count:
            mark += count
            committed.append((mark, now_s))
        ages.note(mark, now_s)
    true = next((now_s - at_s for known, at_s in committed if known > position), 0.0)
    found = ages.age_s(position, now_s)
    assert 0 <= found <= true
    if any(known > position for known, _ in committed):
        assert (found > 0) == (true > 0)
    latest = committed[-MAX_NOTED // 2 :]
    if latest and position >= latest[0][0]:
        assert found == true


def test_what_nobody_lacks_has_no_age() -> None:
    ages = MarkAges()
    assert ages.age_s(-1, 5.0) == 0.0
    ages.note(-1, 1.0)
    ages.note(9, 2.0)
    ages.note(9, 3.0)
    assert (ages.age_s(9, 7.0), ages.age_s(8, 7.0), ages.age_s(-1, 7.0)) == (0.0, 5.0, 5.0)


def test_marks_that_were_lost_are_forgotten() -> None:
    ages = MarkAges()
    for mark in (3, 6, 9):
        ages.note(mark, float(mark))
    ages.note(5, 20.0)
    assert (ages.age_s(3, 21.0), ages.age_s(5, 21.0)) == (1.0, 0.0)
