"""Properties of partitions from Python, and tables that follow them."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import waltz
from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.client.engine.environment import Directory, Environment
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.cluster import FixedCluster
from waltz.client.mock.nodes import MockNodes
from waltz.client.options import ClientOptions
from waltz.common.zk.client import ConnectionLossError, NoNodeError, Stat, Watch
from waltz.common.zk.trim_points import raise_trim_point
from waltz.table.errors import PropertiesError, TableError
from waltz.table.face import configured
from waltz.table.face.table import Table
from waltz.table.properties import change_properties
from waltz.table.rows import Version

pytestmark = pytest.mark.timeout(60)

TABLE = {"format": "table"}


@pytest.fixture
def partitions() -> list[MockServerPartition]:
    return MockServerPartition.create(2)


@pytest.fixture
async def client(partitions: list[MockServerPartition]) -> AsyncIterator[waltz.Client]:
    async with waltz.connect(MockDriver(partitions)) as client:
        yield client


async def until_changed(table: Table, key: str, value: object) -> None:
    async with asyncio.timeout(30):
        while getattr(table.properties, key) != value:
            await asyncio.sleep(0.001)


async def test_a_raw_partition_is_refused_and_the_error_says_what_to_do(client: waltz.Client) -> None:
    with pytest.raises(
        PropertiesError, match=r"partition 0 is not a table.*waltz\.table\.configure\(client, 0"
    ) as error:
        async with client.table(0):
            pass
    assert str(error.value).count("\n") == 0
    assert (await waltz.table.configure(client, 0, TABLE)).format == "table"
    async with client.table(0) as table:
        await table.put(b"k", b"v")
    assert (await waltz.table.properties_of(client, 0)).format == "table"
    assert (await waltz.table.properties_of(client, 1)).format == "raw"


async def test_a_disabled_partition_is_not_written_and_may_be_read(client: waltz.Client) -> None:
    await waltz.table.configure(client, 0, TABLE)
    async with client.table(0) as table:
        await table.put(b"k", b"v")
        await waltz.table.configure(client, 0, {"disabled": True})
        await until_changed(table, "disabled", True)
        for write in (table.put(b"k", b"w"), table.truncate(), table.put_if(b"k", b"w", Version(0, 0))):
            with pytest.raises(PropertiesError, match="partition 0 is disabled"):
                await write
        (row,) = await table.get([b"k"], fresh=True)
        assert row is not None
        assert row.value == b"v"
        await waltz.table.configure(client, 0, {"disabled": None})
        await until_changed(table, "disabled", False)
        assert await table.put(b"k", b"w") == 1


async def test_other_clients_see_them(partitions: list[MockServerPartition], client: waltz.Client) -> None:
    await waltz.table.configure(client, 1, {**TABLE, "ttlTimestampAgeInMillis": 5})
    async with waltz.connect(MockDriver(partitions)) as other, other.table(1) as table:
        assert table.properties.ttl_timestamp_age_ms == 5
        assert await other.cluster_key() == await client.cluster_key()
    async with waltz.connect(MockDriver(2)) as stranger:
        assert (await waltz.table.properties_of(stranger, 1)).format == "raw"
        assert await stranger.cluster_key() != await client.cluster_key()


async def test_what_cannot_be_configured(client: waltz.Client) -> None:
    with pytest.raises(PropertiesError, match="no partition 2; the cluster has 2"):
        await waltz.table.configure(client, 2, TABLE)
    with pytest.raises(PropertiesError, match="there is no property 'nonsense'"):
        await waltz.table.configure(client, 0, {"nonsense": 1})
    with pytest.raises(PropertiesError, match="no partition -1"):
        async with client.table(-1):
            pass
    with pytest.raises(PropertiesError, match="at most 499 bytes"):
        await waltz.table.configure(client, 0, {**TABLE, "indexClassName": "lmdb"})


async def test_an_open_table_follows_changes(client: waltz.Client) -> None:
    await waltz.table.configure(client, 0, TABLE)
    async with client.table(0) as table:
        await table.put(b"k", b"v", timestamp_ms=1)
        assert (await table.get([b"k"])) != [None]
        await waltz.table.configure(client, 0, {"ttlTimestampAgeInMillis": 1000})
        await until_changed(table, "ttl_timestamp_age_ms", 1000)
        assert await table.get([b"k"]) == [None]
        await waltz.table.configure(client, 0, {"ttlTimestampAgeInMillis": None})
        await until_changed(table, "ttl_timestamp_age_ms", 0)
        assert await table.get([b"k"]) != [None]


async def test_changes_from_another_thread_are_followed(
    partitions: list[MockServerPartition], client: waltz.Client
) -> None:
    await waltz.table.configure(client, 0, TABLE)

    def change_elsewhere() -> None:
        with waltz.blocking.connect(MockDriver(partitions)) as other:
            other.configure_table(0, {"rowType": "zlib"})

    async with client.table(0) as table:
        await asyncio.to_thread(change_elsewhere)
        await until_changed(table, "row_type", "zlib")


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"format": None}, "is not a table"), ({"maxDecompressedSizeInBytes": 1000}, "open the table again")],
)
async def test_a_table_refuses_to_go_on_with_properties_that_its_view_does_not_fit(
    client: waltz.Client, changes: dict[str, object], text: str
) -> None:
    await waltz.table.configure(client, 0, TABLE)
    async with client.table(0) as table:
        await table.put(b"k", b"v")
        await waltz.table.configure(client, 0, changes)

        async def refused() -> None:
            while True:
                await table.get([b"k"])
                await asyncio.sleep(0.001)

        with pytest.raises(TableError, match=text):
            await asyncio.wait_for(refused(), 30)
        with pytest.raises(TableError, match=text):
            await table.put(b"k", b"v2")
        await waltz.table.configure(client, 0, {**TABLE, "maxDecompressedSizeInBytes": None, "rowType": "zlib"})

        async def accepted() -> None:
            while True:
                try:
                    await table.put(b"k", b"v3")
                except TableError:
                    await asyncio.sleep(0.001)
                else:
                    return

        await asyncio.wait_for(accepted(), 30)


class LaggingNodes(MockNodes):
    """Shows what has been written when it is told to catch up."""

    caught_up = False

    async def sync(self, path: str) -> None:
        self.caught_up = True

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        if not self.caught_up:
            raise NoNodeError(path)
        return await super().get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await super().exists(path, watch) if self.caught_up else None


async def test_a_partition_that_has_just_become_a_table_is_one() -> None:
    nodes = LaggingNodes()
    await nodes.create("/mock/ext/partition/0", b'{"change": 1, "format": "table"}')
    async with waltz.connect(MockDriver([MockServerPartition(0, nodes)])) as client:
        assert (await waltz.table.properties_of(client, 0)).format == "raw"
        async with client.table(0) as table:
            assert await table.put(b"k", b"v") == 0


async def test_a_view_without_what_is_trimmed_does_not_open(tmp_path: Path) -> None:
    """Its rows would be incomplete."""
    async with waltz.connect(MockDriver(1)) as client:
        await waltz.table.configure(client, 0, {"format": "table"})
        async with client.table(0) as table:
            for number in range(5):
                await table.put(b"%d" % number, b"v")
        async with client.table(0, store="sqlite", directory=tmp_path) as table:
            await table.get([b"4"], fresh=True)
        nodes, root = client.directory
        await raise_trim_point(nodes, root, 0, 4)
        with pytest.raises(waltz.TrimmedError) as told:
            async with client.table(0):
                pass
        assert told.value.first_available == 4
        async with client.table(0, store="sqlite", directory=tmp_path) as table:
            assert (await table.get([b"0"], fresh=True)).applied == 4, "it had everything before the trim"


@pytest.fixture
async def server() -> MemoryZooKeeperServer:
    return MemoryZooKeeperServer()


@pytest.fixture
async def zookeeper(server: MemoryZooKeeperServer) -> AsyncIterator[MemoryZooKeeper]:
    """The connection of the client to ZooKeeper."""
    zookeeper = await server.connect()
    await zookeeper.create("/waltz", None)
    yield zookeeper
    await zookeeper.close()


@pytest.fixture
async def zookeeper_client(zookeeper: MemoryZooKeeper) -> AsyncIterator[waltz.Client]:
    class Driver(MockDriver):
        def environment(self, options: ClientOptions, **settings: object) -> Environment:
            environment = super().environment(options, **settings)
            assert isinstance(environment.cluster, FixedCluster)
            return dataclasses.replace(environment, cluster=InZooKeeper("mock", 1, environment.cluster._endpoints))

    class InZooKeeper(FixedCluster):
        @property
        def directory(self) -> Directory:
            return Directory(zookeeper, "/waltz")

    async with waltz.connect(Driver()) as client:
        await waltz.table.configure(client, 0, TABLE)
        yield client


@pytest.mark.parametrize("expires", [False, True])
async def test_changes_made_while_zookeeper_was_away_are_followed(
    server: MemoryZooKeeperServer,
    zookeeper: MemoryZooKeeper,
    zookeeper_client: waltz.Client,
    monkeypatch: pytest.MonkeyPatch,
    expires: bool,
) -> None:
    monkeypatch.setattr(configured, "RETRY_S", 0.001)
    other = await server.connect()
    async with zookeeper_client.table(0) as table:
        server.disconnect(zookeeper)
        with monkeypatch.context() as impatience:
            impatience.setattr(zookeeper, "_operation_timeout_s", 0.01)
            with pytest.raises(ConnectionLossError):
                await waltz.table.configure(zookeeper_client, 0, {"rowType": "zlib"})
        await change(other)
        if expires:
            server.expire(zookeeper)
        server.reconnect(zookeeper)
        await until_changed(table, "ttl_version_age_ms", 7)
    await other.close()


async def test_a_client_that_is_closed_first_ends_the_watch_quietly(
    zookeeper_client: waltz.Client, server: MemoryZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    other = await server.connect()
    table = zookeeper_client.table(0)
    await table.__aenter__()
    await zookeeper_client.close()
    await change(other)
    await table.__aexit__(None, None, None)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []
    await other.close()


async def change(zookeeper: MemoryZooKeeper) -> None:
    await change_properties(zookeeper, "/waltz", 0, {"ttlVersionAgeInMillis": 7})
