"""Options of the sink of tables: names, defaults, checks. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from waltz.common.errors import ConfigError
from waltz.spark.offsets import Interval, parse_partitions
from waltz.spark.options import CLUSTER_ROOT, PARTITIONS, ZOOKEEPER, boolean, fields_of, known, positive
from waltz.spark.write_options import BATCH_ONLY, SINK_NAMES, STREAM_ONLY, SinkOptions, sink_options
from waltz.table.face.locks import MAX_ROW_LOCKS

MAX_ROWS_PER_TRANSACTION = "maxRowsPerTransaction"
ANY_TIMESTAMP = "anyTimestamp"

_NAMES = (ZOOKEEPER, CLUSTER_ROOT, PARTITIONS, MAX_ROWS_PER_TRANSACTION, ANY_TIMESTAMP, *SINK_NAMES)
BATCH_NAMES = (*_NAMES, *BATCH_ONLY)
"""All options of ``df.write``, as documented."""
STREAM_NAMES = (*_NAMES, *STREAM_ONLY)
"""All options of ``writeStream``, as documented."""


@dataclass(frozen=True, slots=True)
class TableWriteOptions(SinkOptions):
    """The checked options of a write."""

    partitions: tuple[Interval, ...] | None
    """Partitions to write; their order decides the partition of a key. ``None``: each row names its partition."""
    max_rows_per_transaction: int
    any_timestamp: bool
    """Whether timestamps may be any time ahead of the clock."""


def parse_table_write_options(options: Mapping[str, str]) -> TableWriteOptions:
    """The options of a batch write. Raises ``ConfigError`` that names the option."""
    return _parse(known(options, BATCH_NAMES), is_batch=True)


def parse_table_stream_write_options(options: Mapping[str, str]) -> TableWriteOptions:
    """The options of a stream write. Raises ``ConfigError``."""
    return _parse(known(options, STREAM_NAMES), is_batch=False)


def _parse(given: Mapping[str, str], *, is_batch: bool) -> TableWriteOptions:
    most = positive(given, MAX_ROWS_PER_TRANSACTION, MAX_ROW_LOCKS)
    if most > MAX_ROW_LOCKS:
        raise ConfigError(
            f"option {MAX_ROWS_PER_TRANSACTION}: expected a number from 1 to {MAX_ROW_LOCKS}, found {most}: each row "
            "has its lock"
        )
    return TableWriteOptions(
        **fields_of(sink_options(given, is_batch=is_batch)),
        partitions=parse_partitions(given[PARTITIONS]) if PARTITIONS in given else None,
        max_rows_per_transaction=most,
        any_timestamp=boolean(given, ANY_TIMESTAMP, False),
    )


def ordered(intervals: tuple[Interval, ...]) -> list[int]:
    """The partitions in the order given. Raises ``ConfigError`` when one is named twice."""
    found = [number for interval in intervals for number in range(interval.first, interval.last + 1)]
    if len(set(found)) < len(found):
        raise ConfigError(f"option {PARTITIONS} names a partition twice")
    return found
