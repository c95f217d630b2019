"""Parquet files of an archive: beside the log, by parts, stopped anywhere."""

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.unit.archive.logs import archive_log
from tests.unit.common.cluster.fakes import KEY, make_record
from waltz.archive import object_format
from waltz.cli.main import main
from waltz.common.ids import ReqId
from waltz.common.iso_time import parse_time, to_milliseconds
from waltz.common.records import Record
from waltz.spark import parquet_export

pytest.importorskip("obstore")

COUNT = 60


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Records of many sizes in small blocks."""
    monkeypatch.setattr(object_format, "BLOCK_BYTES", 300)
    chance = random.Random(1)
    return [make_record(0, each, chance.randbytes(chance.choice([0, 3, 90, 700]))) for each in range(COUNT)]


@pytest.fixture
def url(log: list[Record], tmp_path: Path) -> str:
    """The archive of two partitions."""
    (tmp_path / "archive").mkdir()
    for partition_id, count in ((0, COUNT), (1, 20)):
        asyncio.run(archive_log(tmp_path / "archive", KEY, partition_id, log[:count], 17))
    return f"file://{tmp_path}/archive"


def export(url: str, directory: Path, *arguments: str) -> int:
    return main(["archive", "parquet", url, str(directory), *arguments])


def ids(directory: Path, partition_id: int = 0) -> list[int]:
    if not files(directory):
        return []
    table = ds.dataset(directory, partitioning="hive").to_table(filter=ds.field("partition") == partition_id)
    return sorted(table.column("transaction_id").to_pylist())


def files(directory: Path) -> dict[str, int]:
    """All whole files, and what tells a new one from an old one."""
    return {str(path.relative_to(directory)): path.stat().st_mtime_ns for path in directory.rglob("[0-9]*.parquet")}


def unfinished(directory: Path) -> list[Path]:
    """Files that are not whole, or may not be."""
    return [path for path in directory.rglob("_*") if path.name != parquet_export.MARK]


def test_every_column_is_that_of_the_log(url: str, log: list[Record], tmp_path: Path) -> None:
    assert export(url, tmp_path / "out") == 0
    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table().sort_by("transaction_id")
    rows = [row for row in table.to_pylist() if row["partition"] == 0]
    assert len(rows) == COUNT
    for row, record in zip(rows, log, strict=True):
        req_id = ReqId(record.req_id)
        assert row == {
            "partition": 0,
            "transaction_id": record.transaction_id,
            "header": record.header,
            "client_id": req_id.client_id,
            "generation": req_id.generation,
            "seq_num": req_id.seq_num,
            "data": record.data,
            "checksum": record.checksum,
        }
    assert ids(tmp_path / "out", 1) == [*range(20)]
    assert min(files(tmp_path / "out")) == f"partition=0/{0:019d}-{16:019d}.parquet"


@pytest.mark.parametrize("row_group_bytes", [1, 500, 1 << 20])
def test_row_groups_are_no_larger_than_told(url: str, tmp_path: Path, row_group_bytes: int) -> None:
    assert export(url, tmp_path / "out", "--row-group-bytes", str(row_group_bytes)) == 0
    assert ids(tmp_path / "out") == [*range(COUNT)]
    for name in files(tmp_path / "out"):
        file = pq.ParquetFile(tmp_path / "out" / name)
        for group in range(file.num_row_groups):
            payloads = file.read_row_group(group).column("data").to_pylist()
            assert sum(map(len, payloads)) <= row_group_bytes or len([each for each in payloads if each]) == 1
        assert row_group_bytes < 1 << 20 or file.num_row_groups == 1


def test_what_was_exported_is_not_exported_again(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert export(url, out, "-p", "0", "--from", "5", "--before", "30") == 0
    assert ids(out) == [*range(5, 30)]
    before = files(out)
    capsys.readouterr()
    assert export(url, out, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"partition": 0, "transactions": COUNT - 25, "files": 4, "present_files": 2},
        {"partition": 1, "transactions": 20, "files": 2, "present_files": 0},
    ]
    assert ids(out) == [*range(COUNT)]
    whole = files(out)
    assert before.items() <= whole.items()
    assert export(url, out) == 0
    assert files(out) == whole


DYING = """
import os, sys
from pathlib import Path
from waltz.cli.main import main

steps, rename = int(sys.argv[1]), Path.rename

def step():
    global steps
    steps -= 1
    if steps < 0:
        os._exit(9)

def renamed(path, target):
    step()
    rename(path, target)
    step()

Path.rename = renamed
main(sys.argv[2:])
"""


def test_killed_before_or_behind_a_rename_it_goes_on(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for steps, whole in ((0, 0), (1, 1), (2, 2)):
        killed = subprocess.run(
            [sys.executable, "-c", DYING, str(steps), "archive", "parquet", url, str(out)],
            check=False,
            capture_output=True,
        )
        assert killed.returncode == 9, killed
        assert len(files(out)) == whole
        assert len(unfinished(out)) == (steps != 1)
        assert len(ids(out)) == len(set(ids(out)))
    assert export(url, out) == 0
    assert ids(out) == [*range(COUNT)]
    assert not unfinished(out)


def test_damage_ends_it_and_leaves_no_file(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    second = sorted(each for each in (tmp_path / "archive" / str(KEY) / "0").iterdir() if each.is_file())[1]
    data = bytearray(second.read_bytes())
    data[200] ^= 1
    second.write_bytes(data)
    assert export(url, out) == 1
    assert "is damaged" in capsys.readouterr().err
    assert list(files(out)) == [f"partition=0/{0:019d}-{16:019d}.parquet"]
    assert not unfinished(out)


def test_a_directory_is_of_one_cluster_and_of_one_process(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with parquet_export.export_directory(out, KEY):
        assert export(url, out) == 1
        assert "another process exports to" in capsys.readouterr().err
    (out / parquet_export.MARK).write_text("another\n")
    assert export(url, out) == 1
    assert "of another cluster" in capsys.readouterr().err
    assert export(url, tmp_path) == 1
    assert "is not empty, and no export was begun there" in capsys.readouterr().err
    (out / parquet_export.MARK).write_bytes(f"{KEY}".encode()[:7])
    assert export(url, out) == 0, "killed while it wrote the mark"
    assert (out / parquet_export.MARK).read_text() == f"{KEY}\n"


def test_objects_are_chosen_by_time(log: list[Record], tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    base_ms = to_milliseconds(parse_time("2026-01-01T00:00:00Z"))
    asyncio.run(archive_log(tmp_path / "archive", KEY, 0, log, 17, lambda last: base_ms + 1000 * last))
    url, out = f"file://{tmp_path}/archive", tmp_path / "out"
    assert export(url, out, "--since", "2026-01-01T00:00:16Z", "--until", "2026-01-01T00:00:40Z") == 0
    assert ids(out) == [*range(17, 34)]
    assert export(url, out, "--until", "2026-01-01T00:00:16Z") == 0
    assert ids(out) == [*range(34)]
    assert export(url, out, "--since", "2026-01-01T00:00:40Z") == 0
    assert ids(out) == [*range(COUNT)]


def test_times_need_times(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(url, tmp_path / "out", "--since", "2026-01-01T00:00:00Z") == 1
    assert "the archive has no time of commit of" in capsys.readouterr().err


def test_what_is_missing_is_told(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert export(url, tmp_path / "out", "-p", "7") == 1
    assert "has no transactions of partition 7" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "waltz.spark.parquet_export", None)
    assert export(url, tmp_path / "out") == 1
    assert "waltz-log with its extra 'parquet'" in capsys.readouterr().err
