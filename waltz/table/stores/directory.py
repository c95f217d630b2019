"""The directory of a store: locks it, and decides whether its content is used.

Beside the database's own folder there are ``lock``, held by the one process that has the store open, and ``identity``,
which names the table of the database. The identity is written after an empty database was made, and removed before the
database is: a database beside another identity, or without one, is rebuilt.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from waltz.table.errors import StoreDamagedError, StoreError, StoreLockedError
from waltz.table.stores.engine import Engine
from waltz.table.stores.ordered import OrderedStore
from waltz.table.stores.sealing import SealedEngine

logger = logging.getLogger(__name__)

DATABASE = "waltz-table-database"
"""Name of the database's folder: a name that no other program uses, since a rebuild removes the folder."""

_LOCK = "lock"
_IDENTITY = "identity"
_FORMAT = 2
"""Version of the engines' content; stores of another version are rebuilt."""


class StoreIdentity(NamedTuple):
    """The log and the options of a store's content. A store of another identity is rebuilt."""

    partition_id: int
    incarnation: str
    """Incarnation of the log: its name among all logs that ever had this partition id in a cluster of this name."""
    options: Mapping[str, int | str] = {}
    """Options that the content depends on, such as the limit of decompressed bodies."""

    def encode(self, engine: str) -> bytes:
        """The content of the file ``identity``."""
        fields = {"format": _FORMAT, "engine": engine, **self._asdict(), "options": dict(self.options)}
        return json.dumps(fields, sort_keys=True).encode()


class DirectoryStore(OrderedStore):
    """A store in a directory, which only one process has open at a time."""

    def __init__(
        self, directory: Path, identity: StoreIdentity, engine_name: str, open_engine: Callable[[Path], Engine]
    ) -> None:
        """Open the database if it is this table's and undamaged, else begin with an empty one.

        Raises :class:`StoreLockedError`, and ``OSError`` when the directory cannot be used.
        """
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(directory / _LOCK)
        try:
            expected = identity.encode(engine_name)
            if (reason := _disbelief(directory, expected)) is None:
                try:
                    self._open(open_engine, expected)
                except StoreDamagedError as error:
                    reason = str(error)
            if reason is not None:
                self._rebuild(open_engine, expected, reason)
        except BaseException:
            self._unlock()
            raise

    def _open(self, open_engine: Callable[[Path], Engine], identity: bytes) -> None:
        engine = open_engine(self._directory / DATABASE)
        try:
            super().__init__(SealedEngine(engine, identity, self.condemn))
        except BaseException:
            engine.close()
            raise

    def _rebuild(self, open_engine: Callable[[Path], Engine], identity: bytes, reason: str) -> None:
        database = self._directory / DATABASE
        if database.exists():
            logger.warning("the store in %s is rebuilt from the log: %s", self._directory, reason)
        self.condemn()
        if database.exists():
            shutil.rmtree(database)
        database.mkdir()
        self._open(open_engine, identity)
        _write_whole(self._directory / _IDENTITY, identity)

    def condemn(self) -> None:
        """Mark the database, so that the next opening rebuilds it."""
        (self._directory / _IDENTITY).unlink(missing_ok=True)
        _sync(self._directory)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _lock(path: Path) -> int:
    try:
        import fcntl  # not at the top: tables in memory work on Windows, too
    except ImportError:
        raise StoreError("this system has no locks for the files of a store; use the store 'memory'") from None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreLockedError(
            f"the store in {path.parent} is open already, in this process or another; "
            "give every process a directory of its own"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _disbelief(directory: Path, expected: bytes) -> str | None:
    """Why the database has to be rebuilt, as far as its directory shows."""
    try:
        found = (directory / _IDENTITY).read_bytes()
    except FileNotFoundError:
        return "it was not finished, or has been found to be damaged"
    if found != expected:
        return f"it is of {found[:200]!r}, not of {expected!r}"
    if not (directory / DATABASE).is_dir():
        return "its files are gone"
    return None


def _write_whole(path: Path, content: bytes) -> None:
    scratch = path.with_name(path.name + ".new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
