"""Counts what the processes of a simulated cluster do.

Nothing here depends on the speed of the machine, or on what else it does: time is simulated, and the rest is counted,
not measured. What the simulator and the load do themselves is left out.
"""

import asyncio
import contextlib
import contextvars
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import tests
import waltz
from tests.simulation import loop as loop_module
from tests.simulation.disk import SimulatedDisk, SimulatedFile, SimulatedFiles
from tests.simulation.loop import Process, SimulatedLoop, running_process
from tests.simulation.network import SimulatedTransport

KINDS = {
    "sends": "writes to a socket: one system call each",
    "receives": "reads from a socket: one system call each",
    "turns": "turns of the loop: one epoll_wait each",
    "jobs": "calls handed over to a thread for files, each of which wakes the loop up",
    "writes": "writes to a file",
    "syncs": "syncs of a file",
    "reads": "reads from a file",
    "handles": "callbacks scheduled on the loop, also for each step of a task",
    "timers": "timers started",
    "tasks": "tasks made",
    "futures": "futures made",
    "packs": "calls of struct's pack and pack_into: what is encoded",
    "unpacks": "calls of struct's unpack and its like: what is decoded",
    "checksums": "checksums computed",
    "calls": "calls of functions of Waltz, and resumptions of its coroutines and generators",
    "library": "the same for Python code of the library that Waltz calls",
}
"""What is counted, in the order in which it is shown."""

_C_FUNCTIONS = {
    "pack": "packs",
    "pack_into": "packs",
    "unpack": "unpacks",
    "unpack_from": "unpacks",
    "iter_unpack": "unpacks",
    "crc32": "checksums",
}
_FILE_CALLS = {
    (SimulatedFiles, "run"): "jobs",
    (SimulatedDisk, "write"): "writes",
    (SimulatedDisk, "resize"): "writes",
    (SimulatedDisk, "enter"): "writes",
    (SimulatedDisk, "sync"): "syncs",
    (SimulatedDisk, "sync_directory"): "syncs",
    (SimulatedFile, "read"): "reads",
}

_WALTZ = str(Path(waltz.__file__).parent)
_TESTS = str(Path(tests.__file__).parent)
_SIMULATED_LOOP = loop_module.__file__
_PLANTED = str(Path(__file__).with_name("planted.py"))


class Tally:
    """What one process has done."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By kind; all but the calls."""
        self.calls: Counter[int] = Counter()
        self.library: Counter[int] = Counter()
        """Calls by :func:`id` of the code, as hashing code takes long."""
        self.last_turn = -1

    def total(self) -> dict[str, int]:
        """All kinds."""
        return {**self.counts, "calls": self.calls.total(), "library": self.library.total()}

    def functions(self) -> dict[str, int]:
        """Calls, by function."""
        found: Counter[str] = Counter()
        for number, count in (self.calls + self.library).items():
            code = _codes[number][0]
            found[f"{_module_of(code)}.{code.co_qualname}"] += count
        return found


class CountingLoop(SimulatedLoop):
    """The simulated loop, which counts what each process asks of it while :attr:`counting`."""

    observed = True

    def __init__(self, on_failure: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(on_failure)
        self.counting = False
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        """By host."""

    def tally(self) -> Tally | None:
        """Of the process that runs, if one does."""
        process = running_process()
        return None if process is None else self.tallies[process.host]

    def count_turn(self, process: Process) -> None:
        """A handle of this process is run."""
        tally = self.tallies[process.host]
        if tally.last_turn != self.turns:
            tally.last_turn = self.turns
            tally.counts["turns"] += 1

    def count(self, kind: str) -> None:
        """The running process does something."""
        if self.counting and (tally := self.tally()) is not None:
            tally.counts[kind] += 1

    def _count_if_asked_for(self, kind: str) -> None:
        if self.counting and is_asked_for(sys._getframe(2)):
            self.count(kind)

    def call_soon(  # type: ignore[override]  # as the base class
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        self._count_if_asked_for("handles")
        return super().call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]  # as the base class
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        self._count_if_asked_for("timers")
        return super().call_later(delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as the base class
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        self._count_if_asked_for("timers")
        return super().call_at(when, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        self._count_if_asked_for("futures")
        return super().create_future()

    def create_task(self, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """See asyncio."""
        self._count_if_asked_for("tasks")
        return super().create_task(*args, **kwargs)


class _CountedHandle(loop_module._Handle):
    __slots__ = ()

    def _run(self) -> None:
        _count_turn(self)
        super()._run()


class _CountedTimerHandle(loop_module._TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        _count_turn(self)
        super()._run()


def _count_turn(handle: Any) -> None:
    loop, process = handle._loop, handle.process
    if loop.counting and process is not None:
        loop.count_turn(process)


_HANDLE_RUN = asyncio.Handle._run.__code__
_NOT_CALLED_SINCE_3_12 = frozenset(("<listcomp>", "<dictcomp>", "<setcomp>", "current_task"))
"""Functions of Python in 3.11 only: they are not counted."""
_codes: dict[int, tuple[CodeType, str]] = {}
"""Code by its :func:`id`, and whose it is."""


def _owner(code: CodeType) -> str:
    """Whose code it is: ``waltz``, ``tests`` or ``library``."""
    known = _codes.get(id(code))
    if known is None:
        path = code.co_filename
        if path.startswith(_WALTZ) or path == _PLANTED:
            owner = "waltz"
        elif path.startswith(_TESTS) and path != _SIMULATED_LOOP:
            owner = "tests"
        else:
            owner = "library"
        known = _codes[id(code)] = (code, owner)
    return known[1]


def is_asked_for(frame: FrameType | None) -> bool:
    """Whether Waltz, or the loop on its own account, has led to this frame; not the simulator or the load."""
    while frame is not None:
        code = frame.f_code
        if code is _HANDLE_RUN:
            return True
        owner = _owner(code)
        if owner != "library":
            return owner == "waltz"
        frame = frame.f_back
    return False


def _module_of(code: CodeType) -> str:
    path = Path(code.co_filename).with_suffix("")
    if path.is_relative_to(_WALTZ):
        return ".".join(("waltz", *path.relative_to(_WALTZ).parts))
    return path.name


def _profiler(loop: CountingLoop) -> Callable[[FrameType, str, Any], None]:
    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call":
            owner = _owner(code)
            if owner == "tests" or code is _HANDLE_RUN or code.co_name in _NOT_CALLED_SINCE_3_12:
                return
            if (owner == "waltz" or is_asked_for(frame.f_back)) and (tally := loop.tally()) is not None:
                (tally.calls if owner == "waltz" else tally.library)[id(code)] += 1
        elif event == "c_call" and argument.__name__ in _C_FUNCTIONS and _owner(code) != "tests":
            loop.count(_C_FUNCTIONS[argument.__name__])

    return profile


@contextlib.contextmanager
def instrumented(loop: CountingLoop) -> Iterator[None]:
    """While this lasts, network and disk tell the loop what is done; to be entered before anything runs."""
    with contextlib.ExitStack() as stack:
        patch = mock.patch.object
        stack.enter_context(patch(loop_module, "_Handle", _CountedHandle))
        stack.enter_context(patch(loop_module, "_TimerHandle", _CountedTimerHandle))
        for (owner, name), kind in _FILE_CALLS.items():
            stack.enter_context(patch(owner, name, _counted(loop, kind, getattr(owner, name))))
        stack.enter_context(patch(SimulatedTransport, "write", _counted(loop, "sends", SimulatedTransport.write)))
        stack.enter_context(patch(SimulatedTransport, "_take_arrived", _counted_receives(loop)))
        yield


def _counted(loop: CountingLoop, kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        loop.count(kind)
        return method(*args, **kwargs)

    return call


def _counted_receives(loop: CountingLoop) -> Callable[[SimulatedTransport], bytes]:
    take = SimulatedTransport._take_arrived

    def take_arrived(transport: SimulatedTransport) -> bytes:
        data = take(transport)
        if data:
            loop.count("receives")
        return data

    return take_arrived


@contextlib.contextmanager
def counting(loop: CountingLoop) -> Iterator[None]:
    """Count what happens while this lasts."""
    before = sys.getprofile()
    assert running_process() is None
    loop.counting = True
    sys.setprofile(_profiler(loop))
    try:
        yield
    finally:
        sys.setprofile(before)
        loop.counting = False


def sum_of(tallies: Iterable[Tally]) -> tuple[dict[str, int], dict[str, int]]:
    """What several processes have done: by kind, and calls by function."""
    counts: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for tally in tallies:
        counts.update(tally.total())
        functions.update(tally.functions())
    return {kind: counts[kind] for kind in KINDS}, dict(functions)
