"""Checksums: every changed bit and every exchanged value is found."""

import pytest

from tests.unit.table.stores.engine_cases import check_engine
from waltz.table.errors import StoreDamagedError
from waltz.table.stores.engine import Space
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.sealing import SealedEngine


def test_it_does_what_an_engine_does() -> None:
    check_engine(SealedEngine(MemoryEngine(), b"identity", lambda: None))


def test_changed_values_are_found() -> None:
    inner = MemoryEngine()
    told: list[int] = []
    engine = SealedEngine(inner, b"identity", lambda: told.append(1))
    engine.write([(Space.ROWS, b"k", b"value")])
    (sealed,) = inner.get(Space.ROWS, [b"k"])
    assert sealed is not None
    for bit in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        inner.write([(Space.ROWS, b"k", bytes(damaged))])
        with pytest.raises(StoreDamagedError, match="checksum"):
            engine.get(Space.ROWS, [b"k"])
        with pytest.raises(StoreDamagedError, match="checksum"):
            engine.page(Space.ROWS, b"", None, 1)
    for size in range(len(sealed)):
        inner.write([(Space.ROWS, b"k", sealed[:size])])
        with pytest.raises(StoreDamagedError):
            engine.get(Space.ROWS, [b"k"])
    assert len(told) == 2 * 8 * len(sealed) + len(sealed)


def test_values_of_other_keys_and_other_tables_are_found() -> None:
    inner = MemoryEngine()
    told: list[int] = []
    engine = SealedEngine(inner, b"identity", lambda: told.append(1))
    engine.write([(Space.ROWS, b"k", b"value")])
    (sealed,) = inner.get(Space.ROWS, [b"k"])
    assert sealed is not None
    inner.write([(Space.ROWS, b"other", sealed)])
    with pytest.raises(StoreDamagedError):
        engine.get(Space.ROWS, [b"other"])
    with pytest.raises(StoreDamagedError):
        SealedEngine(inner, b"another", lambda: told.append(1)).get(Space.ROWS, [b"k"])
