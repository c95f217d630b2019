"""Options of reads of tables: names, defaults, checks. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from waltz.common.errors import ConfigError
from waltz.spark.offsets import EARLIEST, ENDING_OFFSETS, LATEST, STARTING_OFFSETS, OffsetSpec, parse_offsets
from waltz.spark.options import (
    ARCHIVE,
    COLUMNS,
    COMMON_NAMES,
    ENDING_TIMESTAMP,
    MAX_ROWS_PER_SPLIT,
    MIN_PARTITIONS,
    OF_CLUSTER,
    STARTING_TIMESTAMP,
    RangeOptions,
    boolean,
    choice,
    fields_of,
    known,
    named_columns,
    range_options,
    refuse,
    refuse_options_of_streams,
    required,
    time_of,
)
from waltz.spark.table.columns import TABLE

VERSIONS = "versions"
AS_OF = "asOf"
AS_OF_TIMESTAMP = "asOfTimestamp"
RAW = "raw"
NOW_MS = "nowMs"
PREFIX = "prefix"
START_KEY = "startKey"
END_KEY = "endKey"
SNAPSHOTS = "snapshots"

NAMES = (*COMMON_NAMES, ARCHIVE, VERSIONS, AS_OF, AS_OF_TIMESTAMP, RAW, NOW_MS, PREFIX, START_KEY, END_KEY, SNAPSHOTS)
"""All options of reads, as documented."""

_STATE_ONLY = (AS_OF, AS_OF_TIMESTAMP, RAW, NOW_MS, SNAPSHOTS)
_INTERVAL = (STARTING_OFFSETS, ENDING_OFFSETS, STARTING_TIMESTAMP, ENDING_TIMESTAMP)
_VERSIONS_ONLY = (*_INTERVAL, MIN_PARTITIONS, MAX_ROWS_PER_SPLIT)
_BATCH_ONLY = (ARCHIVE, VERSIONS, *_STATE_ONLY, ENDING_OFFSETS, ENDING_TIMESTAMP)

_ALL_VERSIONS = {"latest": False, "all": True}
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TableReadOptions(RangeOptions):
    """The checked options of a read."""

    columns: tuple[str, ...] | None
    all_versions: bool
    """Whether every row of the log is read, instead of the winners."""
    as_of: OffsetSpec
    """The last transaction that counts, included; by default the last committed one."""
    as_of_time_ms: int | None
    """What was committed by this time counts, in milliseconds since the epoch; instead of a transaction."""
    raw: bool
    """Whether tombstones and expired rows are shown among the winners."""
    now_ms: int | None
    """The time at which rows are judged as expired; ``None``: the time of planning, or the time of ``as_of_time_ms`` if
    that is earlier."""
    prefix: bytes | None
    """Prefix of the rows that are read; ``None``: all prefixes."""
    start_key: bytes
    """First key that is read, in every prefix."""
    end_key: bytes | None
    """First key that is not read."""
    archive: str | None
    """Where what is archived is read from, or that the cluster says where; ``None``: all is read from the cluster."""
    snapshots: str | None
    """Where saved snapshots are, or that the cluster says where; ``None``: the state rests on the whole log."""


def parse_options(options: Mapping[str, str]) -> TableReadOptions:
    """Check everything that can be checked without a cluster. Raises ``ConfigError`` that names the option."""
    given = known(options, NAMES)
    columns = named_columns(given)
    if columns is not None:
        TABLE.check_option(COLUMNS, columns)
    all_versions = choice(given, VERSIONS, _ALL_VERSIONS, False)
    return TableReadOptions(
        **fields_of(range_options(given)),
        columns=columns,
        all_versions=all_versions,
        as_of=_as_of(given),
        as_of_time_ms=time_of(given, AS_OF_TIMESTAMP, AS_OF),
        raw=boolean(given, RAW, False),
        now_ms=_milliseconds(given, NOW_MS),
        prefix=given[PREFIX].encode() if PREFIX in given else None,
        start_key=given.get(START_KEY, "").encode(),
        end_key=given[END_KEY].encode() if END_KEY in given else None,
        archive=_address(given, ARCHIVE),
        snapshots=_address(given, SNAPSHOTS),
    )


def parse_batch_options(options: Mapping[str, str]) -> TableReadOptions:
    """The options of a batch; options without a meaning for what it reads are refused. Raises ``ConfigError``."""
    refuse_options_of_streams(options)
    parsed = parse_options(options)
    if parsed.all_versions:
        refuse(options, _STATE_ONLY, f"is about the state of a table; {VERSIONS}=all reads every row there ever was")
    else:
        refuse(
            options,
            _VERSIONS_ONLY,
            f"needs {VERSIONS}=all: the state of a table rests on its whole log, which one task reads for each "
            f"partition; {AS_OF} and {AS_OF_TIMESTAMP} say up to where",
        )
    return parsed


def parse_stream_options(options: Mapping[str, str]) -> TableReadOptions:
    """The options of a stream. Raises ``ConfigError``."""
    refuse(options, _BATCH_ONLY, "is not for streams: they have every change from their start on, and no end")
    return replace(parse_options(options), all_versions=True)


def _as_of(given: Mapping[str, str]) -> OffsetSpec:
    text = given.get(AS_OF, LATEST).strip()
    if _INTEGER.fullmatch(text) is not None:
        if not 0 <= (transaction_id := int(text)) <= _LARGEST:
            raise ConfigError(f"option {AS_OF}: expected a transaction id from 0, found {text}")
        return OffsetSpec(transaction_id, {})
    spec = parse_offsets(AS_OF, text, LATEST)
    if EARLIEST in (spec.default, *spec.by_partition.values()):
        raise ConfigError(f"option {AS_OF}: expected a transaction id or latest, found {text!r}")
    return spec


def _address(given: Mapping[str, str], name: str) -> str | None:
    if name not in given:
        return None
    return required(given, name, f"an address such as s3://bucket/prefix, or {OF_CLUSTER}")


def _milliseconds(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    text = given[name].strip()
    if _INTEGER.fullmatch(text) is None or not 0 <= (found := int(text)) <= _LARGEST:
        raise ConfigError(f"option {name}: expected milliseconds since the epoch, found {given[name]!r}")
    return found
