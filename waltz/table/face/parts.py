"""The rows of one prefix of a table: as a table of their own, and with values that are not bytes."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from waltz.common.serializers import Serializer
from waltz.table.face.interface import AnyTable
from waltz.table.face.levels import Answer, ReadConsistency
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges
from waltz.table.face.transaction import TableTransaction
from waltz.table.rows import TableRow, Version
from waltz.table.taking import Taken

T = TypeVar("T")


class PrefixedTable:
    """The rows of one prefix of a table, as a table of its own.

    Examples:
        ```python
        accounts = waltz.table.PrefixedTable(table, b"accounts")
        await accounts.put(b"alice", b"100")
        print([row.key async for row in accounts.scan()])
        ```
    """

    def __init__(self, table: AnyTable, prefix: bytes) -> None:
        """The table is opened and closed by others."""
        self._table = table
        self._prefix = prefix

    async def put(self, key: bytes, value: bytes | None, *, timestamp_ms: int | None = None) -> int:
        """As :meth:`Table.put`."""
        return await self._table.put(key, value, prefix=self._prefix, timestamp_ms=timestamp_ms)

    async def delete(self, key: bytes, *, timestamp_ms: int | None = None) -> int:
        """As :meth:`Table.delete`."""
        return await self._table.delete(key, prefix=self._prefix, timestamp_ms=timestamp_ms)

    async def put_if(self, key: bytes, value: bytes | None, version: Version | None) -> int:
        """As :meth:`Table.put_if`."""
        return await self._table.put_if(key, value, version, prefix=self._prefix)

    async def get(
        self,
        keys: Sequence[bytes],
        *,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Answer:
        """As :meth:`Table.get`."""
        return await self._table.get(keys, prefix=self._prefix, raw=raw, fresh=fresh, consistency=consistency)

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> AsyncGenerator[TableRow, None]:
        """As :meth:`Table.scan`, of ranges of keys of this prefix."""
        return self._table.scan(
            ranges,
            prefix=self._prefix,
            reverse=reverse,
            limit=limit,
            raw=raw,
            fresh=fresh,
            consistency=consistency,
        )

    async def take(self, after: int, limit: int = 1000) -> Taken:
        """As :meth:`Table.take`."""
        return await self._table.take(after, limit, prefix=self._prefix)

    def follow(self, after: int) -> AsyncGenerator[Taken, None]:
        """As :meth:`Table.follow`."""
        return self._table.follow(after, prefix=self._prefix)


class TypedTable(Generic[T]):
    """The rows of one prefix of a table, with values that a serializer turns into bytes and back.

    A row with a null value counts as no row. Errors of the serializer pass through the call that used it.

    Examples:
        ```python
        balances = waltz.table.TypedTable(table, waltz.JsonSerializer(), b"balances")
        await balances.put(b"alice", {"amount": 100})
        await balances.update(b"bob", lambda balance: balance or {"amount": 0})
        print(await balances.get([b"alice", b"bob"]))
        ```
    """

    def __init__(self, table: AnyTable, serializer: Serializer[T], prefix: bytes = b"") -> None:
        """The table is opened and closed by others."""
        self._table = table
        self._serializer = serializer
        self._prefix = prefix

    async def put(self, key: bytes, value: T) -> int:
        """As :meth:`Table.put`."""
        return await self._table.put(key, self._serializer.serialize(value), prefix=self._prefix)

    async def put_if(self, key: bytes, value: T, version: Version | None) -> int:
        """As :meth:`Table.put_if`."""
        return await self._table.put_if(key, self._serializer.serialize(value), version, prefix=self._prefix)

    async def delete(self, key: bytes) -> int:
        """As :meth:`Table.delete`."""
        return await self._table.delete(key, prefix=self._prefix)

    async def update(
        self, key: bytes, change: Callable[[T | None], T | None], *, timeout_s: float = TIMEOUT_S
    ) -> int | None:
        """Replace a value by the result of ``change(value)``; ``None`` stands for no row, before and after.

        ``change`` is called again after a conflict, and must have no other effects. Returns the transaction's id, or
        ``None`` if there was no row and ``change`` returned ``None``; raises like :meth:`Table.transaction`.
        """
        prefix = self._prefix

        def work(transaction: TableTransaction) -> None:
            row = transaction.get(key, prefix=prefix)
            value = change(None if row is None else self._value(row.value))
            if value is not None:
                transaction.put(key, self._serializer.serialize(value), prefix=prefix)
            elif row is not None:
                transaction.delete(key, prefix=prefix)

        return await self._table.transaction(work, timeout_s=timeout_s)

    async def get(
        self, keys: Sequence[bytes], *, fresh: bool = False, consistency: ReadConsistency | None = None
    ) -> list[T | None]:
        """The values of keys, in their order; ``None`` where there is no row."""
        rows = await self._table.get(keys, prefix=self._prefix, fresh=fresh, consistency=consistency)
        return [None if row is None else self._value(row.value) for row in rows]

    async def scan(
        self,
        ranges: Ranges | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> AsyncGenerator[tuple[bytes, T | None], None]:
        """Keys and values, like :meth:`Table.scan`, of ranges of keys of this prefix."""
        scan = self._table.scan(
            ranges, prefix=self._prefix, reverse=reverse, limit=limit, fresh=fresh, consistency=consistency
        )
        async with aclosing(scan) as rows:
            async for row in rows:
                yield row.key, self._value(row.value)

    def _value(self, data: bytes | None) -> T | None:
        return None if data is None else self._serializer.deserialize(data)
