"""The engine in memory."""

import gc
from collections.abc import Iterable, Iterator

import pytest

from tests.unit.table.stores.engine_cases import check_engine
from waltz.table.stores.engine import Space
from waltz.table.stores.key_space import MAX_UNSEEN_KEYS
from waltz.table.stores.memory import MemoryEngine


def test_it_does_what_an_engine_does() -> None:
    check_engine(MemoryEngine())


def test_keys_are_in_order_however_they_come() -> None:
    engine = MemoryEngine()
    for number in (5, 3, 9, 1):
        engine.write([(Space.ROWS, b"%d" % number, b""), (Space.ROWS, b"%d" % (number + 1), b"")])
        keys = [key for key, _ in engine.page(Space.ROWS, b"", None, 100)]
        assert keys == sorted(keys)
    engine.write([(Space.ROWS, b"0", b"")], [(Space.ROWS, b"5"), (Space.ROWS, b"9")])
    assert [key for key, _ in engine.page(Space.ROWS, b"", None, 100)] == [b"0", b"1", b"10", b"2", b"3", b"4", b"6"]


def write(engine: MemoryEngine, numbers: Iterable[int]) -> None:
    engine.write([(Space.ROWS, b"%08d" % number, b"") for number in numbers])


@pytest.fixture
def engine() -> MemoryEngine:
    """Every second key."""
    engine = MemoryEngine()
    write(engine, range(0, 100_000, 2))
    return engine


def tracked_keys(engine: MemoryEngine) -> int:
    """Number of keys that the garbage collector would look at."""
    ordered = engine._spaces[Space.ROWS]._ordered
    return sum(len(chunk) for chunk in ordered._chunks + ordered._waiting if gc.is_tracked(chunk))


def test_the_garbage_collector_never_has_many_keys_to_look_at(engine: MemoryEngine) -> None:
    """Chunks that replace others do not bring its turn nearer: it would look at all of the table in one step."""
    gc.collect()
    for first in range(1, 100_000, 200):
        write(engine, range(first, first + 200, 2))
        engine.page(Space.ROWS, b"", None, 1)  # which puts the new keys in order
        assert tracked_keys(engine) <= 2 * MAX_UNSEEN_KEYS


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """The garbage collector is off; every turn that it has nevertheless."""
    gc.disable()
    turns: list[str] = []
    note = lambda phase, _: turns.append(phase)  # noqa: E731 - the same object is taken out again
    gc.callbacks.append(note)
    yield turns
    gc.callbacks.remove(note)
    gc.enable()


def test_a_program_without_garbage_collection_stays_without(collections: list[str]) -> None:
    engine = MemoryEngine()
    write(engine, range(20_000))
    write(engine, range(20_000, 40_000))
    assert not collections
