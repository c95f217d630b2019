"""Which partitions a view node serves, and what it does when a view stops."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import waltz
from tests.unit.view.node import TIMEOUT_S, view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.errors import WaltzError
from waltz.common.metrics.exposition import prometheus_pieces
from waltz.table.served.nodes import view_nodes
from waltz.table.served.problems import Refused
from waltz.view import partitions as module
from waltz.view.daemon import health
from waltz.view.partitions import Partitions

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> list[MockServerPartition]:
    return MockServerPartition.create(3)


@pytest.fixture
async def client(cluster: list[MockServerPartition]) -> AsyncIterator[waltz.Client]:
    async with waltz.connect(MockDriver(cluster)) as opened:
        yield opened


async def until_served(partitions: Partitions, wanted: list[int]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while list(partitions.all()) != wanted:
            await asyncio.sleep(0.005)


async def test_all_tables_are_served_also_later_ones(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEARCH_S", 0.01)
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    await waltz.table.configure(client, 2, {"format": "table"})
    async with view_node(cluster, tmp_path) as node:
        await until_served(node.partitions, [2])
        await waltz.table.configure(client, 0, {"format": "table"})
        await until_served(node.partitions, [0, 2])
        await waltz.table.configure(client, 2, {"format": "raw"})
        await until_served(node.partitions, [0])
        with pytest.raises(Refused, match="not served"):
            node.partitions.of(2)
        async with asyncio.timeout(TIMEOUT_S):
            while await view_nodes(client, 2):
                await asyncio.sleep(0.005)
        assert [each.endpoint for each in await view_nodes(client, 0)] == [node.endpoint]
        text = "".join(prometheus_pieces(node.registry))
        assert 'waltz_view_applied_transaction{partition="0"} -1' in text
    assert await view_nodes(client, 0) == []


async def test_given_partitions_are_tried_until_they_are_tables(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_INITIAL_S", 0.01)
    await waltz.table.configure(client, 2, {"format": "table"})
    async with view_node(cluster, tmp_path, given=[1]) as node:
        async with asyncio.timeout(TIMEOUT_S):
            while 1 not in node.partitions.problems:
                await asyncio.sleep(0.005)
        assert not health(node.partitions)[0]
        with pytest.raises(Refused, match="not a table") as refused:
            node.partitions.of(1)
        assert refused.value.problem.status == 503
        await waltz.table.configure(client, 1, {"format": "table"})
        await until_served(node.partitions, [1])
        assert health(node.partitions)[0]


async def test_a_partition_that_does_not_exist_ends_the_start(
    cluster: list[MockServerPartition], tmp_path: Path
) -> None:
    with pytest.raises(WaltzError, match="there is no partition 7"):
        async with view_node(cluster, tmp_path, given=[7]):
            pass


async def test_a_restart_goes_on_from_the_mark(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    await waltz.table.configure(client, 0, {"format": "table"})
    async with client.table(0) as table:
        for number in range(10):
            last = await table.put(b"k", b"%d" % number)
        async with view_node(cluster, tmp_path, store="sqlite") as node:
            await node.served()
            await node.partitions.all()[0].view.catch_up_to(last)
        async with view_node(cluster, tmp_path, store="sqlite") as node:
            await until_served(node.partitions, [0])
            assert node.partitions.all()[0].applied == last


async def test_a_store_without_rows_serves_nothing(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    await waltz.table.configure(client, 0, {"format": "table"})
    async with view_node(cluster, tmp_path, store="noop") as node:
        async with asyncio.timeout(TIMEOUT_S):
            while "keeps no rows" not in node.partitions.problems.get(0, ""):
                await asyncio.sleep(0.005)


async def test_a_new_view_begins_with_a_snapshot(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("pyarrow")
    (tmp_path / "objects").mkdir()
    url = f"file://{tmp_path / 'objects'}"
    await waltz.table.configure(client, 0, {"format": "table"})
    async with client.table(0) as table:
        for number in range(5):
            await table.put(b"%d" % number, b"v", prefix=b"p")
        saved = await table.save_snapshot(url)
        last = await table.put(b"later", b"v", prefix=b"p")
    rows = []
    for name, snapshots in (("with", url), ("without", None), ("with", url)):
        async with view_node(cluster, tmp_path / name, store="sqlite", snapshots=snapshots) as node:
            await node.served()
            async with client.table(0, view="served") as served:
                await served.refresh()
                rows.append([row async for row in served.scan()])
                taken = await served.take(-1, prefix=b"p")
            assert [row.version.transaction_id for row in taken.rows] == list(range(last + 1)), "the log has them all"
            begin = node.partitions.all()[0].view.store.indexed_after
            assert begin == (-1 if snapshots is None else saved)
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == 6


async def test_a_wrong_address_of_snapshots_is_told(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    await waltz.table.configure(client, 0, {"format": "table"})
    async with view_node(cluster, tmp_path, snapshots="ftp://nowhere") as node, asyncio.timeout(TIMEOUT_S):
        while "begins with one of" not in node.partitions.problems.get(0, ""):
            await asyncio.sleep(0.005)


async def test_the_end_waits_for_a_table_that_is_being_closed_and_does_not_break_that_off(
    client: waltz.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEARCH_S", 0.01)
    closing, go_on, closed = asyncio.Event(), asyncio.Event(), []

    async def keep(_: Partitions, partition_id: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closing.set()
            await go_on.wait()
            closed.append(partition_id)

    monkeypatch.setattr(Partitions, "_keep", keep)
    await waltz.table.configure(client, 0, {"format": "table"})
    partitions = Partitions(client, None, "memory", tmp_path)
    await partitions.start()
    async with asyncio.timeout(TIMEOUT_S):
        while not list(partitions.states()):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)  # its task begins
        await waltz.table.configure(client, 0, {"format": "raw"})
        await closing.wait()
        ending = asyncio.create_task(partitions.close())
        await asyncio.sleep(0)
        go_on.set()
        await ending
    assert closed == [0]
