import asyncio
import json
from collections.abc import Iterable

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.common.cluster.conftest import ROOT
from tests.unit.common.cluster.fakes import KEY, SESSION, FakeCluster, FakeOwner, make_metadata, storage_name
from tests.unit.common.zk.lagging import LaggingZooKeeper
from waltz.client.errors import TrimmedError
from waltz.common.cluster.replicas import Replicas, Source, read_replicas
from waltz.common.ids import Endpoint
from waltz.common.zk.client import ZooKeeper, ZooKeeperUnreachableError
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.storage_labels import parse_labels
from waltz.common.zk.trim_points import raise_trim_point
from waltz.common.zk.znodes import UNRESOLVED
from waltz.spark import planning
from waltz.spark.errors import PlanningError
from waltz.spark.offsets import OffsetRange
from waltz.spark.options import parse_options
from waltz.spark.planning import Split, plan, plan_with, rotate

A, B, C = map(storage_name, range(3))
CURRENT = (SESSION, UNRESOLVED)


async def make_plan(cluster: FakeCluster, timeout_s: float = 30.0, **options: str) -> list[Split]:
    parsed = parse_options({"zookeeper": "zk:2181", "clusterRoot": ROOT, "tls.plaintext": "true"} | options)
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    return await plan_with(cluster.zookeeper, parsed, tls=None, deadline_s=deadline_s)


def storages(split: Split) -> list[str]:
    return [source.storage for source in split.sources]


async def test_everything_committed_and_nothing_else(cluster: FakeCluster) -> None:
    splits = await make_plan(cluster)
    assert [split.range for split in splits] == [OffsetRange(0, 0, 10), OffsetRange(2, 0, 1)]
    assert {(split.cluster_key, split.partition_count) for split in splits} == {(KEY, 3)}
    assert splits[0].sources[0].admin == Endpoint("127.0.0.1", cluster.storages[0].admin_port)


async def test_splits_begin_at_different_replicas(cluster: FakeCluster) -> None:
    splits = await make_plan(cluster, maxRowsPerSplit="3")
    assert [split.range for split in splits] == [
        OffsetRange(0, 0, 2),
        OffsetRange(0, 2, 5),
        OffsetRange(0, 5, 7),
        OffsetRange(0, 7, 10),
        OffsetRange(2, 0, 1),
    ]
    assert [storages(split) for split in splits] == [[A, B, C], [B, C, A], [C, A, B], [A, B, C], [B, C, A]]


async def test_near_replicas_are_read_first(cluster: FakeCluster) -> None:
    for storage, place in ((A, "datacenter=y,rack=1"), (B, "datacenter=x,rack=2"), (C, "datacenter=x,rack=1")):
        path = ClusterPaths.of(ROOT).storage_labels(storage)
        await cluster.zookeeper.create(path, json.dumps(parse_labels(place)).encode(), make_path=True)
    for zone, expected in (
        ("datacenter=x,rack=1", [[C, B, A]] * 2),
        ("datacenter=x", [[B, C, A], [B, C, A]]),
        ("datacenter=z", [[A, B, C], [B, C, A]]),
    ):
        splits = await make_plan(cluster, zone=zone)
        assert [storages(split) for split in splits] == expected
    await cluster.set_states(0, {A: CURRENT, B: CURRENT, C: (SESSION - 1, 4)})
    assert storages((await make_plan(cluster, zone="datacenter=x,rack=1"))[0]) == [B, A]


async def test_options_narrow_the_plan(cluster: FakeCluster) -> None:
    splits = await make_plan(
        cluster, partitions="0", startingOffsets='{"0": 4}', endingOffsets='{"0": 8}', minPartitions="2"
    )
    assert [split.range for split in splits] == [OffsetRange(0, 4, 6), OffsetRange(0, 6, 8)]


async def test_times_become_offsets_once(cluster: FakeCluster) -> None:
    cluster.owner.times = {0: {3: 1_000, 7: 2_000}, 2: {0: 2_500}}
    splits = await make_plan(cluster, startingTimestamp="1970-01-01T00:00:01Z", endingTimestamp="1970-01-01T00:00:02Z")
    assert [split.range for split in splits] == [OffsetRange(0, 4, 8)]
    splits = await make_plan(cluster, startingTimestamp="1970-01-01T01:00:02+01:00")
    assert [split.range for split in splits] == [OffsetRange(0, 8, 10), OffsetRange(2, 0, 1)]
    splits = await make_plan(cluster, endingTimestamp="1970-01-01T00:00:01.5Z", startingOffsets='{"0": 2}')
    assert [split.range for split in splits] == [OffsetRange(0, 2, 4)]


async def test_an_end_is_not_before_its_start_although_a_storage_has_come_or_gone(cluster: FakeCluster) -> None:
    cluster.owner.times = {0: {7: 1_000}}

    async def marks_at(*_: object, time_ms: int | None = None, **__: object) -> dict[int, int]:
        return {0: 9} if time_ms is None else {0: 7} if time_ms == 1_000 else {0: 3}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "committed_marks", marks_at)
        begin, end = "1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"
        assert await make_plan(cluster, partitions="0", startingTimestamp=begin, endingTimestamp=end) == []


async def test_times_that_nobody_knows_are_no_plan(cluster: FakeCluster) -> None:
    cluster.owner.times = None
    with pytest.raises(PlanningError, match="none of its storages keeps the times of commits"):
        await make_plan(cluster, startingTimestamp="2026-03-01T12:00:00Z")


async def test_what_is_trimmed_is_not_left_out_but_told(cluster: FakeCluster) -> None:
    await raise_trim_point(cluster.zookeeper, ROOT, 0, 4)
    for start in ("earliest", '{"0": 3}'):
        for fail in ("true", "false"):
            with pytest.raises(TrimmedError, match="its first available transaction is 4") as told:
                await make_plan(cluster, startingOffsets=start, partitions="0", failOnDataLoss=fail)
            assert (told.value.partition_id, told.value.first_available) == (0, 4)
    splits = await make_plan(cluster, startingOffsets='{"0": 4}', partitions="0")
    assert [split.range for split in splits] == [OffsetRange(0, 4, 10)]
    assert [split.range for split in await make_plan(cluster, partitions="2")] == [OffsetRange(2, 0, 1)]


async def test_nothing_to_read_needs_no_replica(cluster: FakeCluster) -> None:
    for partition_id in range(3):
        await cluster.set_states(partition_id, {})
    assert await make_plan(cluster, partitions="1") == []
    assert await make_plan(cluster, startingOffsets="latest") == []


async def test_a_mark_that_nobody_tells_is_no_plan(cluster: FakeCluster) -> None:
    cluster.owner.silent = {0}
    with pytest.raises(PlanningError, match="no server told the high-water mark of partition 0 within"):
        await make_plan(cluster, timeout_s=0.1)


async def test_replicas_are_chosen_after_the_mark_is_known(cluster: FakeCluster) -> None:
    """Rule S6: a replica that left the session while the mark was asked for may hold a dirty tail below the mark."""

    async def leave() -> None:
        await cluster.set_states(
            0, {A: (SESSION, 4), B: (SESSION + 1, UNRESOLVED), C: (SESSION + 1, UNRESOLVED)}, session_id=SESSION + 1
        )

    cluster.owner.before_answer = leave
    (split,) = await make_plan(cluster, partitions="0")
    assert storages(split) == [B, C]


async def test_metadata_are_not_older_than_the_mark() -> None:
    """Rule S6, when the reader's member of the ZooKeeper ensemble has not applied what the owner wrote before it
    answered: A was cut off with a dirty tail in the session that the reader would see."""
    server = MemoryZooKeeperServer()
    cluster = await FakeCluster.start(await server.connect(), ROOT, [10])
    reader = LaggingZooKeeper(server, await server.connect())

    async def leave() -> None:
        reader.fall_behind()
        states = {A: (SESSION, 4), B: (SESSION + 1, UNRESOLVED), C: (SESSION + 1, UNRESOLVED)}
        await owner.set(cluster.paths.partition(0), make_metadata(0, states, session_id=SESSION + 1).encode())

    owner, cluster.zookeeper = cluster.zookeeper, reader
    cluster.owner.before_answer = leave
    (split,) = await make_plan(cluster, partitions="0")
    assert storages(split) == [B, C]
    await cluster.stop()


async def test_the_owner_asked_is_not_one_from_before_the_call() -> None:
    """Else the read would miss what the new owner has committed, and told its clients, before the read began."""
    server = MemoryZooKeeperServer()
    cluster = await FakeCluster.start(await server.connect(), ROOT, [10])
    deposed = FakeOwner({0: 3})
    await deposed.start()
    await cluster.register_server(2, deposed.endpoint)
    await cluster.assign_to(2)
    reader = LaggingZooKeeper(server, await server.connect())
    reader.fall_behind()
    await cluster.assign_to(1)
    cluster.zookeeper = reader
    (split,) = await make_plan(cluster, partitions="0")
    assert split.range == OffsetRange(0, 0, 10)
    assert deposed.requests == []
    await deposed.stop()
    await cluster.stop()


async def test_waits_for_a_recovery_to_end(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.set_states(0, dict.fromkeys((A, B, C), CURRENT), session_id=SESSION + 1)
    looked = asyncio.Event()

    async def read(zookeeper: ZooKeeper, root: str, partition_ids: Iterable[int]) -> Replicas:
        replicas = await read_replicas(zookeeper, root, partition_ids)
        looked.set()
        return replicas

    monkeypatch.setattr(planning, "read_replicas", read)
    task = asyncio.create_task(make_plan(cluster, partitions="0"))
    await looked.wait()
    await cluster.set_states(0, {A: CURRENT, B: (SESSION + 1, UNRESOLVED)}, session_id=SESSION + 1)
    (split,) = await task
    assert storages(split) == [B]


async def test_no_replica_may_serve(cluster: FakeCluster) -> None:
    await cluster.set_states(0, {A: (6, UNRESOLVED), B: (SESSION, 3)})
    with pytest.raises(
        PlanningError, match=f"no replica of partition 0 may serve .*{A}: .*{B}: .*{C}: it takes no part"
    ):
        await make_plan(cluster, timeout_s=0.3)


async def test_wrong_root(cluster: FakeCluster) -> None:
    with pytest.raises(PlanningError, match="no cluster at /other in the ZooKeeper at zk:2181; check the options"):
        await make_plan(cluster, clusterRoot="/other")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"partitions": "1-3"}, "no partition 3"),
        ({"startingOffsets": '{"3": 0}'}, "startingOffsets names partition 3"),
        ({"partitions": "1", "endingOffsets": '{"0": 0}'}, "endingOffsets names partition 0"),
        ({"endingOffsets": '{"0": 11}'}, "endingOffsets: 11 is beyond partition 0"),
        ({"startingOffsets": '{"2": 2}'}, "startingOffsets: 2 is beyond partition 2"),
        ({"startingOffsets": '{"0": 3}', "endingOffsets": '{"0": 2}'}, "would end at 2, before its start at 3"),
    ],
)
async def test_ranges_that_do_not_exist(cluster: FakeCluster, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(PlanningError, match=complaint):
        await make_plan(cluster, 30.0, **options)


async def test_unreachable_zookeeper() -> None:
    options = parse_options({"zookeeper": "127.0.0.1:1", "clusterRoot": ROOT, "planningTimeoutMs": "300"})
    with pytest.raises(ZooKeeperUnreachableError, match="no ZooKeeper server answers at 127.0.0.1:1"):
        await plan(options)


def test_rotation() -> None:
    sources = [Source(name, Endpoint.parse(name)) for name in (A, B, C)]
    assert [[source.storage for source in rotate(sources, places)] for places in range(4)] == [
        [A, B, C],
        [B, C, A],
        [C, A, B],
        [A, B, C],
    ]
