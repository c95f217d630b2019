"""Rows in the order of the log, read from the log: to its present end, or without an end."""

from collections.abc import AsyncGenerator, Sequence

from waltz.common.records import Record
from waltz.table.face.decoding import decoded
from waltz.table.face.partition import TablePartition
from waltz.table.rows import TableRow
from waltz.table.taking import Taken, rows_in


async def taken_parts(
    partition: TablePartition, after: int, limit: int, prefix: bytes | None
) -> AsyncGenerator[Taken, None]:
    """A take in parts, each of some transactions; the last part has the cursor and the end of the whole.

    Arguments and errors are those of :meth:`~waltz.table.face.table.Table.take`.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    mark = await partition.high_water_mark(strict=False)
    if mark <= after:
        await _check_not_ahead(partition, after, mark)
        yield Taken([], after, at_end=True)
        return
    until = mark
    if prefix and partition.store.finds_rows and after >= partition.store.indexed_after:
        await partition.follower.reached(mark)
        entries = partition.store.take_prefix(prefix, after, limit)
        if not entries:
            yield Taken([], mark, at_end=True)
            return
        after = entries[0].transaction_id - 1
        until = entries[-1].transaction_id if len(entries) >= limit else mark
    count = 0
    async with partition.client.library_feed(partition.partition_id, after=after, until=until) as feed:
        async for records in feed:
            rows: list[TableRow] = []
            for record in records:
                rows += await _rows_of(partition, [record], prefix)
                after = record.transaction_id
                if count + len(rows) >= limit:
                    yield Taken(rows, after, at_end=after >= mark)
                    return
            count += len(rows)
            yield Taken(rows, after, at_end=after >= mark)


async def followed(
    partition: TablePartition, after: int, prefix: bytes | None, until: int | None
) -> AsyncGenerator[Taken, None]:
    """A stream of takes. Arguments and errors are those of :meth:`~waltz.table.face.table.Table.follow`."""
    async with partition.client.library_feed(partition.partition_id, after=after, until=until) as feed:
        async for records in feed:
            yield Taken(await _rows_of(partition, records, prefix), records[-1].transaction_id, at_end=False)


async def _check_not_ahead(partition: TablePartition, after: int, mark: int) -> None:
    """Raise ``ClientAheadError`` if the log, whose known end is ``mark``, ends before ``after``."""
    if mark < after:
        async with partition.client.library_feed(partition.partition_id, after=after) as feed:
            await feed.begin()


async def _rows_of(partition: TablePartition, records: Sequence[Record], prefix: bytes | None) -> list[TableRow]:
    max_body_bytes = partition.properties.max_body_bytes
    rows: list[TableRow] = []
    for record in records:
        transaction_id = record.transaction_id
        taken = rows_in(transaction_id, await decoded(transaction_id, record.data, max_body_bytes))
        rows += taken if prefix is None else [row for row in taken if row.prefix == prefix]
    return rows
