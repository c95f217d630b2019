"""Work in processes of its own."""

import functools
import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from tests.simulation.parallel import Crash, run_apart
from tests.simulation.simulation import Result
from tests.simulation.summary import Summary


def works(*each: Callable[[], int]) -> list[Callable[[], int]]:
    return list(each)


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_results_come_in_the_order_of_the_works(jobs: int) -> None:
    def square(number: int) -> int:
        time.sleep(0.02 if number % 2 else 0)
        return number * number

    outcomes = run_apart([functools.partial(square, number) for number in range(5)], jobs)
    assert list(outcomes) == [0, 1, 4, 9, 16]


def test_each_work_has_a_process_of_its_own() -> None:
    pids = list(run_apart([os.getpid] * 4, 2))
    assert len({os.getpid(), *pids}) == 5


def test_a_crash_is_the_result_of_its_work_alone() -> None:
    def kill() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def leave() -> int:
        os._exit(3)

    def leave_early() -> int:
        sys.exit(0)

    outcomes = list(run_apart(works(lambda: 1, kill, leave, leave_early, lambda: 2), 2))
    assert outcomes == [1, Crash(-signal.SIGKILL), Crash(3), Crash(0), 2]
    assert "SIGKILL" in str(outcomes[1])
    assert "exit code 3" in str(outcomes[2])


def test_results_larger_than_a_pipe_arrive() -> None:
    sizes = [len(outcome) for outcome in run_apart([lambda: bytes(1 << 20)] * 3, 2) if isinstance(outcome, bytes)]
    assert sizes == [1 << 20] * 3


def test_what_still_runs_is_ended_with_the_generator() -> None:
    began, hold = os.pipe()

    def wait_for_ever() -> int:
        signal.pause()
        return 0

    outcomes = run_apart(works(lambda: 1, wait_for_ever), 2)
    assert next(outcomes) == 1
    outcomes.close()
    os.close(hold)
    assert os.read(began, 1) == b""  # nobody else holds the other end any more
    os.close(began)


def test_the_summary_names_what_failed() -> None:
    summary = Summary(3)
    summary.add(Result(7, committed=10, events=100, cpu_s=1.0))
    summary.add(Result(8, ["something"], committed=5, cpu_s=2.0))
    summary.crashed(9)
    text = str(summary)
    assert "3 seeds: 15 committed" in text
    assert "1.00 s of processor time per seed" in text
    assert "2 failed (8, 9)" in text
