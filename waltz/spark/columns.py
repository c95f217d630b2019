"""The columns of a read: those of the log, and those decoded from the payload.

This module is reached by Spark's scan for data sources, so it loads neither Arrow nor anything of the cluster.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from waltz.common.errors import ConfigError

DATA = "data"


class Columns(NamedTuple):
    """The names of the columns of a format."""

    owner: str
    """The owner of the columns, as error texts name it."""
    names: tuple[str, ...]

    def check_option(self, option: str, names: Sequence[str]) -> None:
        """Raise ``ConfigError`` unless an option names columns, each once."""
        self._check(f"option {option}", names)

    def check_schema(self, names: Sequence[str], *, others: bool = False) -> None:
        """Raise ``ConfigError`` unless a schema has known columns, each once; ``others`` admits any other name, too."""
        if not names:
            raise ConfigError("the schema has no columns; name at least one of: " + ", ".join(self.names))
        self._check("the schema", names, others=others)

    def _check(self, what: str, names: Sequence[str], *, others: bool = False) -> None:
        for name in names:
            if name not in self.names and not others:
                near = difflib.get_close_matches(name.lower(), self.names, n=1)
                hint = f"did you mean '{near[0]}'?" if near else "the columns are: " + ", ".join(self.names)
                raise ConfigError(f"{what} names the column '{name}', which {self.owner} does not have; {hint}")
        if len(set(names)) < len(names):
            raise ConfigError(f"{what} names a column twice: {', '.join(names)}")


_TYPES: dict[str, DataType] = {
    "partition": IntegerType(),
    "transaction_id": LongType(),
    "header": IntegerType(),
    "client_id": IntegerType(),
    "generation": IntegerType(),
    "seq_num": IntegerType(),
    DATA: BinaryType(),
    "checksum": IntegerType(),
}

SCHEMA = StructType([StructField(name, kind, nullable=False) for name, kind in _TYPES.items()])
"""All columns. ``client_id``, ``generation`` and ``seq_num`` are the parts of the request id beside the partition."""

LOG = Columns("the log", tuple(_TYPES))

HEADER_COLUMNS = ("header", "client_id", "generation", "seq_num", "checksum")
"""The columns that the option ``includeHeaders`` adds: those beside the payload."""

RAW = "raw"
UTF8 = "utf8"
JSON = "json"
PAYLOAD_FORMATS = (RAW, UTF8, JSON)


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """Options ``payloadFormat`` and ``payloadMode``, by which ``waltz.spark.payloads`` decodes."""

    name: str = RAW
    """``raw``, ``utf8``, ``json``, or ``module:function``."""
    permissive: bool = False
    """Whether a payload of another format becomes null instead of an error."""


def default_schema(
    columns: Sequence[str] | None, *, include_headers: bool, payload_format: str, payload_schema: str | None
) -> StructType | str:
    """The schema of a read when the user gives none: a type or, with columns decoded from the payload, its DDL text.

    ``columns`` names columns of the log; ``payload_schema`` is a DDL text of the columns that the payload is turned
    into, which then stand behind those of the log, in the place of ``data``.
    """
    names = list(_TYPES) if columns is None else list(columns)
    if not include_headers:
        names = [name for name in names if name not in HEADER_COLUMNS]
    if payload_schema is None:
        return StructType([_field(name, payload_format) for name in names])
    fields = [SCHEMA[name] for name in names if name != DATA]
    return ", ".join(
        [*(f"{field.name} {field.dataType.simpleString()} NOT NULL" for field in fields), payload_schema.strip()]
    )


def _field(name: str, payload_format: str) -> StructField:
    if name == DATA and payload_format == UTF8:
        return StructField(DATA, StringType(), nullable=True)
    return SCHEMA[name]


def check_schema(schema: StructType, payload_format: str = RAW) -> None:
    """Accept any selection of the columns, in any order, nullable or not. Raises ``ConfigError`` for anything else.

    Where the payload is turned into columns, every name that is none of the log's is one of them.
    """
    decoded = payload_format not in (RAW, UTF8)
    LOG.check_schema(schema.fieldNames(), others=decoded)
    for field in schema.fields:
        if decoded and (field.name == DATA or field.name not in _TYPES):
            continue
        kind = StringType() if field.name == DATA and payload_format == UTF8 else _TYPES[field.name]
        if field.dataType != kind:
            raise ConfigError(
                f"column '{field.name}' is of type {kind.simpleString()}, not {field.dataType.simpleString()}"
            )


def payload_fields(schema: StructType, payload_format: str) -> StructType:
    """The columns of ``schema`` that are decoded from the payload: ``data``, or all that are not columns of the log."""
    if payload_format in (RAW, UTF8):
        return StructType([field for field in schema.fields if field.name == DATA])
    return StructType([field for field in schema.fields if field.name == DATA or field.name not in _TYPES])
