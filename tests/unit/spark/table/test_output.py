from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from tests.unit.spark.table.logs import chunk_of, log_of, rows_in
from waltz.spark.batches import arrow_schema
from waltz.spark.errors import PayloadError
from waltz.spark.table.columns import SCHEMA
from waltz.spark.table.envelopes import EnvelopeReader
from waltz.spark.table.fold import Fold
from waltz.spark.table.output import MAX_BATCH_BYTES, OutputMaker
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES, Batch, Row

TEXT = StructType([StructField("value", StringType()), StructField("key", StringType(), nullable=False)])


def rows_of(*rows: Row) -> pa.RecordBatch:
    (found,) = EnvelopeReader(3, DEFAULT_MAX_BODY_BYTES).read(chunk_of(log_of([Batch(1, [row]) for row in rows])))
    assert isinstance(found, pa.RecordBatch)
    return found


def test_all_columns_of_rows_and_of_winners() -> None:
    rows = rows_of(Row(b"p", b"a", b"1", 5), Row(b"", b"b", None, None, True))
    fold = Fold()
    fold.add(rows)
    for found in (rows, fold.winners()):
        assert found is not None
        (batch,) = OutputMaker(SCHEMA, 3).batches(found)
        assert batch.schema.equals(arrow_schema(SCHEMA))
        assert batch.column("partition").to_pylist() == [3, 3]
        for column, expected in zip(("prefix", "key", "value"), zip(*rows_in(rows), strict=True), strict=False):
            assert tuple(batch.column(column).to_pylist()) == expected


def test_text() -> None:
    (batch,) = OutputMaker(TEXT, 3).batches(rows_of(Row(b"", "ä".encode(), None), Row(b"", b"", b"v")))
    assert batch.schema.equals(arrow_schema(TEXT))
    assert batch.to_pylist() == [{"value": None, "key": "ä"}, {"value": "v", "key": ""}]
    assert OutputMaker(TEXT, 3).needs_values
    assert not OutputMaker(StructType([SCHEMA["key"]]), 3).needs_values


def test_bytes_that_are_no_text_are_named() -> None:
    rows = rows_of(Row(b"", b"fine", b"v"), Row(b"", b"k", b"\xff"))
    with pytest.raises(
        PayloadError, match="partition 3, transaction 1, row 0: its value is not UTF-8; read the column"
    ):
        list(OutputMaker(TEXT, 3).batches(rows))


def test_batches_are_bounded() -> None:
    values = [bytes(3 << 20)] * 9 + [bytes(MAX_BATCH_BYTES + 1)]
    rows = rows_of(*(Row(b"", b"%d" % number, value) for number, value in enumerate(values[:5])))
    more = rows_of(Row(b"", b"large", values[-1]))
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in (rows, rows, more)])
    batches = list(OutputMaker(SCHEMA, 3).batches(table.combine_chunks()))
    assert sum(batch.num_rows for batch in batches) == 11
    assert all(batch.nbytes <= MAX_BATCH_BYTES or batch.num_rows == 1 for batch in batches)
    assert list(OutputMaker(SCHEMA, 3).batches(table.slice(0, 0))) == []


def test_a_state_may_be_larger_than_spark_can_address(tmp_path: Path) -> None:
    """Its values are in a file with a hole, of which only what lies behind 2 GiB is looked at."""
    size_bytes = 1 << 20
    count = (1 << 31) // size_bytes + 2
    path = tmp_path / "values"
    with open(path, "wb") as file:
        file.truncate(count * size_bytes)
    offsets = pa.array(range(0, (count + 1) * size_bytes, size_bytes), pa.int64()).buffers()[1]
    with pa.memory_map(str(path)) as values:
        buffers = [None, offsets, values.read_buffer(count * size_bytes)]
        column = pa.Array.from_buffers(pa.large_binary(), count, buffers)
        keys = pa.array([b""] * count, pa.large_binary())
        state = pa.table({"value": column, "key": keys}).slice(count - 3)
        batches = list(OutputMaker(TEXT, 3).batches(state))
    assert sum(batch.num_rows for batch in batches) == 3
    assert all(row == {"value": "\0" * size_bytes, "key": ""} for batch in batches for row in batch.to_pylist())
