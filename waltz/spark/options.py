"""Options of the data source: names, defaults, checks. Pure.

Spark hands options over with lower-case names; texts for people show the names as documented.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import SecretStr

from waltz.common.config.schemas import TlsConfig, from_mapping
from waltz.common.errors import ConfigError
from waltz.common.iso_time import parse_time, to_milliseconds
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.storage_labels import DATACENTER, RACK, Labels, LabelsError, parse_labels
from waltz.spark.columns import LOG, PAYLOAD_FORMATS, RAW, UTF8, PayloadFormat
from waltz.spark.offsets import (
    EARLIEST,
    ENDING_OFFSETS,
    LATEST,
    STARTING_OFFSETS,
    Interval,
    OffsetSpec,
    parse_offsets,
    parse_partitions,
)

ZOOKEEPER = "zookeeper"
CLUSTER_ROOT = "clusterRoot"
ZOOKEEPER_USER = "zookeeperUser"
ZOOKEEPER_PASSWORD = "zookeeperPassword"  # noqa: S105 - the name of an option
ZOOKEEPER_PASSWORD_FILE = "zookeeperPasswordFile"  # noqa: S105 - the same
ZOOKEEPER_TLS = "zookeeperTls"
PARTITIONS = "partitions"
STARTING_TIMESTAMP = "startingTimestamp"
ENDING_TIMESTAMP = "endingTimestamp"
FAIL_ON_DATA_LOSS = "failOnDataLoss"
MIN_PARTITIONS = "minPartitions"
MAX_ROWS_PER_SPLIT = "maxRowsPerSplit"
FETCH_SIZE = "fetchSize"
ZONE = "zone"
COLUMNS = "columns"
INCLUDE_HEADERS = "includeHeaders"
PAYLOAD_FORMAT = "payloadFormat"
PAYLOAD_SCHEMA = "payloadSchema"
PAYLOAD_MODE = "payloadMode"
HEADERS = "headers"
MAX_OFFSETS_PER_TRIGGER = "maxOffsetsPerTrigger"
FAILOVER_TIMEOUT_MS = "failoverTimeoutMs"
PLANNING_TIMEOUT_MS = "planningTimeoutMs"
REQUEST_TIMEOUT_MS = "requestTimeoutMs"
ARCHIVE = "archive"
ARCHIVE_ONLY = "archiveOnly"
ARCHIVE_CLUSTER = "archiveCluster"
OF_CLUSTER = "cluster"
"""Value of the option ``archive``: the address is the one that the cluster has written down."""

TLS_PREFIX = "tls."

TLS_NAMES = tuple(f"{TLS_PREFIX}{field.validation_alias}" for field in TlsConfig.model_fields.values())

ACCESS_NAMES = (ZOOKEEPER_USER, ZOOKEEPER_PASSWORD, ZOOKEEPER_PASSWORD_FILE, ZOOKEEPER_TLS, *TLS_NAMES)
"""The options that say how to get into a cluster."""

_BATCH_ONLY = (ENDING_OFFSETS, ENDING_TIMESTAMP, ARCHIVE_ONLY, ARCHIVE_CLUSTER)
_STREAM_ONLY = (MAX_OFFSETS_PER_TRIGGER, FAILOVER_TIMEOUT_MS)

COMMON_NAMES = (
    ZOOKEEPER,
    CLUSTER_ROOT,
    PARTITIONS,
    STARTING_OFFSETS,
    ENDING_OFFSETS,
    STARTING_TIMESTAMP,
    ENDING_TIMESTAMP,
    FAIL_ON_DATA_LOSS,
    MIN_PARTITIONS,
    MAX_ROWS_PER_SPLIT,
    FETCH_SIZE,
    ZONE,
    COLUMNS,
    MAX_OFFSETS_PER_TRIGGER,
    FAILOVER_TIMEOUT_MS,
    PLANNING_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    *ACCESS_NAMES,
)
"""The options of reads of the log and of tables, as documented."""
NAMES = (
    *COMMON_NAMES,
    INCLUDE_HEADERS,
    PAYLOAD_FORMAT,
    PAYLOAD_SCHEMA,
    PAYLOAD_MODE,
    HEADERS,
    ARCHIVE,
    ARCHIVE_ONLY,
    ARCHIVE_CLUSTER,
)
"""All options of reads, as documented."""

DEFAULT_MAX_ROWS_PER_SPLIT = 100_000
DEFAULT_FETCH_SIZE = 10_000
DEFAULT_PLANNING_TIMEOUT_MS = 30_000
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
DEFAULT_FAILOVER_TIMEOUT_MS = 120_000

LARGEST = 2**31 - 1
"""The largest count of the protocol, and the limit of every number here."""

_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_HEADER = re.compile(r"-?\d{1,10}", re.ASCII)
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_NEAR = 0.6
_BOOLEANS = {"true": True, "false": False}
_MODES = {"failfast": False, "permissive": True}


class ZooKeeperAccess(NamedTuple):
    """How to get into ZooKeeper."""

    user: str | None = None
    password: SecretStr | None = None
    password_file: str | None = None
    """Read by the driver when it connects."""
    tls: bool = False


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster, and how to reach it."""

    zookeeper: str
    """Connect string, ``host:port,host:port...[/chroot]``; empty if only an archive is read."""
    cluster_root: str
    planning_timeout_s: float
    request_timeout_s: float
    tls: TlsConfig
    zookeeper_access: ZooKeeperAccess


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The archive from which history is read."""

    url: str
    """The address, or :data:`OF_CLUSTER`."""
    only: bool
    """Read nothing but the archive; no cluster is needed."""
    cluster_key: UUID | None
    """Which of several clusters in the archive; ``None``: there is one."""


@dataclass(frozen=True, slots=True)
class RangeOptions(ClusterOptions):
    """The part of the log that is read, and the sizes of its pieces."""

    partitions: tuple[Interval, ...] | None
    """``None``: all of the cluster."""
    starting_offsets: OffsetSpec | None
    """``None``: the beginning for a batch, the end for a stream."""
    ending_offsets: OffsetSpec
    starting_time_ms: int | None
    """Read what was committed later than this, in milliseconds since the epoch; instead of starting offsets."""
    ending_time_ms: int | None
    """Read what was committed by this time; instead of ending offsets."""
    fail_on_data_loss: bool
    min_partitions: int
    max_rows_per_split: int
    fetch_size: int
    """Most records of one request to a storage node."""
    zone: Labels
    """Datacenter and rack of the executors, as far as they are given: near replicas are read first."""
    max_offsets_per_trigger: int | None
    failover_timeout_s: float
    """A stream fails when no server has told a partition's mark for this time."""


@dataclass(frozen=True, slots=True)
class ReadOptions(RangeOptions):
    """The checked options of a read."""

    columns: tuple[str, ...] | None
    include_headers: bool
    payload: PayloadFormat
    payload_schema: str | None
    headers: frozenset[int] | None
    """Only transactions with one of these headers are read; ``None``: all."""
    archive: ArchiveOptions | None
    """Where what is archived is read from; ``None``: everything is read from the cluster."""


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Check everything that can be checked without a cluster.

    Raises ``ConfigError`` that names the option: unknown (with the nearest known name), missing, or of a wrong value.
    """
    given = known(options, NAMES)
    payload = _payload(given)
    columns = named_columns(given)
    if columns is not None:
        LOG.check_option(COLUMNS, columns)
    payload_schema = given.get(PAYLOAD_SCHEMA)
    if payload_schema is not None and (payload.name in (RAW, UTF8) or not payload_schema.strip()):
        raise ConfigError(
            f"option {PAYLOAD_SCHEMA}: expected columns such as 'account long', and only with json or a "
            f"function as {PAYLOAD_FORMAT}"
        )
    archive = _archive(given)
    needs_cluster = archive is None or not archive.only
    return ReadOptions(
        **fields_of(range_options(given, needs_cluster=needs_cluster)),
        archive=archive,
        columns=columns,
        include_headers=boolean(given, INCLUDE_HEADERS, True),
        payload=payload,
        payload_schema=payload_schema,
        headers=_headers(given),
    )


def _archive(given: Mapping[str, str]) -> ArchiveOptions | None:
    only = boolean(given, ARCHIVE_ONLY, False)
    key = None
    if ARCHIVE_CLUSTER in given:
        try:
            key = UUID(given[ARCHIVE_CLUSTER].strip())
        except ValueError:
            raise ConfigError(
                f"option {ARCHIVE_CLUSTER}: expected the key of a cluster, found {given[ARCHIVE_CLUSTER]!r}"
            ) from None
    if ARCHIVE not in given:
        if only or key is not None:
            raise ConfigError(f"option {ARCHIVE_ONLY if only else ARCHIVE_CLUSTER}: give the address as {ARCHIVE}, too")
        return None
    if key is not None and not only:
        raise ConfigError(f"option {ARCHIVE_CLUSTER} is for {ARCHIVE_ONLY}=true; else the cluster tells its own key")
    url = required(given, ARCHIVE, f"an address such as s3://bucket/prefix, or {OF_CLUSTER}")
    if only and url == OF_CLUSTER:
        raise ConfigError(f"option {ARCHIVE}: give the address: with {ARCHIVE_ONLY}=true no cluster is asked for it")
    return ArchiveOptions(url, only, key)


def range_options(given: Mapping[str, str], *, needs_cluster: bool = True) -> RangeOptions:
    """The options of a cluster and of a part of its log. Raises ``ConfigError``."""
    starting_time_ms = time_of(given, STARTING_TIMESTAMP, STARTING_OFFSETS)
    ending_time_ms = time_of(given, ENDING_TIMESTAMP, ENDING_OFFSETS)
    if starting_time_ms is not None and ending_time_ms is not None and ending_time_ms < starting_time_ms:
        raise ConfigError(f"option {ENDING_TIMESTAMP}: the end is before {STARTING_TIMESTAMP}")
    return RangeOptions(
        **fields_of(cluster_options(given, needs_cluster=needs_cluster)),
        partitions=parse_partitions(given[PARTITIONS]) if PARTITIONS in given else None,
        starting_offsets=(
            parse_offsets(STARTING_OFFSETS, given[STARTING_OFFSETS], EARLIEST) if STARTING_OFFSETS in given else None
        ),
        ending_offsets=parse_offsets(ENDING_OFFSETS, given.get(ENDING_OFFSETS, LATEST), LATEST),
        starting_time_ms=starting_time_ms,
        ending_time_ms=ending_time_ms,
        fail_on_data_loss=boolean(given, FAIL_ON_DATA_LOSS, True),
        min_partitions=positive(given, MIN_PARTITIONS, 1),
        max_rows_per_split=positive(given, MAX_ROWS_PER_SPLIT, DEFAULT_MAX_ROWS_PER_SPLIT),
        fetch_size=positive(given, FETCH_SIZE, DEFAULT_FETCH_SIZE),
        zone=_zone(given),
        max_offsets_per_trigger=(
            positive(given, MAX_OFFSETS_PER_TRIGGER, 1) if MAX_OFFSETS_PER_TRIGGER in given else None
        ),
        failover_timeout_s=positive(given, FAILOVER_TIMEOUT_MS, DEFAULT_FAILOVER_TIMEOUT_MS) / 1000,
    )


def time_of(given: Mapping[str, str], name: str, instead_of: str) -> int | None:
    """A time with its zone, in milliseconds since the epoch. Raises ``ConfigError``, also if both options are given."""
    if name not in given:
        return None
    if instead_of in given:
        raise ConfigError(f"option {name}: give either this or {instead_of}")
    try:
        return to_milliseconds(parse_time(given[name]))
    except ValueError as error:
        raise ConfigError(f"option {name}: {error}") from None


def fields_of(options: ClusterOptions) -> dict[str, Any]:
    """The fields of options as keyword arguments of a class with further fields."""
    return {field.name: getattr(options, field.name) for field in fields(options)}


def named_columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names that the option ``columns`` lists."""
    return tuple(name.strip() for name in given[COLUMNS].split(",")) if COLUMNS in given else None


def refuse_options_of_streams(options: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for an option that has no meaning in a batch."""
    refuse(options, _STREAM_ONLY, "is for streams; a batch reads from startingOffsets to endingOffsets")


def refuse_options_of_batches(options: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for an option that has no meaning in a stream."""
    refuse(options, _BATCH_ONLY, "is not for streams: they have no end")


def refuse(options: Mapping[str, str], names: tuple[str, ...], reason: str) -> None:
    """Raise ``ConfigError`` with the reason if one of these options is given."""
    given = {key.lower() for key in options}
    for name in names:
        if name.lower() in given:
            raise ConfigError(f"option {name} {reason}")


def _payload(given: Mapping[str, str]) -> PayloadFormat:
    name = given.get(PAYLOAD_FORMAT, RAW).strip()
    if name.lower() in PAYLOAD_FORMATS:
        name = name.lower()
    elif _FUNCTION.fullmatch(name) is None:
        raise ConfigError(
            f"option {PAYLOAD_FORMAT}: expected {', '.join(PAYLOAD_FORMATS)} or a function such as "
            f"package.module:function, found {name!r}"
        )
    return PayloadFormat(name, choice(given, PAYLOAD_MODE, _MODES, False))


def _headers(given: Mapping[str, str]) -> frozenset[int] | None:
    if HEADERS not in given:
        return None
    headers = set()
    for text in given[HEADERS].split(","):
        if _HEADER.fullmatch(text.strip()) is None or not -LARGEST - 1 <= (header := int(text)) <= LARGEST:
            raise ConfigError(f"option {HEADERS}: expected 32-bit integers such as 0,7, found {given[HEADERS]!r}")
        headers.add(header)
    return frozenset(headers)


def known(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The options by their documented names. Raises ``ConfigError`` for an unknown one, with the nearest known."""
    by_lower_case = {name.lower(): name for name in names}
    given = {}
    for key, value in options.items():
        name = by_lower_case.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), by_lower_case, n=1, cutoff=_NEAR)
            hint = f"did you mean '{by_lower_case[near[0]]}'?" if near else "the options are: " + ", ".join(names)
            raise ConfigError(f"unknown option '{key}'; {hint}")
        given[name] = value
    return given


def cluster_options(given: Mapping[str, str], *, needs_cluster: bool = True) -> ClusterOptions:
    """The options that reads and writes share. Raises ``ConfigError``, for a missing cluster only if it is needed."""
    is_named = needs_cluster or ZOOKEEPER in given or CLUSTER_ROOT in given
    return ClusterOptions(
        zookeeper=required(given, ZOOKEEPER, "a connect string such as host:2181") if is_named else "",
        cluster_root=_cluster_root(given) if is_named else "",
        planning_timeout_s=positive(given, PLANNING_TIMEOUT_MS, DEFAULT_PLANNING_TIMEOUT_MS) / 1000,
        request_timeout_s=positive(given, REQUEST_TIMEOUT_MS, DEFAULT_REQUEST_TIMEOUT_MS) / 1000,
        tls=from_mapping(
            {name: value for name, value in given.items() if name in TLS_NAMES},
            TlsConfig,
            source="the options",
            prefix=TLS_PREFIX,
        ),
        zookeeper_access=_zookeeper_access(given),
    )


def _zookeeper_access(given: Mapping[str, str]) -> ZooKeeperAccess:
    user, password, file = (
        given.get(name) or None for name in (ZOOKEEPER_USER, ZOOKEEPER_PASSWORD, ZOOKEEPER_PASSWORD_FILE)
    )
    if user is None and (password or file):
        raise ConfigError(f"option {ZOOKEEPER_USER}: a password needs a user, too")
    if user is not None and (password is None) == (file is None):
        raise ConfigError(
            f"option {ZOOKEEPER_USER}: give either {ZOOKEEPER_PASSWORD_FILE} or {ZOOKEEPER_PASSWORD}, too"
        )
    return ZooKeeperAccess(
        user, None if password is None else SecretStr(password), file, boolean(given, ZOOKEEPER_TLS, False)
    )


def required(given: Mapping[str, str], name: str, meaning: str) -> str:
    """A required option. Raises ``ConfigError`` that says what the option means."""
    value = given.get(name, "").strip()
    if not value:
        raise ConfigError(f"option '{name}' is missing: {meaning}")
    return value


def _cluster_root(given: Mapping[str, str]) -> str:
    root = required(given, CLUSTER_ROOT, "the ZooKeeper path of the cluster, such as /waltz")
    try:
        return ClusterPaths.of(root).root
    except ConfigError:
        raise ConfigError(
            f"option {CLUSTER_ROOT}: expected an absolute ZooKeeper path such as /waltz, found {root!r}"
        ) from None


def _zone(given: Mapping[str, str]) -> Labels:
    if ZONE not in given:
        return {}
    try:
        zone = parse_labels(given[ZONE])
    except LabelsError as error:
        raise ConfigError(f"option {ZONE}: expected labels such as datacenter=a,rack=1: {error}") from None
    if strange := zone.keys() - {DATACENTER, RACK}:
        raise ConfigError(
            f"option {ZONE}: only {DATACENTER} and {RACK} make a zone, found {', '.join(sorted(strange))}"
        )
    return zone


def positive(given: Mapping[str, str], name: str, default: int) -> int:
    """A number of at least 1. Raises ``ConfigError``."""
    text = given.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text.strip()) is None or not 1 <= (number := int(text)) <= LARGEST:
        raise ConfigError(f"option {name}: expected a number from 1 to {LARGEST}, found {text!r}")
    return number


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """``true`` or ``false``. Raises ``ConfigError``."""
    return choice(given, name, _BOOLEANS, default)


def choice(given: Mapping[str, str], name: str, meanings: Mapping[str, bool], default: bool) -> bool:
    """One of two words. Raises ``ConfigError``."""
    text = given.get(name)
    if text is None:
        return default
    found = meanings.get(text.strip().lower())
    if found is None:
        raise ConfigError(f"option {name}: expected {' or '.join(meanings)}, found {text!r}")
    return found
