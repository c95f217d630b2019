"""Runs each piece of work in a process of its own, several at a time.

A process is forked from one that has everything imported, does its work and is gone: so no garbage is left to be looked
for, memory does not grow however long a list is, and a process that crashes takes nothing with it but its own work.
"""

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Generic, NamedTuple, TypeVar

_T = TypeVar("_T")

_FORK = multiprocessing.get_context("fork")


class Crash(NamedTuple):
    """The process of a piece of work has ended without a result."""

    exit_code: int
    """Negative: the number of the signal that ended it."""

    def __str__(self) -> str:
        if self.exit_code < 0:
            return f"the process was ended by {signal.Signals(-self.exit_code).name}"
        return f"the process ended with exit code {self.exit_code} and without a result"


class _Running(NamedTuple, Generic[_T]):
    number: int
    process: ForkProcess


def cores() -> int:
    """How many processes run at the same time here."""
    return len(os.sched_getaffinity(0))


def run_apart(works: Sequence[Callable[[], _T]], jobs: int) -> Generator[_T | Crash]:
    """What each piece of work returns, in their order; ``jobs`` of them run at a time.

    Results are pickled. What still runs when the generator is closed is ended.
    """
    running: dict[Connection, _Running[_T]] = {}
    results: dict[int, _T | Crash] = {}
    started = 0
    try:
        for number in range(len(works)):
            while number not in results:
                while started < len(works) and len(running) < jobs:
                    connection, process = _start(works[started])
                    running[connection] = _Running(started, process)
                    started += 1
                for ready in wait(list(running)):
                    assert isinstance(ready, Connection)
                    ended = running.pop(ready)
                    results[ended.number] = _result(ready, ended.process)
            yield results.pop(number)
    finally:
        for connection, (_, process) in running.items():
            process.kill()
            process.join()
            connection.close()


def _start(work: Callable[[], _T]) -> tuple[Connection, ForkProcess]:
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_do, args=(work, sender), daemon=True)
    process.start()
    sender.close()
    return receiver, process


def _do(work: Callable[[], _T], sender: Connection) -> None:
    gc.disable()  # the process ends sooner than garbage would matter
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for whoever started it
    sender.send(work())


def _result(receiver: Connection, process: ForkProcess) -> _T | Crash:
    try:
        result: _T | Crash = receiver.recv()
    except EOFError:
        process.join()
        result = Crash(process.exitcode or 0)
    process.join()
    receiver.close()
    process.close()
    return result
