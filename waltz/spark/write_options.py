"""Options of the sink: names, defaults, checks. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from waltz.common.errors import ConfigError
from waltz.spark.options import (
    ACCESS_NAMES,
    CLUSTER_ROOT,
    PLANNING_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    ZOOKEEPER,
    ClusterOptions,
    cluster_options,
    fields_of,
    known,
    positive,
    required,
)

PARTITION_COLUMN = "partitionColumn"
HEADER_COLUMN = "headerColumn"
DATA_COLUMN = "dataColumn"
HASH_COLUMNS = "hashColumns"
STAGING_PATH = "stagingPath"
TXN_APP_ID = "txnAppId"
TXN_VERSION = "txnVersion"
MAX_IN_FLIGHT = "maxInFlight"
APPEND_TIMEOUT_MS = "appendTimeoutMs"
CHECKPOINT_LOCATION = "checkpointLocation"
QUERY_NAME = "queryName"

SINK_NAMES = (
    STAGING_PATH,
    TXN_APP_ID,
    MAX_IN_FLIGHT,
    APPEND_TIMEOUT_MS,
    PLANNING_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    *ACCESS_NAMES,
)
"""Options of all writes, beside those of the cluster."""
BATCH_ONLY = (TXN_VERSION,)
STREAM_ONLY = (CHECKPOINT_LOCATION, QUERY_NAME)
"""Two options that Spark itself defines."""

_NAMES = (ZOOKEEPER, CLUSTER_ROOT, PARTITION_COLUMN, HEADER_COLUMN, DATA_COLUMN, HASH_COLUMNS, *SINK_NAMES)
BATCH_NAMES = (*_NAMES, *BATCH_ONLY)
"""All options of ``df.write``, as documented."""
STREAM_NAMES = (*_NAMES, *STREAM_ONLY)
"""All options of ``writeStream``, as documented."""

DEFAULT_MAX_IN_FLIGHT = 1000
DEFAULT_APPEND_TIMEOUT_MS = 120_000

_VERSION = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SinkOptions(ClusterOptions):
    """The way in which transactions are appended."""

    staging_path: str | None
    """``None``: at least once."""
    app_id: str | None
    version: int | None
    checkpoint_location: str | None
    max_in_flight: int
    """Appends per partition that are under way at a time."""
    append_timeout_s: float
    """Appending fails when it has made no progress for this time."""


@dataclass(frozen=True, slots=True)
class WriteOptions(SinkOptions):
    """The checked options of a write."""

    partition_column: str | None
    """Like the next two, the name of a column; ``None``: the default name, and the column may be missing."""
    header_column: str | None
    data_column: str | None
    hash_columns: tuple[str, ...]
    """Columns whose hash decides the partition; empty: the partition column does or, without one, the payload."""


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a batch write. Raises ``ConfigError`` that names the option."""
    return _parse(known(options, BATCH_NAMES), is_batch=True)


def parse_stream_write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a stream write, whose versions are Spark's batch ids. Raises ``ConfigError``."""
    return _parse(known(options, STREAM_NAMES), is_batch=False)


def _parse(given: Mapping[str, str], *, is_batch: bool) -> WriteOptions:
    return WriteOptions(
        **fields_of(sink_options(given, is_batch=is_batch)),
        partition_column=given.get(PARTITION_COLUMN),
        header_column=given.get(HEADER_COLUMN),
        data_column=given.get(DATA_COLUMN),
        hash_columns=_hash_columns(given),
    )


def sink_options(given: Mapping[str, str], *, is_batch: bool) -> SinkOptions:
    """The options that all writes share. Raises ``ConfigError``."""
    staging_path = given.get(STAGING_PATH)
    version = given.get(TXN_VERSION)
    if is_batch and (TXN_APP_ID in given) != (version is not None):
        raise ConfigError(f"options {TXN_APP_ID} and {TXN_VERSION} belong together: give both, or none")
    if version is not None and _VERSION.fullmatch(version.strip()) is None:
        raise ConfigError(f"option {TXN_VERSION}: expected a number from 0, found {version!r}")
    cluster = cluster_options(given)
    if staging_path is None and TXN_APP_ID in given:
        raise ConfigError(f"option {TXN_APP_ID} needs {STAGING_PATH}: without staged rows a write is at least once")
    return SinkOptions(
        **fields_of(cluster),
        staging_path=None if staging_path is None else _directory(staging_path),
        app_id=required(given, TXN_APP_ID, "a name") if TXN_APP_ID in given else None,
        version=None if version is None else int(version),
        checkpoint_location=given.get(CHECKPOINT_LOCATION),
        max_in_flight=positive(given, MAX_IN_FLIGHT, DEFAULT_MAX_IN_FLIGHT),
        append_timeout_s=positive(given, APPEND_TIMEOUT_MS, DEFAULT_APPEND_TIMEOUT_MS) / 1000,
    )


def _hash_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    if HASH_COLUMNS not in given:
        return ()
    names = tuple(name.strip() for name in given[HASH_COLUMNS].split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(f"option {HASH_COLUMNS}: expected names of columns such as account,currency")
    if PARTITION_COLUMN in given:
        raise ConfigError(f"options {HASH_COLUMNS} and {PARTITION_COLUMN} exclude each other")
    return names


def _directory(text: str) -> str:
    path = text.strip().removeprefix("file://").removeprefix("file:")
    if not path.startswith("/"):
        raise ConfigError(
            f"option {STAGING_PATH}: expected an absolute path of a directory that the driver and all workers share, "
            f"found {text!r}"
        )
    return path
