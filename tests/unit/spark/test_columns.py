import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tests.unit.common.cluster.fakes import make_log, make_record
from tests.unit.spark.chunks import make_chunk
from waltz.common.checksum import checksum
from waltz.common.errors import ConfigError
from waltz.common.ids import ReqId
from waltz.common.records import Record
from waltz.spark import batches
from waltz.spark.batches import BatchMaker, arrow_schema
from waltz.spark.chunk import Chunk
from waltz.spark.columns import SCHEMA, PayloadFormat, check_schema


def selection(*names: str, nullable: bool = True) -> StructType:
    return StructType([StructField(name, SCHEMA[name].dataType, nullable) for name in names])


def to_batches(partition_id: int, chunk: Chunk, schema: StructType) -> list[pa.RecordBatch]:
    return list(BatchMaker(schema, PayloadFormat()).batches(partition_id, chunk))


def test_schema_is_as_documented() -> None:
    assert SCHEMA.simpleString() == (
        "struct<partition:int,transaction_id:bigint,header:int,client_id:int,generation:int,seq_num:int,"
        "data:binary,checksum:int>"
    )
    assert not any(field.nullable for field in SCHEMA.fields)


def test_all_columns() -> None:
    schema = arrow_schema(SCHEMA)
    log = make_log(5, 4)[1:]
    (batch,) = to_batches(5, make_chunk(log), SCHEMA)
    batch.validate(full=True)
    assert batch.schema.equals(schema)
    assert not any(field.nullable for field in batch.schema)
    assert batch.to_pydict() == {
        "partition": [5, 5, 5],
        "transaction_id": [1, 2, 3],
        "header": [-1, -2, -3],
        "client_id": [1005] * 3,
        "generation": [-3] * 3,
        "seq_num": [2, 4, 6],
        "data": [b"5/1", b"5/2", b"5/3"],
        "checksum": [checksum(record.data) for record in log],
    }


def test_extreme_values() -> None:
    record = Record(2**63 - 2, ReqId.of(-(2**31), 2**31 - 1, 0, -1), -(2**31), b"", 0)
    (batch,) = to_batches(2**31 - 1, make_chunk([record]), SCHEMA)
    assert [column[0].as_py() for column in batch.columns] == [
        2**31 - 1, 2**63 - 2, -(2**31), -(2**31), 2**31 - 1, -1, b"", 0,
    ]  # fmt: skip


def test_a_selection_in_any_order_is_built_alone() -> None:
    wanted = selection("data", "seq_num", "transaction_id")
    check_schema(wanted)
    schema = arrow_schema(wanted)
    (batch,) = to_batches(0, make_chunk(make_log(0, 2)), wanted)
    assert batch.schema.equals(schema)
    assert batch.schema.field("data") == pa.field("data", pa.binary(), nullable=True)
    assert batch.to_pydict() == {"data": [b"0/0", b"0/1"], "seq_num": [0, 2], "transaction_id": [0, 1]}


def test_batches_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_BATCH_BYTES", 10)
    records = [make_record(0, index, bytes(size)) for index, size in enumerate([4, 4, 4, 30, 0, 10])]
    made = to_batches(0, make_chunk(records), SCHEMA)
    assert [batch.column("transaction_id").to_pylist() for batch in made] == [[0, 1], [2], [3], [4, 5]]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (StructType(), "the schema has no columns"),
        (StructType([StructField("transactionid", LongType())]), "did you mean 'transaction_id'"),
        (
            StructType([StructField("xyz", LongType())]),
            "column 'xyz', which the log does not have; the columns are: partition,",
        ),
        (StructType([StructField("data", StringType())]), "column 'data' is of type binary, not string"),
        (
            StructType([StructField("transaction_id", IntegerType())]),
            "column 'transaction_id' is of type bigint, not int",
        ),
        (selection("data", "data"), "a column twice"),
    ],
)
def test_other_schemas_are_refused(schema: StructType, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_schema(schema)
