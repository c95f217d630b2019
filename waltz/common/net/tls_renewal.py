"""TLS contexts that follow their files: a changed key store or trust store counts for new connections.

A context cannot drop a trusted certificate. So a change makes another context, and the first one, which the whole
process uses, refers to its successor.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from waltz.common.errors import ConfigError

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 10.0
"""Least interval of checks of the files."""


class FollowingContext(ssl.SSLContext):
    """A context that may have files to follow."""

    files: "StoreFiles | None" = None


class _Version(NamedTuple):
    """The version of a file; the time of its last change covers its permissions, too."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


class StoreFiles:
    """The files of a configuration, and the context of their last usable version."""

    def __init__(self, make: Callable[[], FollowingContext], paths: Sequence[str]) -> None:
        """Make the first context from ``paths``. Raises the errors of ``make``."""
        self.problem: str | None = None
        """Why the files as they are now cannot be used; ``None`` if they are."""
        self._make = make
        self._paths = tuple(paths)
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

    def _check(self) -> None:
        try:
            self.check()
        finally:
            self._checking = False

    def check(self) -> None:
        """Check the files; blocking. Unusable files leave the former context in use."""
        versions = self._look()
        if versions == self._versions and self.problem is None:
            return
        try:
            self.present = self._make()
        except (ConfigError, OSError, ValueError) as error:  # ValueError: the error of cryptography for a damaged file
            if versions != self._versions or self.problem is None:
                logger.error("TLS: a changed file cannot be used, and the former certificates stay in use: %s", error)
            self.problem = str(error)
        else:
            logger.info("TLS: %s was read again; new connections use it", " or ".join(self._paths))
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


def following(make: Callable[[], FollowingContext], paths: Sequence[str]) -> FollowingContext:
    """The context that ``make`` makes of the files at ``paths``, with a successor after each change."""
    files = StoreFiles(make, paths)
    context = files.present
    context.files = files if paths else None
    return context


async def follow(context: ssl.SSLContext) -> None:
    """Check the context's files regularly, until cancelled."""
    files = files_of(context)
    while files is not None:
        await asyncio.sleep(CHECK_INTERVAL_S)
        await files.check_if_due()


def files_of(context: ssl.SSLContext) -> StoreFiles | None:
    """The files that the context follows."""
    return context.files if isinstance(context, FollowingContext) else None


def present(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context for a new connection."""
    files = files_of(context)
    return context if files is None else files.present
