"""The file of the audit log. A thread writes it, so that a slow disk does not hold the loop."""

import logging
import logging.handlers
import queue
from typing import Final

from waltz.common.errors import ConfigError
from waltz.common.quiet_log import OutageLog

logger = logging.getLogger(__name__)

MAX_QUEUED: Final = 10_000
"""Lines that wait for the disk. Further ones are lost, and counted."""


class _File(logging.handlers.WatchedFileHandler):
    """Opens the file again when another program has renamed it, as logrotate does."""

    def __init__(self, path: str) -> None:
        super().__init__(path, encoding="utf-8")
        self.setFormatter(logging.Formatter("%(message)s"))
        self.lost = 0
        self._failing = False
        self._outage = OutageLog(logger)

    def emit(self, record: logging.LogRecord) -> None:
        self._failing = False
        try:
            super().emit(record)
        except OSError:  # the file could not be opened again
            self.handleError(record)
        if not self._failing:
            self._outage.over()

    def handleError(self, record: logging.LogRecord) -> None:  # the library's name
        self._failing = True
        self.lost += 1
        self._outage.failed(f"the audit log {self.baseFilename} cannot be written, and lines of it are lost")


class AuditFile:
    """Appends lines to a file."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises ``ConfigError`` if that is not possible."""
        try:
            self._file = _File(path)
        except OSError as error:
            raise ConfigError(f"the audit log {path} cannot be opened: {error.strerror}") from None
        self._queue: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        self._dropped = 0
        self._listener = logging.handlers.QueueListener(self._queue, self._file)
        self._listener.start()

    @property
    def lost(self) -> int:
        """Number of lines that were not written."""
        return self._dropped + self._file.lost

    def write(self, line: str) -> None:
        """Have a line written soon."""
        if self._queue.qsize() < MAX_QUEUED:
            self._queue.put(logging.LogRecord(__name__, logging.INFO, "", 0, line, None, None))
        else:
            self._dropped += 1

    def close(self) -> None:
        """Write what waits, and close the file. Blocks meanwhile."""
        self._listener.stop()
        self._file.close()
