"""Long-lived tasks, and the consequences of their end (rule L6).

A task that dies of an unforeseen error is a defect. Nothing that depends on it may seem to work: either its owner is
told and fails everything that depends on it, or the work begins again. Either way it is logged.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

logger = logging.getLogger(__name__)

RESTART_PAUSE_S = 1.0
"""Pause before work that has died begins again, so that a lasting defect costs neither processor nor log."""


def owned(
    work: Coroutine[None, None, None], what: str, on_defect: Callable[[Exception], None] | None = None
) -> asyncio.Task[None]:
    """Start ``work``, named ``what``. Its exception is logged and handed to ``on_defect``.

    ``on_defect`` is not called when the task is cancelled or returns. A caller that awaits the task gets the exception,
    too.
    """

    def ended(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        logger.critical("%s has failed for an unforeseen reason", what, exc_info=error)
        if on_defect is not None and isinstance(error, Exception):
            on_defect(error)

    task = asyncio.get_running_loop().create_task(work, name=what)
    task.add_done_callback(ended)
    return task


async def restarting(work: Callable[[], Coroutine[None, None, None]], what: str) -> None:
    """Run ``work``, and restart it after every exception; returns when ``work`` returns."""
    while True:
        try:
            return await work()
        except Exception:
            logger.critical(
                "%s has failed for an unforeseen reason; it begins again in %g s", what, RESTART_PAUSE_S, exc_info=True
            )
            await asyncio.sleep(RESTART_PAUSE_S)
