"""Archivers as processes on a real cluster, killed again and again, with a store that goes away."""

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import waltz
from tests.integration.test_storage_tools import TIMEOUT_S, done, failed
from waltz.archive.chain import Place, read_ranges
from waltz.archive.process.restoring import ArchivedRecords, fill_replica
from waltz.archive.store import open_store
from waltz.archive.verification import only_cluster
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.config.schemas import CliConfig, load
from waltz.common.net.tls import client_context
from waltz.common.records import Record
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT
from waltz.local.ports import free_ports

pytest.importorskip("obstore")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PARTITIONS = (0, 1)


class Archivers:
    """Processes with the same configuration."""

    def __init__(self, cluster: LocalCluster, directory: Path, url: str) -> None:
        self.port = free_ports(1)[0]
        self.url = url
        self._running: list[subprocess.Popen[bytes]] = []
        self._log = (directory / "archiver.log").open("ab")
        self.log_path = directory / "archiver.log"
        config = yaml.safe_load(cluster.layout.cli_config_path.read_text()) | {
            "archive.url": url,
            "archive.objectTransactions": 300,
            "archive.maxAge": 2000,
            "archive.interval": 200,
            "archive.bindAddress": "127.0.0.1",
        }
        self._path = directory / "archive.yml"
        self._path.write_text(yaml.safe_dump(config))

    def start(self, *, serves: bool = False) -> subprocess.Popen[bytes]:
        port = ["--set", f"archive.jetty.port={self.port}"] if serves else []
        process = subprocess.Popen(
            [sys.executable, "-m", "waltz.archive.process", *port, str(self._path)], stderr=self._log
        )
        self._running.append(process)
        return process

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=TIMEOUT_S) as response:
            return str(response.read().decode())

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._log.close()


@contextlib.contextmanager
def archivers_of(cluster: LocalCluster, directory: Path) -> Iterator[Archivers]:
    (directory / "archive").mkdir()
    archivers = Archivers(cluster, directory, f"file://{directory}/archive")
    try:
        yield archivers
    finally:
        archivers.close()


async def append(cluster: LocalCluster, count: int) -> None:
    """Append to both partitions, in portions."""
    async with asyncio.timeout(TIMEOUT_S), waltz.connect(str(cluster.layout.client_config_path)) as client:
        for portion in range(count // 50):
            for partition in PARTITIONS:
                await client.append_many(partition, [b"%d of %d " % (each, portion) * 9 for each in range(50)])


async def marks(cluster: LocalCluster) -> list[int]:
    async with waltz.connect(str(cluster.layout.client_config_path)) as client:
        return [await client.high_water_mark(partition) for partition in PARTITIONS]


def archived(url: str) -> list[int]:
    """The number of archived transactions of each partition."""
    found = {each["partition"]: each["transactions"] for each in json.loads(done("archive", "list", "--json", url))}
    return [found.get(partition, 0) for partition in PARTITIONS]


def wait_for(cluster: LocalCluster, url: str) -> None:
    """Until everything is archived."""
    wanted = [mark + 1 for mark in asyncio.run(marks(cluster))]
    deadline_s = time.monotonic() + TIMEOUT_S
    while (found := archived(url)) != wanted:
        assert time.monotonic() < deadline_s, (found, wanted)
        time.sleep(0.3)


@pytest.mark.deep
def test_archivers_that_are_killed_make_one_whole_archive(cluster: LocalCluster, tmp_path: Path) -> None:
    chance = random.Random(3)
    with archivers_of(cluster, tmp_path) as archivers:
        for _ in range(4):
            pair = [archivers.start(), archivers.start()]
            asyncio.run(append(cluster, 400))
            time.sleep(chance.uniform(0, 1.5))
            for process in pair:
                process.send_signal(signal.SIGKILL)
                process.wait()
        last = archivers.start(serves=True)
        wait_for(cluster, archivers.url)
        assert '"healthy":true' in archivers.get("/health")
        text = archivers.get("/metrics/prometheus")
        assert "waltz_archive_store_available 1" in text
        assert 'waltz_archive_lag_transactions{partition="0"}' in text
        last.terminate()
        assert last.wait(TIMEOUT_S) == 0
        verified = done("archive", "verify", archivers.url)
        assert verified.count("whole") == 2
        compared = done("archive", "compare", archivers.url, "-c", str(cluster.layout.cli_config_path))
        assert compared.count("equal in") == 2 * len(cluster.layout.storages)
        config = ["-c", str(cluster.layout.cli_config_path)]
        done("archive", "set-url", archivers.url, *config)
        assert done("archive", "show-url", *config).strip() == archivers.url
        done("archive", "remove-url", *config)
        listed = json.loads(done("archive", "list", "--json", archivers.url))
        assert all(each["committed_by"] for each in listed), "the servers tell times"


@pytest.mark.deep
def test_a_store_that_goes_away_stops_no_append(cluster: LocalCluster, tmp_path: Path) -> None:
    with archivers_of(cluster, tmp_path) as archivers:
        asyncio.run(append(cluster, 300))
        archivers.start(serves=True)
        wait_for(cluster, archivers.url)
        (tmp_path / "archive").rename(tmp_path / "away")
        asyncio.run(append(cluster, 600))
        deadline_s = time.monotonic() + TIMEOUT_S
        while "mount its file system" not in archivers.log_path.read_text():
            assert time.monotonic() < deadline_s, archivers.log_path.read_text()
            time.sleep(0.2)
        asyncio.run(append(cluster, 50))
        assert "is not a directory" in failed("archive", "list", archivers.url)
        (tmp_path / "away").rename(tmp_path / "archive")
        wait_for(cluster, archivers.url)
        assert archivers.log_path.read_text().count("mount its file system") <= 2, "once for each partition"
        assert done("archive", "verify", archivers.url).count("whole") == 2


def test_damage_is_named(cluster: LocalCluster, tmp_path: Path) -> None:
    with archivers_of(cluster, tmp_path) as archivers:
        asyncio.run(append(cluster, 50))
        archivers.start()
        wait_for(cluster, archivers.url)
        damaged = next(each for each in (tmp_path / "archive").rglob("*-*-????????") if "/1/" in str(each))
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 4
        damaged.write_bytes(data)
        said = failed("archive", "verify", archivers.url)
        assert "the archive has 1 problem: docs/archive.md" in said
        assert done("archive", "verify", "-p", "0", archivers.url).count("whole") == 1
        assert "of partition 7" in failed("archive", "verify", "-p", "7", archivers.url)


class FreshCluster(LocalCluster):
    """Something is done before the first server starts."""

    def __init__(self, directory: Path, before_servers: Callable[["LocalCluster"], None]) -> None:
        super().__init__(directory, partitions=len(PARTITIONS), servers=1)
        self._before_servers = before_servers

    async def _assign(self) -> None:
        await super()._assign()
        await asyncio.to_thread(self._before_servers, self)


async def log_of(cluster: LocalCluster, partition: int) -> list[Record]:
    """All transactions, as a client reads them."""
    async with waltz.connect(str(cluster.layout.client_config_path)) as client:
        until = await client.high_water_mark(partition)
        return [each async for each in client.feed(partition, after=-1, until=until)]


async def restore_a_part(fresh: LocalCluster, url: str) -> None:
    """As if a restore had been stopped at the first storage."""
    zookeeper = await fresh.zookeeper()
    try:
        tls = client_context(load(fresh.layout.cli_config_path, CliConfig).tls)
        store = open_store(url)
        place = Place(store, await only_cluster(store, None), 0)
        records = ArchivedRecords(place, await read_ranges(place))
        storage = fresh.layout.storages[0].connect_string
        await fill_replica(ClusterHandle(zookeeper, ROOT, tls), records, storage, 100)
    finally:
        await zookeeper.close()


def test_a_lost_cluster_is_restored(cluster: LocalCluster, tmp_path: Path) -> None:
    with archivers_of(cluster, tmp_path) as archivers:
        asyncio.run(append(cluster, 350))
        archivers.start()
        wait_for(cluster, archivers.url)
    logs = [asyncio.run(log_of(cluster, partition)) for partition in PARTITIONS]

    def restore(fresh: LocalCluster) -> None:
        config = ["-c", str(fresh.layout.cli_config_path)]
        asyncio.run(restore_a_part(fresh, archivers.url))
        assert "now start the servers" in done("archive", "restore", archivers.url, "-p", "0", *config)
        done("archive", "restore", archivers.url, "-p", "1", *config)

    with FreshCluster(tmp_path / "fresh", restore) as fresh:
        assert [asyncio.run(log_of(fresh, partition)) for partition in PARTITIONS] == logs
        asyncio.run(append(fresh, 50))
        assert asyncio.run(marks(fresh)) == [len(log) + 49 for log in logs]
        said = failed("archive", "restore", archivers.url, "-c", str(fresh.layout.cli_config_path))
        assert "partition 0 has already been restored, or opened by a server" in said
        assert done("cluster", "verify", "--exit-code", "-c", str(fresh.layout.cli_config_path))
