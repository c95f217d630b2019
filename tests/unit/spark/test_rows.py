import datetime as dt
import json
from decimal import Decimal
from zlib import crc32

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from waltz.common.errors import ConfigError
from waltz.common.keys import partition_for
from waltz.spark.errors import SinkError
from waltz.spark.rows import Row, RowMaker
from waltz.spark.write_options import parse_write_options

REQUIRED = {"zookeeper": "zk:2181", "clusterRoot": "/waltz"}


def make(
    columns: dict[str, list[object]], types: dict[str, pa.DataType] | None = None, count: int = 4, **options: str
) -> list[tuple[int, Row]]:
    arrays = {name: pa.array(values, type=(types or {}).get(name)) for name, values in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays)
    maker = RowMaker(from_arrow_schema(batch.schema), parse_write_options(REQUIRED | options), count)
    return list(maker.rows(batch))


def test_partition_header_and_data() -> None:
    assert make({"data": [b"a", b""], "header": [5, -(2**31)], "partition": [3, 0]}) == [
        (3, Row(5, b"a")),
        (0, Row(-(2**31), b"")),
    ]


def test_text_is_utf8_and_the_header_0() -> None:
    assert make({"data": ["h\u00e9"], "partition": [1]}) == [(1, Row(0, "h\u00e9".encode()))]


def test_columns_of_other_names() -> None:
    found = make(
        {"body": ["x"], "place": [2], "kind": [9]}, dataColumn="body", partitionColumn="place", headerColumn="kind"
    )
    assert found == [(2, Row(9, b"x"))]


def test_what_a_read_has_can_be_written() -> None:
    names = ("transaction_id", "client_id", "generation", "seq_num", "checksum")
    assert make({"data": [b"x"], "partition": [2], **{name: [1] for name in names}}) == [(2, Row(0, b"x"))]


def test_without_partition_rows_go_by_their_payload() -> None:
    found = make({"data": ["a", "b", "a"]}, count=1000)
    assert [partition_id for partition_id, _ in found] == [crc32(text) % 1000 for text in (b"a", b"b", b"a")]


def test_rows_go_by_the_columns_named() -> None:
    found = make({"account": [7, 8, 7], "memo": ["x", None, "z"]}, count=1000, hashColumns="account")
    assert [partition_id for partition_id, _ in found] == [crc32(b"[%d]" % account) % 1000 for account in (7, 8, 7)]
    assert [json.loads(row.data) for _, row in found] == [
        {"account": 7, "memo": "x"},
        {"account": 8},
        {"account": 7, "memo": "z"},
    ]


def test_rows_and_services_agree_on_partitions() -> None:
    """Every kind of column that a key may consist of."""
    columns: dict[str, list[object]] = {
        "text": ["a", "Zo\u00eb", None],
        "number": [1, -2, 1 << 60],
        "time": [dt.datetime(2024, 2, 29, 1, 2, 3, number, dt.UTC) for number in range(3)],
        "price": [Decimal("1.10"), Decimal("0.00"), Decimal("-7.50")],
    }
    found = make({**columns, "data": ["x", "y", "z"]}, count=1000, hashColumns=",".join(columns))
    keys = zip(*columns.values(), strict=True)
    assert [partition_id for partition_id, _ in found] == [partition_for(key, 1000) for key in keys]


def test_the_other_columns_become_a_document() -> None:
    found = make({"partition": [1], "header": [3], "name": ["\u00e9"], "amount": [1.5], "ok": [True], "none": [None]})
    assert found == [(1, Row(3, '{"name":"\u00e9","amount":1.5,"ok":true}'.encode()))]


def test_values_that_json_has_not() -> None:
    columns: dict[str, list[object]] = {
        "at": [dt.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=dt.UTC)],
        "day": [dt.date(2024, 2, 29)],
        "amount": [Decimal("1.20")],
        "bytes": [b"\xff"],
        "nan": [float("nan")],
        "inner": [{"a": None, "b": [1, None, float("-inf")]}],
        "map": [{"k": 1}],
    }
    types = {"map": pa.map_(pa.string(), pa.int64()), "at": pa.timestamp("us", "UTC")}
    ((_, row),) = make(columns, types)
    assert json.loads(row.data) == {
        "at": "2024-02-29T12:00:00.000001Z",
        "day": "2024-02-29",
        "amount": "1.20",
        "bytes": "/w==",
        "nan": "NaN",
        "inner": {"b": [1, None, "-Infinity"]},
        "map": {"k": 1},
    }


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (
            {"data": [b"x"], "partition": [4]},
            "a row has 4 in column 'partition'; .* has the partitions 0 to 3",
        ),
        ({"data": [b"x"], "partition": [-1]}, "a row has -1 in column 'partition'"),
        ({"data": [b"x", b"y"], "partition": [1, None]}, "a row has None in column 'partition'"),
        ({"data": [b"x", None]}, "a row has null in column 'data'"),
        ({"data": [b"x"], "header": [2**31]}, "a row has 2147483648 in column 'header'"),
        ({"data": [b"x", b"y"], "header": [1, None]}, "a row has None in column 'header'"),
    ],
)
def test_rows_that_cannot_be_appended(columns: dict[str, list[object]], complaint: str) -> None:
    with pytest.raises(SinkError, match=complaint):
        make(columns)


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ({"data": [b"x"], "memo": ["y"]}, {}, "column 'memo' would be lost beside the payload in column 'data'"),
        ({"data": [5]}, {}, "column 'data' must be binary or string, not bigint"),
        ({"data": [b"x"], "partition": ["0"]}, {}, "column 'partition' must be of an integral type, not string"),
        ({"data": [b"x"], "header": [1.5]}, {}, "column 'header' must be of an integral type, not double"),
        (
            {"data": [b"x"]},
            {"hashColumns": "account"},
            "hashColumns names the column 'account', which the",
        ),
        ({"data": [b"x"], "Account": [1]}, {"hashColumns": "account"}, "do not have; did you mean 'Account'\\?"),
        ({"data": [b"x"]}, {"partitionColumn": "place"}, "partitionColumn names the column 'place', which .* have$"),
        ({"data": [b"x"], "Kind": [1]}, {"headerColumn": "kind"}, "headerColumn names .* did you mean 'Kind'\\?"),
        ({"data": [b"x"]}, {"dataColumn": "DATA"}, "dataColumn names the column 'DATA', .* did you mean 'data'\\?"),
        ({"partition": [1]}, {}, "no column 'data', and none to make JSON of"),
    ],
)
def test_columns_that_say_nothing(columns: dict[str, list[object]], options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make(columns, None, 4, **options)


def test_no_rows() -> None:
    assert make({"data": []}, {"data": pa.binary()}) == []
