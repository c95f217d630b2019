"""Decodes payloads into bytes, text, columns of JSON objects, or the columns that a function of the user makes.

A payload that cannot be decoded is an error that names the transaction (mode ``FAILFAST``) or null (``PERMISSIVE``).
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from waltz.common.errors import ConfigError
from waltz.spark.columns import DATA, JSON, RAW, UTF8, PayloadFormat
from waltz.spark.errors import PayloadError

Decode = Callable[[pa.BinaryArray, int, pa.Int64Array], dict[str, pa.Array]]
"""Payloads, partition and transaction ids to columns by name; all columns are as long as the payloads."""

_Strict = Callable[[pa.BinaryArray], dict[str, pa.Array]]
"""Decodes payloads of the right format, and raises any error for other payloads."""

_WRAPPER = "p"
"""The member of the object in which every document is wrapped, so that each document makes exactly one row."""
_BEFORE = pa.scalar(b'{"p":', pa.binary())
_BEHIND = pa.scalar(b"}\n", pa.binary())
_NOTHING = pa.scalar(b"", pa.binary())


def decoder(payload: PayloadFormat, schema: pa.Schema) -> Decode:
    """The decoder that makes the columns of ``schema`` of payloads. Raises ``ConfigError`` for a missing function."""
    if payload.name == RAW:
        return lambda payloads, _partition_id, _ids: {DATA: payloads}
    strict: _Strict
    if payload.name == UTF8:
        strict = _text
    elif payload.name == JSON:
        strict = _Json(schema)
    else:
        strict = _Function(load_function(payload.name), schema)
    return _Guarded(strict, schema, payload)


def load_function(path: str) -> Callable[[bytes], object]:
    """The function of ``package.module:function``. Raises ``ConfigError``."""
    module_name, _, name = path.partition(":")
    try:
        found = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"option payloadFormat: {path} cannot be imported: {error}") from None
    if not callable(found):
        raise ConfigError(f"option payloadFormat: {path} is not a function")
    return found


class _Guarded:
    """Decodes all payloads at once and, if that fails, one by one, to find those at fault."""

    def __init__(self, strict: _Strict, schema: pa.Schema, payload: PayloadFormat) -> None:
        self._strict = strict
        self._schema = schema
        self._payload = payload

    def __call__(self, payloads: pa.BinaryArray, partition_id: int, ids: pa.Int64Array) -> dict[str, pa.Array]:
        try:
            columns = self._strict(payloads)
        except Exception:
            columns = self._one_by_one(payloads, partition_id, ids)
        for field in self._schema:
            if not field.nullable and columns[field.name].null_count:
                place = columns[field.name].is_null().to_pylist().index(True)
                raise PayloadError(
                    f"partition {partition_id}, transaction {ids[place].as_py()}: column {field.name} is declared "
                    "NOT NULL, and the payload has no value for it"
                )
        return columns

    def _one_by_one(self, payloads: pa.BinaryArray, partition_id: int, ids: pa.Int64Array) -> dict[str, pa.Array]:
        rows: list[dict[str, pa.Array]] = []
        for place, transaction_id in enumerate(ids.to_pylist()):
            try:
                rows.append(self._strict(payloads.slice(place, 1)))
            except Exception as error:
                if not self._payload.permissive:
                    reason = str(error) or type(error).__name__
                    raise PayloadError(
                        f"partition {partition_id}, transaction {transaction_id}: the payload is not "
                        f"{self._payload.name}: {reason}; option payloadMode=PERMISSIVE makes null of such payloads"
                    ) from None
                rows.append({field.name: pa.nulls(1, field.type) for field in self._schema})
        return {field.name: pa.concat_arrays([row[field.name] for row in rows]) for field in self._schema}


def _text(payloads: pa.BinaryArray) -> dict[str, pa.Array]:
    return {DATA: payloads.cast(pa.string())}


class _Json:
    """One JSON object per payload; members without a column are ignored, missing members are null."""

    def __init__(self, schema: pa.Schema) -> None:
        self._type = pa.struct(list(schema))
        self._nullable = pa.struct([field.with_nullable(True) for field in schema])
        self._read_type = _json_type(self._nullable)

    def __call__(self, payloads: pa.BinaryArray) -> dict[str, pa.Array]:
        if not len(payloads):
            return {field.name: pa.nulls(0, field.type) for field in self._type}
        payloads.cast(pa.string())  # raises unless all are UTF-8: the reader takes any bytes between quotes for text
        lines = pc.binary_join_element_wise(_BEFORE, payloads, _BEHIND, _NOTHING)
        ends = memoryview(lines.buffers()[1]).cast("i")
        text = lines.buffers()[2].slice(ends[0], ends[len(lines)] - ends[0])
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([pa.field(_WRAPPER, self._read_type)]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        documents = table.column(_WRAPPER).combine_chunks()
        if len(documents) != len(payloads):
            raise ValueError("not a single JSON object")
        columns = documents.cast(self._nullable).flatten()
        return {field.name: column for field, column in zip(self._type, columns, strict=True)}


def _json_type(kind: pa.DataType) -> pa.DataType:
    """The type as the JSON reader reads it: dates are texts."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _json_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_json_type(kind.value_type))
    return kind


class _Function:
    """A function from the bytes of one payload to a mapping by column, a sequence in their order, or ``None``."""

    def __init__(self, function: Callable[[bytes], object], schema: pa.Schema) -> None:
        self._function = function
        self._names = schema.names
        self._type = pa.struct([field.with_nullable(True) for field in schema])

    def __call__(self, payloads: pa.BinaryArray) -> dict[str, pa.Array]:
        rows = [self._row(payload) for payload in payloads.to_pylist()]
        return dict(zip(self._names, pa.array(rows, type=self._type).flatten(), strict=True))

    def _row(self, payload: bytes) -> dict[str, Any] | None:
        found = self._function(payload)
        if found is None or isinstance(found, Mapping):
            return None if found is None else dict(found)
        if isinstance(found, Sequence) and not isinstance(found, str | bytes) and len(found) == len(self._names):
            return dict(zip(self._names, found, strict=True))
        raise TypeError(
            f"the function returned {type(found).__name__}; a mapping or a sequence of {len(self._names)} is expected"
        )
