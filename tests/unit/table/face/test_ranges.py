"""One range, several, or a prefix: the same for each kind of table."""

from typing import Any

import pytest

import waltz
from waltz.client.mock import MockDriver
from waltz.table.envelope import Row
from waltz.table.face.ranges import ranges_of
from waltz.table.view import KeyRange

SOME = KeyRange(start=b"a", end=b"c")


def test_one_range_or_several_or_a_prefix() -> None:
    assert ranges_of(None) is None
    assert ranges_of(SOME) == [SOME]
    assert ranges_of([SOME, KeyRange(b"p")]) == ranges_of(iter([SOME, KeyRange(b"p")])) == [SOME, KeyRange(b"p")]
    assert ranges_of([]) == []
    assert ranges_of(None, b"p") == [KeyRange(b"p")]
    assert ranges_of(None, b"") == [KeyRange(b"")]
    assert ranges_of(SOME, b"p") == ranges_of([KeyRange(b"p", b"a", b"c", b"p")], b"p") == [KeyRange(b"p", b"a", b"c")]


@pytest.mark.parametrize("wrong", [b"users", "users", 3, [b"a", b"b"], (b"a", None), [SOME, None], {"start": b"a"}])
def test_what_is_no_range(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"scan takes a KeyRange or a list of them, not .*KeyRange\(start=.*prefix="):
        ranges_of(wrong)
    with pytest.raises(TypeError, match="scan takes a KeyRange"):
        ranges_of(wrong, b"p")


def test_a_prefix_that_is_none() -> None:
    wrong: Any = "users"
    with pytest.raises(TypeError, match="a prefix must be bytes, not 'users'"):
        ranges_of(None, wrong)


@pytest.mark.parametrize("key_range", [KeyRange(b"q"), KeyRange(b"p", end_prefix=b"q"), KeyRange(end_prefix=b"q")])
def test_a_range_of_another_prefix(key_range: KeyRange) -> None:
    with pytest.raises(ValueError, match=r"a range of another prefix than b'p'; leave the prefix out"):
        ranges_of(key_range, b"p")


def test_each_kind_of_table_takes_the_same() -> None:
    with waltz.blocking.connect(MockDriver(1)) as client:
        client.configure_table(0, {"format": "table"})
        with client.partitioned_table([0]) as partitioned:
            (table,) = partitioned.tables
            table.batch([Row(prefix, key, b'"v"') for prefix in (b"", b"p", b"q") for key in (b"a", b"b", b"c")])
            for each in (table, partitioned):
                assert len(list(each.scan())) == 9
                assert [row.key for row in each.scan(prefix=b"p")] == [b"a", b"b", b"c"]
                assert [(row.prefix, row.key) for row in each.scan(SOME)] == [(b"", b"a"), (b"", b"b")]
                rows = each.scan([KeyRange(b"q"), SOME], prefix=None, limit=4, raw=True)
                assert [(row.prefix, row.key) for row in rows] == [
                    (b"q", b"a"),
                    (b"q", b"b"),
                    (b"q", b"c"),
                    (b"", b"a"),
                ]
                assert [row.key for row in each.scan(SOME, prefix=b"q", reverse=True)] == [b"b", b"a"]
            assert list(table.scan_keys(SOME, prefix=b"p")) == [(b"p", b"a"), (b"p", b"b")]
            for part in (table.prefixed(b"p"), table.typed(waltz.JsonSerializer(), b"p")):
                assert len(list(part.scan())) == 3
                assert len(list(part.scan(SOME, limit=9))) == len(list(part.scan([SOME], fresh=True))) == 2
                with pytest.raises(ValueError, match="another prefix than b'p'"):
                    list(part.scan(KeyRange(b"q")))
            wrong: Any = b"p"
            for scan in (table.scan, table.scan_keys, partitioned.scan, table.prefixed(b"p").scan):
                with pytest.raises(TypeError, match="scan takes a KeyRange"):
                    list(scan(wrong))
