"""Reads of which a part is archived: that part is planned as reads of objects, the rest as reads of the cluster.

The seam is the end of the archive as it is when the read is planned. Both sides hold the same transactions, all below
the committed mark, so it does not matter where the seam is.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from waltz.archive.chain import Place, read_ranges
from waltz.archive.manifest import ArchivedRange, covering
from waltz.archive.store import ObjectStore, open_store
from waltz.archive.verification import archived_partitions, only_cluster
from waltz.common.net.tls import client_context
from waltz.spark.errors import PlanningError
from waltz.spark.offsets import (
    ENDING_OFFSETS,
    STARTING_OFFSETS,
    OffsetRange,
    check_named_partitions,
    resolve_range,
    select_partitions,
    split_ranges,
)
from waltz.spark.options import ReadOptions
from waltz.spark.planning import (
    FROM_EARLIEST,
    Split,
    committed_ranges,
    connect_zookeeper,
    plan_ranges,
    read_store,
)
from waltz.spark.planning import plan as plan_cluster
from waltz.spark.stream_offsets import batch_ranges
from waltz.spark.stream_planning import StreamPlanner


class ArchiveSplit(NamedTuple):
    """The work of one task that reads archived transactions."""

    range: OffsetRange
    url: str
    cluster_key: UUID
    objects: tuple[ArchivedRange, ...]
    """Those that cover the range."""


async def plan(options: ReadOptions) -> list[Split | ArchiveSplit]:
    """Plan a batch.

    Raises as :func:`waltz.spark.planning.plan` does, and ``ArchiveError`` when the archive cannot be read.
    """
    if options.archive is None:
        return [*await plan_cluster(options)]
    archive = open_store(options.archive.url)
    if options.archive.only:
        return await _plan_archive(options, archive)
    tls = client_context(options.tls)
    deadline_s = asyncio.get_running_loop().time() + options.planning_timeout_s
    zookeeper = await connect_zookeeper(options)
    try:
        store = await read_store(zookeeper, options)
        ranges = await committed_ranges(zookeeper, options, store, tls=tls, deadline_s=deadline_s)
        archived, rest = await _divide(options, archive, store.key, ranges)
        return [*archived, *(await plan_ranges(zookeeper, options, store, rest, deadline_s) if rest else [])]
    finally:
        await zookeeper.close()


async def splits_of_stream(
    options: ReadOptions, planner: StreamPlanner, start: Mapping[str, Any], end: Mapping[str, Any]
) -> list[Split | ArchiveSplit]:
    """The splits of one micro-batch. Raises as :meth:`StreamPlanner.splits` does, and ``ArchiveError``."""
    if options.archive is None:
        return [*await planner.splits(start, end)]
    archive = open_store(options.archive.url)
    archived, rest = await _divide(options, archive, await planner.cluster_key(), batch_ranges(start, end))
    return [*archived, *(await planner.splits_of(rest) if rest else [])]


async def _plan_archive(options: ReadOptions, archive: ObjectStore) -> list[Split | ArchiveSplit]:
    """Everything is read from the archive, whose end is the end of the log."""
    assert options.archive is not None
    key = await only_cluster(archive, options.archive.cluster_key)
    there = await archived_partitions(archive, key)
    selected = (
        there if options.partitions is None else select_partitions(options.partitions, max(there, default=-1) + 1)
    )
    missing = sorted(set(selected) - set(there))
    if missing:
        raise PlanningError(f"option partitions: nothing of partition {missing[0]} is in the archive {archive.url}")
    starting = options.starting_offsets or FROM_EARLIEST
    check_named_partitions(STARTING_OFFSETS, starting, selected)
    check_named_partitions(ENDING_OFFSETS, options.ending_offsets, selected)
    found: dict[int, list[ArchivedRange]] = {}
    ranges = []
    for partition_id in selected:
        found[partition_id] = await read_ranges(Place(archive, key, partition_id))
        mark = found[partition_id][-1].end - 1 if found[partition_id] else -1
        ranges.append(
            resolve_range(
                partition_id,
                starting,
                options.ending_offsets,
                mark,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        )
    return [*_splits(options, key, ranges, found)]


async def _divide(
    options: ReadOptions, archive: ObjectStore, key: UUID, ranges: Sequence[OffsetRange]
) -> tuple[list[ArchiveSplit], list[OffsetRange]]:
    """Splits of what is archived, and the ranges that are not."""
    found: dict[int, list[ArchivedRange]] = {}
    archived, rest = [], []
    for each in ranges:
        if each.start == each.end:
            continue
        there = await read_ranges(Place(archive, key, each.partition_id))
        found[each.partition_id] = there
        seam = min(max(there[-1].end if there else 0, each.start), each.end)
        if each.start < seam:
            archived.append(each._replace(end=seam))
        if seam < each.end:
            rest.append(each._replace(start=seam))
    return _splits(options, key, archived, found), rest


def _splits(
    options: ReadOptions, key: UUID, ranges: Sequence[OffsetRange], found: Mapping[int, Sequence[ArchivedRange]]
) -> list[ArchiveSplit]:
    assert options.archive is not None
    url = options.archive.url
    return [
        ArchiveSplit(piece, url, key, tuple(covering(found[piece.partition_id], piece.start, piece.end)))
        for piece in split_ranges(ranges, options.max_rows_per_split, options.min_partitions)
    ]
