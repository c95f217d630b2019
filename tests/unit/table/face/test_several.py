"""Several tables in a partition, and one table in several partitions, beside dictionaries."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from zlib import crc32

import pytest

import waltz
from waltz.client.mock import MockDriver
from waltz.common.keys import place_of
from waltz.table.envelope import Row
from waltz.table.face.parts import PrefixedTable
from waltz.table.face.several import PartitionedTable
from waltz.table.face.transaction import TableTransaction
from waltz.table.properties import PartitionProperties
from waltz.table.rows import Version
from waltz.table.view import KeyRange

pytestmark = pytest.mark.timeout(60)

TABLE = PartitionProperties(format="table")
KEYS = [b"%02d" % number for number in range(40)]


@pytest.fixture
async def client() -> AsyncIterator[waltz.Client]:
    async with waltz.connect(MockDriver(3)) as client:
        yield client


async def test_tables_of_different_prefixes_do_not_meet(client: waltz.Client) -> None:
    async with client.table(0, properties=TABLE) as table:
        users, orders = PrefixedTable(table, b"users"), PrefixedTable(table, b"orders")
        assert await users.put(b"1", b"ann") == 0
        assert await orders.put(b"1", b"hat") == 1
        assert await orders.put_if(b"2", b"bag", None) == 2
        assert await users.delete(b"1") == 3
        assert await users.get([b"1"]) == [None]
        assert [row.key for row in await users.get([b"1"], raw=True, fresh=True) if row] == [b"1"]
        assert [row.value async for row in orders.scan()] == [b"hat", b"bag"]
        assert [row.value async for row in orders.scan(KeyRange(start=b"2"), reverse=True)] == [b"bag"]
        assert [row.value async for row in orders.scan(KeyRange(start=b"1", end=b"2"))] == [b"hat"]
        assert [row.value for row in (await orders.take(-1)).rows] == [b"hat", b"bag"]
        assert (await anext(users.follow(2))).rows[0].tombstone


def test_places_are_those_of_crc_32() -> None:
    assert {key: place_of(key, 3) for key in (b"", b"a", b"123456789")} == {
        b"": 0,
        b"a": crc32(b"a") % 3,
        b"123456789": 0xCBF43926 % 3,
    }


async def test_one_table_in_several_partitions_is_a_dictionary(client: waltz.Client, tmp_path: Path) -> None:
    draw = random.Random(1)
    model: dict[tuple[bytes, bytes], bytes] = {}
    async with PartitionedTable(client, [2, 0, 1], TABLE, store="sqlite", directory=tmp_path) as table:
        for number in range(200):
            prefix, key = draw.choice((b"", b"p")), draw.choice(KEYS)
            if draw.random() < 0.3:
                await table.delete(key, prefix=prefix)
                model.pop((prefix, key), None)
            else:
                await table.put(key, b"%d" % number, prefix=prefix)
                model[prefix, key] = b"%d" % number
        for prefix in (b"", b"p"):
            found = await table.get(KEYS, prefix=prefix)
            assert [None if row is None else row.value for row in found] == [model.get((prefix, key)) for key in KEYS]
        ordered = sorted(model.items())
        for reverse in (False, True):
            expected = ordered[::-1] if reverse else ordered
            rows = [row async for row in table.scan(reverse=reverse, fresh=True)]
            assert [((row.prefix, row.key), row.value) for row in rows] == expected
            first = [(row.prefix, row.key) async for row in table.scan(reverse=reverse, limit=7)]
            assert first == [pair for pair, _ in expected[:7]]
        in_range = [row.key async for row in table.scan(KeyRange(b"p", b"10", b"20"))]
        assert in_range == [key for (prefix, key), _ in ordered if prefix == b"p" and b"10" <= key < b"20"]
        assert await table.approximate_count() == len(model)
        assert all([await each.approximate_count() for each in table.tables])
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "2"}


async def test_transactions_are_of_one_partition(client: waltz.Client) -> None:
    async with PartitionedTable(client, [0, 1, 2], TABLE) as table:
        together = [key for key in KEYS if table.table_of(key) is table.tables[1]][:2]
        apart = [together[0], next(key for key in KEYS if table.table_of(key) is table.tables[2])]
        assert await table.batch([Row(b"", key, b"1") for key in together]) == 0

        async def swap(transaction: TableTransaction) -> None:
            for key in together:
                row = transaction.get(key)
                assert row is not None
                transaction.put(key, (row.value or b"") + b"!")

        assert await table.transaction(together, swap) == 1
        assert [row.value for row in await table.get(together) if row] == [b"1!", b"1!"]
        assert await table.put_if(together[0], b"2", Version(1, 0)) == 2
        with pytest.raises(ValueError, match="keys of 2 partitions; a transaction is in one"):
            await table.batch([Row(b"", key, b"1") for key in apart])
        with pytest.raises(ValueError, match="keys of 2 partitions"):
            await table.transaction(apart, swap)
        for touch in (
            lambda transaction: transaction.get(apart[1]),
            lambda transaction: transaction.put(apart[1], b"v"),
        ):
            with pytest.raises(ValueError, match="keys of 2 partitions"):
                await table.transaction(apart[:1], touch)
        assert [await each.approximate_count() for each in table.tables] == [0, 2, 0]
        with pytest.raises(ValueError, match="keys of 0 partitions"):
            await table.batch([])


@pytest.mark.parametrize("partitions", [[], [0, 1, 0]])
async def test_partitions_are_different_ones(client: waltz.Client, partitions: list[int]) -> None:
    with pytest.raises(ValueError, match="one partition or in several different ones"):
        PartitionedTable(client, partitions, TABLE)


async def test_a_partition_that_is_no_table_leaves_the_others_closed(client: waltz.Client, tmp_path: Path) -> None:
    await waltz.table.configure(client, 0, {"format": "table", "indexClassName": "sqlite"})
    for _ in range(2):
        with pytest.raises(waltz.table.PropertiesError, match="partition 1 is not a table"):
            async with PartitionedTable(client, [0, 1], directory=tmp_path):
                pass
