"""Applies feeds to a database together with the high-water marks, so that each transaction is applied exactly once."""

import asyncio
import random
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from waltz.client.databases.batches import DatabaseBatches, Entry
from waltz.client.databases.kinds import Connection, Database
from waltz.client.plain.client import Client
from waltz.client.transaction import Transaction

C = TypeVar("C", bound=Connection)
T = TypeVar("T")

THREADS = 4


async def apply_to_database(
    client: Client,
    database: Database[C],
    apply: Callable[[Transaction, bytes, C], None],
    *,
    partition_ids: Collection[int] | None,
    follow: bool,
    max_batch: int,
    threads: int,
) -> None:
    """Apply the transactions of these partitions (``None``: all) that the database lacks. ``follow``: without an
    end."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="waltz-database")

    async def in_thread(work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    batches = DatabaseBatches(database, apply, in_thread, max_batch=max_batch, random_source=random.Random())
    chosen = range(client.partition_count) if partition_ids is None else sorted(set(partition_ids))
    tasks = [asyncio.ensure_future(_apply_partition(client, batches, each, follow=follow)) for each in chosen]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(pool.shutdown)  # not cancellable: the work in the database continues to its end


async def _apply_partition(client: Client, batches: DatabaseBatches[C], partition_id: int, *, follow: bool) -> None:
    until = None if follow else await client.high_water_mark(partition_id)
    mark = await batches.read_mark(partition_id)
    async with client.library_feed(partition_id, after=mark.transaction_id, until=until) as feed:
        feed.expect(mark.request_id)
        await feed.begin()  # also without anything to read: the database may belong to another log
        while records := await feed.next_batch():
            entries: list[Entry] = [
                (Transaction(record.req_id, record.transaction_id, record.header, record.data, None), record.data)
                for record in records
            ]
            last_id = records[-1].transaction_id
            while (done := batches.marks[partition_id]) < last_id:
                rest = entries[max(done + 1 - records[0].transaction_id, 0) :]
                await batches.apply_first(rest[: batches.count(partition_id)])
