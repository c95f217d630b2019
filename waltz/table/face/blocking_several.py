"""One table in several partitions, for threads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from waltz.table.envelope import Row
from waltz.table.face.blocking import BlockingTable
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges
from waltz.table.face.several import PartitionedTable
from waltz.table.face.threads import BlockingTransaction, Run, iterated, transact
from waltz.table.rows import TableRow, Version


class BlockingPartitionedTable:
    """The calls of :class:`~waltz.table.face.several.PartitionedTable`, each blocking until it is done.

    Made by ``waltz.blocking.Client.partitioned_table``, opened by ``with``; any number of threads may use it.
    """

    def __init__(self, table: PartitionedTable, run: Run) -> None:
        self._table = table
        self._run = run
        self.tables = tuple(BlockingTable(each, run) for each in table.tables)
        """Those of the partitions, in the order given; they are opened and closed with this one."""

    def __enter__(self) -> Self:
        self._run(self._table.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._table.__aexit__(kind, error, traceback))

    def table_of(self, key: bytes) -> BlockingTable:
        """The table that holds a key."""
        return self.tables[self._table.place_of(key)]

    def put(self, key: bytes, value: bytes | None, *, prefix: bytes = b"", timestamp_ms: int | None = None) -> int:
        """Write one row; the id is one of the key's partition."""
        return self._run(self._table.put(key, value, prefix=prefix, timestamp_ms=timestamp_ms))

    def delete(self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None) -> int:
        """Delete one row, whether there is one or not; the id is one of the key's partition."""
        return self._run(self._table.delete(key, prefix=prefix, timestamp_ms=timestamp_ms))

    def put_if(self, key: bytes, value: bytes | None, version: Version | None, *, prefix: bytes = b"") -> int:
        """Write a row if the present one has that version; the version is one of the key's partition."""
        return self._run(self._table.put_if(key, value, version, prefix=prefix))

    def batch(self, rows: Sequence[Row], *, any_timestamp: bool = False) -> int:
        """Write rows in one transaction. Raises ``ValueError`` for keys of several partitions."""
        return self._run(self._table.batch(rows, any_timestamp=any_timestamp))

    def transaction(
        self, keys: Iterable[bytes], work: Callable[[BlockingTransaction], None], *, timeout_s: float = TIMEOUT_S
    ) -> int | None:
        """Read and write rows in the partition of these keys; ``work`` is called on the thread of the caller.

        Raises ``ValueError``, and writes nothing, when they or the keys that ``work`` has used are of several.
        """
        keys = list(keys)
        table = self._table

        def checked(transaction: BlockingTransaction) -> None:
            work(transaction)
            table.table_of_all([*keys, *transaction.keys])

        return transact(table.table_of_all(keys), self._run, checked, timeout_s=timeout_s)

    def get(
        self, keys: Sequence[bytes], *, prefix: bytes = b"", raw: bool = False, fresh: bool = False
    ) -> list[TableRow | None]:
        """The rows of keys, in their order; each partition by itself."""
        return self._run(self._table.get(keys, prefix=prefix, raw=raw, fresh=fresh))

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
    ) -> Iterator[TableRow]:
        """The rows of ranges, of a prefix, or all; in order over all partitions, each range of one state of each."""
        rows = self._table.scan(ranges, prefix=prefix, reverse=reverse, limit=limit, raw=raw, fresh=fresh)
        return iterated(self._run, rows)

    def approximate_count(self, *, raw: bool = False) -> int:
        """How many rows there are in all partitions: expired ones are counted, tombstones only with ``raw``."""
        return self._run(self._table.approximate_count(raw=raw))
