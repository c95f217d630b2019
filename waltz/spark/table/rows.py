"""From the rows of a DataFrame to envelopes: groups the rows into transactions of partitions."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from waltz.client.locks import PartitionLocalLock
from waltz.common.errors import ConfigError
from waltz.common.keys import place_of
from waltz.spark.errors import SinkError
from waltz.spark.options import PARTITIONS
from waltz.spark.rows import Row as Transaction
from waltz.spark.table.columns import SCHEMA
from waltz.spark.table.write_options import ANY_TIMESTAMP, TableWriteOptions
from waltz.table.envelope import Batch, Row, decode, encode
from waltz.table.errors import EnvelopeError, KeyTooLongError
from waltz.table.face.configured import check_enabled
from waltz.table.face.locks import locks_of_batch
from waltz.table.limits import check_rows
from waltz.table.properties import PartitionProperties

MAX_TRANSACTION_BYTES = 256 << 10
"""A transaction ends after this number of bytes of prefixes, keys and values; only its last row exceeds it."""

OPERATION = "operation"
PUT, DELETE = "put", "delete"

_BYTES: tuple[type[DataType], ...] = (BinaryType, StringType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "partition": (IntegralType,),
    "prefix": _BYTES,
    "key": _BYTES,
    "value": _BYTES,
    "timestamp": (IntegralType, TimestampType),
    "tombstone": (BooleanType,),
    OPERATION: (StringType,),
}
_READ_ONLY = [name for name in SCHEMA.fieldNames() if name not in _TYPES]
"""Columns that only rows read from a table have; written rows get new values of them."""


_LARGEST_BODY_BYTES = 2**32 - 1
"""Limit for envelopes that this writer reads again; the partition's own limit has been checked before."""


def _system_clock() -> int:
    return time.time_ns() // 1_000_000


def locks_of(transaction: Transaction) -> Sequence[PartitionLocalLock]:
    """The locks of the rows in an envelope, by which other writers' transactions notice the rows."""
    return locks_of_batch(_rows_in(transaction))


def contents_of(transaction: Transaction) -> Iterable[bytes]:
    """The rows in an envelope: when it was written, and which rows share it, differs from one attempt to the next."""
    return [repr(row).encode() for row in _rows_in(transaction)]


def _rows_in(transaction: Transaction) -> Sequence[Row]:
    envelope = decode(transaction.data, _LARGEST_BODY_BYTES)
    assert isinstance(envelope, Batch)
    return envelope.rows


def check_columns(schema: StructType, options: TableWriteOptions) -> None:
    """Raise ``ConfigError`` when a column that is needed is missing or of the wrong type."""
    names = schema.fieldNames()
    for name in names:
        if name in _READ_ONLY:
            continue
        if name not in _TYPES:
            raise ConfigError(
                f"column '{name}' would be lost; drop it, or make it part of the value. The columns of rows are "
                + ", ".join(_TYPES)
            )
        if not isinstance(schema[name].dataType, _TYPES[name]):
            raise ConfigError(f"column '{name}' cannot be of type {schema[name].dataType.simpleString()}")
    if "key" not in names:
        raise ConfigError("the rows have no column 'key'")
    if "tombstone" in names and OPERATION in names:
        raise ConfigError(f"the columns 'tombstone' and '{OPERATION}' say the same; drop one of them")
    if "value" not in names and "tombstone" not in names and OPERATION not in names:
        raise ConfigError(
            "the rows have no column 'value'; rows that delete their keys say so in the column 'tombstone' or "
            f"'{OPERATION}'"
        )
    if "partition" not in names and options.partitions is None:
        raise ConfigError(
            f"which partitions is the table in? Give the option {PARTITIONS} (a key is in one of them by its hash), or "
            "a column 'partition'"
        )


class EnvelopeMaker:
    """Makes envelopes of the rows of a DataFrame with given columns."""

    def __init__(
        self,
        schema: StructType,
        options: TableWriteOptions,
        tables: Mapping[int, PartitionProperties],
        clock: Callable[[], int] = _system_clock,
    ) -> None:
        """``tables`` are the partitions that may be written; their order decides where a key is.

        Raises ``ConfigError`` when a column that is needed is missing or of the wrong type.
        """
        check_columns(schema, options)
        self._schema = schema
        self._max_rows = options.max_rows_per_transaction
        self._any_timestamp = options.any_timestamp
        self._tables = dict(tables)
        self._order = list(tables)
        self._clock = clock

    def groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[tuple[int, Transaction]]]:
        """Partitions and transactions: the full ones after each batch, and the others at the end.

        The rows of a partition stay in their order. Raises ``SinkError`` for a row that cannot be written, and
        ``PropertiesError`` for one of a table that is disabled.
        """
        gathered: dict[int, list[Row]] = {}
        sizes: dict[int, int] = {}
        for batch in batches:
            full: list[tuple[int, Transaction]] = []
            for partition_id, row in self._rows(batch):
                rows = gathered.setdefault(partition_id, [])
                rows.append(row)
                size_bytes = sizes.get(partition_id, 0) + len(row.prefix) + len(row.key) + len(row.value or b"")
                sizes[partition_id] = size_bytes
                if len(rows) >= self._max_rows or size_bytes >= MAX_TRANSACTION_BYTES:
                    full.append((partition_id, self._transaction(partition_id, rows)))
                    del gathered[partition_id], sizes[partition_id]
            if full:
                yield full
        if gathered:
            yield [(partition_id, self._transaction(partition_id, rows)) for partition_id, rows in gathered.items()]

    def _transaction(self, partition_id: int, rows: list[Row]) -> Transaction:
        properties = self._tables[partition_id]
        check_enabled(properties, partition_id)
        now_ms = self._clock()
        latest_ms = None if self._any_timestamp else now_ms + properties.max_timestamp_skew_ms
        try:
            check_rows(rows, max_key_bytes=properties.max_key_bytes, latest_ms=latest_ms)
            return Transaction(0, encode(Batch(now_ms, rows), properties.codec, properties.max_body_bytes))
        except ValueError as error:
            hint = f"; option {ANY_TIMESTAMP}=true allows it" if "ahead" in str(error) else ""
            raise SinkError(f"a row of partition {partition_id}: {error}{hint}") from None
        except (EnvelopeError, KeyTooLongError) as error:
            raise SinkError(f"a row of partition {partition_id}: {error}") from None

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Row]]:
        count = batch.num_rows
        keys = self._bytes(batch, "key")
        columns = zip(
            self._partitions(batch, keys),
            self._bytes(batch, "prefix") or [b""] * count,
            keys,
            self._bytes(batch, "value") or [None] * count,
            self._timestamps(batch),
            self._tombstones(batch),
            strict=True,
        )
        for partition_id, prefix, key, value, timestamp_ms, tombstone in columns:
            if key is None:
                raise SinkError("a row has null in column 'key'; a key may be empty, but not null")
            if tombstone and value is not None:
                raise SinkError(f"a row deletes the key {_shown(key)} and has a value; make the value null")
            yield partition_id, Row(prefix or b"", key, value, timestamp_ms, bool(tombstone))

    def _has(self, name: str) -> bool:
        return name in self._schema.fieldNames()

    def _bytes(self, batch: pa.RecordBatch, name: str) -> list[bytes | None]:
        if not self._has(name):
            return []
        found: list[bytes | None] = pc.cast(batch.column(name), pa.binary()).to_pylist()
        return found

    def _timestamps(self, batch: pa.RecordBatch) -> list[int | None]:
        if not self._has("timestamp"):
            return [None] * batch.num_rows
        column = batch.column("timestamp")
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        found: list[int | None] = column.cast(pa.int64()).to_pylist()
        return found

    def _tombstones(self, batch: pa.RecordBatch) -> list[bool | None]:
        if self._has("tombstone"):
            found: list[bool | None] = batch.column("tombstone").to_pylist()
            return found
        if not self._has(OPERATION):
            return [False] * batch.num_rows
        operations = batch.column(OPERATION).to_pylist()
        for operation in operations:
            if operation not in (PUT, DELETE):
                raise SinkError(f"a row has {operation!r} in column '{OPERATION}'; possible are {PUT} and {DELETE}")
        return [operation == DELETE for operation in operations]

    def _partitions(self, batch: pa.RecordBatch, keys: list[bytes | None]) -> list[int]:
        if not self._has("partition"):
            order = self._order
            return [order[place_of(key or b"", len(order))] for key in keys]
        found: list[int] = batch.column("partition").to_pylist()
        for partition_id in found:
            if partition_id not in self._tables:
                tables = ", ".join(map(str, self._order))
                raise SinkError(f"a row has {partition_id} in column 'partition'; it may be one of the tables {tables}")
        return found


def _shown(key: bytes) -> str:
    return repr(key if len(key) <= 40 else key[:40] + b"...")
