"""The order of keys and of rows: always that of the tuples they are made of."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.table.strategies import LONG_MAX, longs, tricky_bytes
from waltz.common.ids import LONG_MIN
from waltz.table.rows import (
    RowHead,
    TableRow,
    Version,
    is_tombstone,
    pack_row,
    position_key,
    prefix_end,
    prefix_start,
    row_key,
    split_position_key,
    split_row_key,
    unpack_head,
    unpack_row,
)

keys = st.tuples(tricky_bytes, tricky_bytes)
versions = st.tuples(st.sampled_from((LONG_MIN, -1, 0, 1, LONG_MAX)), st.integers(0, 3), st.integers(0, 3))


def test_keys_stand_as_published() -> None:
    assert row_key(b"", b"key") == b"\x00\x01key"
    assert row_key(b"p\x00q", b"k\x00") == b"p\x00\xffq\x00\x01k\x00"
    assert position_key(b"p", 5, 2) == b"p\x00\x01" + bytes(7) + b"\x05" + bytes(3) + b"\x02"


@given(keys, keys)
@example((b"", b"\xff"), (b"\x00", b""))
@example((b"a", b""), (b"a\x00", b""))
@example((b"a\x00\x01", b"b"), (b"a", b"\x01b"))
def test_joined_keys_are_ordered_as_pairs(left: tuple[bytes, bytes], right: tuple[bytes, bytes]) -> None:
    assert (row_key(*left) < row_key(*right)) == (left < right)
    assert (row_key(*left) == row_key(*right)) == (left == right)


@given(keys)
def test_joined_keys_come_apart_again(pair: tuple[bytes, bytes]) -> None:
    assert split_row_key(row_key(*pair)) == pair


@pytest.mark.parametrize("joined", [b"", b"a", b"\x00", b"a\x00", b"a\x00\x02", b"\x00\xff", b"\x00\xff\x00"])
def test_other_bytes_are_no_joined_key(joined: bytes) -> None:
    with pytest.raises(ValueError, match="no key of a row"):
        split_row_key(joined)


@given(keys, tricky_bytes)
def test_a_prefix_has_its_own_range(pair: tuple[bytes, bytes], prefix: bytes) -> None:
    joined = row_key(*pair)
    inside = prefix_start(prefix) <= joined < prefix_end(prefix)
    assert inside == joined.startswith(prefix_start(prefix)) == (pair[0] == prefix)


@given(versions, versions, st.binary(max_size=3), st.binary(max_size=3))
def test_the_greater_row_wins(
    left: tuple[int, int, int], right: tuple[int, int, int], value: bytes, other: bytes
) -> None:
    if left != right:
        assert (pack_row(*left, 0, False, value) < pack_row(*right, 0, False, other)) == (left < right)


@given(keys, longs, st.integers(0, LONG_MAX), st.integers(0, 2**32 - 1), longs, st.booleans(), st.binary(max_size=9))
def test_rows_come_apart_again(
    pair: tuple[bytes, bytes], timestamp: int, transaction_id: int, place: int, written: int, dead: bool, value: bytes
) -> None:
    for row_value in (None,) if dead else (None, value):
        packed = pack_row(timestamp, transaction_id, place, written, dead, row_value)
        row = TableRow(*pair, row_value, timestamp, Version(transaction_id, place), written, dead)
        assert unpack_row(*pair, packed) == row
        assert unpack_head(packed) == RowHead(timestamp, written, dead)
        assert is_tombstone(packed) == dead


@given(
    tricky_bytes,
    st.tuples(st.integers(0, LONG_MAX), st.integers(0, 99)),
    st.tuples(st.integers(0, 9), st.integers(0, 99)),
)
def test_positions_are_ordered_as_the_log(prefix: bytes, left: tuple[int, int], right: tuple[int, int]) -> None:
    assert (position_key(prefix, *left) < position_key(prefix, *right)) == (left < right)
    assert split_position_key(position_key(prefix, *left)) == left
    assert prefix_start(prefix) < position_key(prefix, *left) < prefix_end(prefix)
