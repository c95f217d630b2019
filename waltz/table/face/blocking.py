"""Tables for threads: every call blocks until it is done on the loop of a client."""

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import Protocol, TypeVar

from waltz.common.serializers import Serializer
from waltz.table.face.blocking_interface import AnyTableCalls
from waltz.table.face.blocking_parts import BlockingPrefixedTable, BlockingTypedTable
from waltz.table.face.blocking_table import TableCalls
from waltz.table.face.cursors import NamedCursor
from waltz.table.face.threads import BlockingTransaction, Run
from waltz.table.rows import TableRow

T = TypeVar("T")


class AnyBlockingTable(AnyTableCalls, Protocol):
    """A table for threads, wherever its view is, with its parts."""

    def mapping(self, prefix: bytes = b"") -> "TableMapping":
        """The rows of one prefix as a dictionary of bytes."""
        ...

    def prefixed(self, prefix: bytes) -> BlockingPrefixedTable:
        """The rows of one prefix as a table of their own."""
        ...

    def typed(self, serializer: Serializer[T], prefix: bytes = b"") -> BlockingTypedTable[T]:
        """The rows of one prefix with values that are not bytes."""
        ...


class BlockingTable(TableCalls):
    """A table in one partition, made by ``waltz.blocking.Client.table``."""

    def mapping(self, prefix: bytes = b"") -> "TableMapping":
        """The rows of one prefix as a dictionary of bytes."""
        return TableMapping(self, prefix)

    def prefixed(self, prefix: bytes) -> BlockingPrefixedTable:
        """The rows of one prefix as a table of their own, like :class:`~waltz.table.face.parts.PrefixedTable`."""
        return BlockingPrefixedTable(self, prefix)

    def typed(self, serializer: Serializer[T], prefix: bytes = b"") -> BlockingTypedTable[T]:
        """The rows of one prefix with values that are not bytes, like :class:`~waltz.table.face.parts.TypedTable`."""
        return BlockingTypedTable(self, serializer, prefix)


class BlockingCursor:
    """A deprecated named cursor for threads, one at a time."""

    def __init__(self, cursor: NamedCursor, run: Run) -> None:
        self._cursor = cursor
        self._run = run

    def read(self) -> int:
        """The last transaction that the group is done with, -1 at first."""
        return self._run(self._cursor.read())

    def advance(self, transaction_id: int) -> None:
        """Record that the group is done with all transactions up to this one."""
        self._run(self._cursor.advance(transaction_id))


class TableMapping(MutableMapping[bytes, bytes | None]):
    """The rows of one prefix as a dictionary, in the order of their keys.

    Every read sees at least the writes through the table; every write is a transaction. ``len`` reads all keys of the
    prefix. ``pop``, ``popitem``, ``setdefault`` and ``clear`` read, and then write: others may write in between,
    except within :meth:`BlockingTable.transaction`.
    """

    def __init__(self, table: AnyTableCalls, prefix: bytes) -> None:
        self._table = table
        self._prefix = prefix

    def __getitem__(self, key: bytes) -> bytes | None:
        (row,) = self._table.get([key], prefix=self._prefix)
        if row is None:
            raise KeyError(key)
        return row.value

    def __setitem__(self, key: bytes, value: bytes | None) -> None:
        self._table.put(key, value, prefix=self._prefix)

    def __delitem__(self, key: bytes) -> None:
        prefix = self._prefix

        def delete(transaction: BlockingTransaction) -> None:
            if transaction.get(key, prefix=prefix) is None:
                raise KeyError(key)
            transaction.delete(key, prefix=prefix)

        self._table.transaction(delete)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._table.get([key], prefix=self._prefix) != [None]

    def __iter__(self) -> Iterator[bytes]:
        return (key for _, key in self._table.scan_keys(prefix=self._prefix))

    def __reversed__(self) -> Iterator[bytes]:
        return (key for _, key in self._table.scan_keys(prefix=self._prefix, reverse=True))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[bytes, bytes | None]:
        """Keys and values; each iteration is of one state of the table."""
        return _Items(self)

    def values(self) -> ValuesView[bytes | None]:
        """Values in the order of the keys; each iteration is of one state of the table."""
        return _Values(self)

    def rows(self) -> Iterator[TableRow]:
        """The rows in the order of their keys, of one state of the table."""
        return self._table.scan(prefix=self._prefix)


class _Items(ItemsView[bytes, bytes | None]):
    """Read in one scan, not key by key."""

    _mapping: TableMapping

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]:
        return ((row.key, row.value) for row in self._mapping.rows())


class _Values(ValuesView[bytes | None]):
    """Read in one scan, not key by key."""

    _mapping: TableMapping

    def __iter__(self) -> Iterator[bytes | None]:
        return (row.value for row in self._mapping.rows())
