"""The check of sessions that begin below what has been told as committed: what it lets pass, and what it objects to."""

from tests.simulation.checker import Checker

PARTITION = 0


def test_a_session_that_begins_below_what_was_told_is_a_failure() -> None:
    failures: list[str] = []
    checker = Checker(1, failures.append)
    checker.mark(PARTITION, 87)
    checker.session_opened("first", PARTITION, 2, 86)
    assert failures == [
        "first opens session 2 of partition 0 behind 86; transactions up to 87 have been told as committed"
    ]


def test_an_owner_may_hear_late_that_its_session_was_in_the_metadata_before_a_later_one() -> None:
    failures: list[str] = []
    checker = Checker(1, failures.append)
    checker.mark(PARTITION, 87)
    checker.session_opened("second", PARTITION, 3, 87)
    checker.mark(PARTITION, 93)
    checker.session_opened("first", PARTITION, 2, 87)
    assert not failures
    checker.session_opened("first", PARTITION, 1, 86)
    checker.session_opened("second", PARTITION, 4, 92)
    assert [failure.split(" behind ")[1] for failure in failures] == [
        "86; transactions up to 87 have been told as committed",
        "92; transactions up to 93 have been told as committed",
    ]
