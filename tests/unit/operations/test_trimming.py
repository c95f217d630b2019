"""How far a partition may be trimmed, on real storages and ZooKeeper in memory."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from unittest import mock

import pytest

from tests.memory_zookeeper import MemoryZooKeeper
from tests.unit.operations.test_repair import Cluster, cluster
from tests.unit.storage.node_support import ROOT
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.zk.features import TRIM, read_features, write_features
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.trim_points import read_trim_point
from waltz.operations import features
from waltz.operations.trimming import ARCHIVE, Need, Plan, first_within, low_water_mark, needs_of, plan_trim, trim
from waltz.storage.remote.client import StorageClient

PATHS = ClusterPaths.of(ROOT)
MARK = 39
"""The low-water mark of the replicas."""


class Setup:
    def __init__(self, made: Cluster, zookeeper: MemoryZooKeeper) -> None:
        self.made = made
        self.zookeeper = zookeeper
        self.cluster = ClusterHandle(zookeeper, ROOT, None)
        self.end: int | None = None
        self.archive_error: WaltzError | None = None

    async def archived_end(self, partition_id: int) -> int | None:
        assert partition_id == 0
        if self.archive_error is not None:
            raise self.archive_error
        return self.end

    async def allow(self) -> None:
        before = await read_features(self.zookeeper, ROOT)
        await write_features(self.zookeeper, ROOT, frozenset({TRIM}), before)

    async def cursor(self, group: str, data: Mapping[str, object] | bytes) -> None:
        encoded = data if isinstance(data, bytes) else json.dumps(data).encode()
        await self.zookeeper.create(PATHS.cursor(group, 0), encoded, make_path=True)

    async def plan(self, first: int) -> Plan:
        return await plan_trim(self.cluster, 0, first, self.archived_end)

    async def needs(self) -> list[Need]:
        return await needs_of(self.cluster, 0, self.archived_end)


@pytest.fixture
async def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    monkeypatch.setattr(features, "read_server_descriptors", mock.AsyncMock(return_value=[]))
    async with cluster(tmp_path, lambda _directory: None) as made:
        await made.describe(members=(0, 1, 2))
        zookeeper = await made.server.connect()
        yield Setup(made, zookeeper)
        await zookeeper.close()


async def test_nothing_is_trimmed_without_the_feature(setup: Setup) -> None:
    with pytest.raises(WaltzError, match="does not have the feature trim: waltz cluster features --enable trim"):
        await setup.plan(5)


async def test_nothing_is_trimmed_while_a_node_of_the_original_is_there(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.allow()
    with monkeypatch.context() as patched:
        patched.setattr(StorageClient, "trims", False)
        with pytest.raises(WaltzError, match="nothing is trimmed while .*: storage .* is a node of the original"):
            await setup.plan(1)
    assert (await setup.plan(1)).first == 1


async def test_nothing_above_the_low_water_mark_is_trimmed(setup: Setup) -> None:
    await setup.allow()
    mark = await low_water_mark(setup.cluster, 0)
    with pytest.raises(WaltzError, match=f"low-water mark can be trimmed, which is {mark} in the present"):
        await setup.plan(mark + 2)
    plan = await setup.plan(mark + 1)
    assert plan == Plan(0, 0, mark + 1, ())
    assert await trim(setup.cluster, plan, ()) == mark + 1
    assert await read_trim_point(setup.zookeeper, ROOT, 0) == mark + 1


async def test_the_newest_segments_are_those_of_the_replica_that_keeps_most(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await first_within(setup.cluster, 0, 1 << 40) == 0
    answers = iter((20, 10, 30))

    async def answer(*_: object, **__: object) -> int:
        return next(answers)

    monkeypatch.setattr(StorageClient, "first_within", answer)
    assert await first_within(setup.cluster, 0, 5) == 10
    monkeypatch.setattr(StorageClient, "trims", False)
    with pytest.raises(WaltzError, match="no replica of partition 0 .* answers: .*a node of the original"):
        await first_within(setup.cluster, 0, 5)


async def test_without_a_replica_that_answers_nothing_is_certain(setup: Setup) -> None:
    await setup.allow()
    for node in setup.made.nodes:
        await node.node.close()
    with pytest.raises(WaltzError, match="no replica of partition 0 in the present store session answers"):
        await setup.plan(0)


async def test_a_lower_point_than_before_is_no_trim(setup: Setup) -> None:
    await setup.allow()
    await trim(setup.cluster, await setup.plan(low := await low_water_mark(setup.cluster, 0)), ())
    plan = await setup.plan(0)
    assert (plan.before, plan.first) == (low, low)


async def test_readers_keep_the_transaction_at_their_position(setup: Setup) -> None:
    """A reader compares it with what it has read (rule S10)."""
    await setup.cursor("a", {"transactionId": 7, "holder": "x"})
    await setup.cursor("b", {"transactionId": -1, "holder": "x"})
    await setup.zookeeper.create(PATHS.cursor("elsewhere", 1), b"{}", make_path=True)
    assert [(each.name, each.first) for each in await setup.needs()] == [("cursor a", 7), ("cursor b", 0)]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"transactionId": "7"}', b'{"transactionId": -2}', b"\xff"])
async def test_a_position_that_cannot_be_read_may_be_any(setup: Setup, data: bytes) -> None:
    await setup.cursor("a", data)
    (need,) = await setup.needs()
    assert (need.name, need.first) == ("cursor a", 0)


async def test_running_consumers_whose_positions_are_elsewhere_may_need_everything(setup: Setup) -> None:
    for group in ("running", "placed"):
        await setup.zookeeper.create(f"{PATHS.consumer_members(group)}/one", b"", make_path=True)
    await setup.zookeeper.create(PATHS.consumer_members("ended"), b"", make_path=True)
    await setup.cursor("placed", {"transactionId": 3, "holder": "x"})
    assert [(each.name, each.first) for each in await setup.needs()] == [("consumer running", 0), ("cursor placed", 3)]


async def test_what_is_not_archived_stays(setup: Setup) -> None:
    assert await setup.needs() == []
    setup.end = 20
    assert [(each.name, each.first) for each in await setup.needs()] == [(ARCHIVE, 20)]
    setup.archive_error = WaltzError("it is away")
    assert await setup.needs() == [Need(ARCHIVE, 0, "it is away")]


async def test_only_those_who_are_named_are_hurt(setup: Setup) -> None:
    await setup.allow()
    mark = await low_water_mark(setup.cluster, 0)
    assert mark >= 3
    await setup.cursor("a", {"transactionId": 2, "holder": "x"})
    setup.end = 1
    plan = await setup.plan(3)
    assert [each.name for each in plan.needs] == [ARCHIVE, "cursor a"]
    for forced in ((), (ARCHIVE,), ("cursor a",), ("cursor b",)):
        with pytest.raises(WaltzError, match="partition 0 was not trimmed before 3: "):
            await trim(setup.cluster, plan, forced)
    with pytest.raises(WaltzError, match="cursor b would not be hurt"):
        await trim(setup.cluster, plan, (ARCHIVE, "cursor a", "cursor b"))
    assert await read_trim_point(setup.zookeeper, ROOT, 0) == 0
    assert await trim(setup.cluster, plan, (ARCHIVE, "cursor a")) == 3
    assert (await setup.plan(3)).first == 3
