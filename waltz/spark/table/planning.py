"""The questions of a table read to a cluster: the partitions that are tables, their properties and their ends."""

import asyncio
import ssl
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

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
from waltz.spark.table.options import AS_OF, TableReadOptions
from waltz.table.ages import Ages
from waltz.table.face.configured import check_table
from waltz.table.properties import PartitionProperties, read_properties


class TableSplit(NamedTuple):
    """The work of one task."""

    parts: tuple[Split | ArchiveSplit, ...]
    """Consecutive ranges of one partition, in this order."""
    max_body_bytes: int
    ages: Ages
    now_ms: int
    """The clock by which rows are expired, one for all tasks of a query."""


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
    return table_splits(map(_alone, every) if options.all_versions else _by_partition(every), tables, now_ms)


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
    splits: Iterable[tuple[Split | ArchiveSplit, ...]], tables: dict[int, PartitionProperties], now_ms: int
) -> list[TableSplit]:
    """The splits of tasks, with the properties of their tables."""
    found = []
    for parts in splits:
        properties = tables[parts[0].range.partition_id]
        found.append(TableSplit(parts, properties.max_body_bytes, properties.ages, now_ms))
    return found


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
