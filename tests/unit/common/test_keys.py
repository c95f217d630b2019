"""Keys of partitions, against an independent CRC-32 of texts written by hand."""

import datetime as dt
import json
import math
import zlib
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.keys import partition_for, to_json


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("customer-17", '["customer-17"]'),
        (7, "[7]"),
        ("7", '["7"]'),
        (("eu", 17), '["eu",17]'),
        (("eu",), '["eu"]'),
        (["eu", 17], '[["eu",17]]'),
        (b"\x00\xff", '["AP8="]'),
        (None, "[null]"),
        (True, "[true]"),
        (1.5, "[1.5]"),
        (math.nan, '["NaN"]'),
        (-math.inf, '["-Infinity"]'),
        (Decimal("1.10"), '["1.10"]'),
        (dt.date(2024, 2, 29), '["2024-02-29"]'),
        (dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC), '["2024-02-29T01:02:03Z"]'),
        (dt.timedelta(seconds=90), "[90.0]"),
        ({"a": 1, "b": None}, '[{"a":1}]'),
        ("Zoë 💧", '["Zoë 💧"]'),
    ],
)
def test_the_rule(key: object, text: str) -> None:
    for count in (1, 4, 1000):
        assert partition_for(key, count) == zlib.crc32(text.encode()) % count


def test_numbers_that_must_never_change() -> None:
    assert [partition_for("customer-17", count) for count in (4, 16, 64)] == [0, 0, 32]


@given(st.lists(st.none() | st.booleans() | st.integers() | st.text(), min_size=1, max_size=4), st.integers(1, 1 << 31))
def test_keys_of_several_parts_are_rows_of_spark(parts: list[object], count: int) -> None:
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    assert partition_for(tuple(parts), count) == zlib.crc32(text.encode()) % count


@pytest.mark.parametrize("key", [object(), UUID(int=0), {1, 2}, ("a", object())])
def test_what_is_no_key(key: object) -> None:
    with pytest.raises(TypeError, match="a key consists of strings, numbers"):
        partition_for(key, 4)


def test_what_cannot_be_a_partition() -> None:
    with pytest.raises(ValueError, match="a cluster has at least one partition, not 0"):
        partition_for("key", 0)
    with pytest.raises(ValueError, match="surrogates not allowed"):
        partition_for("\ud83d", 4)


def test_documents_leave_out_what_is_null() -> None:
    assert to_json({"a": None, "b": [None, 1]}) == '{"b":[null,1]}'
