"""The questions of a table read to a cluster: the partitions that are tables, their properties and their ends."""

import asyncio
import ssl
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from waltz.common.net.tls import client_context
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import sync_cluster
from waltz.common.zk.znodes import StoreParams
from waltz.spark.archive_planning import archive_splits, archive_url, divide
from waltz.spark.archive_reading import ArchiveSplit
from waltz.spark.errors import DataLossError, PlanningError
from waltz.spark.offsets import (
    ENDING_OFFSETS,
    FIRST_TRANSACTION_ID,
    LATEST,
    STARTING_OFFSETS,
    OffsetRange,
    OffsetSpec,
    check_named_partitions,
    resolve_range,
    select_partitions,
    split_ranges,
)
from waltz.spark.options import RangeOptions
from waltz.spark.planning import (
    FROM_EARLIEST,
    Split,
    committed_marks,
    connect_zookeeper,
    plan_pieces,
    plan_ranges,
    read_store,
    with_offsets_of_times,
)
from waltz.spark.table.options import AS_OF, SNAPSHOTS, TableReadOptions
from waltz.spark.table.saved import SavedPart, newest_saved, part_of
from waltz.table.ages import Ages
from waltz.table.face.configured import check_table
from waltz.table.properties import PartitionProperties, read_properties


class TableSplit(NamedTuple):
    """The work of one task."""

    partition_id: int
    parts: tuple[Split | ArchiveSplit, ...]
    """Consecutive ranges of the partition, in this order; with ``saved`` they begin with its last transaction."""
    max_body_bytes: int
    ages: Ages
    now_ms: int
    """The clock by which rows are expired, one for all tasks of a query."""
    saved: SavedPart | None = None
    """What the state begins with; ``None``: with the begin of the log."""


async def plan(options: TableReadOptions) -> list[TableSplit]:
    """Plan a batch of the cluster that the options name.

    Raises as :func:`waltz.spark.planning.plan` does, and ``PropertiesError`` for a partition that is no table.
    """
    tls = client_context(options.tls)
    deadline_s = asyncio.get_running_loop().time() + options.planning_timeout_s
    now_ms = _now_ms(options)
    zookeeper = await connect_zookeeper(options)
    try:
        store = await read_store(zookeeper, options)
        tables = await read_tables(zookeeper, options, store)
        options = await _with_transactions_of_times(zookeeper, options, list(tables), tls=tls, deadline_s=deadline_s)
        _check_offsets(options, tables)
        marks = await committed_marks(zookeeper, options, tables, tls=tls, deadline_s=deadline_s)
        ranges = [_range(options, partition_id, marks[partition_id]) for partition_id in tables]
        saved: dict[int, SavedPart] = {}
        whole_states: list[SavedPart] = []
        if options.snapshots is not None:
            url = await archive_url(zookeeper, options.cluster_root, options.snapshots, SNAPSHOTS)
            ranges, saved, whole_states = await _with_saved(url, store.key, ranges, tables)
        archived: list[ArchiveSplit] = []
        if options.archive is not None:
            url = await archive_url(zookeeper, options.cluster_root, options.archive)
            pieces, ranges, manifests = await divide(url, store.key, ranges)
            if options.all_versions:
                pieces = split_ranges(pieces, options.max_rows_per_split, options.min_partitions)
            archived = archive_splits(url, store.key, pieces, manifests)
        if options.all_versions:
            splits = await plan_ranges(zookeeper, options, store, ranges, deadline_s)
        else:
            whole = [found for found in ranges if found.end > found.start]
            splits = await plan_pieces(zookeeper, options, store, whole, deadline_s)
    finally:
        await zookeeper.close()
    every: list[Split | ArchiveSplit] = [*archived, *splits]
    if options.all_versions:
        return table_splits(map(_alone, every), tables, now_ms)
    return [
        *(_table_split(part.partition_id, (), tables, now_ms, part) for part in whole_states),
        *table_splits(_by_partition(every), tables, now_ms, saved),
    ]


async def _with_saved(
    url: str, cluster_key: UUID, ranges: Sequence[OffsetRange], tables: Mapping[int, PartitionProperties]
) -> tuple[list[OffsetRange], dict[int, SavedPart], list[SavedPart]]:
    """The ranges that are still to be read, by partition what they follow, and files that are a state by themselves.

    Raises ``ConfigError``, ``StoreUnavailableError``.
    """
    found = await asyncio.gather(
        *(
            newest_saved(url, cluster_key, each.partition_id, each.end, tables[each.partition_id].max_body_bytes)
            for each in ranges
        )
    )
    left: list[OffsetRange] = []
    saved: dict[int, SavedPart] = {}
    whole: list[SavedPart] = []
    for each, manifest in zip(ranges, found, strict=True):
        if manifest is None:
            left.append(each)
        elif manifest.applied == each.end - 1:
            whole += [part_of(url, manifest, (file,)) for file in manifest.files]
        else:
            left.append(each._replace(start=manifest.applied))
            saved[each.partition_id] = part_of(url, manifest, manifest.files)
    return left, saved, whole


def _now_ms(options: TableReadOptions) -> int:
    """The time at which rows are judged as expired: the state at a time is what readers saw at that time."""
    if options.now_ms is not None:
        return options.now_ms
    now_ms = time.time_ns() // 1_000_000
    return now_ms if options.as_of_time_ms is None else min(now_ms, options.as_of_time_ms)


async def _with_transactions_of_times(
    zookeeper: ZooKeeper,
    options: TableReadOptions,
    tables: Sequence[int],
    *,
    tls: ssl.SSLContext | None,
    deadline_s: float,
) -> TableReadOptions:
    """The options with transactions in the place of times, of which the owners are asked before the marks.

    Raises ``PlanningError`` when they are still unknown at ``deadline_s``, and at once where nobody knows times.
    """
    options = await with_offsets_of_times(zookeeper, options, tables, tls=tls, deadline_s=deadline_s)
    time_ms = options.as_of_time_ms
    if time_ms is None:
        return options
    marks = await committed_marks(zookeeper, options, tables, tls=tls, deadline_s=deadline_s, time_ms=time_ms)
    return replace(options, as_of=OffsetSpec(LATEST, marks))


def _alone(split: Split | ArchiveSplit) -> tuple[Split | ArchiveSplit, ...]:
    return (split,)


def _by_partition(splits: Sequence[Split | ArchiveSplit]) -> list[tuple[Split | ArchiveSplit, ...]]:
    """Those of each partition together, in their order: a state is folded by one task."""
    found: dict[int, list[Split | ArchiveSplit]] = {}
    for split in splits:
        found.setdefault(split.range.partition_id, []).append(split)
    return [tuple(found[partition_id]) for partition_id in sorted(found)]


def table_splits(
    splits: Iterable[tuple[Split | ArchiveSplit, ...]],
    tables: Mapping[int, PartitionProperties],
    now_ms: int,
    saved: Mapping[int, SavedPart] | None = None,
) -> list[TableSplit]:
    """The splits of tasks, with the properties of their tables, and by partition what they follow."""
    known = saved or {}
    found = []
    for parts in splits:
        partition_id = parts[0].range.partition_id
        found.append(_table_split(partition_id, parts, tables, now_ms, known.get(partition_id)))
    return found


def _table_split(
    partition_id: int,
    parts: tuple[Split | ArchiveSplit, ...],
    tables: Mapping[int, PartitionProperties],
    now_ms: int,
    saved: SavedPart | None,
) -> TableSplit:
    properties = tables[partition_id]
    return TableSplit(partition_id, parts, properties.max_body_bytes, properties.ages, now_ms, saved)


async def read_tables(
    zookeeper: ZooKeeper, options: RangeOptions, store: StoreParams
) -> dict[int, PartitionProperties]:
    """The partitions that are read and their properties, in order: those that are named, or all that are tables.

    Raises ``PropertiesError`` for a named partition that is no table, and ``PlanningError`` when there is no table.
    """
    selected = select_partitions(options.partitions, store.partition_count)
    if options.partitions is not None:
        return await read_properties_of_tables(zookeeper, options.cluster_root, selected)
    found = await read_all_properties(zookeeper, options.cluster_root, selected)
    tables = {partition_id: known for partition_id, known in found.items() if known.format == "table"}
    if not tables:
        raise PlanningError(
            f"no partition of the cluster at {options.cluster_root} is a table; one is made by "
            'waltz.table.configure(client, partition, {"format": "table"})'
        )
    return tables


async def read_properties_of_tables(
    zookeeper: ZooKeeper, root: str, partition_ids: Collection[int]
) -> dict[int, PartitionProperties]:
    """The properties of partitions, all of which must be tables. Raises ``PropertiesError``."""
    found = await read_all_properties(zookeeper, root, partition_ids)
    for partition_id, properties in found.items():
        check_table(properties, partition_id)
    return found


async def read_all_properties(
    zookeeper: ZooKeeper, root: str, partition_ids: Collection[int]
) -> dict[int, PartitionProperties]:
    """The properties of partitions, none older than the call. Raises ``PropertiesError`` and ``ZooKeeperError``."""
    await sync_cluster(zookeeper, root)
    stored = await asyncio.gather(*(read_properties(zookeeper, root, number) for number in partition_ids))
    return {number: found.properties for number, found in zip(partition_ids, stored, strict=True)}


def _check_offsets(options: TableReadOptions, tables: Collection[int]) -> None:
    selected = list(tables)
    if options.all_versions:
        check_named_partitions(STARTING_OFFSETS, options.starting_offsets or FROM_EARLIEST, selected)
        check_named_partitions(ENDING_OFFSETS, options.ending_offsets, selected)
        return
    check_named_partitions(AS_OF, options.as_of, selected)
    if isinstance(options.as_of.default, int) and len(selected) > 1:
        raise PlanningError(
            f"option {AS_OF}: a transaction id belongs to one partition, and {len(selected)} are read; give "
            f'{{"{selected[0]}": {options.as_of.default}}}, or the option partitions'
        )


def _range(options: TableReadOptions, partition_id: int, high_water_mark: int) -> OffsetRange:
    if not options.all_versions:
        return OffsetRange(partition_id, FIRST_TRANSACTION_ID, _end_of_state(options, partition_id, high_water_mark))
    starting: OffsetSpec = options.starting_offsets or FROM_EARLIEST
    return resolve_range(
        partition_id,
        starting,
        options.ending_offsets,
        high_water_mark,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def _end_of_state(options: TableReadOptions, partition_id: int, high_water_mark: int) -> int:
    """The first transaction that does not count."""
    bound = options.as_of.bound(partition_id)
    if isinstance(bound, int) and bound > high_water_mark and options.fail_on_data_loss:
        raise DataLossError(
            f"option {AS_OF}: transaction {bound} is beyond partition {partition_id}, whose last committed transaction "
            f"is {high_water_mark}; use latest, or failOnDataLoss=false (or is this another cluster?)"
        )
    return min(bound, high_water_mark) + 1 if isinstance(bound, int) else high_water_mark + 1
