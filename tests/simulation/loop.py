"""A seeded event loop in virtual time, shared by the processes of a simulated cluster.

Every handle, task and transport belongs to the process in whose context it was made. The loop runs no handle of a
process that is dead, and keeps those of a paused process until it goes on: so a crash drops everything at once, without
running a single ``finally``. Time stands still while callbacks run and jumps to the next timer when nothing is left.
"""

import asyncio
import contextlib
import contextvars
import enum
import heapq
import itertools
import logging
import sys
import warnings
import weakref
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, NoReturn, Protocol, TypeVar, TypeVarTuple, cast
from unittest import mock

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

STEPS_PER_INSTANT_MAX = 100_000
"""Number of turns of the loop within an instant from which on a process is said to spin."""
ROUNDING_S = 1e-9
INSTANT_S = 1e-6
"""Timers that come a rounding error after each other are none that let time pass."""


class SimulationStalledError(Exception):
    """Nothing is left to run, and the main coroutine has not ended."""


class SpinningError(Exception):
    """Callbacks go on for ever while time stands still."""


class ProcessState(enum.Enum):
    """What the loop does with the handles of a process: run, keep, drop."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """One run of one program on one host; a restart makes another."""

    _numbers = 0

    def __init__(self, loop: "SimulatedLoop", host: str) -> None:
        self.host = host
        self.loop = loop
        self.state = ProcessState.RUNNING
        self.resources: dict[int, ProcessResource] = {}
        """What ends with the process: sockets, open files, ZooKeeper clients; by number, in order of creation."""
        self.tasks: list[weakref.ref[SimulatedTask]] = []
        """All that it has started."""
        self.clock_rate = 1.0
        """How many seconds of its monotonic clock a second of virtual time has."""
        self.resumed_at_s = -1.0
        """When it went on after it had been stopped, the last time."""
        self._resource_number = 0
        self._kept: deque[_Handle] = deque()
        self.stopped = False
        """Whether it was stopped and has not been told to go on."""
        self._blocked = False
        self.context = contextvars.Context()
        self.context.run(_current_process.set, self)

    @property
    def alive(self) -> bool:
        """Whether it has not ended; it may be paused."""
        return self.state is not ProcessState.DEAD

    def own(self, resource: "ProcessResource") -> int:
        """Have ``resource`` told when the process ends; the number to give to :meth:`disown`."""
        self._resource_number += 1
        self.resources[self._resource_number] = resource
        return self._resource_number

    def disown(self, number: int) -> None:
        """The resource has ended before the process."""
        self.resources.pop(number, None)

    def run(self, main: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Start a coroutine inside this process."""
        return self.loop.create_task(main, context=self.context.copy())

    def call_soon(self, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Schedule a callback inside this process."""
        self.loop.schedule(callback, args, self.context, self)

    def call_later(self, delay_s: float, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Schedule a callback inside this process."""
        loop = self.loop
        loop.schedule_at(loop.now_s + delay_s, callback, args, self.context, self)

    def pause(self) -> None:
        """Stop running, as SIGSTOP does."""
        self.stopped = True
        self._settle()

    def resume(self) -> None:
        """Go on, as SIGCONT does: timers that became due meanwhile run at once, in order."""
        if self.stopped:
            self.stopped = False
            self.resumed_at_s = self.loop.now_s
            self._settle()

    def block(self) -> None:
        """Wait for the operating system in the thread of the loop, so that nothing of the process runs."""
        self._blocked = True
        self._settle()

    def unblock(self) -> None:
        """Go on: the operating system has done its work."""
        self._blocked = False
        self._settle()

    def _settle(self) -> None:
        if self.state is ProcessState.DEAD:
            return
        self.state = ProcessState.PAUSED if self.stopped or self._blocked else ProcessState.RUNNING
        if self.state is ProcessState.RUNNING and self._kept:
            self.loop.take_back(self._kept)
            self._kept = deque()

    def kill(self, *, power_loss: bool) -> None:
        """End at once. ``power_loss``: so does the operating system; nobody closes its sockets or flushes its disk."""
        if self.state is ProcessState.DEAD:
            return
        self.state = ProcessState.DEAD
        self._kept.clear()
        self.loop.bury(self)
        for resource in list(self.resources.values()):
            resource.process_died(power_loss=power_loss)
        self.resources.clear()

    def keep(self, handle: "_Handle") -> None:
        """For the loop: a handle of a paused process."""
        self._kept.append(handle)


class ProcessResource(Protocol):
    """Something that the operating system cleans up when its process ends."""

    def process_died(self, *, power_loss: bool) -> None:
        """Called once, outside of every process."""


_current_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("current process", default=None)


def current_process() -> Process:
    """The process that is running; an assertion fails outside of all."""
    process = _current_process.get()
    assert process is not None, "not inside a simulated process"
    return process


def running_process() -> Process | None:
    """The process that is running, if any."""
    return _current_process.get()


class _Handle(asyncio.Handle):
    """Made without a call of its initializer, which would cost more than all the rest of a turn of the loop."""

    __slots__ = ("process",)
    _repr = None
    _source_traceback = None
    process: Process | None
    _args: Sequence[Any]
    _callback: Callable[..., object]
    _context: contextvars.Context
    _loop: "SimulatedLoop"


class _TimerHandle(asyncio.TimerHandle):
    """Like :class:`_Handle`, with a time."""

    __slots__ = ("process",)
    _repr = None
    _source_traceback = None
    process: Process | None
    _args: Sequence[Any]
    _callback: Callable[..., object]
    _context: contextvars.Context
    _loop: "SimulatedLoop"
    _scheduled: bool
    _when: float


_make = object.__new__


class SimulatedFuture(asyncio.Future[Any]):
    """A future with a reproducible hash, so that sets of futures iterate alike in every run."""

    number: int

    def __hash__(self) -> int:
        return self.number


class SimulatedTask(asyncio.Task[Any]):
    """A task with a reproducible hash that knows its process."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        *,
        loop: "SimulatedLoop",
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        self.number = loop.next_number()
        self.process = _current_process.get() if context is None else context.get(_current_process)
        if self.process is not None:
            self.process.tasks.append(weakref.ref(self))
        super().__init__(coroutine, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number


class SimulatedNetwork(Protocol):
    """What the loop asks of the network."""

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect from the current process."""

    def create_server(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.AbstractServer:
        """Listen in the current process."""


class SimulatedLoop(BaseEventLoop):
    """Runs everything of a simulated cluster. See the module's description."""

    network: SimulatedNetwork
    _stopping: bool
    observed = False
    """Whether something waits for calls of the method with which handles run; otherwise the loop does without it."""

    def __init__(self, on_failure: Callable[[dict[str, Any]], None]) -> None:
        """``on_failure`` is given what asyncio would log: exceptions that nobody handles."""
        super().__init__()
        self.next_number = itertools.count(1).__next__
        """Numbers tasks and futures."""
        self.now_s = 0.0
        """Seconds of virtual time; what :meth:`time` returns outside of all processes."""
        self._runnable: deque[_Handle | _TimerHandle] = deque()
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._timer_number = 0
        self._cancelled_timers = 0
        self._graveyard: list[SimulatedTask] = []
        self._stop_requested = False
        self.turns = 0
        """Turns of the loop so far."""
        self.set_exception_handler(lambda _, context: on_failure(context))

    # Time and handles

    def time(self) -> float:
        """The monotonic clock of the process that is running."""
        process = _current_process.get()
        return self.now_s if process is None else self.now_s * process.clock_rate

    def call_soon(  # type: ignore[override]  # the stub's signature uses private names
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See asyncio."""
        handle = _make(_Handle)
        if context is None:
            handle._context = contextvars.copy_context()
            handle.process = _current_process.get()
        else:
            handle._context = context
            handle.process = context.get(_current_process)
        handle._loop = self
        handle._callback = callback
        handle._args = args
        handle._cancelled = False
        self._runnable.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # as call_soon
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        if context is None:
            context, process = contextvars.copy_context(), _current_process.get()
        else:
            process = context.get(_current_process)
        when = self.now_s + (delay if process is None else delay / process.clock_rate)
        return self.schedule_at(when, callback, args, context, process)

    def call_at(  # type: ignore[override]  # as call_soon
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio. Timers of the same moment run in the order of the calls; ``when`` is by the clock of the process
        to which the context belongs."""
        if context is None:
            context, process = contextvars.copy_context(), _current_process.get()
        else:
            process = context.get(_current_process)
        if process is not None and process.clock_rate != 1.0:
            when = when / process.clock_rate + ROUNDING_S  # never a rounding error too early by that clock
        return self.schedule_at(when, callback, args, context, process)

    def schedule(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        context: contextvars.Context,
        process: Process | None,
    ) -> None:
        """As :meth:`call_soon`, for who knows to which process a context belongs."""
        handle = _make(_Handle)
        handle._loop = self
        handle._callback = callback
        handle._args = args
        handle._context = context
        handle._cancelled = False
        handle.process = process
        self._runnable.append(handle)

    def schedule_at(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        context: contextvars.Context,
        process: Process | None,
    ) -> asyncio.TimerHandle:
        """As :meth:`call_at`, for who knows to which process a context belongs; ``when`` is virtual time."""
        handle = _make(_TimerHandle)
        handle._loop = self
        handle._callback = callback
        handle._args = args
        handle._context = context
        handle._cancelled = False
        handle._when = when
        handle._scheduled = True
        handle.process = process
        self._timer_number = number = self._timer_number + 1
        heapq.heappush(self._timers, (when, number, handle))
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # as call_soon
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See asyncio; there are no threads, but asyncio itself ends generators in this way."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, *args: Any, **kwargs: Any) -> NoReturn:  # type: ignore[override]  # always raises
        """There are no threads."""
        raise NotImplementedError("a simulated process has no threads")

    def timers_of(self, process: Process) -> list[Callable[..., object]]:
        """The timers of a process."""
        handles = [timer[2] for timer in self._timers if timer[2].process is process and not timer[2].cancelled()]
        return [handle._callback for handle in handles]

    def take_back(self, handles: deque[_Handle]) -> None:
        """Run the handles that were kept while their process was paused."""
        self._runnable.extend(handles)

    def bury(self, process: Process) -> None:
        """Keep the tasks of a dead process: a task that is collected as garbage would run its ``finally`` blocks."""
        tasks = [reference() for reference in process.tasks]
        self._graveyard.extend(task for task in tasks if task is not None and not task.done())
        process.tasks.clear()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1

    def _purge_timers(self) -> None:
        self._timers[:] = [timer for timer in self._timers if not timer[2]._cancelled]
        heapq.heapify(self._timers)
        self._cancelled_timers = 0

    def stop(self) -> None:
        """See asyncio."""
        self._stop_requested = True
        super().stop()

    def _run_once(self) -> None:
        """Turns of the loop until it is stopped. A turn is mostly one handle, so nothing is called in between."""
        runnable, timers = self._runnable, self._timers
        next_runnable, pop_timer = runnable.popleft, heapq.heappop
        running, paused = ProcessState.RUNNING, ProcessState.PAUSED
        instant_ends_s, turns_before = self.now_s, self.turns
        while True:
            if not runnable and not self._stop_requested:
                self.now_s = max(self.now_s, self._next_timer_s())
            now_s, observed = self.now_s, self.observed
            if now_s >= instant_ends_s:
                instant_ends_s, turns_before = now_s + INSTANT_S, self.turns
            while True:
                self.turns += 1
                while timers and timers[0][0] <= now_s:
                    timer = pop_timer(timers)[2]
                    timer._scheduled = False
                    if timer._cancelled:
                        self._cancelled_timers -= 1
                    else:
                        runnable.append(timer)
                for _ in range(len(runnable)):
                    handle = next_runnable()
                    if handle._cancelled:
                        continue
                    process = handle.process
                    if process is None or process.state is running:
                        if observed:
                            handle._run()
                            continue
                        try:
                            handle._context.run(handle._callback, *handle._args)
                        except (SystemExit, KeyboardInterrupt):
                            raise
                        except BaseException as error:
                            self._callback_failed(handle, error)
                    elif process.state is paused:
                        process.keep(cast("_Handle", handle))
                if self.turns - turns_before > STEPS_PER_INSTANT_MAX:
                    spinning = list(runnable) or [timer[2] for timer in timers]
                    raise SpinningError(f"time stands still at {now_s:.6f} s; running: {spinning[:5]}")
                if not runnable or self._stopping:
                    break
            if self._stopping:
                return

    def _next_timer_s(self) -> float:
        timers = self._timers
        if self._cancelled_timers > 200 and self._cancelled_timers * 2 > len(timers):
            self._purge_timers()
        while timers and timers[0][2]._cancelled:
            self._cancelled_timers -= 1
            heapq.heappop(timers)
        if not timers:
            raise SimulationStalledError(f"nothing is left to do at {self.now_s:.6f} s")
        return timers[0][0]

    def _callback_failed(self, handle: _Handle | _TimerHandle, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"exception in callback {handle._callback!r}", "exception": error, "handle": handle}
        )

    # Tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        future = SimulatedFuture(loop=self)
        future.number = self.next_number()
        return future

    def create_task(  # type: ignore[override]  # the stub's signature uses private names
        self,
        coro: Coroutine[Any, Any, _T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[_T]:
        """See asyncio."""
        return SimulatedTask(coro, loop=self, name=name, context=context)

    # Network

    async def create_connection(  # type: ignore[override]  # only what is used here
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See asyncio; plain TCP by host name and port."""
        return await self.network.create_connection(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]  # only what is used here
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int = 100
    ) -> asyncio.AbstractServer:
        """See asyncio; plain TCP by host name and port."""
        return self.network.create_server(protocol_factory, host, port)

    # What the base class asks of every loop

    def _process_events(self, event_list: object) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """Nobody calls from other threads."""

    def close(self) -> None:
        """End: nothing runs any more, and the coroutines of unfinished tasks are closed silently."""
        if self.is_closed():
            return
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)]
        self.set_exception_handler(lambda _loop, _context: None)
        for task in {*tasks, *self._graveyard}:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # what asyncio itself sets
            coroutine = task.get_coro()
            with contextlib.suppress(BaseException):
                assert not isinstance(coroutine, Generator)
                coroutine.close()
        self._graveyard.clear()
        self._runnable.clear()
        self._timers.clear()
        super().close()


def close_silently(loop: SimulatedLoop) -> None:
    """What the coroutines of dead processes still say while they are closed concerns nobody."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), mock.patch.object(sys, "unraisablehook"):
            warnings.simplefilter("ignore")
            loop.close()
    finally:
        logging.disable(logging.NOTSET)
