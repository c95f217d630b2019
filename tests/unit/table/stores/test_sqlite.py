"""The engine on SQLite."""

from pathlib import Path

import pytest

from tests.unit.table.stores.engine_cases import check_engine
from waltz.table.errors import StoreDamagedError, StoreError
from waltz.table.stores.engine import Space
from waltz.table.stores.sqlite import FILE_NAME, SqliteEngine


def test_it_does_what_an_engine_does(tmp_path: Path) -> None:
    check_engine(SqliteEngine(tmp_path))


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path)
    engine._connection.execute("CREATE TRIGGER refuse BEFORE DELETE ON ROWS BEGIN SELECT RAISE(ABORT, 'no'); END")
    engine.write([(Space.ROWS, b"gone", b"")])
    with pytest.raises(StoreDamagedError):
        engine.write([(Space.ROWS, b"new", b"")], [(Space.ROWS, b"gone")])
    assert engine.get(Space.ROWS, [b"new", b"gone"]) == [None, b""]
    engine.write([(Space.ROWS, b"next", b"")])
    engine.close()


def test_a_file_of_something_else_is_damage(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"something else" * 1000)
    with pytest.raises(StoreDamagedError, match="not a database"):
        SqliteEngine(tmp_path)


def test_a_full_disk_is_no_damage(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path)
    engine._connection.execute("PRAGMA max_page_count=10")
    with pytest.raises(StoreError, match="full") as raised:
        engine.write([(Space.ROWS, b"%d" % number, bytes(4000)) for number in range(100)])
    assert not isinstance(raised.value, StoreDamagedError)
    assert engine.page(Space.ROWS, b"", None, 10) == []
    engine.close()
