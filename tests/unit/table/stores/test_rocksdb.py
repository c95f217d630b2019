"""The engine on RocksDB."""

from pathlib import Path

import pytest

from tests.unit.table.stores.engine_cases import check_engine
from waltz.table.errors import StoreDamagedError, StoreError
from waltz.table.stores.engine import Space
from waltz.table.stores.rocksdb import RocksDbEngine


def test_it_does_what_an_engine_does(tmp_path: Path) -> None:
    check_engine(RocksDbEngine(tmp_path))


def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    engine = RocksDbEngine(tmp_path)
    engine.close()
    with pytest.raises(StoreError, match="closed"):
        engine.get(Space.ROWS, [b"k"])


def test_damaged_files_are_damage(tmp_path: Path) -> None:
    engine = RocksDbEngine(tmp_path)
    engine.write([(Space.ROWS, b"k", b"v")])
    engine.close()
    (tmp_path / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    with pytest.raises(StoreDamagedError):
        RocksDbEngine(tmp_path)
