"""The worker, over the mock."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import waltz
from examples.worker import run
from tests.unit.client.fake_server import until
from waltz.client.mock import MockDriver


def done(path: Path) -> list[tuple[str | None, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT customer, outcome FROM done ORDER BY partition, id").fetchall()


async def test_jobs_are_done_by_any_number_of_workers(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    log = MockDriver(4)
    async with waltz.connect(MockDriver(log.partitions)) as client:
        jobs = client.with_serializer(waltz.JsonSerializer())
        for number in range(30):
            customer = f"customer-{number}"
            await jobs.append(client.partition_for(customer), {"customer": customer, "text": "a b c"})
        await client.append(0, b"no job")
        workers = [asyncio.create_task(run(MockDriver(log.partitions), path)) for _ in range(2)]
        await until(lambda: path.exists() and has_table(path) and len(done(path)) == 31)
        await jobs.append(0, {"customer": "late", "text": "one more"})
        await until(lambda: len(done(path)) == 32)
        for worker in workers:
            worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker
    outcomes = done(path)
    assert ("late", "2 words") in outcomes
    assert sorted(each for each in outcomes if each[1] == "3 words") == sorted(
        (f"customer-{number}", "3 words") for number in range(30)
    )
    ((_, text),) = [each for each in outcomes if each[0] is None]
    assert "Invalid JSON" in text


def has_table(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'done'").fetchone() is not None
