"""Bytes, versions and rows in JSON: what is written is read again, and nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.table.rows import TableRow, Version
from waltz.table.served.texts import (
    MessageError,
    bytes_of,
    integer_of,
    line_of,
    object_of,
    parsed,
    row_of,
    row_text,
    text_of,
    truth_of,
    version_of,
    version_text,
)

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
IDS = st.integers(0, (1 << 63) - 1)
ROWS = st.builds(
    TableRow,
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.none() | st.binary(max_size=40),
    LONGS,
    st.builds(Version, IDS, IDS),
    LONGS,
    st.booleans(),
)

FIELDS = st.sampled_from(["prefix", "key", "value", "version", "base64", "timestamp_ms", "written_at_ms"])
MESSAGES = st.recursive(
    st.none() | st.booleans() | LONGS | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(FIELDS, each, max_size=6),
)


@given(st.binary(max_size=50))
def test_bytes_come_back(data: bytes) -> None:
    assert bytes_of(parsed(line_of(text_of(data))), "it") == data


@pytest.mark.parametrize("data", [b"\0", b"a\x1f", b"\xff", b"\xc3"])
def test_bytes_that_are_no_text(data: bytes) -> None:
    assert isinstance(text_of(data), dict)


@pytest.mark.parametrize("data", [b"", b"a\tb\r\n", "\u00e4\u2028\U0001f600".encode(), b"\x7f"])
def test_bytes_that_are_text(data: bytes) -> None:
    assert text_of(data) == data.decode()
    assert len(line_of(text_of(data))) <= 2 * len(data) + 3


@given(ROWS)
def test_rows_come_back(row: TableRow) -> None:
    line = line_of(row_text(row))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert row_of(parsed(line)) == row


@pytest.mark.parametrize(
    "value",
    [None, 1, True, [], {}, {"base64": 1}, {"base64": "?"}, {"base64": "AA"}, {"base64": "AA==", "x": 1}, "\ud800"],
)
def test_other_values_are_no_bytes(value: object) -> None:
    with pytest.raises(MessageError, match="the name"):
        bytes_of(value, "the name")


@pytest.mark.parametrize(
    "value", [None, "", "1", "1.", ".1", "1.2.3", "-1.0", "1.-0", "a.b", "1.²", "9" * 20 + ".0", 1.0]
)
def test_other_values_are_no_versions(value: object) -> None:
    with pytest.raises(MessageError):
        version_of(value, "it")


def test_versions_come_back() -> None:
    assert version_of(version_text(Version(12, 3)), "it") == Version(12, 3)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, -1, 11])
def test_integers_have_bounds(value: object) -> None:
    with pytest.raises(MessageError):
        integer_of(value, "it", 0, 10)


def test_objects_have_known_fields() -> None:
    assert object_of({"a": 1}, "it", ("a", "b")) == {"a": 1}
    with pytest.raises(MessageError, match="no field 'c'"):
        object_of({"c": 1}, "it", ("a", "b"))
    with pytest.raises(MessageError):
        object_of([], "it", ())
    with pytest.raises(MessageError):
        truth_of(1, "it")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 200_000, b"nope"])
def test_other_bodies_are_no_json(body: bytes) -> None:
    with pytest.raises(MessageError):
        parsed(body)


@given(MESSAGES)
def test_any_json_is_a_row_or_refused(value: object) -> None:
    try:
        row = row_of(json.loads(json.dumps(value)))
    except MessageError:
        return
    assert row_of(row_text(row)) == row
