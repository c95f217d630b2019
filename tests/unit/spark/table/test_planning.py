import asyncio
import time
from pathlib import Path

import pytest

from tests.unit.archive.logs import archive_log
from tests.unit.common.cluster.conftest import ROOT
from tests.unit.common.cluster.fakes import KEY, FakeCluster, make_log, make_record
from waltz.archive.store import open_store
from waltz.spark.archive_reading import ArchiveSplit
from waltz.spark.errors import DataLossError, PlanningError
from waltz.spark.offsets import OffsetRange
from waltz.spark.table.options import parse_batch_options
from waltz.spark.table.planning import TableSplit, plan
from waltz.spark.table.saved import SavedPart
from waltz.table.ages import NO_AGES, Ages
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES
from waltz.table.errors import PropertiesError
from waltz.table.properties import change_properties
from waltz.table.snapshots.manifest import Manifest, SavedFile, file_name
from waltz.table.snapshots.place import SnapshotPlace

LAST = (9, -1, 0)
"""The last committed transaction of each partition."""


async def make_plan(**options: str) -> list[TableSplit]:
    parsed = parse_batch_options({"zookeeper": "zk:2181", "clusterRoot": ROOT, "tls.plaintext": "true"} | options)
    return await plan(parsed)


def ranges(splits: list[TableSplit]) -> list[OffsetRange]:
    return [part.range for found in splits for part in found.parts]


@pytest.mark.usefixtures("tables")
async def test_a_state_is_read_whole_by_one_task_for_each_table() -> None:
    assert ranges(await make_plan()) == [OffsetRange(0, 0, 10)]
    assert ranges(await make_plan(asOf='{"0": 4}')) == [OffsetRange(0, 0, 5)]
    assert ranges(await make_plan(asOf="0", partitions="0")) == [OffsetRange(0, 0, 1)]
    assert ranges(await make_plan(asOf="12", partitions="0", failOnDataLoss="false")) == [OffsetRange(0, 0, 10)]


@pytest.mark.usefixtures("tables")
async def test_versions_are_read_in_pieces() -> None:
    splits = await make_plan(versions="all", minPartitions="2", startingOffsets='{"0": 2}', endingOffsets='{"0": 8}')
    assert ranges(splits) == [OffsetRange(0, 2, 5), OffsetRange(0, 5, 8)]


async def test_a_state_and_an_interval_by_time(tables: FakeCluster) -> None:
    tables.owner.times = {0: {3: 1_000, 7: 2_000}}
    at = "1970-01-01T00:00:0{}Z".format
    assert ranges(await make_plan(asOfTimestamp=at(1))) == [OffsetRange(0, 0, 4)]
    assert ranges(await make_plan(asOfTimestamp=at(2))) == [OffsetRange(0, 0, 8)]
    assert await make_plan(asOfTimestamp=at("0.9")) == []
    interval = {"versions": "all", "startingTimestamp": at(1), "endingTimestamp": at(2)}
    assert ranges(await make_plan(**interval)) == [OffsetRange(0, 4, 8)]
    tables.owner.times = None
    for given in (interval, {"asOfTimestamp": at(1)}):
        with pytest.raises(PlanningError, match="none of its storages keeps the times of commits"):
            await make_plan(**given)


async def test_rows_expire_by_the_time_of_the_state(tables: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.owner.times = {0: {3: 1_000}}
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000_000)
    for given, now_ms in (
        ({"asOfTimestamp": "1970-01-01T00:00:01Z"}, 1_000),
        ({"asOfTimestamp": "1970-01-01T00:00:09Z"}, 5_000),
        ({"asOfTimestamp": "1970-01-01T00:00:01Z", "nowMs": "7"}, 7),
    ):
        assert [found.now_ms for found in await make_plan(**given)] == [now_ms]


@pytest.mark.usefixtures("tables")
async def test_what_is_archived_is_read_from_there_by_the_same_task(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    url = f"file://{tmp_path}"
    await archive_log(tmp_path, KEY, 0, make_log(0, 4), 3)
    (found,) = await make_plan(archive=url)
    assert ranges([found]) == [OffsetRange(0, 0, 4), OffsetRange(0, 4, 10)]
    assert [isinstance(part, ArchiveSplit) for part in found.parts] == [True, False]
    (found,) = await make_plan(archive=url, asOf='{"0": 2}')
    assert ranges([found]) == [OffsetRange(0, 0, 3)]
    assert isinstance(found.parts[0], ArchiveSplit)
    pieces = await make_plan(archive=url, versions="all", maxRowsPerSplit="3")
    assert ranges(pieces) == [OffsetRange(0, *each) for each in ((0, 2), (2, 4), (4, 7), (7, 10))]
    assert [isinstance(part, ArchiveSplit) for each in pieces for part in each.parts] == [True, True, False, False]
    with pytest.raises(PlanningError, match="the cluster has no address of an archive"):
        await make_plan(archive="cluster")


async def save(url: str, applied: int, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> Manifest:
    """A snapshot of partition 0 with two files."""
    place = SnapshotPlace(open_store(url), KEY, 0)
    files = tuple(SavedFile(file_name(applied, "a", number), 10, 1, 2) for number in range(2))
    request_id = bytes(make_record(0, applied).req_id)
    manifest = Manifest(KEY, 0, applied, request_id, 1, max_body_bytes, 4, 0, 0, 5, 6, files)
    assert await place.create(manifest)
    return manifest


@pytest.mark.usefixtures("tables")
async def test_a_state_begins_with_the_newest_snapshot_that_fits(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    url = f"file://{tmp_path}"
    assert ranges(await make_plan(snapshots=url)) == [OffsetRange(0, 0, 10)]
    early, late = [await save(url, applied) for applied in (2, 6)]
    await save(url, 7, max_body_bytes=1)
    await save(url, 20)
    (found,) = await make_plan(snapshots=url)
    assert ranges([found]) == [OffsetRange(0, 6, 10)]
    assert found.saved == SavedPart(url, KEY, 0, 6, late.request_id, late.files)
    (found,) = await make_plan(snapshots=url, asOf='{"0": 5}')
    assert ranges([found]) == [OffsetRange(0, 2, 6)]
    assert found.saved == SavedPart(url, KEY, 0, 2, early.request_id, early.files)
    (found,) = await make_plan(snapshots=url, asOf='{"0": 1}')
    assert (ranges([found]), found.saved) == ([OffsetRange(0, 0, 2)], None)
    (tmp_path / f"snapshots/{KEY}/0/manifest/{6:019d}").write_bytes(b"nothing")
    (found,) = await make_plan(snapshots=url)
    assert ranges([found]) == [OffsetRange(0, 2, 10)]


@pytest.mark.usefixtures("tables")
async def test_the_state_of_a_snapshot_is_read_from_it_alone_by_a_task_for_each_file(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    url = f"file://{tmp_path}"
    manifest = await save(url, 6)
    found = await make_plan(snapshots=url, asOf='{"0": 6}')
    assert [each.parts for each in found] == [(), ()]
    assert [each.saved for each in found] == [
        SavedPart(url, KEY, 0, 6, manifest.request_id, (file,)) for file in manifest.files
    ]


@pytest.mark.usefixtures("tables")
async def test_what_follows_a_snapshot_may_be_archived(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    url = f"file://{tmp_path}"
    await archive_log(tmp_path, KEY, 0, make_log(0, 8), 3)
    await save(url, 4)
    (found,) = await make_plan(archive=url, snapshots=url)
    assert ranges([found]) == [OffsetRange(0, 4, 8), OffsetRange(0, 8, 10)]
    assert [isinstance(part, ArchiveSplit) for part in found.parts] == [True, False]
    with pytest.raises(PlanningError, match="option snapshots=cluster: the cluster has no address of an archive"):
        await make_plan(snapshots="cluster")


async def test_a_task_knows_its_table(tables: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"ttlVersionAgeInMillis": 5, "maxDecompressedSizeInBytes": 99}
    await change_properties(tables.zookeeper, ROOT, 0, changes)
    await change_properties(tables.zookeeper, ROOT, 2, {"format": "table"})
    ((first, *other), (second, *_)) = [found[2:5] for found in await make_plan(nowMs="17")]
    assert (first, *other) == (99, Ages(0, 0, 0, 5), 17)
    assert second == 64 << 20
    monkeypatch.setattr(time, "time_ns", lambda: 18_999_999)
    assert [(found.ages, found.now_ms) for found in await make_plan()] == [(Ages(0, 0, 0, 5), 18), (NO_AGES, 18)]


async def test_what_was_configured_a_moment_ago_counts(tables: FakeCluster) -> None:
    await change_properties(tables.zookeeper, ROOT, 0, {"format": None})
    await change_properties(tables.zookeeper, ROOT, 2, {"format": "table"})
    assert ranges(await make_plan()) == [OffsetRange(2, 0, 1)]
    for partition_id in (1, 2):
        await change_properties(tables.zookeeper, ROOT, partition_id, {"format": None})
    with pytest.raises(PlanningError, match=r"no partition of the cluster at \S+ is a table; one is made by"):
        await make_plan()


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"partitions": "0,2"}, PropertiesError, "partition 2 is not a table: its format is raw"),
        ({"partitions": "1-3"}, PlanningError, "no partition 3"),
        ({"asOf": "3"}, PlanningError, r'a transaction id belongs to one partition, and 2 are read; give {"0": 3}'),
        ({"asOf": '{"2": 0}'}, PlanningError, "asOf names partition 2, which is not read"),
        ({"asOf": '{"0": 10}'}, DataLossError, "asOf: transaction 10 is beyond partition 0, whose last .* is 9"),
        ({"asOf": '{"1": 0}'}, DataLossError, "asOf: transaction 0 is beyond partition 1, whose last .* is -1"),
        ({"versions": "all", "endingOffsets": '{"0": 11}'}, DataLossError, "endingOffsets: 11 is beyond partition 0"),
        ({"versions": "all", "startingOffsets": '{"2": 0}'}, PlanningError, "startingOffsets names partition 2"),
    ],
)
async def test_what_is_refused(options: dict[str, str], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        await asyncio.wait_for(make_plan(**options), 30)
