"""Two real clusters that both write one table, with mirrors in both directions, through a cut and deaths."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import waltz
from tests.integration.test_storage_tools import TIMEOUT_S
from waltz.local.cluster import LocalCluster
from waltz.mirror.origins import PREFIX, origins_in
from waltz.table import Row
from waltz.table.envelope import Batch, envelope_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.deep]

MINUTES = 10
STEP_MS = 1_000
KEYS = 20

Rows = dict[bytes, tuple[int, bytes | None]]


Row3 = tuple[bytes, int | None, bytes | None]


class Written(NamedTuple):
    """The rows in the log of a cluster, in order: key, timestamp, value."""

    own: list[Row3]
    """Those that applications have written."""
    copied: list[Row3]
    """Those of the other cluster, without those that were appended again to win."""


class Direction:
    """Processes that mirror in one direction."""

    def __init__(self, source: LocalCluster, target: LocalCluster, directory: Path) -> None:
        directory.mkdir()
        self._path = directory / "mirror.yml"
        self.log_path = directory / "mirror.log"
        self._log = self.log_path.open("ab")
        self._running: list[subprocess.Popen[bytes]] = []
        there = yaml.safe_load(target.layout.client_config_path.read_text())
        there["zookeeper.sessionTimeout"] = 4000  # the lock of a dead mirror is free after that
        (directory / "target.yml").write_text(yaml.safe_dump(there))
        config = {
            "mirror.source": str(source.layout.client_config_path),
            "mirror.target": str(directory / "target.yml"),
            "mirror.tables": "0",
            "mirror.window.transactions": 50,
        }
        self._path.write_text(yaml.safe_dump(config))

    def start(self) -> None:
        command = [sys.executable, "-m", "waltz.mirror", str(self._path)]
        self._running.append(subprocess.Popen(command, stderr=self._log))

    def kill(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()

    def close(self) -> None:
        self.kill()
        self._log.close()


@contextlib.contextmanager
def both_directions(clusters: list[LocalCluster], directory: Path) -> Iterator[list[Direction]]:
    one, two = clusters
    with contextlib.ExitStack() as stack:
        found = [Direction(one, two, directory / "there"), Direction(two, one, directory / "back")]
        for direction in found:
            stack.callback(direction.close)
        yield found


def wait_for(what: Callable[[], bool], directions: list[Direction]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not what():
        assert time.monotonic() < deadline_s, "\n".join(each.log_path.read_text() for each in directions)
        time.sleep(0.2)


def connected(cluster: LocalCluster) -> waltz.Client:
    return waltz.connect(str(cluster.layout.client_config_path))


async def make_table(cluster: LocalCluster) -> None:
    async with connected(cluster) as client:
        await waltz.table.configure(client, 0, {"format": "table", "rowType": "zlib"})


async def write(cluster: LocalCluster, name: bytes, first_ms: int, count: int) -> None:
    """Rows with the times of a clock that both clusters share: each time is that of one row in both."""
    async with connected(cluster) as client, client.table(0) as table:
        for number in range(count):
            timestamp_ms = first_ms + number * STEP_MS
            dead = number % 7 == 0
            row = Row(b"p", b"%d" % (number % KEYS), None if dead else name, timestamp_ms, tombstone=dead)
            await table.batch([row, row._replace(key=b"last")])


async def rows_of(cluster: LocalCluster) -> Rows:
    async with connected(cluster) as client, client.table(0) as table:
        await table.refresh()
        return {row.key: (row.timestamp_ms, row.value) async for row in table.scan() if row.prefix != PREFIX}


async def written_in(cluster: LocalCluster) -> Written:
    async with connected(cluster) as client:
        found, position = Written([], []), -1
        until = await client.high_water_mark(0, confirmed=True)
        async for record in client.feed(0, after=-1, until=until):
            batch = envelope_of(record.transaction_id, record.data)
            assert isinstance(batch, Batch)
            origins = origins_in(batch)
            rows = [(row.key, row.timestamp_ms, row.value) for row in batch.rows if row.prefix != PREFIX]
            if origins is None:
                found.own.extend(rows)
            elif origins.position > position:
                position = origins.position
                found.copied.extend(rows)
        return found


def newest(logs: list[Written]) -> dict[bytes, int]:
    """The greatest timestamp of each key."""
    found: dict[bytes, int] = {}
    for key, timestamp_ms, _ in (row for log in logs for row in log.own):
        assert timestamp_ms is not None
        found[key] = max(found.get(key, 0), timestamp_ms)
    return found


async def write_to_both(clusters: list[LocalCluster], first_ms: int, count: int) -> None:
    await asyncio.gather(*(write(cluster, b"%d" % number, first_ms, count) for number, cluster in enumerate(clusters)))


async def converged(clusters: list[LocalCluster]) -> bool:
    one, two = await asyncio.gather(*(rows_of(cluster) for cluster in clusters))
    if one != two:
        return False
    timestamps = newest(await asyncio.gather(*(written_in(cluster) for cluster in clusters)))
    return all(timestamps[key] == timestamp_ms for key, (timestamp_ms, _) in one.items())


def test_two_clusters_that_write_one_table_converge_through_a_cut(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        clusters = [
            stack.enter_context(LocalCluster(tmp_path / name, partitions=1, storages=1, servers=1))
            for name in ("one", "two")
        ]
        for cluster in clusters:
            asyncio.run(make_table(cluster))
        directions = stack.enter_context(both_directions(clusters, tmp_path))

        def copied() -> list[int]:
            return [len(asyncio.run(written_in(cluster)).copied) for cluster in clusters]

        start_ms = int(time.time() * 1000) - (MINUTES + 1) * 60_000
        for direction in directions:
            direction.start()
        asyncio.run(write_to_both(clusters, start_ms, 30))
        wait_for(lambda: asyncio.run(converged(clusters)), directions)
        for direction in directions:  # nothing gets from one cluster to the other
            direction.kill()
        cut_ms = start_ms + 30 * STEP_MS
        asyncio.run(write_to_both(clusters, cut_ms, MINUTES * 60_000 // STEP_MS))
        assert not asyncio.run(converged(clusters))
        before = copied()
        for direction in directions:
            direction.start()
            direction.start()  # stands by
        wait_for(lambda: all(count > past for count, past in zip(copied(), before, strict=True)), directions)
        for direction in directions:  # perhaps in the middle of the work
            direction.kill()
            direction.start()
        asyncio.run(write_to_both(clusters, cut_ms + MINUTES * 60_000, 30))
        wait_for(lambda: asyncio.run(converged(clusters)), directions)
        one, two = (asyncio.run(written_in(cluster)) for cluster in clusters)
        assert one.copied == two.own, "each once, in order, and nothing comes back"
        assert two.copied == one.own
