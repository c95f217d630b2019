"""A partition is trimmed while storages are killed, replaced and away, and fresh readers are told."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import waltz
from tests.integration.spare import SpareCluster
from tests.integration.test_storage_tools import TIMEOUT_S, done, failed
from tests.integration.test_storage_tools import waltz as run
from waltz.cli.session import CONFIG_VARIABLE
from waltz.client.errors import TrimmedError
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.zk.paths import ClusterPaths
from waltz.local.layout import ROOT, Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.deep]

EAGER = {"storage.maxRetryInterval": 1000, "server.retentionInterval": 200}
SMALL = {"storage.segment.size.threshold": 2000}
TRIM = ("partition", "trim", "-p", "0")
COUNT = 300


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SpareCluster]:
    """Three storages hold two partitions in small segments, and the fourth holds nothing yet."""
    running = SpareCluster(
        tmp_path / "trimmed",
        storages=4,
        partitions=2,
        servers=1,
        plaintext=True,
        server_overrides=EAGER,
        storage_overrides=SMALL,
    )
    with running:
        monkeypatch.setenv(CONFIG_VARIABLE, str(running.layout.cli_config_path))
        yield running


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, run("status")
        time.sleep(0.05)


def segments(cluster: SpareCluster, node: Node, partition_id: int = 0) -> list[int]:
    directory = cluster.layout.data_directory(node) / str(partition_id)
    return sorted(int(path.stem) for path in directory.glob("*.seg"))


async def append(cluster: SpareCluster, count: int, partition_id: int = 0) -> list[int]:
    async with waltz.connect(load(cluster.layout.client_config_path, ClientConfig)) as client:
        appended = await asyncio.gather(
            *(client.append(partition_id, b"transaction %d" % number) for number in range(count))
        )
    return sorted(appended)


def new_session() -> None:
    """Raises the low-water marks."""
    done("session", "fence", "-p", "0", "--force")


async def put_cursor(cluster: SpareCluster, group: str, position: int) -> None:
    zookeeper = await cluster.zookeeper()
    path = ClusterPaths.of(ROOT).cursor(group, 0)
    await zookeeper.create(path, json.dumps({"transactionId": position, "holder": "h"}).encode(), make_path=True)
    await zookeeper.close()


async def fresh_reader(cluster: SpareCluster, first: int, last: int) -> None:
    async with waltz.connect(load(cluster.layout.client_config_path, ClientConfig)) as client:
        for after in (-1, first - 2):
            with pytest.raises(TrimmedError) as told:
                await anext(client.feed(0, after=after))
            assert told.value.first_available == first
        found = [each.transaction_id async for each in client.feed(0, after=first - 1, until=last)]
        assert found == list(range(first, last + 1))


async def fresh_table(cluster: SpareCluster) -> None:
    async with waltz.connect(load(cluster.layout.client_config_path, ClientConfig)) as client:
        with pytest.raises(TrimmedError):
            async with asyncio.timeout(TIMEOUT_S), client.table(0) as table:
                await table.get([b"key"])


def test_a_trimmed_partition_lives_on(cluster: SpareCluster) -> None:
    first, second, third, spare = cluster.layout.storages
    appended = asyncio.run(append(cluster, COUNT))
    assert appended == list(range(COUNT))
    assert "does not have the feature trim" in failed(*TRIM, "--before", "100", "--yes")
    assert done("cluster", "features", "--enable", "trim") == "features: trim\n"
    assert "only transactions up to the low-water mark" in failed(*TRIM, "--before", "200", "--yes")
    new_session()
    asyncio.run(put_cursor(cluster, "billing", 150))
    text = failed(*TRIM, "--before", "200", "--yes")
    assert "cursor billing needs those from 150 on (it stands at 150)" in text
    assert "would not be hurt" in failed(*TRIM, "--before", "100", "--yes", "--force", "cursor billing")
    assert "transactions 0 to 199 would be trimmed" in done(*TRIM, "--before", "200", "--dry-run")
    assert segments(cluster, first)[0] == 0
    # A storage is killed while it trims.
    assert "begins with transaction 200 now" in done(*TRIM, "--before", "200", "--yes", "--force", "cursor billing")
    cluster.kill(second)
    cluster.start_storage(second)
    for node in (first, second, third):
        until(lambda node=node: 0 < segments(cluster, node)[0] <= 200)  # type: ignore[misc]  # the loop's node
    asyncio.run(fresh_reader(cluster, 200, COUNT - 1))
    assert "nothing is to be trimmed" in done(*TRIM, "--keep-bytes", "1G", "--dry-run")
    assert "transactions 200 to " in done(*TRIM, "--keep-bytes", "3K", "--dry-run")
    # A replica that is moved begins at the trim point.
    done("storage", "move", "-s", first.connect_string, "-d", spare.connect_string, "--apply", "--yes")
    assert segments(cluster, spare)[0] == 200
    # A storage that was away begins there, too.
    cluster.kill(third)
    asyncio.run(append(cluster, COUNT))
    new_session()
    done(*TRIM, "--before", "500", "--yes", "--force", "cursor billing")
    cluster.start_storage(third)
    until(lambda: segments(cluster, third)[0] == 500)
    for node in (second, spare):
        until(lambda node=node: 200 < segments(cluster, node)[0] <= 500)  # type: ignore[misc]  # the loop's node
    # All of them die at once, and what is left is read from the one that was away.
    for node in (second, third, spare):
        cluster.kill(node)
    for node in (second, third, spare):
        cluster.start_storage(node)
    until(lambda: run("cluster", "verify", "--exit-code").returncode == 0)
    cluster.kill(second)
    asyncio.run(append(cluster, 10))
    asyncio.run(fresh_reader(cluster, 500, 2 * COUNT + 9))
    cluster.start_storage(second)
    assert "stays" in failed("cluster", "features", "--disable", "trim")


def held(cluster: SpareCluster) -> dict[str, str]:
    """What the server says of transactions that it cannot trim, by partition."""
    (server,) = cluster.layout.servers
    with urllib.request.urlopen(f"http://localhost:{server.http_port}/health", timeout=TIMEOUT_S) as answer:
        found: dict[str, str] = json.load(answer)["server-health-check"].get("retentionHeld", {})
        return found


def trim_point(partition_id: int) -> int:
    found: int = json.loads(done("partition", "show", "-p", str(partition_id), "--json"))["trimPoint"]
    return found


async def remove_cursor(cluster: SpareCluster, group: str) -> None:
    zookeeper = await cluster.zookeeper()
    await zookeeper.delete(ClusterPaths.of(ROOT).cursor(group, 0))
    await zookeeper.close()


def test_the_owner_trims_what_is_beyond_the_retention(cluster: SpareCluster) -> None:
    """No command raises the low-water mark, or names a transaction."""
    nodes = cluster.layout.storages[:3]
    asyncio.run(append(cluster, COUNT))
    asyncio.run(append(cluster, 20, partition_id=1))
    asyncio.run(put_cursor(cluster, "billing", 100))
    done("partition", "configure", "-p", "0", "retentionSizeInBytes=3000")
    done("partition", "configure", "-p", "1", "retentionAgeInMillis=1")
    until(lambda: "does not have the feature trim" in held(cluster).get("0", ""))
    assert [segments(cluster, node)[0] for node in nodes] == [0, 0, 0]
    done("cluster", "features", "--enable", "trim")
    until(lambda: "cursor billing needs those from 100 on" in held(cluster).get("0", ""))
    until(lambda: trim_point(0) == 100)
    for node in nodes:
        until(lambda node=node: 0 < segments(cluster, node)[0] <= 100)  # type: ignore[misc]  # the loop's node
    asyncio.run(remove_cursor(cluster, "billing"))
    until(lambda: held(cluster) == {})
    point = trim_point(0)
    assert 100 < point < COUNT
    for node in nodes:
        until(lambda node=node: segments(cluster, node)[0] == point)  # type: ignore[misc]  # the loop's node
        directory = cluster.layout.data_directory(node) / "0"
        assert 3000 < sum(path.stat().st_size for path in directory.glob("*.seg")) < 3000 + 2 * 2200
    until(lambda: trim_point(1) == 20)
    asyncio.run(fresh_reader(cluster, point, COUNT - 1))


def test_a_fresh_table_is_told(cluster: SpareCluster) -> None:
    done("partition", "configure", "-p", "0", "format=table")
    done("cluster", "features", "--enable", "trim")
    for number in range(5):
        done("table", "put", "-p", "0", "key", str(number))
    new_session()
    done(*TRIM, "--before", "3", "--yes")
    asyncio.run(fresh_table(cluster))
