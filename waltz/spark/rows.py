"""From the rows of a DataFrame to transactions: partition, header and payload of each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegralType, StringType, StructType

from waltz.common.checksum import crc32
from waltz.common.errors import ConfigError
from waltz.common.keys import partition_for, to_json
from waltz.spark.columns import SCHEMA
from waltz.spark.errors import SinkError
from waltz.spark.write_options import DATA_COLUMN, HASH_COLUMNS, HEADER_COLUMN, PARTITION_COLUMN, WriteOptions

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1


class Row(NamedTuple):
    """One transaction to be appended."""

    header: int
    data: bytes


class RowMaker:
    """Makes transactions of the rows of a DataFrame with given columns."""

    def __init__(self, schema: StructType, options: WriteOptions, partition_count: int) -> None:
        """Raises ``ConfigError`` when a column that is needed is missing or of the wrong type."""
        names = schema.fieldNames()
        self._partition_count = partition_count
        self._hash_columns = list(options.hash_columns)
        self._partition = (
            None if self._hash_columns else _find(names, PARTITION_COLUMN, options.partition_column, "partition")
        )
        self._header = _find(names, HEADER_COLUMN, options.header_column, "header")
        self._data = _find(names, DATA_COLUMN, options.data_column, "data")
        self._document: list[str] = []
        for name in (self._partition, self._header):
            if name is not None and not isinstance(schema[name].dataType, IntegralType):
                raise ConfigError(f"column '{name}' must be of an integral type, not {_type(schema, name)}")
        for name in self._hash_columns:
            _check_there(names, HASH_COLUMNS, name)
        rest = [name for name in names if name not in (self._partition, self._header, self._data)]
        if self._data is None:
            self._document = rest
            if not rest:
                raise ConfigError("the rows have no column 'data', and none to make JSON of")
        else:
            self._check_data(schema, rest)

    def _check_data(self, schema: StructType, rest: Sequence[str]) -> None:
        assert self._data is not None
        if not isinstance(schema[self._data].dataType, BinaryType | StringType):
            raise ConfigError(f"column '{self._data}' must be binary or string, not {_type(schema, self._data)}")
        lost = [name for name in rest if name not in self._hash_columns and name not in SCHEMA.fieldNames()]
        if lost:
            raise ConfigError(
                f"column '{lost[0]}' would be lost beside the payload in column '{self._data}'; drop it, or make one "
                "payload of all with to_json(struct(...))"
            )

    def groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[tuple[int, Row]]]:
        """The result of :meth:`rows` for each batch."""
        for batch in batches:
            yield list(self.rows(batch))

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Row]]:
        """Partition and transaction of every row. Raises ``SinkError`` for a row that cannot be appended."""
        if not batch.num_rows:
            return
        payloads = self._payloads(batch)
        headers = [0] * batch.num_rows if self._header is None else batch.column(self._header).to_pylist()
        for partition_id, header, data in zip(self._partitions(batch, payloads), headers, payloads, strict=True):
            if data is None:
                raise SinkError(f"a row has null in column '{self._data}'; a payload may be empty, but not null")
            if header is None or not _INT_MIN <= header <= _INT_MAX:
                raise SinkError(f"a row has {header} in column '{self._header}'; a header has 32 bits and is not null")
            yield partition_id, Row(header, data)

    def _payloads(self, batch: pa.RecordBatch) -> list[bytes | None]:
        if self._data is not None:
            payloads: list[bytes | None] = pc.cast(batch.column(self._data), pa.binary()).to_pylist()
            return payloads
        rows = batch.select(self._document).to_pylist(maps_as_pydicts="strict")
        return [to_json(row).encode() for row in rows]

    def _partitions(self, batch: pa.RecordBatch, payloads: Sequence[bytes | None]) -> list[int]:
        count = self._partition_count
        if self._hash_columns:
            rows = batch.select(self._hash_columns).to_pylist(maps_as_pydicts="strict")
            return [partition_for(tuple(row.values()), count) for row in rows]
        if self._partition is None:
            return [crc32(payload or b"") % count for payload in payloads]
        found: list[int] = batch.column(self._partition).to_pylist()
        for partition_id in found:
            if partition_id is None or not 0 <= partition_id < count:
                raise SinkError(
                    f"a row has {partition_id} in column '{self._partition}'; the cluster has the partitions 0 to "
                    f"{count - 1}"
                )
        return found


def _find(names: Sequence[str], option: str, given: str | None, default: str) -> str | None:
    if given is None:
        return default if default in names else None
    _check_there(names, option, given)
    return given


def _check_there(names: Sequence[str], option: str, given: str) -> None:
    if given not in names:
        similar = [name for name in names if name.casefold() == given.casefold()]
        hint = f"; did you mean '{similar[0]}'?" if similar else ""
        raise ConfigError(f"option {option} names the column '{given}', which the rows do not have{hint}")


def _type(schema: StructType, name: str) -> str:
    return schema[name].dataType.simpleString()
