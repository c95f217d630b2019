"""Limits log messages that could fill the disk: those that a hostile peer can provoke, and those of a long outage."""

import asyncio
import logging
import time
from collections.abc import Callable

BURST = 20
WINDOW_S = 60.0
"""At most :data:`BURST` messages in this time; the first one after it gives the number of dropped ones."""

FIRST_REPEAT_S = 10.0
LAST_REPEAT_S = 600.0
"""A lasting trouble is logged again after growing intervals, each twice the former, up to this one."""

MAX_KINDS = 10
"""Maximum number of different troubles of one outage that are logged at once."""


class QuietLog:
    """A logger with a limited rate."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._window_end_s = 0.0
        self._count = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Log a warning, or only count it. To be called on the loop."""
        self._log(logging.WARNING, text, arguments)

    def info(self, text: str, *arguments: object) -> None:
        """Log an information, or only count it. To be called on the loop."""
        self._log(logging.INFO, text, arguments)

    def _log(self, level: int, text: str, arguments: tuple[object, ...]) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._window_end_s:
            if self._count > BURST:
                self._logger.log(level, "%d more messages like these were left out", self._count - BURST)
            self._window_end_s, self._count = now_s + WINDOW_S, 0
        self._count += 1
        if self._count <= BURST:
            self._logger.log(level, text, *arguments)


class OutageLog:
    """Logs the failures of repeated attempts during an outage: at once, and then at growing intervals.

    ``clock`` gives monotonic seconds. Not tied to a loop; to be called by one thread at a time.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._attempts = 0
        self._told: set[str] = set()
        self._interval_s = FIRST_REPEAT_S
        self._repeat_at_s = 0.0

    def failed(self, trouble: str) -> None:
        """An attempt has failed; the text has the reason."""
        self._attempts += 1
        if trouble not in self._told and len(self._told) < MAX_KINDS:
            self._logger.warning("%s; trying again", trouble)
            self._told.add(trouble)
            self._repeat_at_s = self._clock() + self._interval_s
        elif self._clock() >= self._repeat_at_s:
            self._interval_s = min(2 * self._interval_s, LAST_REPEAT_S)
            self._repeat_at_s = self._clock() + self._interval_s
            self._logger.warning(
                "%s; still trying after %d attempts; next message in %g s at the earliest",
                trouble,
                self._attempts,
                self._interval_s,
            )

    def over(self) -> None:
        """The outage is over."""
        self._attempts = 0
        self._told.clear()
        self._interval_s = FIRST_REPEAT_S
