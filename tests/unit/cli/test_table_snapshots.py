"""``waltz table snapshots``: what it prints and removes. ``waltz table snapshot`` runs on a real cluster in
integration/test_table_snapshots.py."""

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.archive.records import KEY, PARTITION
from tests.unit.table.snapshots.places import memory_view, saved, some_rows
from waltz.archive.store import open_store
from waltz.cli.main import main
from waltz.table.snapshots.place import SnapshotPlace

pytest.importorskip("obstore")
pytest.importorskip("pyarrow")


async def fill(directory: Path, *counts: int, key: UUID = KEY, partition_id: int = PARTITION) -> SnapshotPlace:
    """Snapshots of logs with so many transactions."""
    place = SnapshotPlace(open_store(f"file://{directory}"), key, partition_id)
    for count in counts:
        await saved(place, memory_view(some_rows(10, count)), f"of-{count}")
    return place


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Three snapshots of a partition, and one of another."""
    asyncio.run(fill(tmp_path, 1, 2, 3))
    asyncio.run(fill(tmp_path, 2, partition_id=7))
    return tmp_path


def snapshots(directory: Path, *arguments: str) -> int:
    return main(["table", "snapshots", f"file://{directory}", *arguments])


def listed(directory: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[int, int]]:
    capsys.readouterr()
    assert snapshots(directory, "--list", "--json") == 0
    return [(each["partition"], each["transaction"]) for each in json.loads(capsys.readouterr().out)]


def damage(directory: Path, pattern: str) -> Path:
    (found,) = directory.rglob(pattern)
    found.write_bytes(found.read_bytes()[:-1] + b"?")
    return found


def test_a_list(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(filled, capsys) == [(3, 0), (3, 1), (3, 2), (7, 1)]
    assert snapshots(filled, "--list", "-p", "7") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:4] for line in lines] == [["partition", "transaction", "rows"], ["7", "1", "10"]]
    assert "1970-01-01T00:00:00+00:00" in lines[1]
    path = damage(filled, f"3/manifest/{1:019d}")
    assert listed(filled, capsys) == [(3, 0), (3, 2), (7, 1)]
    assert snapshots(filled, "--list") == 0
    assert f"{path} is truncated or damaged" in capsys.readouterr().out


def test_an_empty_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (("--list",), ("--verify",), ("--keep", "1"), ("--remove-leftovers",)):
        assert snapshots(tmp_path, *verb) == 0
        assert capsys.readouterr().out == "there are no snapshots\n"


def test_a_check(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshots(filled, "--verify") == 0
    assert capsys.readouterr().out.splitlines() == [
        "partition 3, transaction 0: whole",
        "partition 3, transaction 1: whole",
        "partition 3, transaction 2: whole",
        "partition 7, transaction 1: whole",
    ]
    path = damage(filled, f"3/{1:019d}/*/*.parquet")
    assert snapshots(filled, "--verify", "-p", "3") == 1
    output = capsys.readouterr()
    assert output.out.splitlines()[1:3] == [
        "partition 3, transaction 1: damaged",
        f"  file://{path} is damaged: it does not match its checksum",
    ]
    assert "1 snapshot cannot be used" in output.err


def test_old_snapshots_are_removed(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshots(filled, "--keep", "1", "-p", "3") == 0
    assert capsys.readouterr().out == "partition 3: removed: 2 snapshots, 2 files\n"
    assert listed(filled, capsys) == [(3, 2), (7, 1)]
    assert len(list(filled.rglob("*.parquet"))) == 2
    assert snapshots(filled, "--keep", "1", "--json") == 0
    assert [each["removed"] for each in json.loads(capsys.readouterr().out)] == [[], []]


def test_leftovers_are_removed(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (filled / f"snapshots/{KEY}/7/manifest/{1:019d}").unlink()
    assert snapshots(filled, "--remove-leftovers") == 0
    assert capsys.readouterr().out == "partition 3: removed: 0 files\npartition 7: removed: 1 file\n"
    assert listed(filled, capsys) == [(3, 0), (3, 1), (3, 2)]
    assert snapshots(filled, "--verify") == 0


async def test_one_of_several_clusters_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = UUID(int=5)
    await fill(tmp_path, 1, 2)
    await fill(tmp_path, 1, 2, key=other)

    def run(*arguments: str) -> int:
        return snapshots(tmp_path, *arguments)

    assert await asyncio.to_thread(run, "--keep", "1") == 1
    assert "has snapshots of several clusters; name one: " in capsys.readouterr().err
    assert await asyncio.to_thread(run, "--keep", "1", "-k", str(other)) == 0
    assert capsys.readouterr().out == "partition 3: removed: 1 snapshot, 1 file\n"
    assert await asyncio.to_thread(run, "--list", "--json") == 0
    keys = [each["cluster"] for each in json.loads(capsys.readouterr().out)]
    assert sorted(keys) == sorted([str(other), str(KEY), str(KEY)])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--list", "-p", "5"), "there is no snapshot of partition 5"),
        (("--verify", "-p", "3,5"), "there is no snapshot of partition 5"),
    ],
)
def test_what_is_not_there(
    filled: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    assert snapshots(filled, *arguments) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--keep", "0"), ("--list", "--verify"), ("--list", "-k", "no key")])
def test_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        snapshots(tmp_path, *arguments)
    assert ended.value.code == 2
