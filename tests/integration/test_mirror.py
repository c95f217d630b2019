"""Mirrors as processes between two real clusters: killed again and again, promoted, and before a log that differs."""

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import waltz
from tests.integration.test_storage_tools import TIMEOUT_S, done, failed
from waltz.local.cluster import LocalCluster
from waltz.local.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

KILLED, PROMOTED, DIFFERENT, TRIMMED = range(4)
"""Each test has a partition of its own."""


class Pair(NamedTuple):
    """A source and its target."""

    source: LocalCluster
    target: LocalCluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        source, target = (
            stack.enter_context(
                LocalCluster(tmp_path_factory.mktemp(name), partitions=4, storages=storages, servers=servers)
            )
            for name, storages, servers in (("source", 1, 1), ("target", 3, 2))
        )
        yield Pair(source, target)


class Mirrors:
    """Processes with the same configuration."""

    def __init__(self, pair: Pair, directory: Path, partition: int) -> None:
        self.port = free_ports(1)[0]
        self.log_path = directory / "mirror.log"
        self._log = self.log_path.open("ab")
        self._running: list[subprocess.Popen[bytes]] = []
        self._path = directory / "mirror.yml"
        config = {
            "mirror.source": str(pair.source.layout.client_config_path),
            "mirror.target": str(directory / "target.yml"),
            "mirror.partitions": str(partition),
            "mirror.window.transactions": 200,
            "mirror.bindAddress": "127.0.0.1",
        }
        self._path.write_text(yaml.safe_dump(config))
        target = yaml.safe_load(pair.target.layout.client_config_path.read_text())
        target["zookeeper.sessionTimeout"] = 4000  # the lock of a dead mirror is free after that
        (directory / "target.yml").write_text(yaml.safe_dump(target))

    def start(self, *, serves: bool = False) -> subprocess.Popen[bytes]:
        port = ["--set", f"mirror.jetty.port={self.port}"] if serves else []
        process = subprocess.Popen([sys.executable, "-m", "waltz.mirror", *port, str(self._path)], stderr=self._log)
        self._running.append(process)
        return process

    def get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=TIMEOUT_S) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:  # not healthy
            return str(error.read().decode())
        except urllib.error.URLError:  # not up yet
            return ""

    def wait_for(self, what: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not what():
            assert time.monotonic() < deadline_s, self.log_path.read_text()
            time.sleep(0.1)

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._log.close()


@contextlib.contextmanager
def mirrors_of(pair: Pair, directory: Path, partition: int) -> Iterator[Mirrors]:
    mirrors = Mirrors(pair, directory, partition)
    try:
        yield mirrors
    finally:
        mirrors.close()


def connected(cluster: LocalCluster) -> waltz.Client:
    return waltz.connect(str(cluster.layout.client_config_path))


async def append(cluster: LocalCluster, partition: int, count: int, text: str = "transaction") -> None:
    async with asyncio.timeout(TIMEOUT_S), connected(cluster) as client:
        for number in range(count // 50):
            items = [
                waltz.Append(b"%s %d of %d " % (text.encode(), each, number) * 9, header=each) for each in range(50)
            ]
            await client.append_many(partition, items)


async def mark(cluster: LocalCluster, partition: int) -> int:
    async with connected(cluster) as client:
        return await client.high_water_mark(partition, confirmed=True)


async def log_of(cluster: LocalCluster, partition: int) -> list[tuple[int, int, bytes]]:
    async with asyncio.timeout(TIMEOUT_S), connected(cluster) as client:
        until = await client.high_water_mark(partition, confirmed=True)
        if until < 0:
            return []
        return [
            (each.transaction_id, each.header, each.data)
            async for each in client.feed(partition, after=-1, until=until)
        ]


def arrived(pair: Pair, partition: int) -> bool:
    return asyncio.run(mark(pair.target, partition)) == asyncio.run(mark(pair.source, partition))


def assert_equal(pair: Pair, partition: int) -> None:
    assert asyncio.run(log_of(pair.target, partition)) == asyncio.run(log_of(pair.source, partition))


def options(pair: Pair, partition: int, *, source: bool = False) -> list[str]:
    found = ["-c", str(pair.target.layout.cli_config_path), "-p", str(partition)]
    return [*found, "--source", str(pair.source.layout.client_config_path)] if source else found


@contextlib.contextmanager
def appending(cluster: LocalCluster, partition: int) -> Iterator[None]:
    """Append to a partition during the block, in small portions."""
    over = threading.Event()

    async def work() -> None:
        async with connected(cluster) as client:
            for number in itertools.count():
                if over.is_set():
                    return
                items = [waltz.Append(b"%d of %d " % (each, number) * 9, header=each) for each in range(20)]
                await client.append_many(partition, items)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(lambda: asyncio.run(work()))
        try:
            yield
        finally:
            over.set()
        working.result(TIMEOUT_S)


@pytest.mark.deep
def test_mirrors_that_are_killed_make_one_equal_log(pair: Pair, tmp_path: Path) -> None:
    with mirrors_of(pair, tmp_path, KILLED) as mirrors:
        with appending(pair.source, KILLED):
            for _ in range(3):
                before = asyncio.run(mark(pair.target, KILLED))
                couple = [mirrors.start(), mirrors.start()]
                mirrors.wait_for(lambda before=before: asyncio.run(mark(pair.target, KILLED)) > before)  # type: ignore[misc]
                for process in couple:  # in the middle of the work
                    process.kill()
                    process.wait()
        last = mirrors.start(serves=True)
        mirrors.wait_for(lambda: arrived(pair, KILLED))
        assert_equal(pair, KILLED)
        mirrors.wait_for(lambda: 'waltz_mirror_working{partition="0"} 1' in mirrors.get("/metrics/prometheus"))
        mirrors.wait_for(lambda: 'waltz_mirror_lag_seconds{partition="0"} 0' in mirrors.get("/metrics/prometheus"))
        assert '"healthy":true' in mirrors.get("/health")
        last.terminate()
        assert last.wait(TIMEOUT_S) == 0
        count = asyncio.run(mark(pair.source, KILLED)) + 1
        verified = done("mirror", "verify", *options(pair, KILLED, source=True))
        assert f"partition {KILLED}: equal, {count} transactions" in verified


def test_a_promotion_stops_a_running_mirror_for_good(pair: Pair, tmp_path: Path) -> None:
    asyncio.run(append(pair.source, PROMOTED, 300))
    with mirrors_of(pair, tmp_path, PROMOTED) as mirrors:
        mirrors.start(serves=True)
        mirrors.wait_for(lambda: arrived(pair, PROMOTED))
        assert_equal(pair, PROMOTED)
        (status,) = json.loads(done("mirror", "status", "--json", *options(pair, PROMOTED, source=True)))
        assert (status["promoted"], status["last_transaction"], status["lag"]) == (False, 299, 0)
        said = done("mirror", "promote", *options(pair, PROMOTED))
        assert f"partition {PROMOTED} is promoted behind transaction 299" in said
        asyncio.run(append(pair.source, PROMOTED, 100, "too late"))
        mirrors.wait_for(lambda: "was promoted" in mirrors.get("/health"))
        asyncio.run(append(pair.target, PROMOTED, 50, "after the promotion"))
        mirrors.start()  # another one that nobody has told
        mirrors.wait_for(lambda: mirrors.log_path.read_text().count("it is a mirror no more") == 2)
        log = asyncio.run(log_of(pair.target, PROMOTED))
        assert [data.startswith(b"after") for _, _, data in log[300:]] == [True] * 50
        done("mirror", "resume", *options(pair, PROMOTED))
        mirrors.start()
        mirrors.wait_for(lambda: "the target is no beginning of the source" in mirrors.log_path.read_text())
        assert "transaction 300: the data is" in mirrors.log_path.read_text(), "the first difference is named"


def test_a_target_with_another_log_is_left_alone(pair: Pair, tmp_path: Path) -> None:
    asyncio.run(append(pair.source, DIFFERENT, 100))
    asyncio.run(append(pair.target, DIFFERENT, 100))
    asyncio.run(append(pair.source, DIFFERENT, 100, "one"))
    asyncio.run(append(pair.target, DIFFERENT, 50, "other"))
    with mirrors_of(pair, tmp_path, DIFFERENT) as mirrors:
        mirrors.start(serves=True)
        mirrors.wait_for(lambda: "it is not mirrored any more" in mirrors.log_path.read_text())
        assert "transaction 100: the data is" in mirrors.log_path.read_text()
        assert '"healthy":false' in mirrors.get("/health")
        assert f'waltz_mirror_stopped{{partition="{DIFFERENT}"}} 1' in mirrors.get("/metrics/prometheus")
        asyncio.run(append(pair.target, DIFFERENT, 50))
        assert "is no mirror" in failed("mirror", "promote", *options(pair, DIFFERENT)), "nothing was claimed"


def test_a_trimmed_source_is_not_mirrored_with_a_gap(pair: Pair, tmp_path: Path) -> None:
    asyncio.run(append(pair.source, TRIMMED, 100))
    of_source = ("-c", str(pair.source.layout.cli_config_path))
    done("cluster", "features", "--enable", "trim", *of_source)
    done("session", "fence", "-p", str(TRIMMED), "--force", *of_source)
    done("partition", "trim", "-p", str(TRIMMED), "--before", "60", "--yes", *of_source)
    with mirrors_of(pair, tmp_path, TRIMMED) as mirrors:
        mirrors.start(serves=True)
        text = "needs transactions of the source from 0 on, and those from 0 to 59 are trimmed there"
        mirrors.wait_for(lambda: text in mirrors.log_path.read_text())
        mirrors.wait_for(lambda: text in mirrors.get("/health"))
        assert '"healthy":false' in mirrors.get("/health")
    assert asyncio.run(mark(pair.target, TRIMMED)) == -1
