"""The columns of a table in Spark.

This module is reached by Spark's scan for data sources, so it loads neither Arrow nor anything of the cluster.
"""

from collections.abc import Sequence

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from waltz.common.errors import ConfigError
from waltz.spark.columns import Columns

SCHEMA = StructType(
    [
        StructField("partition", IntegerType(), nullable=False),
        StructField("prefix", BinaryType(), nullable=False),
        StructField("key", BinaryType(), nullable=False),
        StructField("value", BinaryType(), nullable=True),
        StructField("timestamp", LongType(), nullable=False),
        StructField("tombstone", BooleanType(), nullable=False),
        StructField("transaction_id", LongType(), nullable=False),
        StructField("row", IntegerType(), nullable=False),
    ]
)
"""All columns. ``transaction_id`` and ``row`` are the version of a row; ``timestamp`` is in milliseconds."""

BYTES = ("prefix", "key", "value")
"""Columns that may be had as text, too."""

TABLE = Columns("a table", tuple(SCHEMA.fieldNames()))


def schema_of(columns: Sequence[str] | None) -> StructType:
    """The schema of a read when the user gives none."""
    return SCHEMA if columns is None else StructType([SCHEMA[name] for name in columns])


def check_schema(schema: StructType) -> None:
    """Accept any selection of the columns, in any order; bytes may be had as text. Raises ``ConfigError``."""
    TABLE.check_schema(schema.fieldNames())
    for field in schema.fields:
        kinds = _kinds(field.name)
        if field.dataType not in kinds:
            possible = " or ".join(kind.simpleString() for kind in kinds)
            raise ConfigError(f"column '{field.name}' is of type {possible}, not {field.dataType.simpleString()}")
        if field.name == "value" and not field.nullable:
            raise ConfigError("column 'value' may be null: tombstones have no value")


def _kinds(name: str) -> list[DataType]:
    kind = SCHEMA[name].dataType
    return [kind, StringType()] if name in BYTES else [kind]
