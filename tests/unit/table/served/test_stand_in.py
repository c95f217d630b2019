"""Served tables of a cluster in memory, without a view node."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import waltz
from tests.unit.view.node import view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table import PropertiesError, Row, ViewUnavailableError

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def driver() -> MockDriver:
    return MockDriver(MockServerPartition.create(2))


@pytest.fixture
async def client(driver: MockDriver) -> AsyncIterator[waltz.Client]:
    async with waltz.connect(driver) as opened:
        await waltz.table.configure(opened, 0, {"format": "table"})
        yield opened


async def test_a_test_may_have_no_view_node(client: waltz.Client, driver: MockDriver) -> None:
    async with client.table(0, view="served", timeout_s=0.1) as table:
        last = await table.put(b"k", b"v")
        driver.serves_tables = False
        with pytest.raises(ViewUnavailableError):
            await table.get([b"k"])
        with pytest.raises(waltz.NotAppendedError):
            await table.put(b"k", b"w")
        with pytest.raises(ViewUnavailableError):
            await table.take(-1)
        driver.serves_tables = True
        (row,) = await table.get([b"k"])
        assert row is not None
        assert row.version.transaction_id == last


async def test_the_faults_of_the_driver_are_those_of_the_table(client: waltz.Client, driver: MockDriver) -> None:
    async with client.table(0, view="served") as table:
        driver.force_next_append_fail()
        await table.put(b"k", b"v", prefix=b"p")
        driver.suspend_feed()
        with pytest.raises(waltz.OutcomeUnknownError):
            await table.batch([Row(b"", b"k", b"w")], timeout_s=0.2)
        driver.resume_feed()
        assert len(driver.partitions[0].transactions) == 2


async def test_a_partition_that_is_no_table_is_told_by_each_call(client: waltz.Client) -> None:
    async with client.table(1, view="served") as table:
        with pytest.raises(PropertiesError, match="not a table"):
            await table.get([b"k"])
        await waltz.table.configure(client, 1, {"format": "table"})
        assert await table.get([b"k"]) == [None]


async def test_a_view_node_is_asked_where_there_is_one(
    client: waltz.Client, driver: MockDriver, tmp_path: Path
) -> None:
    async with client.table(0, view="served") as table, view_node(driver.partitions, tmp_path) as node:
        await node.served()
        await table.put(b"k", b"v")
        assert node.metrics.answers["write", 200] == 1
