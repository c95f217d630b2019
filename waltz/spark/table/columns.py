"""The columns of a table in Spark.

This module is reached by Spark's scan for data sources, so it loads neither Arrow nor anything of the cluster.
"""

import difflib
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

_NAMES = SCHEMA.fieldNames()


def schema_of(columns: Sequence[str] | None) -> StructType:
    """What a read has when the user gives no schema."""
    return SCHEMA if columns is None else StructType([SCHEMA[name] for name in columns])


def check_names(option: str, names: Sequence[str]) -> None:
    """Raise ``ConfigError`` unless these are columns of a table, each named once."""
    for name in names:
        if name not in _NAMES:
            raise ConfigError(f"option {option} names the column '{name}', which a table does not have; {_hint(name)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"option {option} names a column twice: {', '.join(names)}")


def check_schema(schema: StructType) -> None:
    """Accept any selection of the columns, in any order; bytes may be had as text. Raises ``ConfigError``."""
    names = schema.fieldNames()
    if not names:
        raise ConfigError("the schema has no columns; name at least one of: " + ", ".join(_NAMES))
    for field in schema.fields:
        if field.name not in _NAMES:
            raise ConfigError(
                f"the schema has the column '{field.name}', which a table does not have; {_hint(field.name)}"
            )
        kinds = _kinds(field.name)
        if field.dataType not in kinds:
            possible = " or ".join(kind.simpleString() for kind in kinds)
            raise ConfigError(f"column '{field.name}' is of type {possible}, not {field.dataType.simpleString()}")
        if field.name == "value" and not field.nullable:
            raise ConfigError("column 'value' may be null: tombstones have no value")
    if len(set(names)) < len(names):
        raise ConfigError("the schema names a column twice: " + ", ".join(names))


def _kinds(name: str) -> list[DataType]:
    kind = SCHEMA[name].dataType
    return [kind, StringType()] if name in BYTES else [kind]


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), _NAMES, n=1)
    return f"did you mean '{near[0]}'?" if near else "the columns are: " + ", ".join(_NAMES)
