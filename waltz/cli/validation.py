"""Transactions that reveal losses, repetitions and changes: each carries the id that it must get.

The data is the id in eight bytes, big-endian, and all transactions write one lock: so each is committed with the id
that it carries or not at all. The original's tools do the same, and either side may be the original's.
"""

import asyncio
import random
import struct
from collections.abc import Callable

from waltz.client.builder import Append
from waltz.client.decisions import Basis
from waltz.client.locks import PartitionLocalLock
from waltz.client.plain.client import Client
from waltz.common.errors import WaltzError
from waltz.common.records import Record

LOCK = PartitionLocalLock("validate-lock", 0)

_NUMBER = struct.Struct(">q")


async def produce(
    client: Client, partitions: int, count: int, interval_s: float, chance: random.Random, done: Callable[[int], object]
) -> int:
    """Append ``count`` transactions to random partitions below ``partitions``; returns the number of repeats.

    Pauses between them have an exponential distribution with the mean ``interval_s``. ``done`` is called for each
    transaction. Raises ``WaltzError``.
    """
    attempts = 0

    def decide(basis: Basis) -> Append:
        nonlocal attempts
        attempts += 1
        return Append(_NUMBER.pack(basis.high_water_mark + 1), write_locks=(LOCK,))

    for _ in range(count):
        await client.transact(chance.randrange(partitions), decide, reads_log=True)
        done(1)
        if interval_s:
            await asyncio.sleep(chance.expovariate(1 / interval_s))
    return attempts - count


async def consume(client: Client, partitions: int, count: int, done: Callable[[int], object]) -> None:
    """Read ``count`` transactions from the beginning of the partitions below ``partitions``, and check each.

    Waits for missing transactions. Raises ``WaltzError`` at the first transaction that is wrong.
    """
    remaining = count

    async def read(partition_id: int) -> None:
        nonlocal remaining
        expected = 0
        async with client.feed_batches(partition_id, after=-1) as feed:
            while remaining > 0:
                batch = (await feed.next_batch())[:remaining]
                for record in batch:
                    check(record, partition_id, expected)
                    expected += 1
                remaining -= len(batch)
                done(len(batch))

    readers = [asyncio.ensure_future(read(partition_id)) for partition_id in range(partitions)]
    try:
        while remaining > 0:
            ended, _ = await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
            for reader in ended:
                reader.result()
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


def check(record: Record, partition_id: int, expected: int) -> None:
    """Raise ``WaltzError`` unless the transaction carries the id of its place."""
    name = f"transaction {record.transaction_id} of partition {partition_id}"
    if record.transaction_id != expected:
        raise WaltzError(f"{name} came where {expected} should have been")
    if len(record.data) != _NUMBER.size:
        raise WaltzError(
            f"{name} has {len(record.data)} bytes and is none of a validation, which needs its partitions for itself"
        )
    (number,) = _NUMBER.unpack(record.data)
    if number != expected:
        raise WaltzError(f"{name} carries the number {number}")
