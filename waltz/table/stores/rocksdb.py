"""Rows in RocksDB: the store for large tables."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import cast

import rocksdict

from waltz.table.errors import StoreDamagedError, StoreError
from waltz.table.stores.engine import Engine, Space

_TAGS = {space: bytes((space,)) for space in Space}
_ENDS = {space: bytes((space + 1,)) for space in Space}
_WRITE_BUFFER_BYTES = 64 << 20
_LOG_FILES = 2
_BLOOM_BITS = 10
_MISSING = "No such file or directory"


class RocksDbEngine(Engine):
    """All spaces in one ordered key space, told apart by the first byte.

    A batch is whole or missing after every crash; after a crash of the machine the last batches may be missing.
    """

    def __init__(self, directory: Path) -> None:
        """Open, or create, the database in the directory. Raises ``StoreError``."""
        try:
            self._database = rocksdict.Rdict(str(directory), _options())
        except Exception as error:
            raise _translated(error) from error

    def get(self, space: Space, keys: Sequence[bytes]) -> list[bytes | None]:
        tag = _TAGS[space]
        try:
            found = self._database.get([tag + key for key in keys])
        except Exception as error:
            raise _translated(error) from error
        return cast("list[bytes | None]", found)

    def page(
        self, space: Space, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        first = _TAGS[space] + start
        behind = _ENDS[space] if end is None else _TAGS[space] + end
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(behind)
        found: list[tuple[bytes, bytes]] = []
        try:
            # RocksDB ignores a lower bound in the options when it iterates backwards.
            entries = self._database.items(backwards=reverse, from_key=behind if reverse else first, read_opt=options)
            for key, value in islice(entries, limit):
                tagged = cast("bytes", key)
                if tagged < first:
                    break
                found.append((tagged[1:], value))
        except Exception as error:
            raise _translated(error) from error
        return found

    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]] = ()) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        put, tags = batch.put, _TAGS
        for space, key, value in puts:
            put(tags[space] + key, value)
        for space, key in deletes:
            batch.delete(tags[space] + key)
        try:
            self._database.write(batch)
        except Exception as error:
            raise _translated(error) from error

    def close(self) -> None:
        with suppress(rocksdict.DbClosedError):
            self._database.close()


def _options() -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_keep_log_file_num(_LOG_FILES)
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    options.set_block_based_table_factory(blocks)
    return options


def _translated(error: Exception) -> StoreError:
    """RocksDB's errors come as plain exceptions that only their text tells apart."""
    text = str(error)
    if isinstance(error, rocksdict.DbClosedError):
        return StoreError("the store is closed")
    if text.startswith(("Corruption", "Invalid argument", "Not implemented")) or _MISSING in text:
        return StoreDamagedError(f"RocksDB: {text}")
    return StoreError(f"RocksDB: {text}")
