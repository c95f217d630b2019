import datetime as dt
import pickle
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tests.unit.table.strategies import tricky_bytes
from waltz.common.errors import ConfigError
from waltz.common.keys import place_of
from waltz.spark.errors import SinkError
from waltz.spark.table import rows as rows_module
from waltz.spark.table.rows import EnvelopeMaker, contents_of, locks_of
from waltz.spark.table.write_options import parse_table_write_options
from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Row, decode
from waltz.table.errors import PropertiesError
from waltz.table.face.locks import row_lock
from waltz.table.properties import PartitionProperties

TABLE = PartitionProperties(format="table")
NOW_MS = 1_000_000


def batch(**columns: Sequence[object]) -> pa.RecordBatch:
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "prefix": pa.binary(),
        "timestamp": pa.int64(),
        "tombstone": pa.bool_(),
        "partition": pa.int32(),
        "operation": pa.string(),
    }
    return pa.RecordBatch.from_pydict({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})


def maker(schema: pa.Schema, tables: Mapping[int, PartitionProperties], **options: str) -> EnvelopeMaker:
    parsed = parse_table_write_options({"zookeeper": "zk:2181", "clusterRoot": "/waltz", "partitions": "0"} | options)
    kind = from_arrow_schema(schema)
    assert isinstance(kind, StructType)
    return EnvelopeMaker(kind, parsed, tables, lambda: NOW_MS)


def written(
    *batches: pa.RecordBatch, tables: Mapping[int, PartitionProperties] | None = None, **options: str
) -> list[tuple[int, list[Row]]]:
    """Partition and rows of each transaction."""
    made = maker(batches[0].schema, {0: TABLE} if tables is None else tables, **options)
    found = []
    for group in made.groups(batches):
        for partition_id, transaction in group:
            envelope = decode(transaction.data)
            assert isinstance(envelope, Batch)
            assert transaction.header == 0
            assert envelope.written_at_ms == NOW_MS
            found.append((partition_id, list(envelope.rows)))
    return found


def test_rows_of_every_kind() -> None:
    found = written(
        batch(
            prefix=[b"p", None, b""],
            key=[b"a", b"b", b""],
            value=[b"1", None, None],
            timestamp=[5, None, NOW_MS],
            tombstone=[None, True, False],
            transaction_id=[1, 2, 3],
            row=[0, 0, 0],
        )
    )
    rows = [Row(b"p", b"a", b"1", 5), Row(b"", b"b", None, None, True), Row(b"", b"", None, NOW_MS)]
    assert found == [(0, rows)]


def test_texts_operations_and_times() -> None:
    when = dt.datetime(1970, 1, 1, 0, 0, 1, 234_999, tzinfo=dt.UTC)
    columns = {
        "key": pa.array(["ä", "b"]),
        "operation": pa.array(["put", "delete"]),
        "value": pa.array(["v", None]),
        "timestamp": pa.array([when, None], pa.timestamp("us", "UTC")),
    }
    found = written(pa.RecordBatch.from_pydict(columns))
    assert found == [(0, [Row(b"", "ä".encode(), b"v", 1234), Row(b"", b"b", None, None, True)])]


@given(st.lists(st.lists(tricky_bytes, max_size=12), min_size=1, max_size=4), st.integers(1, 5))
def test_every_row_is_written_once_in_its_order_where_the_client_looks_for_it(
    keys: list[list[bytes]], max_rows: int
) -> None:
    values = iter(range(10**6))
    batches = [batch(key=some, value=[b"%d" % next(values) for _ in some]) for some in keys]
    order = [7, 3, 5]
    found = written(*batches, tables=dict.fromkeys(order, TABLE), maxRowsPerTransaction=str(max_rows))
    assert all(0 < len(rows) <= max_rows for _, rows in found)
    for partition_id in order:
        mine = [row for where, rows in found if where == partition_id for row in rows]
        flat = [row for made in batches for row in made.to_pylist()]
        expected = [
            Row(b"", row["key"], row["value"]) for row in flat if order[place_of(row["key"], 3)] == partition_id
        ]
        assert mine == expected


def test_transactions_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_TRANSACTION_BYTES", 100)
    keys = [b"%d" % number for number in range(10)]
    assert [len(rows) for _, rows in written(batch(key=keys, value=[bytes(39)] * 10))] == [3, 3, 3, 1]


def test_a_column_may_say_the_partition() -> None:
    found = written(batch(key=[b"a", b"b"], value=[b"", b""], partition=[4, 2]), tables={2: TABLE, 4: TABLE})
    assert found == [(4, [Row(b"", b"a", b"")]), (2, [Row(b"", b"b", b"")])]


def test_the_codec_of_the_partition() -> None:
    rows = batch(key=[b"a", b"b"], value=[bytes(400)] * 2)
    properties = PartitionProperties(format="table", row_type="zlib")
    ((_, transaction),) = next(iter(maker(rows.schema, {0: properties}).groups([rows])))
    assert transaction.data[3] == Codec.ZLIB
    assert locks_of(transaction) == [row_lock(b"", b"a"), row_lock(b"", b"b")]


def test_rows_that_are_staged_again_have_the_same_contents() -> None:
    """Later, and in other transactions."""
    rows = batch(key=[b"a", b"b", b"c"], value=[b"1", None, b"3"], timestamp=[5, None, None])
    first = maker(rows.schema, {0: TABLE})
    again = maker(rows.schema, {0: TABLE}, maxRowsPerTransaction="2")
    again._clock = lambda: NOW_MS + 1
    staged = [
        [content for group in made.groups([rows]) for _, found in group for content in contents_of(found)]
        for made in (first, again)
    ]
    assert sorted(staged[0]) == sorted(staged[1])
    assert len(set(staged[0])) == 3


def test_what_makes_rows_travels_to_the_workers() -> None:
    rows = batch(key=[b"a"], value=[b""])
    parsed = parse_table_write_options({"zookeeper": "zk:2181", "clusterRoot": "/waltz", "partitions": "0"})
    kind = from_arrow_schema(rows.schema)
    assert isinstance(kind, StructType)
    groups = pickle.loads(pickle.dumps(EnvelopeMaker(kind, parsed, {0: TABLE}).groups))
    assert len(list(groups([rows]))) == 1


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": [None], "value": [b""]}, "a row has null in column 'key'"),
        ({"key": [b"k"], "value": [b""], "tombstone": [True]}, "a row deletes the key b'k' and has a value"),
        ({"key": [b"k"], "operation": ["upsert"]}, "a row has 'upsert' in column 'operation'; possible are put and"),
        ({"key": [b"k"], "operation": [None]}, "a row has None in column 'operation'"),
        ({"key": [b"k"], "value": [b""], "partition": [3]}, "a row has 3 in column 'partition'; it may be one of the"),
        ({"key": [b"k"], "value": [b""], "partition": [None]}, "a row has None in column 'partition'"),
        (
            {"key": [b"k"], "value": [b""], "timestamp": [0]},
            "a row of partition 0: a timestamp must be positive, not 0",
        ),
        (
            {"key": [b"k"], "value": [b""], "timestamp": [NOW_MS + 3_600_001]},
            "at most 4600000 is possible, by maxTimestampSkewInMillis; option anyTimestamp=true allows it",
        ),
        ({"key": [bytes(50)], "value": [b""]}, "a row of partition 0: prefix and key take more than the 40 bytes"),
        ({"key": [b"k"], "value": [b""], "prefix": [bytes(32768)]}, "prefix and key take more than the 40 bytes"),
        ({"key": [b"k"], "value": [bytes(10_000)]}, "a row of partition 0: a body of 10023 bytes; at most 5000"),
    ],
)
def test_rows_that_cannot_be_written(columns: dict[str, list[object]], complaint: str) -> None:
    properties = PartitionProperties(format="table", max_key_bytes=40, max_body_bytes=5000)
    with pytest.raises(SinkError) as caught:
        written(batch(**columns), tables={0: properties})
    assert complaint in str(caught.value)


def test_any_timestamp_may_be_allowed() -> None:
    rows = batch(key=[b"k"], value=[b""], timestamp=[NOW_MS * 1000])
    assert written(rows, anyTimestamp="true")[0][1][0].timestamp_ms == NOW_MS * 1000


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": [b""], "value": [b""], "extra": [1]}, "column 'extra' would be lost; drop it, or make it part of"),
        ({"key": pa.array([1]), "value": [b""]}, "column 'key' cannot be of type bigint"),
        ({"value": [b""]}, "the rows have no column 'key'"),
        ({"key": [b""]}, "the rows have no column 'value'; rows that delete their keys say so"),
        ({"key": [b""], "operation": ["put"], "tombstone": [True]}, "'tombstone' and 'operation' say the same"),
    ],
)
def test_columns_that_do_not_say_what_to_write(columns: dict[str, list[object]], complaint: str) -> None:
    rows = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(ConfigError) as caught:
        maker(rows.schema, {0: TABLE})
    assert complaint in str(caught.value)


def test_rows_of_a_disabled_table_are_refused() -> None:
    tables = {0: TABLE, 1: PartitionProperties(format="table", disabled=True)}
    rows = batch(key=[b"a", b"b"], value=[b"1", b"2"], partition=[0, 1])
    assert [partition_id for partition_id, _ in written(rows.slice(0, 1), tables=tables)] == [0]
    with pytest.raises(PropertiesError, match="partition 1 is disabled: nothing is written"):
        written(rows, tables=tables)
