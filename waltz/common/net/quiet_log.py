"""Log messages that a hostile peer can provoke as often as it likes, kept from filling the disk."""

import asyncio
import logging

BURST = 20
WINDOW_S = 60.0
"""At most :data:`BURST` messages in such a time; the first one after it tells how many were left out."""


class QuietLog:
    """Logs warnings, but not endlessly many."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._window_end_s = 0.0
        self._count = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Log a warning, or only count it. To be called on the loop."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._window_end_s:
            if self._count > BURST:
                self._logger.warning("%d more messages about connections were left out", self._count - BURST)
            self._window_end_s, self._count = now_s + WINDOW_S, 0
        self._count += 1
        if self._count <= BURST:
            self._logger.warning(text, *arguments)
