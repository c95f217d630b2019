"""One table in several partitions, by a hash of the key."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

from waltz.client.plain.client import Client
from waltz.common.keys import place_of
from waltz.table.envelope import Row
from waltz.table.face.interface import AnyTable
from waltz.table.face.levels import level_of_several
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges, ranges_of
from waltz.table.face.table import Table
from waltz.table.face.transacting import Work, done
from waltz.table.face.transaction import TableTransaction
from waltz.table.properties import PartitionProperties
from waltz.table.rows import TableRow, Version


class PartitionedTable:
    """One table in several partitions: ``async with PartitionedTable(client, [0, 1, 2]) as table: ...``.

    The partitions and their order decide the partition of a key: every program has to give the same list, as long as
    the table is used. All rows of a key are in one partition, whatever their prefix.

    Examples:
        ```python
        for partition_id in (0, 1, 2):
            await waltz.table.configure(client, partition_id, {"format": "table"})
        async with waltz.table.PartitionedTable(client, [0, 1, 2]) as table:
            await table.put(b"alice", b"100")  # in the partition of its key
            print(await table.get([b"alice", b"bob"]))
        ```
    """

    def __init__(
        self,
        client: Client,
        partition_ids: Sequence[int],
        properties: PartitionProperties | None = None,
        *,
        store: str | None = None,
        directory: Path | None = None,
        snapshots: str | None = None,
    ) -> None:
        """Each partition has its own folder in ``directory``; other arguments are those of :class:`Table`."""
        if not partition_ids or len(set(partition_ids)) < len(partition_ids):
            raise ValueError(f"a table is in one partition or in several different ones, not in {list(partition_ids)}")
        self._have(
            Table(
                client,
                partition_id,
                properties,
                store=store,
                directory=None if directory is None else directory / str(partition_id),
                snapshots=snapshots,
            )
            for partition_id in partition_ids
        )

    @classmethod
    def of(cls, tables: Sequence[AnyTable]) -> Self:
        """One table in these tables, such as served ones, which are opened and closed with it.

        Each is in another partition, and their order counts. Raises ``ValueError`` without any.
        """
        if not tables:
            raise ValueError("a table is in one partition or in several")
        made = cls.__new__(cls)
        made._have(tables)
        return made

    def _have(self, tables: Iterable[AnyTable]) -> None:
        self.tables = tuple(tables)
        """Those of the partitions, in the order given."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            for table in self.tables:
                await opened.enter_async_context(table)
            self._stack = opened.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    def table_of(self, key: bytes) -> AnyTable:
        """The table that holds a key."""
        return self.tables[self.place_of(key)]

    def place_of(self, key: bytes) -> int:
        """Index in :attr:`tables` of the table that holds a key."""
        return place_of(key, len(self.tables))

    def table_of_all(self, keys: Sequence[bytes]) -> AnyTable:
        """The table that holds all of these keys.

        Raises:
            ValueError: The keys are of several partitions.
        """
        places = {self.place_of(key) for key in keys}
        if len(places) != 1:
            raise ValueError(f"keys of {len(places)} partitions; a transaction is in one")
        return self.tables[places.pop()]

    async def put(
        self, key: bytes, value: bytes | None, *, prefix: bytes = b"", timestamp_ms: int | None = None
    ) -> int:
        """Like :meth:`Table.put`; the id is one of the key's partition."""
        return await self.table_of(key).put(key, value, prefix=prefix, timestamp_ms=timestamp_ms)

    async def delete(self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None) -> int:
        """Like :meth:`Table.delete`; the id is one of the key's partition."""
        return await self.table_of(key).delete(key, prefix=prefix, timestamp_ms=timestamp_ms)

    async def put_if(self, key: bytes, value: bytes | None, version: Version | None, *, prefix: bytes = b"") -> int:
        """Like :meth:`Table.put_if`; the version is one of the key's partition."""
        return await self.table_of(key).put_if(key, value, version, prefix=prefix)

    async def batch(self, rows: Sequence[Row], *, any_timestamp: bool = False) -> int:
        """Like :meth:`Table.batch`, in one partition.

        Raises:
            ValueError: Keys are of several partitions: that would not be atomic.
        """
        return await self.table_of_all([row.key for row in rows]).batch(rows, any_timestamp=any_timestamp)

    async def transaction(
        self,
        keys: Iterable[bytes],
        work: Work,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> int | None:
        """Like :meth:`Table.transaction`, in the partition of these keys.

        Raises:
            ValueError: The keys, or the keys used by ``work``, are of several partitions; nothing is written.
        """
        keys = list(keys)

        async def checked(transaction: TableTransaction) -> None:
            await done(work, transaction)
            self.table_of_all([*keys, *transaction.keys])

        return await self.table_of_all(keys).transaction(checked, timeout_s=timeout_s)

    async def get(
        self,
        keys: Sequence[bytes],
        *,
        prefix: bytes = b"",
        raw: bool = False,
        fresh: bool = False,
        consistency: str | None = None,
    ) -> list[TableRow | None]:
        """Like :meth:`Table.get`; each partition by itself. Levels are names: ids are of one partition."""
        consistency = level_of_several(consistency)
        places = [self.place_of(key) for key in keys]
        found: dict[bytes, TableRow | None] = {}
        for place in sorted(set(places)):
            wanted = [key for key, at in zip(keys, places, strict=True) if at == place]
            rows = await self.tables[place].get(wanted, prefix=prefix, raw=raw, fresh=fresh, consistency=consistency)
            found.update(zip(wanted, rows, strict=True))
        return [found[key] for key in keys]

    async def scan(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: str | None = None,
    ) -> AsyncGenerator[TableRow, None]:
        """Like :meth:`Table.scan`, in order over all partitions.

        The rows of one range of one partition are of one state of it.
        """
        wanted = ranges_of(ranges, prefix)
        consistency = level_of_several(consistency)
        number = 0
        for each in [None] if wanted is None else wanted:
            scans = [
                table.scan(each, reverse=reverse, limit=limit, raw=raw, fresh=fresh, consistency=consistency)
                for table in self.tables
            ]
            async with aclosing(_merged(scans, reverse=reverse)) as rows:
                while limit is None or number < limit:
                    try:
                        row = await anext(rows)
                    except StopAsyncIteration:
                        break
                    yield row
                    number += 1

    async def approximate_count(self, *, raw: bool = False) -> int:
        """Like :meth:`Table.approximate_count`, of all partitions."""
        return sum([await table.approximate_count(raw=raw) for table in self.tables])


async def _merged(scans: Sequence[AsyncGenerator[TableRow, None]], *, reverse: bool) -> AsyncGenerator[TableRow, None]:
    """The rows of several ordered scans, merged in order."""
    choose = max if reverse else min
    async with AsyncExitStack() as stack:
        for scan in scans:
            await stack.enter_async_context(aclosing(scan))
        heads = {place: row for place, scan in enumerate(scans) if (row := await anext(scan, None)) is not None}
        while heads:
            place, row = choose(heads.items(), key=_by_key)
            yield row
            following = await anext(scans[place], None)
            if following is None:
                del heads[place]
            else:
                heads[place] = following


def _by_key(head: tuple[int, TableRow]) -> tuple[bytes, bytes]:
    return head[1].prefix, head[1].key
