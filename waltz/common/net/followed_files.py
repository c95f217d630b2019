"""Follows files: makes an object from them, and a new one when they change. Unusable files change nothing."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from waltz.common.errors import ConfigError

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 10.0
"""Minimum interval between checks of the files."""

T = TypeVar("T")


class _Version(NamedTuple):
    """The version of a file; the time of its last change covers its permissions, too."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


class FollowedFiles(Generic[T]):
    """Files, and the object made from their last usable version."""

    def __init__(self, make: Callable[[], T], paths: Sequence[str], *, what: str, held: str) -> None:
        """Make the first object. Raises the errors of ``make``.

        Args:
            make: Reads the files and makes the object.
            paths: The paths of the files.
            what: The purpose of the files, for log messages.
            held: A clause for log messages: the state while the files are unusable.
        """
        self.problem: str | None = None
        """The error in the present files; ``None`` if they are in use."""
        self._make = make
        self._paths = tuple(paths)
        self._what, self._held = what, held
        self._versions = self._look()
        self.present = make()
        self._next_check_s = 0.0
        self._checking = False

    async def check_if_due(self) -> None:
        """Check the files for changes, unless a check is recent or under way."""
        now_s = asyncio.get_running_loop().time()
        if self._checking or now_s < self._next_check_s:
            return
        self._checking, self._next_check_s = True, now_s + CHECK_INTERVAL_S
        await asyncio.to_thread(self._check)  # decrypting a key takes tens of milliseconds

    async def follow(self, on_change: Callable[[], None] | None = None) -> None:
        """Check the files regularly, until cancelled; call ``on_change`` after each new object."""
        while True:
            before = self.present
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.check_if_due()
            if on_change is not None and self.present is not before:
                on_change()

    def _check(self) -> None:
        try:
            self.check()
        finally:
            self._checking = False

    def check(self) -> None:
        """Check the files; blocking. If they are unusable, the former object stays in use."""
        versions = self._look()
        if versions == self._versions and self.problem is None:
            return
        try:
            self.present = self._make()
        except (ConfigError, OSError, ValueError) as error:  # ValueError: the error of cryptography for a damaged file
            if versions != self._versions or self.problem is None:
                logger.error("%s: a changed file cannot be used, and %s: %s", self._what, self._held, error)
            self.problem = str(error)
        else:
            paths = " or ".join(self._paths)
            logger.info("%s: %s was read again; new connections use it", self._what, paths)
            self.problem = None
        self._versions = versions

    def _look(self) -> list[_Version | None]:
        return [_version(path) for path in self._paths]


def _version(path: str) -> _Version | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return _Version(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
