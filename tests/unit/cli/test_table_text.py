"""Rows as text, and back without a loss."""

import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.cli.table_text import (
    ENCODINGS,
    FORMATS,
    TextError,
    read_rows,
    row_writer,
    to_bytes,
    to_json,
    to_line,
    to_text,
)
from waltz.table.envelope import Row
from waltz.table.rows import TableRow, Version

anything = (
    st.binary(max_size=20)
    | st.text(max_size=20).map(str.encode)
    | st.sampled_from([b"", b"hex:00", b"base64:", b"\r\n", b"\r", b'"', b",", b"\0", b" ", "\u2028".encode(), b"null"])
)
values = st.none() | anything
table_rows = st.builds(
    lambda prefix, key, value, timestamp_ms, tombstone: TableRow(
        prefix, key, None if tombstone else value, timestamp_ms, Version(7, 3), 5, tombstone
    ),
    anything,
    anything,
    values,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.booleans(),
)


@given(anything, st.sampled_from(ENCODINGS), st.booleans())
def test_bytes_come_back(data: bytes, encoding: str, printable: bool) -> None:
    text = to_text(data, encoding, printable=printable)
    assert to_bytes(text) == data
    assert text.isprintable() or not printable


def test_text_stays_text_unless_it_could_be_mistaken() -> None:
    assert to_text(b"hello") == "hello"
    assert to_text(b"hex:00") == "base64:aGV4OjAw"
    assert to_text(b"\xff") == "base64:/w=="
    assert to_text(b"\xff", "hex") == "hex:ff"
    assert to_text(b"a\tb") == "a\tb"
    assert to_text(b"a\tb", printable=True) == "base64:YQli"


@pytest.mark.parametrize("text", ["hex:0", "hex:zz", "base64:a", "base64:a b=", "\udcff"])
def test_what_is_no_text_of_bytes(text: str) -> None:
    with pytest.raises(TextError):
        to_bytes(text)


@given(st.lists(table_rows, max_size=8), st.sampled_from(FORMATS), st.sampled_from(ENCODINGS))
def test_rows_come_back_from_a_file(rows: Sequence[TableRow], file_format: str, encoding: str) -> None:
    file = io.StringIO(newline="")
    write = row_writer(file, file_format, encoding)
    for row in rows:
        write(row)
    lines = io.BytesIO(file.getvalue().encode())  # which end with a line feed only, as those of a real file do
    found = [numbered.row for numbered in read_rows((line.decode() for line in lines), file_format)]
    assert found == [Row(row.prefix, row.key, row.value, row.timestamp_ms, row.tombstone) for row in rows]


def read(text: str, file_format: str) -> list[Row]:
    return [numbered.row for numbered in read_rows(text.splitlines(keepends=True), file_format)]


def test_files_that_people_write() -> None:
    assert read('{"key":"a"}\n\n{"key":"b","value":"","timestamp":5}\n', "jsonl") == [
        Row(b"", b"a", None),
        Row(b"", b"b", b"", 5),
    ]
    assert read("value,key\n1,a\n,b\n", "csv") == [Row(b"", b"a", b"1"), Row(b"", b"b", b"")]
    assert read("key,tombstone\na,true\nb,\n", "csv") == [Row(b"", b"a", None, None, True), Row(b"", b"b", None)]
    assert read("key,value,null\na,,true\n", "csv") == [Row(b"", b"a", None)]


@pytest.mark.parametrize(
    ("text", "file_format", "problem"),
    [
        ('{"key":"a"}\n{"key":1}\n', "jsonl", "line 2: key: Input should be a valid string"),
        ('{"key":"a"\n', "jsonl", "line 1: Invalid JSON"),
        ("[]\n", "jsonl", "line 1: "),
        ('{"value":"a"}\n', "jsonl", "line 1: key: Field required"),
        ('{"key":"a","colour":"red"}\n', "jsonl", "line 1: colour: "),
        ('{"key":"hex:x"}\n', "jsonl", "line 1: 'hex:x' cannot be decoded"),
        ('{"key":"a","tombstone":true,"value":""}\n', "jsonl", "line 1: a tombstone has no value"),
        ("", "csv", "line 1: the columns are prefix, key, value"),
        ("value\na\n", "csv", "line 1: the columns are"),
        ("key,key\na,b\n", "csv", "line 1: the columns are"),
        ("key,colour\na,b\n", "csv", "line 1: the columns are"),
        ("key,value\na,b\nc\n", "csv", "line 3: expected 2 fields, found 1"),
        ("key,value\na,b,c\n", "csv", "line 2: expected 2 fields, found 3"),
        ("key,tombstone\na,yes\n", "csv", "line 2: tombstone: true or false, not 'yes'"),
        ("key,timestamp\na,now\n", "csv", "line 2: timestamp: milliseconds"),
        ('key\n"a\n', "csv", "line 2: unexpected end of data"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(text: str, file_format: str, problem: str) -> None:
    with pytest.raises(TextError) as raised:
        read(text, file_format)
    assert str(raised.value).startswith(problem)
    assert "\n" not in str(raised.value)


def test_what_people_read() -> None:
    row = TableRow(b"p", b"k", b"\xff", 5, Version(7, 3), 6, False)
    assert to_line(row) == "p\tk\tbase64:/w=="
    assert to_line(row._replace(value=None)) == "p\tk\t(null)"
    assert to_line(row._replace(value=None, tombstone=True, prefix=b"")) == "\tk\t(deleted)"
    assert to_json(row, "hex") == (
        '{"prefix": "hex:70", "key": "hex:6b", "value": "hex:ff", "timestamp": 5, "tombstone": false, '
        '"transaction_id": 7, "row": 3, "written_at": 6}'
    )
