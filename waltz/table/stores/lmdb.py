"""Rows in LMDB: the fastest to read from files, with keys of at most 511 bytes."""

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import lmdb

from waltz.table.errors import KeyTooLongError, StoreDamagedError, StoreError
from waltz.table.limits import LMDB_MAX_ENTRY_KEY_BYTES
from waltz.table.stores.engine import Engine, Space

INITIAL_MAP_BYTES = 64 << 20

_FILE_NAME = "data.mdb"

_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
)


class LmdbEngine(Engine):
    """One database for each space.

    The file is consistent after every crash; after a crash of the machine the last write may be missing. The map grows
    when it is full, which is always possible, since no transaction is open between two calls.
    """

    def __init__(self, directory: Path, map_bytes: int = INITIAL_MAP_BYTES) -> None:
        """Open, or create, the files in the directory. Raises ``StoreError``."""
        self._map_bytes = map_bytes
        try:
            self._environment = lmdb.open(
                str(directory), map_size=map_bytes, max_dbs=len(Space), metasync=False, lock=False, readahead=False
            )
        except lmdb.Error as error:
            raise _translated(error) from error
        try:
            self._check_size(directory)
            self._databases = {space: self._environment.open_db(space.name.encode()) for space in Space}
        except lmdb.Error as error:
            self._environment.close()
            raise _translated(error) from error
        except BaseException:
            self._environment.close()
            raise
        self._map_bytes = max(map_bytes, self._environment.info()["map_size"])

    def _check_size(self, directory: Path) -> None:
        """Check the file's size: a read of a page that is mapped but missing in the file would end the process."""
        needed = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
        size = (directory / _FILE_NAME).stat().st_size
        if size < needed:
            raise StoreDamagedError(f"LMDB: the file has {size} bytes, not {needed}")

    def get(self, space: Space, keys: Sequence[bytes]) -> list[bytes | None]:
        database = self._databases[space]
        try:
            with self._environment.begin(database) as transaction:
                get = transaction.get
                return [get(key) if len(key) <= LMDB_MAX_ENTRY_KEY_BYTES else None for key in keys]
        except lmdb.Error as error:
            raise _translated(error) from error

    def page(
        self, space: Space, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        try:
            with self._environment.begin(self._databases[space]) as transaction, transaction.cursor() as cursor:
                if not reverse:
                    if not cursor.set_range(start):
                        return []
                    entries = cursor.iternext()
                    found = islice(entries, limit)
                    return [(key, value) for key, value in found if end is None or key < end]
                if not (cursor.last() if end is None or not cursor.set_range(end) else cursor.prev()):
                    return []
                return [(key, value) for key, value in islice(cursor.iterprev(), limit) if key >= start]
        except lmdb.Error as error:
            raise _translated(error) from error

    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]] = ()) -> None:
        entries = list(puts)
        while True:
            try:
                self._try_to_write(entries, deletes)
            except lmdb.MapFullError:
                self._map_bytes *= 2
                self._environment.set_mapsize(self._map_bytes)
            except lmdb.BadValsizeError:
                longest = max(len(key) for _, key, _ in entries)
                raise KeyTooLongError(
                    f"LMDB cannot hold a key of {longest} bytes, prefix included; at most {LMDB_MAX_ENTRY_KEY_BYTES}. "
                    "Use another store for this table"
                ) from None
            except lmdb.Error as error:
                raise _translated(error) from error
            else:
                return

    def _try_to_write(self, entries: list[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]]) -> None:
        databases = self._databases
        with self._environment.begin(write=True) as transaction:
            put = transaction.put
            for space, key, value in entries:
                put(key, value, db=databases[space])
            for space, key in deletes:
                transaction.delete(key, db=databases[space])

    def close(self) -> None:
        self._environment.close()


def _translated(error: lmdb.Error) -> StoreError:
    return StoreDamagedError(f"LMDB: {error}") if isinstance(error, _DAMAGE) else StoreError(f"LMDB: {error}")
