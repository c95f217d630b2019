"""No store session begins below a mark that a session before it has told, in whatever order owners hear of openings."""

import pytest

from tests.simulation.checker import Checker


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def checker(failures: list[str]) -> Checker:
    """Session 1 has told 87 as committed."""
    made = Checker(1, failures.append)
    made.session_opened("server-0", 0, 1, -1, 10)
    made.mark("server-0", 0, 1, 87)
    return made


@pytest.mark.parametrize(("mark", "found"), [(86, True), (87, False)])
def test_a_session_begins_behind_all_that_was_told(
    checker: Checker, failures: list[str], mark: int, found: bool
) -> None:
    checker.session_opened("server-1", 0, 2, mark, 14)
    assert bool(failures) is found


@pytest.mark.parametrize(("mark", "found"), [(86, True), (87, False), (88, True)])
def test_an_opening_that_its_owner_hears_of_late_comes_before_the_session_that_followed_it(
    checker: Checker, failures: list[str], mark: int, found: bool
) -> None:
    checker.session_opened("server-0", 0, 3, 87, 18)
    checker.mark("server-0", 0, 3, 93)
    checker.session_opened("server-1", 0, 2, mark, 14)
    assert bool(failures) is found


def test_a_session_that_was_followed_must_not_write_its_opening_any_more(checker: Checker, failures: list[str]) -> None:
    checker.session_opened("server-0", 0, 3, 87, 18)
    checker.session_opened("server-1", 0, 2, 87, 19)
    assert failures


@pytest.mark.parametrize(("told", "found"), [(88, False), (89, True)])
def test_a_session_commits_nothing_above_the_beginning_of_one_that_follows_it(
    checker: Checker, failures: list[str], told: int, found: bool
) -> None:
    checker.session_opened("server-1", 0, 2, 88, 14)
    checker.mark("server-0", 0, 1, told)
    assert bool(failures) is found
