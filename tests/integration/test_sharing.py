"""Instances that share partitions, in processes that are killed, frozen and ended: on a real ZooKeeper."""

import asyncio
import os
import random
import signal
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import yaml

import waltz
from tests.integration.sharing_worker import TABLE
from waltz.local.cluster import LocalCluster

KILLS = int(os.environ.get("WALTZ_POSITION_KILLS", "3"))
PARTITIONS = 4
WORKERS = 3
SESSION_TIMEOUT_MS = 2_000

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180 + 10 * KILLS)]


class Worker:
    def __init__(self, config: Path, database: Path) -> None:
        self._command = [sys.executable, "-m", "tests.integration.sharing_worker", str(config), str(database)]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"consuming\n"

    async def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def done(path: Path) -> Counter[tuple[int, int]]:
    with closing(sqlite3.connect(path)) as database:
        return Counter(database.execute(f"SELECT partition, id FROM {TABLE}").fetchall())


@pytest.mark.deep
async def test_each_transaction_is_done_once_whatever_becomes_of_the_instances(tmp_path: Path) -> None:
    database = tmp_path / "application.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"CREATE TABLE {TABLE} (partition INTEGER, id INTEGER)")
    async with LocalCluster(tmp_path / "cluster", partitions=PARTITIONS, plaintext=True) as cluster:
        config = tmp_path / "client.yml"
        settings = yaml.safe_load(cluster.layout.client_config_path.read_text())
        config.write_text(yaml.safe_dump({**settings, "zookeeper.sessionTimeout": SESSION_TIMEOUT_MS}))
        workers = [Worker(config, database) for _ in range(WORKERS)]
        await asyncio.gather(*(worker.start() for worker in workers))
        async with waltz.connect(config) as client:
            appended = 0
            stopping = asyncio.Event()

            async def append() -> None:
                nonlocal appended
                while not stopping.is_set():
                    for partition_id in range(PARTITIONS):
                        await client.append_many(partition_id, [b"x"] * 5)
                    appended += 5
                    await asyncio.sleep(0.05)

            appending = asyncio.create_task(append())
            chance = random.Random(1)
            for number in range(KILLS):
                worker = workers[number % WORKERS]
                before = sum(done(database).values())
                match number % 3:
                    case 0:
                        await worker.end(signal.SIGKILL)
                        await worker.start()
                    case 1:
                        assert await worker.end(signal.SIGTERM) == 0
                        await worker.start()
                    case _:
                        worker.signal(signal.SIGSTOP)  # for longer than its session, while others have its partitions
                        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 1 + chance.random())
                        worker.signal(signal.SIGCONT)
                while sum(done(database).values()) <= before:
                    await asyncio.sleep(0.05)
            stopping.set()
            await appending
            while len(done(database)) < PARTITIONS * appended:
                await asyncio.sleep(0.05)
        for worker in workers:
            assert await worker.end(signal.SIGTERM) == 0
    assert done(database) == Counter((partition, each) for partition in range(PARTITIONS) for each in range(appended))
