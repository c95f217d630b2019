"""Transactions that reveal losses, repetitions and changes: each one carries its expected id.

The data is the id in eight bytes, big-endian. All transactions write one lock: so a transaction is committed with its
expected id, or not at all. The original's tools do the same; either side may be the original's.
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
    """Append transactions to random partitions.

    Args:
        client: The client.
        partitions: Number of partitions, from 0 on.
        count: Number of transactions.
        interval_s: Mean pause between transactions, with an exponential distribution.
        chance: The source of randomness.
        done: Called for each transaction.

    Returns:
        The number of repeated decisions.

    Raises:
        WaltzError: An append failed.
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

    Waits for missing transactions.

    Raises:
        WaltzError: A transaction is wrong.
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
    """Check that a transaction carries the id of its place.

    Raises:
        WaltzError: The transaction is wrong.
    """
    name = f"transaction {record.transaction_id} of partition {partition_id}"
    if record.transaction_id != expected:
        raise WaltzError(f"{name} came where {expected} should have been")
    if len(record.data) != _NUMBER.size:
        raise WaltzError(
            f"{name} has {len(record.data)} bytes: not a transaction of a validation; use partitions without other data"
        )
    (number,) = _NUMBER.unpack(record.data)
    if number != expected:
        raise WaltzError(f"{name} carries the number {number}")
