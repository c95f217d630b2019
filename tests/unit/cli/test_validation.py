"""Transactions that carry their ids: appended against each other, read, and any fault among them found."""

import asyncio
import random

import pytest

import waltz
from waltz.cli import validation
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.records import Record


async def produce(driver: MockDriver, partitions: int, count: int, seed: int, told: list[int]) -> int:
    async with waltz.connect(driver) as client:
        return await validation.produce(client, partitions, count, 0.0, random.Random(seed), told.append)


async def test_producers_get_in_each_others_way_and_lose_nothing() -> None:
    shared = MockServerPartition.create(2)
    told: list[int] = []
    retries = await asyncio.gather(*(produce(MockDriver(shared), 2, 20, seed, told) for seed in range(3)))
    assert sum(told) == 60
    assert sum(len(each.transactions) for each in shared) == 60
    assert all(count >= 0 for count in retries)
    read: list[int] = []
    async with waltz.connect(MockDriver(shared)) as client:
        await validation.consume(client, 2, 60, read.append)
    assert sum(read) == 60


async def test_a_consumer_waits_for_what_is_not_there_yet() -> None:
    shared = MockServerPartition.create(1)
    async with waltz.connect(MockDriver(shared)) as client:
        consumer = asyncio.ensure_future(validation.consume(client, 1, 5, lambda _: None))
        await produce(MockDriver(shared), 1, 4, 1, [])
        assert not consumer.done()
        await produce(MockDriver(shared), 1, 3, 2, [])
        await consumer


async def test_a_wrong_number_ends_the_consumer() -> None:
    driver = MockDriver(2)
    await produce(driver, 1, 3, 1, [])
    driver.partitions[0].add((7).to_bytes(8, "big"))
    async with waltz.connect(driver) as client:
        with pytest.raises(WaltzError, match="transaction 3 of partition 0 carries the number 7"):
            await validation.consume(client, 2, 4, lambda _: None)


async def test_what_is_of_somebody_else_is_named() -> None:
    driver = MockDriver(1)
    driver.partitions[0].add(b"an order")
    async with waltz.connect(driver) as client:
        with pytest.raises(WaltzError, match="transaction 0 of partition 0 has 8 bytes|carries the number"):
            await validation.consume(client, 1, 1, lambda _: None)
    driver.partitions[0].add(b"")


def test_every_fault_is_found() -> None:
    def record(transaction_id: int, data: bytes) -> Record:
        return Record(transaction_id, ReqId.of(1, 1, 3, 1), 0, data, 0)

    validation.check(record(5, (5).to_bytes(8, "big")), 3, 5)
    for wrong, text in (
        (record(6, (6).to_bytes(8, "big")), "transaction 6 of partition 3 came where 5 should have been"),
        (record(5, b"1234567"), "not a transaction of a validation"),
        (record(5, (4).to_bytes(8, "big")), "transaction 5 of partition 3 carries the number 4"),
    ):
        with pytest.raises(WaltzError, match=text):
            validation.check(wrong, 3, 5)
