"""The rows of one prefix of a table, for threads.

Made of ``waltz/table/face/parts.py`` by ``make twins``: change that module, not this one.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Generic, TypeVar

from waltz.common.serializers import Serializer
from waltz.table.face.blocking_interface import AnyTableCalls
from waltz.table.face.levels import Answer, ReadConsistency
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges
from waltz.table.face.threads import BlockingTransaction
from waltz.table.rows import TableRow, Version
from waltz.table.taking import Taken

T = TypeVar("T")


class BlockingPrefixedTable:
    """The rows of one prefix of a table, as a table of its own."""

    def __init__(self, table: AnyTableCalls, prefix: bytes) -> None:
        """The table is opened and closed by others."""
        self._table = table
        self._prefix = prefix

    def put(self, key: bytes, value: bytes | None, *, timestamp_ms: int | None = None) -> int:
        """As :meth:`TableCalls.put`."""
        return self._table.put(key, value, prefix=self._prefix, timestamp_ms=timestamp_ms)

    def delete(self, key: bytes, *, timestamp_ms: int | None = None) -> int:
        """As :meth:`TableCalls.delete`."""
        return self._table.delete(key, prefix=self._prefix, timestamp_ms=timestamp_ms)

    def put_if(self, key: bytes, value: bytes | None, version: Version | None) -> int:
        """As :meth:`TableCalls.put_if`."""
        return self._table.put_if(key, value, version, prefix=self._prefix)

    def get(
        self,
        keys: Sequence[bytes],
        *,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Answer:
        """As :meth:`TableCalls.get`."""
        return self._table.get(keys, prefix=self._prefix, raw=raw, fresh=fresh, consistency=consistency)

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Generator[TableRow, None, None]:
        """As :meth:`TableCalls.scan`, of ranges of keys of this prefix."""
        return self._table.scan(
            ranges,
            prefix=self._prefix,
            reverse=reverse,
            limit=limit,
            raw=raw,
            fresh=fresh,
            consistency=consistency,
        )

    def take(self, after: int, limit: int = 1000) -> Taken:
        """As :meth:`TableCalls.take`."""
        return self._table.take(after, limit, prefix=self._prefix)

    def follow(self, after: int) -> Generator[Taken, None, None]:
        """As :meth:`TableCalls.follow`."""
        return self._table.follow(after, prefix=self._prefix)


class BlockingTypedTable(Generic[T]):
    """The rows of one prefix of a table, with values that a serializer turns into bytes and back.

    A row with a null value counts as no row. Errors of the serializer pass through the call that used it.
    """

    def __init__(self, table: AnyTableCalls, serializer: Serializer[T], prefix: bytes = b"") -> None:
        """The table is opened and closed by others."""
        self._table = table
        self._serializer = serializer
        self._prefix = prefix

    def put(self, key: bytes, value: T) -> int:
        """As :meth:`TableCalls.put`."""
        return self._table.put(key, self._serializer.serialize(value), prefix=self._prefix)

    def put_if(self, key: bytes, value: T, version: Version | None) -> int:
        """As :meth:`TableCalls.put_if`."""
        return self._table.put_if(key, self._serializer.serialize(value), version, prefix=self._prefix)

    def delete(self, key: bytes) -> int:
        """As :meth:`TableCalls.delete`."""
        return self._table.delete(key, prefix=self._prefix)

    def update(self, key: bytes, change: Callable[[T | None], T | None], *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Replace a value by the result of ``change(value)``; ``None`` stands for no row, before and after.

        ``change`` is called again after a conflict, and must have no other effects. Returns the transaction's id, or
        ``None`` if there was no row and ``change`` returned ``None``; raises like :meth:`TableCalls.transaction`.
        """
        prefix = self._prefix

        def work(transaction: BlockingTransaction) -> None:
            row = transaction.get(key, prefix=prefix)
            value = change(None if row is None else self._value(row.value))
            if value is not None:
                transaction.put(key, self._serializer.serialize(value), prefix=prefix)
            elif row is not None:
                transaction.delete(key, prefix=prefix)

        return self._table.transaction(work, timeout_s=timeout_s)

    def get(
        self, keys: Sequence[bytes], *, fresh: bool = False, consistency: ReadConsistency | None = None
    ) -> list[T | None]:
        """The values of keys, in their order; ``None`` where there is no row."""
        rows = self._table.get(keys, prefix=self._prefix, fresh=fresh, consistency=consistency)
        return [None if row is None else self._value(row.value) for row in rows]

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Generator[tuple[bytes, T | None], None, None]:
        """Keys and values, like :meth:`TableCalls.scan`, of ranges of keys of this prefix."""
        scan = self._table.scan(
            ranges, prefix=self._prefix, reverse=reverse, limit=limit, fresh=fresh, consistency=consistency
        )
        with closing(scan) as rows:
            for row in rows:
                yield row.key, self._value(row.value)

    def _value(self, data: bytes | None) -> T | None:
        return None if data is None else self._serializer.deserialize(data)
