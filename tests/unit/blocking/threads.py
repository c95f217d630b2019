"""What runs beside a test, and what happens to its thread."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest


def background_threads() -> int:
    return sum(thread.name == "waltz" for thread in threading.enumerate())


def interrupted(call: Callable[[], object]) -> None:
    """Have the thread interrupted when the loop's thread has done what ``call`` waits for."""
    result = Future[object].result
    thread = threading.current_thread()

    def interrupted_result(future: Future[object], timeout: float | None = None) -> object:
        done = result(future, timeout)
        if threading.current_thread() is thread:
            raise KeyboardInterrupt
        return done

    with pytest.MonkeyPatch.context() as patches, pytest.raises(KeyboardInterrupt):
        patches.setattr(Future, "result", interrupted_result)
        call()
