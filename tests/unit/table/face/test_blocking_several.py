"""One table in several partitions, for threads, beside a dictionary."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import waltz
from waltz.client.mock import MockDriver
from waltz.common.keys import place_of
from waltz.table.envelope import Row
from waltz.table.face.blocking_several import BlockingPartitionedTable
from waltz.table.face.threads import BlockingTransaction
from waltz.table.properties import PartitionProperties
from waltz.table.view import KeyRange

pytestmark = pytest.mark.timeout(60)

TABLE = PartitionProperties(format="table")
KEYS = [b"%02d" % number for number in range(20)]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[BlockingPartitionedTable]:
    with (
        waltz.blocking.connect(MockDriver(3)) as client,
        client.partitioned_table([2, 0], properties=TABLE, store="sqlite", directory=tmp_path) as table,
    ):
        yield table


def test_it_is_a_dictionary(table: BlockingPartitionedTable) -> None:
    draw = random.Random(1)
    model: dict[tuple[bytes, bytes], bytes] = {}
    for number in range(100):
        prefix, key, value = draw.choice((b"", b"p")), draw.choice(KEYS), b"%d" % number
        if draw.random() < 0.3:
            table.delete(key, prefix=prefix)
            model.pop((prefix, key), None)
        else:
            table.put(key, value, prefix=prefix)
            model[prefix, key] = value
    found = table.get(KEYS, prefix=b"p", fresh=True)
    assert [row and row.value for row in found] == [model.get((b"p", key)) for key in KEYS]
    expected = sorted(model.items())
    assert [((row.prefix, row.key), row.value) for row in table.scan()] == expected
    assert [row.key for row in table.scan(KeyRange(b"p"), reverse=True, limit=3)] == [
        key for (prefix, key), _ in reversed(expected) if prefix == b"p"
    ][:3]
    assert table.approximate_count() == len(model)


def test_everything_in_one_transaction_is_of_one_partition(table: BlockingPartitionedTable) -> None:
    here = [key for key in KEYS if place_of(key, 2) == 0]
    there = [key for key in KEYS if place_of(key, 2) == 1]
    assert table.table_of(here[0]) is table.tables[0]
    assert table.table_of(there[0]) is table.tables[1]
    table.batch([Row(b"", key, b"1") for key in here])
    with pytest.raises(ValueError, match="keys of 2 partitions"):
        table.batch([Row(b"", key, b"1") for key in KEYS])

    def add(transaction: BlockingTransaction) -> None:
        row = transaction.get(here[0])
        transaction.put(here[0], b"%d" % (int(row.value or b"") + 1 if row else 0))

    assert table.transaction([here[0]], add) is not None
    (row,) = table.get([here[0]])
    assert row is not None
    assert row.value == b"2"
    version = row.version
    assert table.put_if(here[0], b"3", version) > version.transaction_id

    def stray(transaction: BlockingTransaction) -> None:
        add(transaction)
        transaction.put(there[0], b"lost")

    with pytest.raises(ValueError, match="keys of 2 partitions"):
        table.transaction([here[0]], stray)
    assert [row and row.value for row in table.get([here[0], there[0]])] == [b"3", None]
    assert [row.key for row in table.tables[0].take(-1).rows][: len(here)] == here
