"""A storage directory that the original wrote opens here, unchanged, and goes on."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from tests.unit.storage.log_testing import append, read_all
from waltz.common.checksum import checksum
from waltz.common.ids import ReqId
from waltz.common.records import Record, RecordHeader
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.segment.segment_opening import open_segment, read_header
from waltz.storage.disk.segment.segment_recovery import Known

DATA = Path(__file__).parents[3] / "data"


class Golden(NamedTuple):
    directory: Path
    key: UUID
    partition_count: int
    threshold: int
    partitions: dict[int, tuple[tuple[int, int, int], list[Record]]]


@pytest.fixture
def files() -> Iterator[OsFiles]:
    os_files = OsFiles(max_threads=2)
    yield os_files
    os_files.close()


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    with tarfile.open(DATA / "storage-dir.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    content = json.loads((DATA / "storage-dir.json").read_text())
    partitions = {}
    for partition in content["partitions"]:
        info = partition["lastSessionInfo"]
        found = [
            Record(
                r["transactionId"],
                ReqId.of(*(r["reqId"][name] for name in ("clientId", "generation", "partitionId", "seqNum"))),
                r["header"],
                bytes.fromhex(r["data_hex"]),
                r["checksum"],
            )
            for r in partition["records"]
        ]
        marks = info["sessionId"], info["lowWaterMark"], info["localLowWaterMark"]
        partitions[partition["partitionId"]] = marks, found
    return Golden(
        tmp_path,
        UUID(content["clusterKey"]),
        content["numPartitions"],
        content["segmentSizeThreshold"],
        partitions,
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def open_partition(files: OsFiles, golden: Golden, partition_id: int) -> PartitionLog:
    return PartitionLog.open(
        files,
        str(golden.directory / str(partition_id)),
        golden.key,
        partition_id,
        local_low_water_mark=golden.partitions[partition_id][0][2],
        segment_size_threshold_bytes=golden.threshold,
        segment_cache_capacity=1,
    )


def test_everything_reads_back_and_no_file_changes(files: OsFiles, golden: Golden) -> None:
    before = contents(golden.directory)
    control = ControlFile.open(files, str(golden.directory), golden.key, golden.partition_count)
    assert len(golden.partitions) == 2
    for partition_id, (marks, expected) in golden.partitions.items():
        assert control.partition(partition_id)[:3] == marks
        assert control.partition(partition_id).assigned
        assert control.partition(partition_id).available
        log = open_partition(files, golden, partition_id)
        assert log.max_transaction_id == len(expected) - 1
        assert log.damage.ranges == ()
        assert read_all(log) == expected
        assert [log.read(r.transaction_id, 1) for r in expected] == [[r] for r in expected]
        assert log.read_headers(0, 10_000)[0] == [RecordHeader(*r[:3]) for r in expected]
        log.close()
    control.close()
    assert contents(golden.directory) == before


def test_full_recovery_leaves_the_files_of_the_original_unchanged(files: OsFiles, golden: Golden) -> None:
    before = contents(golden.directory)
    for partition_id in golden.partitions:
        for path in sorted((golden.directory / str(partition_id)).glob("*.seg")):
            header = read_header(files, str(path), golden.key, partition_id)
            path.with_suffix(".idx").unlink()
            assert header is not None
            segment, handles = open_segment(files, str(path), header, Known(-1))
            assert all(check.index_ok and check.checksum_ok for check in segment.verify(handles))
            handles.close()
    after = contents(golden.directory)
    # The creation time of a rebuilt index header is that of the data file.
    assert {name: (content[:4], content[12:]) for name, content in after.items()} == {
        name: (content[:4], content[12:]) for name, content in before.items()
    }


def test_appends_continue_and_leave_old_bytes_alone(files: OsFiles, golden: Golden) -> None:
    before = contents(golden.directory)
    for partition_id, (_, expected) in golden.partitions.items():
        log = open_partition(files, golden, partition_id)
        first = log.max_transaction_id + 1
        data = b"continued"
        added = [Record(first + i, ReqId.of(9, 9, 9, i), i, data * i, checksum(data * i)) for i in range(60)]
        append(log, added[:25], added[25:])
        log.close()
        log = open_partition(files, golden, partition_id)
        assert read_all(log) == expected + added
        assert log.truncate(first - 1) == first - 1
        log.close()
    after = contents(golden.directory)
    assert {name: after[name] for name in before} == before


def test_the_original_is_not_disturbed_by_the_fence_file(files: OsFiles, golden: Golden) -> None:
    before = contents(golden.directory)
    fence = FenceFile.open(files, str(golden.directory), golden.key, golden.partition_count)
    assert [fence.get(partition_id) for partition_id in golden.partitions] == [-1, -1]
    fence.close()
    after = contents(golden.directory)
    assert set(after) - set(before) == {"waltz-storage.fence"}
    assert {name: after[name] for name in before} == before
