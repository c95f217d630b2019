"""Tables over a cluster whose nodes are killed."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import waltz
from tests.integration.session_clients import LIVELY
from waltz.local.cluster import LocalCluster
from waltz.table import Table, TableTransaction

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WRITERS = 8
INCREMENTS_BETWEEN_FAULTS = 60
FAULTS = ("server", "storage", "other server", "server and storage")
COUNTER = b"counter"
TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.02


def increment(transaction: TableTransaction) -> None:
    row = transaction.get(COUNTER)
    transaction.put(COUNTER, b"%d" % (1 if row is None else int(row.value or b"") + 1))


@pytest.mark.deep
async def test_eight_writers_of_one_counter_lose_no_update_while_nodes_are_killed(tmp_path: Path) -> None:
    """The log has the numbers from 1 on, each once, and as many as were acknowledged."""
    async with LocalCluster(tmp_path / "cluster", partitions=1, plaintext=True) as cluster:
        config = cluster.layout.client_config_path
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(waltz.connect(config, options=LIVELY)) for _ in range(WRITERS + 1)
            ]
            await waltz.table.configure(clients[0], 0, {"format": "table", "rowType": "zlib"})
            reader, *tables = [
                await stack.enter_async_context(
                    client.table(0, store="sqlite" if number % 2 else None, directory=tmp_path / f"table-{number}")
                )
                for number, client in enumerate(clients)
            ]
            acknowledged: list[int] = []
            stopping = asyncio.Event()
            writers = [asyncio.create_task(write(table, acknowledged, stopping)) for table in tables]
            for fault in FAULTS:
                await progress(acknowledged, writers)
                await break_nodes(cluster, fault)
            await progress(acknowledged, writers)
            stopping.set()
            await asyncio.gather(*writers)

            await reader.refresh()
            written: list[bytes | None] = []
            taken = await reader.take(-1)
            while taken.rows:
                written += [row.value for row in taken.rows]
                taken = await reader.take(taken.cursor)
            assert taken.at_end
            assert written == [b"%d" % number for number in range(1, len(acknowledged) + 1)]
            assert [count for count in Counter(acknowledged).values() if count > 1] == []
            for table in (reader, *tables):
                (row,) = await table.get([COUNTER], fresh=True)
                assert row is not None
                assert row.value == b"%d" % len(acknowledged)


async def write(table: Table, acknowledged: list[int], stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        transaction_id = await table.transaction(increment, timeout_s=TIMEOUT_S)
        assert transaction_id is not None
        acknowledged.append(transaction_id)


async def progress(acknowledged: list[int], writers: list[asyncio.Task[None]]) -> None:
    """Return after the given number of further increments."""
    end = len(acknowledged) + INCREMENTS_BETWEEN_FAULTS
    async with asyncio.timeout(TIMEOUT_S):
        while len(acknowledged) < end:
            for writer in writers:
                if writer.done():
                    writer.result()
            await asyncio.sleep(POLL_INTERVAL_S)


async def break_nodes(cluster: LocalCluster, fault: str) -> None:
    """Kill nodes, and start them again."""
    first, second = cluster.layout.servers
    storage = cluster.layout.storages[0]
    servers = {"server": [first], "other server": [second], "server and storage": [first]}.get(fault, [])
    storages = [storage] if "storage" in fault else []
    for victim in (*servers, *storages):
        await asyncio.to_thread(cluster.kill, victim)
    for victim in servers:
        await asyncio.to_thread(cluster.start_server, victim)
    for victim in storages:
        await asyncio.to_thread(cluster.start_storage, victim)
