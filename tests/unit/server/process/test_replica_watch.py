"""Following the replica assignments."""

import asyncio
import random

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common import tasks
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import ReplicaAssignments
from waltz.server.process.replica_watch import ReplicaWatch

ROOT = "/cluster"


async def test_a_change_that_could_not_be_applied_is_applied_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "RESTART_PAUSE_S", 0)
    zookeeper = await MemoryZooKeeperServer().connect()
    path = ClusterPaths.of(ROOT).assignment
    before, after = ReplicaAssignments({"a:1": (0,)}), ReplicaAssignments({"a:1": (0,), "b:1": (0,)})
    await zookeeper.create(path, before.encode(), make_path=True)
    seen: list[ReplicaAssignments] = []

    def apply(assignments: ReplicaAssignments) -> None:
        seen.append(assignments)
        if len(seen) < 3:
            raise ArithmeticError("planted")

    watch = ReplicaWatch(zookeeper, ROOT, apply, random.Random(1))
    await watch.start()
    await zookeeper.set(path, after.encode())
    async with asyncio.timeout(60):
        while watch.assignments != after:
            await asyncio.sleep(0)
    assert seen == [after] * 3
    assert "planted" in caplog.text
    await watch.close()
    await zookeeper.close()
