import datetime as dt
import json
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.errors import ConfigError
from waltz.spark.columns import PayloadFormat
from waltz.spark.errors import PayloadError
from waltz.spark.payloads import decoder

DOCUMENT = pa.schema([pa.field("account", pa.int64()), pa.field("memo", pa.string())])
TEXT = pa.schema([pa.field("data", pa.string())])


def decode(name: str, schema: pa.Schema, payloads: list[bytes], *, permissive: bool = False) -> list[dict[str, object]]:
    ids = pa.array(range(100, 100 + len(payloads)), type=pa.int64())
    columns = decoder(PayloadFormat(name, permissive), schema)(pa.array(payloads, type=pa.binary()), 7, ids)
    table = pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)
    table.validate(full=True)
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def test_raw() -> None:
    schema = pa.schema([pa.field("data", pa.binary(), nullable=False)])
    assert decode("raw", schema, [b"\xff", b""]) == [{"data": b"\xff"}, {"data": b""}]


def test_text() -> None:
    assert decode("utf8", TEXT, ["h\u00e9".encode(), b""]) == [{"data": "h\u00e9"}, {"data": ""}]


def test_what_is_no_text_is_named_or_null() -> None:
    with pytest.raises(PayloadError, match="partition 7, transaction 101: the payload is not utf8: .*PERMISSIVE"):
        decode("utf8", TEXT, [b"a", b"\xff", b"b"])
    rows = decode("utf8", TEXT, [b"a", b"\xff", b"b"], permissive=True)
    assert [row["data"] for row in rows] == ["a", None, "b"]


def test_json_objects_become_columns() -> None:
    payloads = [b'{"account": 1, "memo": "x", "more": [1]}', b'{\n "memo": "a\\nb"\n}', b"{}", b"null"]
    assert decode("json", DOCUMENT, payloads) == [
        {"account": 1, "memo": "x"},
        {"account": None, "memo": "a\nb"},
        {"account": None, "memo": None},
        {"account": None, "memo": None},
    ]
    assert decode("json", DOCUMENT, []) == []


def test_types_of_json() -> None:
    schema = pa.schema(
        [
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("amount", pa.decimal128(10, 2)),
            pa.field("rates", pa.list_(pa.float64())),
            pa.field("inner", pa.struct([pa.field("ok", pa.bool_()), pa.field("due", pa.date32())])),
        ]
    )
    document = {
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00.000001+02:00",
        "amount": 1.25,
        "rates": [1, 2.5],
        "inner": {"ok": True, "due": "2024-03-01"},
    }
    (row,) = decode("json", schema, [json.dumps(document).encode()])
    assert row == {
        "day": dt.date(2024, 2, 29),
        "at": dt.datetime(2024, 2, 29, 10, 0, 0, 1, tzinfo=dt.UTC),
        "amount": Decimal("1.25"),
        "rates": [1.0, 2.5],
        "inner": {"ok": True, "due": dt.date(2024, 3, 1)},
    }


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"5",
        b"[]",
        b"{}{}",
        b'{}}\n{"p":{}',
        b'{"account": "x"}',
        b'{"account": 1.5}',
        b"\xff",
        b'{"account": 2, "memo": "\xff\xfe"}',
        b'{"account": 2, "ignored": "\xed\xa0\x80"}',
        b'{"account": 2, "\xff": 1}',
        b'{"a":1}\n{}',
    ],
)
def test_what_is_no_such_object_is_named_or_null(bad: bytes) -> None:
    payloads = [b'{"account": 1}', bad, b'{"account": 3}']
    with pytest.raises(PayloadError, match="partition 7, transaction 101: the payload is not json: "):
        decode("json", DOCUMENT, payloads)
    assert [row["account"] for row in decode("json", DOCUMENT, payloads, permissive=True)] == [1, None, 3]


def test_a_value_that_must_be_there() -> None:
    schema = pa.schema([pa.field("account", pa.int64(), nullable=False)])
    assert decode("json", schema, [b'{"account": 1}']) == [{"account": 1}]
    with pytest.raises(PayloadError, match="transaction 101: column account is declared NOT NULL"):
        decode("json", schema, [b'{"account": 1}', b"{}"])


@given(st.lists(st.dictionaries(st.sampled_from(["account", "other"]), st.integers(-(2**63), 2**63 - 1)), max_size=5))
def test_any_objects(documents: list[Mapping[str, int]]) -> None:
    rows = decode("json", DOCUMENT, [json.dumps(document).encode() for document in documents])
    assert [row["account"] for row in rows] == [document.get("account") for document in documents]


@pytest.fixture
def parsers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parsers_of_a_test.py").write_text(
        "def pair(payload):\n"
        "    account, memo = payload.decode().split('|')\n"
        "    return int(account), memo\n"
        "def mapping(payload):\n"
        "    return {'memo': payload.decode(), 'account': len(payload)} if payload else None\n"
        "def wrong(payload):\n"
        "    return 'text'\n"
        "number = 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "parsers_of_a_test", raising=False)


@pytest.mark.usefixtures("parsers")
def test_a_function_of_the_users() -> None:
    assert decode("parsers_of_a_test:pair", DOCUMENT, [b"1|x", b"2|"]) == [
        {"account": 1, "memo": "x"},
        {"account": 2, "memo": ""},
    ]
    assert decode("parsers_of_a_test:mapping", DOCUMENT, [b"abc", b""]) == [
        {"account": 3, "memo": "abc"},
        {"account": None, "memo": None},
    ]


@pytest.mark.usefixtures("parsers")
def test_a_function_that_fails_is_told_with_the_transaction() -> None:
    with pytest.raises(PayloadError, match="transaction 101: .* not parsers_of_a_test:pair: not enough values"):
        decode("parsers_of_a_test:pair", DOCUMENT, [b"1|x", b"2"])
    rows = decode("parsers_of_a_test:pair", DOCUMENT, [b"1|x", b"2"], permissive=True)
    assert [row["account"] for row in rows] == [1, None]
    with pytest.raises(PayloadError, match="the function returned str; a mapping or a sequence of 2 is expected"):
        decode("parsers_of_a_test:wrong", DOCUMENT, [b""])


@pytest.mark.usefixtures("parsers")
@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("no_such_module:f", "cannot be imported: No module named 'no_such_module'"),
        ("parsers_of_a_test:missing", "cannot be imported: .*has no attribute 'missing'"),
        ("parsers_of_a_test:number", "is not a function"),
    ],
)
def test_a_function_that_is_not_there(path: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"option payloadFormat: {path} {complaint}"):
        decoder(PayloadFormat(path), DOCUMENT)
