"""Reads of which a part is archived: every transaction in one split, whatever is archived."""

import asyncio
import pickle
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_zookeeper import MemoryZooKeeper
from tests.unit.archive.logs import archive_log
from tests.unit.common.cluster.conftest import ROOT
from tests.unit.common.cluster.fakes import KEY, FakeCluster, make_log
from waltz.archive.errors import ArchiveError
from waltz.archive.manifest import ArchivedRange
from waltz.archive.object_format import ObjectName
from waltz.common.zk.archive_address import write_archive_url
from waltz.common.zk.client import ZooKeeper
from waltz.spark import archive_planning
from waltz.spark.archive_planning import StreamSplits, mark_at, plan
from waltz.spark.archive_reading import ArchiveSplit
from waltz.spark.errors import DataLossError, PlanningError
from waltz.spark.offsets import OffsetRange
from waltz.spark.options import ClusterOptions, parse_options
from waltz.spark.planning import Split
from waltz.spark.stream_planning import StreamPlanner

pytest.importorskip("obstore")

CLUSTER = {"zookeeper": "zk:2181", "clusterRoot": ROOT, "tls.plaintext": "true"}


@pytest.fixture
def _connected(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(cluster.zookeeper, MemoryZooKeeper)
    server = cluster.zookeeper._server

    async def connect(_: ClusterOptions) -> ZooKeeper:
        return await server.connect()

    monkeypatch.setattr(archive_planning, "connect_zookeeper", connect)
    monkeypatch.setattr("waltz.spark.stream_planning.connect_zookeeper", connect)


def address(directory: Path) -> dict[str, str]:
    return {"archive": f"file://{directory}"}


def pieces(splits: list[Split | ArchiveSplit]) -> list[tuple[str, int, int, int]]:
    return [("archive" if isinstance(each, ArchiveSplit) else "cluster", *each.range) for each in splits]


@pytest.mark.usefixtures("_connected")
@pytest.mark.parametrize("archived", [0, 1, 6, 10])
@pytest.mark.parametrize("bounds", [(0, 10), (3, 9), (7, 10), (0, 5), (6, 6)])
async def test_all_is_read_once_from_one_of_both(tmp_path: Path, archived: int, bounds: tuple[int, int]) -> None:
    await archive_log(tmp_path, KEY, 0, make_log(0, archived), 2)
    start, end = bounds
    for rows in (1, 4, 100):
        found = await plan(
            parse_options(
                CLUSTER
                | address(tmp_path)
                | {
                    "partitions": "0",
                    "startingOffsets": f'{{"0": {start}}}',
                    "endingOffsets": f'{{"0": {end}}}',
                    "maxRowsPerSplit": str(rows),
                }
            )
        )
        covered = [each for split in found for each in range(split.range.start, split.range.end)]
        assert covered == [*range(start, end)]
        for split in found:
            is_archived = isinstance(split, ArchiveSplit)
            assert is_archived == (split.range.end <= archived)
            if isinstance(split, ArchiveSplit):
                ids = {each for there in split.objects for each in range(there.first, there.end)}
                assert ids >= {*range(split.range.start, split.range.end)}
                assert split.cluster_key == KEY


@pytest.mark.usefixtures("_connected")
async def test_partitions_without_an_archive_are_read_from_the_cluster(tmp_path: Path) -> None:
    await archive_log(tmp_path, KEY, 0, make_log(0, 4), 3)
    found = await plan(parse_options(CLUSTER | address(tmp_path)))
    assert pieces(found) == [("archive", 0, 0, 4), ("cluster", 0, 4, 10), ("cluster", 2, 0, 1)]


@pytest.mark.usefixtures("_connected")
async def test_replicas_are_not_asked_for_when_all_is_archived(cluster: FakeCluster, tmp_path: Path) -> None:
    await archive_log(tmp_path, KEY, 0, make_log(0, 10), 3)
    for storage in cluster.storages:
        await storage.stop()
    found = await plan(parse_options(CLUSTER | address(tmp_path) | {"partitions": "0,1"}))
    assert pieces(found) == [("archive", 0, 0, 10)]


@pytest.mark.usefixtures("_connected")
async def test_micro_batches_are_divided_as_well(tmp_path: Path) -> None:
    await archive_log(tmp_path, KEY, 0, make_log(0, 4), 3)
    options = parse_options(CLUSTER | address(tmp_path) | {"partitions": "0", "startingOffsets": "earliest"})
    planner = StreamPlanner(options)
    try:
        start = await planner.initial()
        end = await planner.latest(start, None)
        assert pieces(await StreamSplits(options).splits(planner, start, end)) == [
            ("archive", 0, 0, 4),
            ("cluster", 0, 4, 10),
        ]
        plain = parse_options(CLUSTER | {"partitions": "0"})
        assert pieces(await StreamSplits(plain).splits(planner, start, end)) == [("cluster", 0, 0, 10)]
    finally:
        await planner.close()


@pytest.mark.usefixtures("_connected")
async def test_a_stream_at_the_tip_looks_into_the_archive_only_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = parse_options(CLUSTER | address(tmp_path) | {"partitions": "0", "startingOffsets": "earliest"})
    planner = StreamPlanner(options)
    stream = pickle.loads(pickle.dumps(StreamSplits(options)))
    try:
        start = await planner.initial()
        end = await planner.latest(start, None)
        assert pieces(await stream.splits(planner, start, end)) == [("cluster", 0, 0, 10)]
        await archive_log(tmp_path, KEY, 0, make_log(0, 4), 3)
        assert pieces(await stream.splits(planner, start, end)) == [("cluster", 0, 0, 10)]
        monkeypatch.setattr(archive_planning, "LOOK_AGAIN_S", 0.0)
        assert pieces(await stream.splits(planner, start, end)) == [("archive", 0, 0, 4), ("cluster", 0, 4, 10)]
    finally:
        await planner.close()


@pytest.mark.usefixtures("_connected")
async def test_the_cluster_says_where_its_archive_is(cluster: FakeCluster, tmp_path: Path) -> None:
    await archive_log(tmp_path, KEY, 0, make_log(0, 4), 3)
    options = parse_options(CLUSTER | {"archive": "cluster", "partitions": "0", "startingOffsets": "earliest"})
    planner = StreamPlanner(options)
    try:
        start = await planner.initial()
        end = await planner.latest(start, None)
        text = "option archive=cluster: the cluster has no address of an archive"
        with pytest.raises(PlanningError, match=text):
            await plan(options)
        with pytest.raises(PlanningError, match=text):
            await StreamSplits(options).splits(planner, start, end)
        await write_archive_url(cluster.zookeeper, ROOT, f"file://{tmp_path}")
        expected = [("archive", 0, 0, 4), ("cluster", 0, 4, 10)]
        found = await plan(options)
        assert pieces(found) == expected
        assert [each.url for each in found if isinstance(each, ArchiveSplit)] == [f"file://{tmp_path}"]
        assert pieces(await StreamSplits(options).splits(planner, start, end)) == expected
        plain = parse_options(CLUSTER | {"partitions": "0"})
        assert pieces(await StreamSplits(plain).splits(planner, start, end)) == [("cluster", 0, 0, 10)]
    finally:
        await planner.close()


async def test_the_archive_alone_needs_no_cluster(tmp_path: Path) -> None:
    await archive_log(tmp_path, KEY, 0, make_log(0, 7), 3)
    await archive_log(tmp_path, KEY, 2, make_log(2, 1), 3)
    only = address(tmp_path) | {"archiveOnly": "true"}
    found = await plan(parse_options(only))
    assert pieces(found) == [("archive", 0, 0, 7), ("archive", 2, 0, 1)]
    assert pieces(await plan(parse_options(only | {"partitions": "0", "startingOffsets": '{"0": 6}'}))) == [
        ("archive", 0, 6, 7)
    ]
    with pytest.raises(PlanningError, match="nothing of partition 1 is in the archive"):
        await plan(parse_options(only | {"partitions": "1"}))
    with pytest.raises(PlanningError, match="option partitions"):
        await plan(parse_options(only | {"partitions": "3"}))
    with pytest.raises(DataLossError, match="8 is beyond partition 0"):
        await plan(parse_options(only | {"endingOffsets": '{"0": 8}'}))
    clipped = only | {"endingOffsets": '{"0": 8}', "failOnDataLoss": "false"}
    assert pieces(await plan(parse_options(clipped)))[0] == ("archive", 0, 0, 7)


async def test_one_of_several_clusters_is_chosen(tmp_path: Path) -> None:
    other = UUID(int=5)
    await archive_log(tmp_path, KEY, 0, make_log(0, 7), 3)
    await archive_log(tmp_path, other, 0, make_log(0, 2), 3)
    only = address(tmp_path) | {"archiveOnly": "true"}
    with pytest.raises(ArchiveError, match="give a key"):
        await plan(parse_options(only))
    (split,) = await plan(parse_options(only | {"archiveCluster": str(other)}))
    assert isinstance(split, ArchiveSplit)
    assert (split.range, split.cluster_key) == (OffsetRange(0, 0, 2), other)


def test_an_empty_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="it is empty"):
        asyncio.run(plan(parse_options(address(tmp_path) | {"archiveOnly": "true"})))


async def test_the_archive_alone_is_read_by_the_times_of_its_objects(tmp_path: Path) -> None:
    """Objects 0 to 2, 3 to 5 and 6, committed at 100, 200 ... 700 ms."""
    await archive_log(tmp_path, KEY, 0, make_log(0, 7), 3, range(100, 800, 100).__getitem__)
    only = address(tmp_path) | {"archiveOnly": "true"}

    async def read(start_ms: int | None, end_ms: int | None) -> list[tuple[str, int, int, int]]:
        bounds = {"startingTimestamp": start_ms, "endingTimestamp": end_ms}
        given = {name: f"1970-01-01T00:00:00.{ms:03}Z" for name, ms in bounds.items() if ms is not None}
        return pieces(await plan(parse_options(only | given)))

    assert await read(300, None) == [("archive", 0, 3, 7)]
    assert await read(299, None) == [("archive", 0, 1, 7)]
    assert await read(None, 599) == [("archive", 0, 0, 4)]
    assert await read(150, 650) == [("archive", 0, 1, 6)]
    assert await read(None, 99) == []
    assert await read(700, 999) == []
    await archive_log(tmp_path, KEY, 1, make_log(1, 1), 3)
    with pytest.raises(PlanningError, match="does not tell when transactions of partition 1 were committed"):
        await read(300, None)


@given(
    objects=st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.booleans()), min_size=1, max_size=6),
    gaps_ms=st.lists(st.integers(0, 3), min_size=30, max_size=30),
    time_ms=st.integers(-1, 50),
)
def test_a_mark_by_objects_is_early_by_less_than_one(
    objects: list[tuple[int, bool, bool]], gaps_ms: list[int], time_ms: int
) -> None:
    """The naive model knows the time of every transaction."""
    times_ms = [sum(gaps_ms[: each + 1]) for each in range(len(gaps_ms))]
    ranges, sizes, first = [], [0], 0
    for size, knows_first, knows_last in objects:
        last = first + size - 1
        known = (times_ms[first] if knows_first else None, times_ms[last] if knows_last else None)
        ranges.append(ArchivedRange(ObjectName(first, last, 0), 1, 1, *known))
        sizes.append(size)
        first += size
    if not any(knows_first or knows_last for _, knows_first, knows_last in objects):
        with pytest.raises(PlanningError):
            mark_at(0, ranges, time_ms)
        return
    mark = mark_at(0, ranges, time_ms)
    exact = max((each for each in range(first) if times_ms[each] <= time_ms), default=-1)
    assert mark <= exact
    if all(knows_first and knows_last for _, knows_first, knows_last in objects):
        assert exact - mark < max(sizes)
