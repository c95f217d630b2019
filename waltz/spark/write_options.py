"""Options of the sink: names, defaults, checks. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from waltz.common.errors import ConfigError
from waltz.spark.options import (
    CLUSTER_ROOT,
    PLANNING_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    TLS_NAMES,
    ZOOKEEPER,
    ClusterOptions,
    cluster_options,
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

_NAMES = (
    ZOOKEEPER,
    CLUSTER_ROOT,
    PARTITION_COLUMN,
    HEADER_COLUMN,
    DATA_COLUMN,
    HASH_COLUMNS,
    STAGING_PATH,
    TXN_APP_ID,
    MAX_IN_FLIGHT,
    APPEND_TIMEOUT_MS,
    PLANNING_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    *TLS_NAMES,
)
BATCH_NAMES = (*_NAMES, TXN_VERSION)
"""All options of ``df.write``, as documented."""
STREAM_NAMES = (*_NAMES, CHECKPOINT_LOCATION, QUERY_NAME)
"""All options of ``writeStream``; the last two are Spark's own."""

DEFAULT_MAX_IN_FLIGHT = 1000
DEFAULT_APPEND_TIMEOUT_MS = 120_000

_VERSION = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class WriteOptions(ClusterOptions):
    """The checked options of a write."""

    partition_column: str
    header_column: str
    data_column: str
    hash_columns: tuple[str, ...]
    """Empty: rows go by the partition column or, without one, by their payload."""
    staging_path: str | None
    """``None``: at least once."""
    app_id: str | None
    version: int | None
    checkpoint_location: str | None
    max_in_flight: int
    """Appends per partition that are under way at a time."""
    append_timeout_s: float
    """How long appending may bring nothing before it fails."""


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a batch write. Raises ``ConfigError`` that names the option."""
    given = known(options, BATCH_NAMES)
    if (TXN_APP_ID in given) != (TXN_VERSION in given):
        raise ConfigError(f"options {TXN_APP_ID} and {TXN_VERSION} belong together: give both, or none")
    version = given.get(TXN_VERSION)
    if version is not None and _VERSION.fullmatch(version.strip()) is None:
        raise ConfigError(f"option {TXN_VERSION}: expected a number from 0, found {version!r}")
    return _parse(given, None if version is None else int(version))


def parse_stream_write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a stream write, whose versions are Spark's batch ids. Raises ``ConfigError``."""
    return _parse(known(options, STREAM_NAMES), None)


def _parse(given: Mapping[str, str], version: int | None) -> WriteOptions:
    cluster = cluster_options(given)
    staging_path = given.get(STAGING_PATH)
    if staging_path is None and TXN_APP_ID in given:
        raise ConfigError(f"option {TXN_APP_ID} needs {STAGING_PATH}: without staged rows a write is at least once")
    return WriteOptions(
        zookeeper=cluster.zookeeper,
        cluster_root=cluster.cluster_root,
        planning_timeout_s=cluster.planning_timeout_s,
        request_timeout_s=cluster.request_timeout_s,
        tls=cluster.tls,
        partition_column=given.get(PARTITION_COLUMN, "partition"),
        header_column=given.get(HEADER_COLUMN, "header"),
        data_column=given.get(DATA_COLUMN, "data"),
        hash_columns=_hash_columns(given),
        staging_path=None if staging_path is None else _directory(staging_path),
        app_id=required(given, TXN_APP_ID, "a name") if TXN_APP_ID in given else None,
        version=version,
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
