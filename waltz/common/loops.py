"""The event loop of this package's own processes: uvloop's, or asyncio's without uvloop."""

import asyncio
import importlib
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop: uvloop's if it is installed (it is not on Windows and PyPy)."""
    try:
        loop = importlib.import_module("uvloop").new_event_loop()
    except ImportError:
        return asyncio.new_event_loop()
    assert isinstance(loop, asyncio.AbstractEventLoop)
    return loop


def run(main: Coroutine[object, object, Result]) -> Result:
    """Like ``asyncio.run``, on such a loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
