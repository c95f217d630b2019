"""Snapshots of tables on a real cluster: saved by the command, killed in the midst of it, and begun with by views."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import waltz
from tests.integration.test_storage_tools import done, failed
from waltz.archive.store import open_store
from waltz.local.cluster import LocalCluster
from waltz.table import Row, Table, TableRow
from waltz.table.snapshots.loading import verify
from waltz.table.snapshots.place import SnapshotPlace, clusters_with_snapshots, leftovers

pytest.importorskip("obstore")
pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

KILLS = 3


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Partitions 0 and 1 are tables, and 2 is none."""
    async with LocalCluster(tmp_path / "cluster", partitions=3, plaintext=True) as cluster:
        async with waltz.connect(cluster.layout.client_config_path) as client:
            for partition_id in (0, 1):
                await waltz.table.configure(client, partition_id, {"format": "table"})
        yield cluster


async def rows_of(table: Table) -> list[TableRow]:
    return [row async for row in table.scan(raw=True, fresh=True)]


async def write(client: waltz.Client, partition_id: int, rows: range, *, values_bytes: int = 8) -> list[TableRow]:
    """Write and delete rows, of one prefix and of none, and return the table."""
    async with client.table(partition_id) as table:
        for start in range(rows.start, rows.stop, 500):
            some = range(start, min(start + 500, rows.stop))
            value = b"%d" % start
            await table.batch(
                [Row(b"p" * (each % 2), b"%06d" % (each % 3000), value.ljust(values_bytes, b"-")) for each in some]
            )
        await table.delete(b"%06d" % rows.start)
        return await rows_of(table)


async def run_command(*arguments: str) -> str:
    """Run a command beside the loop of the test."""
    return await asyncio.to_thread(done, *arguments)


async def test_tables_are_saved_and_views_begin_with_them(
    cluster: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "objects").mkdir()
    url = f"file://{tmp_path}/objects"
    config = ("-c", str(cluster.layout.cli_config_path))
    async with waltz.connect(cluster.layout.client_config_path) as client:
        await write(client, 0, range(2000))
        saved = json.loads(await run_command("table", "snapshot", *config, "--to", url, "--json"))
        assert [(each["partition"], each.get("transaction")) for each in saved] == [(0, 4), (1, None)]
        assert (saved[0]["rows"], saved[0]["saved"]) == (2000, True)
        assert "transaction 4: there was one, 2000 rows in 1 file" in await run_command(
            "table", "snapshot", *config, "--to", url, "-p", "0"
        )
        expected = await write(client, 0, range(1000, 4000))
        caplog.set_level("INFO", logger="waltz.table.face.saved")
        for store in (None, "sqlite"):
            async with client.table(0, store=store, directory=tmp_path / "view", snapshots=url) as table:
                assert await rows_of(table) == expected
                assert (await table.take(-1, 10, prefix=b"p")).rows[0].version.transaction_id == 0
        begun = [record.getMessage() for record in caplog.records]
        assert begun == ["partition 0: the view begins with the snapshot of transaction 4"] * 2
        assert "removed: 1 older snapshot" in await run_command(
            "table", "snapshot", *config, "--to", url, "-p0", "--keep", "1"
        )
        counted = await run_command("table", "scan", *config, "-p", "0", "--snapshots", url, "--raw", "--count")
        assert counted.strip() == str(len(expected))
        assert await run_command("table", "snapshots", url, "--verify") == "partition 0, transaction 11: whole\n"
        await run_command("archive", "set-url", *config, url)
        assert "transaction 11: there was one" in await run_command(
            "table", "snapshot", *config, "--to", "cluster", "-p", "0"
        )
        async with client.table(0, snapshots="cluster") as table:
            assert await rows_of(table) == expected


def names(directory: Path) -> list[Path]:
    """What is in the object store, unfinished files among them."""
    return list((directory / "objects").rglob("*"))


@pytest.mark.deep
@pytest.mark.timeout(600)
async def test_a_command_that_is_killed_leaves_whole_snapshots_only(cluster: LocalCluster, tmp_path: Path) -> None:
    """Killed when a file has appeared, at other places of the course each time."""
    (tmp_path / "objects").mkdir()
    url = f"file://{tmp_path}/objects"
    config = ("-c", str(cluster.layout.cli_config_path))
    store = open_store(url)
    async with waltz.connect(cluster.layout.client_config_path) as client:
        for number in range(KILLS):
            expected = await write(client, 0, range(3000 * number, 3000 * (number + 1)), values_bytes=2000)
            process = subprocess.Popen(
                [sys.executable, "-m", "waltz.cli.main", "table", "snapshot", *config, "-p", "0", "--to", url]
            )
            try:
                seen = len(names(tmp_path))
                while process.poll() is None and len(names(tmp_path)) <= seen + number % 3:
                    await asyncio.sleep(0.002)
            finally:
                process.kill()
                process.wait()
            for key in await clusters_with_snapshots(store):
                place = SnapshotPlace(store, key, 0)
                for applied in await place.ids():
                    assert await verify(place, applied) == []
            async with client.table(0, snapshots=url) as table:
                assert await rows_of(table) == expected
        await run_command("table", "snapshot", *config, "-p", "0", "--to", url, "--keep", "1")
        await run_command("table", "snapshots", url, "--remove-leftovers")
        (key,) = await clusters_with_snapshots(store)
        place = SnapshotPlace(store, key, 0)
        assert await leftovers(place) == []
        (applied,) = await place.ids()
        assert (await place.read(applied)).rows == len(expected)
        assert "is not a directory" in failed("table", "snapshots", f"file://{tmp_path}/missing", "--list")
