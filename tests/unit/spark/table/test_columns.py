import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from waltz.common.errors import ConfigError
from waltz.spark.table.columns import SCHEMA, TABLE, check_schema, schema_of


def schema(**fields: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])  # type: ignore[arg-type]  # a test's own


def test_any_selection_in_any_order() -> None:
    assert schema_of(None) is SCHEMA
    assert schema_of(["row", "key"]).fieldNames() == ["row", "key"]
    check_schema(SCHEMA)
    check_schema(schema(value=StringType(), key=BinaryType(), prefix=StringType(), row=IntegerType()))


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (StructType([]), "the schema has no columns; name at least one of: partition, prefix"),
        (schema(kez=BinaryType()), "the column 'kez', which a table does not have; did you mean 'key'?"),
        (schema(written=LongType()), "the column 'written', which a table does not have; the columns are: partition"),
        (schema(timestamp=IntegerType()), "column 'timestamp' is of type bigint, not int"),
        (schema(key=LongType()), "column 'key' is of type binary or string, not bigint"),
        (StructType([SCHEMA["key"], SCHEMA["key"]]), "the schema names a column twice: key, key"),
        (StructType([StructField("value", BinaryType(), nullable=False)]), "column 'value' may be null"),
    ],
)
def test_what_is_no_selection(wanted: StructType, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_schema(wanted)
    assert complaint in str(caught.value)


def test_names() -> None:
    TABLE.check_option("columns", ["key", "value"])
    with pytest.raises(ConfigError, match="option columns names a column twice: key, key"):
        TABLE.check_option("columns", ["key", "key"])
