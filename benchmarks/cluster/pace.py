"""When the transactions of an open loop are due, and a timer that is fine enough to keep to it."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

TICK_S = 0.0005
"""What is due within a tick is submitted together: waking up for each transaction would be most of what is measured.
The latency counts from when each was due."""

_TIMER_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class Pace:
    """Due times at a constant rate: the ``n``-th is ``n / rate`` seconds after the start."""

    def __init__(self, rate: float, start_s: float) -> None:
        self._rate = rate
        self._start_s = start_s
        self._given = 0

    def due(self, now_s: float) -> list[float]:
        """When each transaction was due that has come due since the last call."""
        first, self._given = self._given, max(self._given, int((now_s - self._start_s) * self._rate) + 1)
        return [self._start_s + number / self._rate for number in range(first, self._given)]


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Interval(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


class Ticker:
    """Calls back every ``interval_s`` on the running loop; its own timers know no less than a millisecond."""

    def __init__(self, interval_s: float, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        system = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = system.timerfd_create(time.CLOCK_MONOTONIC, _TIMER_FLAGS)
        seconds, rest_s = divmod(interval_s, 1)
        each = _Time(int(seconds), int(rest_s * 1e9))
        if self._descriptor < 0 or system.timerfd_settime(
            self._descriptor, 0, ctypes.byref(_Interval(each, each)), None
        ):
            raise OSError(ctypes.get_errno(), "no timer")
        self._loop.add_reader(self._descriptor, self._expired)

    def _expired(self) -> None:
        os.read(self._descriptor, 8)
        self._tick()

    def close(self) -> None:
        """No more calls."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
