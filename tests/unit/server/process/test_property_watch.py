"""Following which appends the partitions take, beside what properties and other programs write."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common import tasks
from waltz.common.cluster import following
from waltz.common.consistency import Consistency
from waltz.common.zk.client import ConnectionLossError, Stat, Watch
from waltz.common.zk.paths import ClusterPaths
from waltz.server.partition.append_rule import AppendRule
from waltz.server.process.property_watch import PropertyWatch
from waltz.table.properties import change_properties

ROOT = "/cluster"
PATHS = ClusterPaths.of(ROOT)


@pytest.fixture
async def zookeeper() -> AsyncIterator[MemoryZooKeeper]:
    client = await MemoryZooKeeperServer().connect()
    await client.create(ROOT, None)
    yield client
    await client.close()


@asynccontextmanager
async def watching(zookeeper: MemoryZooKeeper) -> AsyncIterator[tuple[PropertyWatch, list[set[int]]]]:
    told: list[set[int]] = []
    watch = PropertyWatch(zookeeper, ROOT, lambda rules: told.append(disabled_by(rules)), random.Random(1))
    await watch.start()
    try:
        yield watch, told
    finally:
        await watch.close()


def disabled_by(rules: Mapping[int, AppendRule]) -> set[int]:
    return {partition_id for partition_id, rule in rules.items() if rule.disabled}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_a_cluster_without_properties_is_asked_once(zookeeper: MemoryZooKeeper) -> None:
    async with watching(zookeeper) as (watch, told):
        assert watch.rules == {}
        assert told == []
        await change_properties(zookeeper, ROOT, 3, {"format": "table"})
        await change_properties(zookeeper, ROOT, 4, {"disabled": True})
        await until(lambda: disabled_by(watch.rules) == {4})
        assert told == [{4}]


async def test_what_is_disabled_is_known_when_it_has_started(zookeeper: MemoryZooKeeper) -> None:
    for partition_id in (1, 2, 5):
        await change_properties(zookeeper, ROOT, partition_id, {"disabled": partition_id != 2})
    async with watching(zookeeper) as (watch, told):
        assert told == [{1, 5}]
        await change_properties(zookeeper, ROOT, 2, {"disabled": True})
        await until(lambda: disabled_by(watch.rules) == {1, 2, 5})
        await change_properties(zookeeper, ROOT, 5, {"disabled": None})
        await until(lambda: disabled_by(watch.rules) == {1, 2})
        await zookeeper.delete(PATHS.partition_properties(1))
        await until(lambda: disabled_by(watch.rules) == {2})
        await zookeeper.create(PATHS.partition_properties(1), b'{"change":1,"disabled":true}')
        await until(lambda: disabled_by(watch.rules) == {1, 2})


async def test_what_is_demanded_of_appends_is_followed(zookeeper: MemoryZooKeeper) -> None:
    async with watching(zookeeper) as (watch, _):
        await change_properties(zookeeper, ROOT, 1, {"consistency": "leader_all", "refuseLegacyWriters": True})
        await until(lambda: watch.rules == {1: AppendRule(False, Consistency.LEADER_ALL, True, True)})
        await change_properties(zookeeper, ROOT, 1, {"requireConsistency": False, "refuseLegacyWriters": None})
        await until(lambda: watch.rules == {1: AppendRule(False, Consistency.LEADER_ALL, False, False)})
        await change_properties(zookeeper, ROOT, 1, {"requireConsistency": None, "consistency": None})
        await until(lambda: watch.rules == {})


@pytest.mark.parametrize(
    "data", [None, b"", b"[]", b'{"disabled":1}', b'{"consistency":"most"}', b"\xff", b"[" * 100_000]
)
async def test_a_node_of_something_else_leaves_the_partition_as_it_was(
    data: bytes | None, zookeeper: MemoryZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    await change_properties(zookeeper, ROOT, 0, {"disabled": True})
    await zookeeper.create(PATHS.all_partition_properties + "/readme", b"not a partition")
    async with watching(zookeeper) as (watch, told):
        await zookeeper.set(PATHS.partition_properties(0), data)
        await until(lambda: "does not hold properties" in caplog.text)
        assert disabled_by(watch.rules) == {0}
        later = {"change": 3, "of a later version": [], "disabled": False}
        await zookeeper.set(PATHS.partition_properties(0), json.dumps(later).encode())
        await until(lambda: told == [{0}, set()])


async def test_random_changes_are_followed(zookeeper: MemoryZooKeeper) -> None:
    chance = random.Random(5)
    disabled: set[int] = set()
    async with watching(zookeeper) as (watch, _):
        for _ in range(200):
            partition_id = chance.randrange(4)
            path = PATHS.partition_properties(partition_id)
            if chance.random() < 0.2 and await zookeeper.exists(path) is not None:
                await zookeeper.delete(path)
                disabled.discard(partition_id)
            elif chance.random() < 0.5:
                await change_properties(zookeeper, ROOT, partition_id, {"disabled": True})
                disabled.add(partition_id)
            else:
                await change_properties(zookeeper, ROOT, partition_id, {"disabled": False, "rowType": "zlib"})
                disabled.discard(partition_id)
            if chance.random() < 0.3:
                await until(lambda: disabled_by(watch.rules) == disabled)
        await until(lambda: disabled_by(watch.rules) == disabled)


class Failing(MemoryZooKeeper):
    """Loses the connection at some reads."""

    failures = 0

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        await self._fail()
        return await super().get(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._fail()
        return await super().children(path, watch)

    async def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionLossError("planted")


async def test_what_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RETRY_INITIAL_S", 0.001)
    server = MemoryZooKeeperServer()
    zookeeper, other = Failing(server, operation_timeout_s=10.0), await server.connect()
    await other.create(ROOT, None)
    for partition_id in range(3):
        await change_properties(other, ROOT, partition_id, {"disabled": True})
    zookeeper.failures = 1
    with pytest.raises(ConnectionLossError):
        await PropertyWatch(zookeeper, ROOT, lambda _: None, random.Random(1)).start()
    async with watching(zookeeper) as (watch, _):
        assert disabled_by(watch.rules) == {0, 1, 2}
        zookeeper.failures = 4
        await change_properties(other, ROOT, 0, {"disabled": None})
        await change_properties(other, ROOT, 7, {"disabled": True})
        await until(lambda: disabled_by(watch.rules) == {1, 2, 7})
        assert zookeeper.failures == 0
    await zookeeper.close()
    await other.close()


async def test_a_change_that_could_not_be_applied_is_applied_again(
    monkeypatch: pytest.MonkeyPatch, zookeeper: MemoryZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "RESTART_PAUSE_S", 0)
    seen: list[set[int]] = []

    def apply(rules: Mapping[int, AppendRule]) -> None:
        seen.append(disabled_by(rules))
        if len(seen) < 3:
            raise ArithmeticError("planted")

    watch = PropertyWatch(zookeeper, ROOT, apply, random.Random(1))
    await watch.start()
    await change_properties(zookeeper, ROOT, 2, {"disabled": True})
    await until(lambda: disabled_by(watch.rules) == {2})
    assert seen == [{2}] * 3
    assert "planted" in caplog.text
    await watch.close()
