"""Views that begin with a saved snapshot, over a cluster in memory and a directory of objects."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import pytest

import waltz
from tests.unit.archive.records import MemoryStore, fail
from tests.unit.table.stores.cases import KEEPING
from waltz.archive.store import open_store
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.errors import ConfigError
from waltz.common.zk.paths import ClusterPaths
from waltz.table.envelope import Row
from waltz.table.errors import StoreError
from waltz.table.face import saved
from waltz.table.face.table import Table
from waltz.table.properties import PartitionProperties
from waltz.table.rows import TableRow
from waltz.table.snapshots.loading import saved_pages
from waltz.table.snapshots.place import SnapshotPlace

pytest.importorskip("obstore")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(180)

TABLE = PartitionProperties(format="table")


@pytest.fixture
def partitions() -> list[MockServerPartition]:
    return MockServerPartition.create(1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    directory = tmp_path / "objects"
    directory.mkdir()
    return f"file://{directory}"


@pytest.fixture
async def client(partitions: list[MockServerPartition]) -> AsyncIterator[waltz.Client]:
    async with waltz.connect(MockDriver(partitions)) as client:
        yield client


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def fill(client: waltz.Client, url: str, *parts: range) -> None:
    """Write rows, with a snapshot after each part."""
    async with client.table(0, properties=TABLE) as table:
        for part in parts:
            for number in part:
                await table.batch(
                    [Row(b"p", b"%03d" % (number % 10), b"%d" % number), Row(b"", b"all", b"%d" % number)]
                )
            await table.save_snapshot(url)


async def rows_of(table: Table) -> list[TableRow]:
    return [row async for row in table.scan(raw=True, fresh=True)]


async def rows_by(client: waltz.Client, *, store: str | None = None, snapshots: str | None = None) -> list[TableRow]:
    """The rows of a new view in memory."""
    async with client.table(0, properties=TABLE, store=store, snapshots=snapshots) as table:
        return await rows_of(table)


def begun(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of snapshots."""
    return [record.getMessage() for record in caplog.records if "snapshot" in record.getMessage()]


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=saved.__name__)


@pytest.mark.parametrize("name", KEEPING)
async def test_a_new_view_begins_with_the_newest_snapshot_and_follows_the_log(
    client: waltz.Client, url: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, url, range(20), range(20, 40))
    async with client.table(0, properties=TABLE) as table:
        await table.put(b"later", b"1")
        expected = await rows_of(table)
    for _ in range(2):
        directory = None if name == "memory" else str(tmp_path / name)
        async with client.table(0, properties=TABLE, store=name, snapshots=url, directory=directory) as table:
            assert table.applied >= 39
            assert await rows_of(table) == expected
            assert await table.approximate_count(raw=True) == len(expected)
    once = ["partition 0: the view begins with the snapshot of transaction 39"]
    assert begun(caplog) == (once * 2 if name == "memory" else once)


async def test_takes_of_a_prefix_reach_behind_the_snapshot(client: waltz.Client, url: str) -> None:
    await fill(client, url, range(15))
    async with client.table(0, properties=TABLE, snapshots=url) as table, client.table(0, properties=TABLE) as whole:
        await table.put(b"later", b"x", prefix=b"p")
        await table.put(b"other", b"x")
        for after in (-1, 3, 13, 14, 15):
            for limit in (1, 4, 1000):
                mine, theirs = [await each.take(after, limit, prefix=b"p") for each in (table, whole)]
                assert mine == theirs
        assert [row.key for row in (await table.take(14, prefix=b"p")).rows] == [b"later"]


def spoil(url: str, pattern: str) -> None:
    """Damage the objects with these names."""
    found = [path for path in Path(url.removeprefix("file://")).rglob(pattern) if path.is_file()]
    assert found
    for path in found:
        path.write_bytes(path.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize("pattern", ["**/*39/*/*.parquet", "**/manifest/*39"])
async def test_a_damaged_snapshot_is_passed_over(
    client: waltz.Client, url: str, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, url, range(20), range(20, 40))
    expected = await rows_by(client)
    spoil(url, pattern)
    assert await rows_by(client, snapshots=url) == expected
    warning, info = begun(caplog)
    assert "the snapshot of transaction 39 is not used: " in warning
    assert "damaged" in warning
    assert info.endswith("begins with the snapshot of transaction 19")
    caplog.clear()
    spoil(url, "*.parquet")
    assert await rows_by(client, snapshots=url) == expected
    assert len(begun(caplog)) == 2
    assert all("is not used" in text for text in begun(caplog))


async def test_what_was_loaded_of_a_damaged_snapshot_goes(
    client: waltz.Client, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first files are whole, and have rows that a sweep has removed since."""
    monkeypatch.setattr("waltz.table.snapshots.writing.FILE_BYTES", 1)
    monkeypatch.setattr("waltz.table.snapshots.writing.GROUP_ROWS", 2)
    await fill(client, url, range(10))
    async with client.table(0, properties=TABLE) as table:
        await table.truncate()
        await table.put(b"new", b"1")
    expected = await rows_by(client)
    spoil(url, "00005.parquet")
    for store in (None, "sqlite"):
        async with client.table(0, properties=TABLE, store=store, directory=tmp_path / "view", snapshots=url) as table:
            assert await rows_of(table) == expected
            assert await table.approximate_count(raw=True) == 1


async def test_a_snapshot_of_another_log_is_passed_over(
    client: waltz.Client, url: str, caplog: pytest.LogCaptureFixture, stack: AsyncExitStack
) -> None:
    """The cluster's key is the same: the log has lost transactions, or was restored from an old copy."""
    await fill(client, url, range(5), range(5, 10))
    other = await stack.enter_async_context(waltz.connect(MockDriver(MockServerPartition.create(1))))
    async with other.table(0, properties=TABLE) as table:
        for number in range(7):
            await table.put(b"%d" % number, b"other")
    expected = await rows_by(other)
    mine, theirs = [str(await each.cluster_key()) for each in (client, other)]
    objects = Path(url.removeprefix("file://"))
    for path in [path for path in objects.rglob("*") if path.is_file()]:
        copy = Path(str(path).replace(mine, theirs))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    place = SnapshotPlace(open_store(url), UUID(mine), 0)
    copied = place._replace(cluster_key=UUID(theirs))
    for applied in await place.ids():
        (objects / copied.manifest_path(applied)).unlink()
        assert await copied.create((await place.read(applied))._replace(cluster_key=copied.cluster_key))
    assert await rows_by(other, snapshots=url) == expected
    ahead, foreign = begun(caplog)
    assert "the snapshot of transaction 9 is not used" in ahead
    assert "the snapshot of transaction 4 is not used" in foreign


async def test_snapshots_of_another_cluster_are_not_looked_at(
    client: waltz.Client, url: str, caplog: pytest.LogCaptureFixture, stack: AsyncExitStack
) -> None:
    await fill(client, url, range(5))
    other = await stack.enter_async_context(waltz.connect(MockDriver(MockServerPartition.create(1))))
    assert await rows_by(other, snapshots=url) == []
    assert begun(caplog) == []


async def test_another_limit_of_bodies_needs_another_snapshot(
    client: waltz.Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, url, range(5))
    small = PartitionProperties.model_validate({"format": "table", "maxDecompressedSizeInBytes": 70})
    async with client.table(0, properties=small, snapshots=url) as table:
        await table.refresh()
        assert table.skipped == 0
    (warning,) = begun(caplog)
    assert "maxDecompressedSizeInBytes" in warning


@pytest.mark.parametrize("verb", ["names", "get"])
async def test_a_store_that_is_away_stops_no_view(
    client: waltz.Client, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(saved, "open_store", lambda url: store)
    await fill(client, url, range(5), range(5, 8))
    expected = await rows_by(client)

    def failing(called: str, path: str) -> None:
        if called == verb and (verb == "names" or path.endswith(".parquet")):
            fail(called, path)

    store.before = failing
    assert await rows_by(client, snapshots=url) == expected
    (warning,) = begun(caplog)
    assert "no snapshot is used, and the whole log is read: away" in warning
    store.before = lambda verb, path: None
    assert await rows_by(client, snapshots=url) == expected
    assert begun(caplog)[1].endswith("begins with the snapshot of transaction 7")


async def test_the_cluster_knows_the_store(client: waltz.Client, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with client.table(0, properties=TABLE) as table:
        await table.put(b"a", b"1")
        with pytest.raises(ConfigError, match="has no address of an archive"):
            await table.save_snapshot("cluster")
        expected = await rows_of(table)
        assert await rows_by(client, snapshots="cluster") == expected
        assert "no address of snapshots; the whole log is read" in begun(caplog)[0]
        caplog.clear()
        nodes, root = client.directory
        await nodes.create(ClusterPaths.of(root).archive, b'{"url": "%s"}' % url.encode(), make_path=True)
        assert await table.save_snapshot("cluster") == 0
        assert await rows_by(client, snapshots="cluster") == expected
        assert begun(caplog) == ["partition 0: the view begins with the snapshot of transaction 0"]


async def test_a_wrong_address_is_an_error(client: waltz.Client, tmp_path: Path) -> None:
    for wrong in ("nonsense", f"file://{tmp_path}/missing", "s3://bucket?secret=x"):
        with pytest.raises(ConfigError, match="archive"):
            await rows_by(client, snapshots=wrong)
    with pytest.raises(ConfigError, match="archive"):
        await rows_by(client, store="noop", snapshots="nonsense")


async def test_a_view_that_was_just_opened_is_saved_up_to_the_end_of_the_log(client: waltz.Client, url: str) -> None:
    async with client.table(0, properties=TABLE) as table:
        for number in range(3):
            await table.put(b"%d" % number, b"1")
    async with client.table(0, properties=TABLE) as table:
        assert await table.save_snapshot(url) == 2


async def test_what_cannot_be_saved(client: waltz.Client, url: str) -> None:
    async with client.table(0, properties=TABLE) as table:
        assert await table.save_snapshot(url) == -1
    assert list(Path(url.removeprefix("file://")).rglob("*")) == []
    async with client.table(0, properties=TABLE, store="noop") as table:
        await table.put(b"a", b"1")
        with pytest.raises(StoreError, match="keeps none"):
            await table.save_snapshot(url)


async def test_rows_that_are_written_meanwhile_are_not_in_a_snapshot(
    client: waltz.Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(saved, "open_store", lambda url: store)
    monkeypatch.setattr("waltz.table.snapshots.writing.FILE_BYTES", 1)
    monkeypatch.setattr("waltz.table.snapshots.writing.GROUP_ROWS", 3)
    async with client.table(0, properties=TABLE) as table:
        await table.batch([Row(b"", b"%03d" % number, b"old") for number in range(600)])

        async def overwrite() -> None:
            while not store.calls:
                await asyncio.sleep(0)
            for number in range(0, 600, 50):
                await table.put(b"%03d" % number, b"new")
                await table.delete(b"%03d" % (number + 1))

        saving = asyncio.create_task(table.save_snapshot(url))
        await overwrite()
        assert await saving == 0
    place = SnapshotPlace(store, UUID(str(await client.cluster_key())), 0)
    manifest = await place.read(0)
    assert (manifest.rows, manifest.tombstones) == (600, 0)
    async with contextlib.aclosing(saved_pages(place, manifest)) as pages:
        assert [row[-3:] async for page in pages for _, row in page] == [b"old"] * 600
