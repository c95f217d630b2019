"""The rows of one prefix of a table, for threads: as a table of their own, and with values that are not bytes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from waltz.common.serializers import Serializer
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges
from waltz.table.face.several import PrefixedTable
from waltz.table.face.table import Table
from waltz.table.face.threads import BlockingTransaction, Run, iterated, transact
from waltz.table.rows import TableRow, Version
from waltz.table.taking import Taken

T = TypeVar("T")


class BlockingPrefixedTable:
    """The calls of :class:`~waltz.table.face.several.PrefixedTable`, each blocking until it is done."""

    def __init__(self, table: PrefixedTable, run: Run) -> None:
        """Made by ``BlockingTable.prefixed``."""
        self._table = table
        self._run = run

    def put(self, key: bytes, value: bytes | None, *, timestamp_ms: int | None = None) -> int:
        """Write one row."""
        return self._run(self._table.put(key, value, timestamp_ms=timestamp_ms))

    def delete(self, key: bytes, *, timestamp_ms: int | None = None) -> int:
        """Delete one row, whether there is one or not."""
        return self._run(self._table.delete(key, timestamp_ms=timestamp_ms))

    def put_if(self, key: bytes, value: bytes | None, version: Version | None) -> int:
        """Write a row if the present one has that version; ``None``: if readers see none."""
        return self._run(self._table.put_if(key, value, version))

    def get(self, keys: Sequence[bytes], *, raw: bool = False, fresh: bool = False) -> list[TableRow | None]:
        """The rows of keys, in their order."""
        return self._run(self._table.get(keys, raw=raw, fresh=fresh))

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
    ) -> Iterator[TableRow]:
        """The rows of ranges of keys, or all of the prefix, in order; all of one state of the table."""
        rows = self._table.scan(ranges, reverse=reverse, limit=limit, raw=raw, fresh=fresh)
        return iterated(self._run, rows)

    def take(self, after: int, limit: int = 1000) -> Taken:
        """Rows in the order of the log, overwritten ones included, of whole transactions behind ``after``."""
        return self._run(self._table.take(after, limit))

    def follow(self, after: int) -> Iterator[Taken]:
        """What :meth:`take` gives, as it comes, without an end."""
        return iterated(self._run, self._table.follow(after), 1)


class BlockingTypedTable(Generic[T]):
    """The calls of :class:`~waltz.table.face.values.TypedTable`, each blocking until it is done.

    The serializer is used, and changes are made, on the thread of the caller.
    """

    def __init__(self, table: Table, serializer: Serializer[T], prefix: bytes, run: Run) -> None:
        """Made by ``BlockingTable.typed``."""
        self._table = table
        self._serializer = serializer
        self._prefix = prefix
        self._run = run

    def put(self, key: bytes, value: T) -> int:
        """Write one row."""
        return self._run(self._table.put(key, self._serializer.serialize(value), prefix=self._prefix))

    def put_if(self, key: bytes, value: T, version: Version | None) -> int:
        """Write a row if the present one has that version; ``None``: if readers see none."""
        data = self._serializer.serialize(value)
        return self._run(self._table.put_if(key, data, version, prefix=self._prefix))

    def delete(self, key: bytes) -> int:
        """Delete one row, whether there is one or not."""
        return self._run(self._table.delete(key, prefix=self._prefix))

    def update(self, key: bytes, change: Callable[[T | None], T | None], *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Replace a value by what ``change`` makes of it; ``None`` stands for no row, before and after.

        ``change`` is called again when it was overtaken, and must have no other effects. Returns the transaction's id,
        ``None`` if there was no row and is to be none.
        """
        prefix = self._prefix

        def work(transaction: BlockingTransaction) -> None:
            row = transaction.get(key, prefix=prefix)
            value = change(None if row is None else self._value(row.value))
            if value is not None:
                transaction.put(key, self._serializer.serialize(value), prefix=prefix)
            elif row is not None:
                transaction.delete(key, prefix=prefix)

        return transact(self._table, self._run, work, timeout_s=timeout_s)

    def get(self, keys: Sequence[bytes], *, fresh: bool = False) -> list[T | None]:
        """The values of keys, in their order; ``None`` where there is no row."""
        rows = self._run(self._table.get(keys, prefix=self._prefix, fresh=fresh))
        return [None if row is None else self._value(row.value) for row in rows]

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        fresh: bool = False,
    ) -> Iterator[tuple[bytes, T | None]]:
        """Keys and values of ranges of keys, or all of the prefix, in order; all of one state of the table."""
        rows = self._table.scan(ranges, prefix=self._prefix, reverse=reverse, limit=limit, fresh=fresh)
        for row in iterated(self._run, rows):
            yield row.key, self._value(row.value)

    def _value(self, data: bytes | None) -> T | None:
        return None if data is None else self._serializer.deserialize(data)
