"""The engine in memory."""

from tests.unit.table.stores.engine_cases import check_engine
from waltz.table.stores.engine import Space
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
