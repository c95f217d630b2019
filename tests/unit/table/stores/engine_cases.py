"""What every engine has to do."""

from waltz.table.stores.engine import Engine, Space

KEYS = [b"\x00", b"\x00\x00", b"\x00\x01", b"a", b"a\x00", b"b", b"\xff", b"\xff\xff"]


def check_engine(engine: Engine) -> None:
    """Order, ranges, limits, spaces that do not mix, and writes that replace and delete."""
    assert engine.page(Space.ROWS, b"", None, 10) == []
    assert engine.get(Space.ROWS, []) == []
    engine.write([(Space.ROWS, key, b"v" + key) for key in reversed(KEYS)])
    engine.write([(Space.META, b"a", b"meta"), (Space.BY_PREFIX, b"a", b"")])
    assert engine.get(Space.ROWS, [b"a", b"none", b"\xff"]) == [b"va", None, b"v\xff"]
    assert engine.get(Space.META, [b"a", b"b"]) == [b"meta", None]
    assert engine.get(Space.BY_PREFIX, [b"a"]) == [b""]
    for start in (b"", *KEYS, b"c"):
        for end in (None, *(end for end in (*KEYS, b"c") if end >= start)):
            expected = [(key, b"v" + key) for key in KEYS if key >= start and (end is None or key < end)]
            for limit in (1, 3, 100):
                assert engine.page(Space.ROWS, start, end, limit) == expected[:limit], (start, end)
                assert engine.page(Space.ROWS, start, end, limit, reverse=True) == expected[::-1][:limit], (start, end)
    engine.write([(Space.ROWS, b"a", b"new"), (Space.META, b"a", b"new")], [(Space.ROWS, b"b"), (Space.ROWS, b"none")])
    assert engine.get(Space.ROWS, [b"a", b"b"]) == [b"new", None]
    assert [key for key, _ in engine.page(Space.ROWS, b"", None, 100)] == [key for key in KEYS if key != b"b"]
    assert engine.get(Space.META, [b"a"]) == [b"new"]
    engine.close()
    engine.close()
