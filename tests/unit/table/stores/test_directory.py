"""Whose a directory is, and when what is in it is believed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import ROOT
from tests.unit.table.stores.cases import IDENTITY, ON_DISK, feed, joined, opened
from waltz.table.envelope import Batch, Row
from waltz.table.errors import StoreDamagedError, StoreLockedError
from waltz.table.stores.directory import DATABASE, StoreIdentity
from waltz.table.stores.interface import Progress

EMPTY = Progress()


def data_file(database: Path) -> Path:
    """The file that holds the rows."""
    (found,) = [path for path in database.iterdir() if path.suffix in (".sqlite", ".mdb", ".sst")]
    return found


def filled(name: str, directory: Path, identity: StoreIdentity = IDENTITY, rows: int = 500) -> None:
    """Leave a store with some rows behind."""
    store = opened(name, directory, identity)
    feed(store, [Batch(1, [Row(b"", b"%d" % number, b"value" * 20) for number in range(rows)])])
    store.close()


@pytest.mark.parametrize("name", ON_DISK)
def test_a_store_is_believed_by_its_own_table_only(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path)
    store = opened(name, tmp_path)
    assert store.progress.applied == 0
    store.close()
    for identity in (
        IDENTITY._replace(partition_id=4),
        IDENTITY._replace(incarnation="another"),
        IDENTITY._replace(options={"max_body_bytes": 5}),
    ):
        filled(name, tmp_path)
        store = opened(name, tmp_path, identity)
        assert store.progress == EMPTY
        assert store.get(joined(b"1")) == [None]
        store.close()
        store = opened(name, tmp_path)
        assert store.progress == EMPTY
        store.close()


def test_a_store_of_another_engine_is_not_believed(tmp_path: Path) -> None:
    filled("sqlite", tmp_path)
    (tmp_path / "sqlite").rename(tmp_path / "lmdb")
    store = opened("lmdb", tmp_path)
    assert store.progress == EMPTY
    store.close()


@pytest.mark.parametrize("name", ON_DISK)
def test_files_of_another_table_under_the_right_name_are_not_believed(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path / "own")
    filled(name, tmp_path / "other", IDENTITY._replace(partition_id=4))
    own, other = (tmp_path / side / name / DATABASE for side in ("own", "other"))
    for file in own.iterdir():
        file.unlink()
    for file in other.iterdir():
        file.rename(own / file.name)
    store = opened(name, tmp_path / "own")
    assert store.progress == EMPTY
    feed(store, [None])
    store.close()
    store = opened(name, tmp_path / "own")
    assert store.progress.applied == 0
    store.close()


@pytest.mark.parametrize("name", ON_DISK)
@pytest.mark.parametrize("damage", [b"", b"\xff" * 64, b"no database at all" * 500])
def test_files_that_are_no_database_are_rebuilt(name: str, damage: bytes, tmp_path: Path) -> None:
    filled(name, tmp_path)
    for file in (tmp_path / name / DATABASE).iterdir():
        file.write_bytes(damage)
    store = opened(name, tmp_path)
    assert store.progress == EMPTY
    filled_rows = [Batch(1, [Row(b"", b"k", b"v")])]
    feed(store, filled_rows)
    assert store.get(joined(b"k")) != [None]
    store.close()


@pytest.mark.parametrize("name", ON_DISK)
@pytest.mark.parametrize("part", [0.95, 0.5, 0.1, 0.01])
def test_files_that_are_cut_are_rebuilt(name: str, part: float, tmp_path: Path) -> None:
    """Also where a database maps its file: what is not there must not be touched."""
    filled(name, tmp_path)
    file = data_file(tmp_path / name / DATABASE)
    os.truncate(file, int(part * len(file.read_bytes().rstrip(b"\0"))))
    store = opened(name, tmp_path)
    assert store.progress == EMPTY
    feed(store, [None])
    store.close()
    store = opened(name, tmp_path)
    assert store.progress.applied == 0
    store.close()


@pytest.mark.parametrize("name", ON_DISK)
def test_a_database_without_an_identity_is_not_believed(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path)
    (tmp_path / name / "identity").unlink()
    store = opened(name, tmp_path)
    assert store.progress == EMPTY
    store.close()


@pytest.mark.parametrize("name", ON_DISK)
def test_no_damage_gives_a_value_that_was_never_written(name: str, tmp_path: Path) -> None:
    """A byte here and there in the file that holds the rows."""
    filled(name, tmp_path / "whole")
    file_name = data_file(tmp_path / "whole" / name / DATABASE).name
    content_end = len((tmp_path / "whole" / name / DATABASE / file_name).read_bytes().rstrip(b"\0"))
    for position in range(0, content_end, max(1, content_end // 25)):
        copy = tmp_path / str(position)
        shutil.copytree(tmp_path / "whole", copy)
        damaged = bytearray((copy / name / DATABASE / file_name).read_bytes())
        damaged[position] ^= 0x55
        (copy / name / DATABASE / file_name).write_bytes(damaged)
        store = opened(name, copy)
        try:
            found = store.get(joined(*(b"%d" % number for number in range(500))))
        except StoreDamagedError:
            store.close()
            store = opened(name, copy)
            assert store.progress == EMPTY, "what was found to be damaged is believed again"
        else:
            assert all(row is None or row.endswith(b"value" * 20) for row in found)
        store.close()


@pytest.mark.parametrize("name", ON_DISK)
def test_nothing_else_in_the_directory_is_touched(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    note = tmp_path / name / "note"
    note.write_text("mine")
    filled(name, tmp_path)
    filled(name, tmp_path, IDENTITY._replace(partition_id=4))
    assert note.read_text() == "mine"


HOLDER = """
import sys
from pathlib import Path
from tests.unit.table.stores.cases import opened
store = opened(sys.argv[1], Path(sys.argv[2]))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", ON_DISK)
def test_one_process_has_a_store(name: str, tmp_path: Path) -> None:
    store = opened(name, tmp_path)
    with pytest.raises(StoreLockedError, match="open already, in this process or another"):
        opened(name, tmp_path)
    store.close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, name, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreLockedError):
            opened(name, tmp_path)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    opened(name, tmp_path).close()
