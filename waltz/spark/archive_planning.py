"""Reads of which a part is archived: that part is planned as reads of objects, the rest as reads of the cluster.

The seam is the end of the archive as it is when the read is planned. Both sides hold the same transactions, all below
the committed mark, so it does not matter where the seam is.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from waltz.archive.chain import Place, read_ranges
from waltz.archive.manifest import ArchivedRange, covering
from waltz.archive.store import ObjectStore, open_store
from waltz.archive.verification import archived_partitions, only_cluster
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.tls import client_context
from waltz.common.zk.archive_address import read_archive_url
from waltz.common.zk.client import ZooKeeper
from waltz.spark.archive_reading import ArchiveSplit
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
from waltz.spark.options import ARCHIVE, OF_CLUSTER, RangeOptions, ReadOptions
from waltz.spark.planning import (
    FROM_EARLIEST,
    Split,
    committed_ranges,
    connect_zookeeper,
    plan_ranges,
    read_store,
    with_offsets_of,
)
from waltz.spark.planning import plan as plan_cluster
from waltz.spark.stream_offsets import batch_ranges
from waltz.spark.stream_planning import StreamPlanner

MANIFESTS_AT_ONCE = 16

LOOK_AGAIN_S = 60.0
"""A stream that has passed the end of the archive looks after this time whether it has been overtaken."""


async def plan(options: ReadOptions) -> list[Split | ArchiveSplit]:
    """Plan a batch.

    Raises as :func:`waltz.spark.planning.plan` does, and ``ArchiveError`` when the archive cannot be read.
    """
    if options.archive is None:
        return [*await plan_cluster(options)]
    if options.archive.only:
        return await _plan_archive(options, open_store(options.archive.url))
    tls = client_context(options.tls)
    deadline_s = asyncio.get_running_loop().time() + options.planning_timeout_s
    zookeeper = await connect_zookeeper(options)
    try:
        store = await read_store(zookeeper, options)
        ranges = await committed_ranges(zookeeper, options, store, tls=tls, deadline_s=deadline_s)
        url = await archive_url(zookeeper, options.cluster_root, options.archive.url)
        archived, rest, found = await divide(url, store.key, ranges)
        return [
            *archive_splits(url, store.key, _pieces(options, archived), found),
            *(await plan_ranges(zookeeper, options, store, rest, deadline_s) if rest else []),
        ]
    finally:
        await zookeeper.close()


class StreamSplits:
    """Splits the micro-batches of one stream; Spark pickles it with the stream's reader."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._passed_at_s = -math.inf
        """When a micro-batch was last seen of which nothing was archived: the stream is at the tip of the log."""

    async def splits(
        self, planner: StreamPlanner, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[Split | ArchiveSplit]:
        """The splits of one micro-batch. Raises as :meth:`StreamPlanner.splits` does, and ``ArchiveError``."""
        now_s = asyncio.get_running_loop().time()
        options, archive = self._options, self._options.archive
        if archive is None or now_s - self._passed_at_s < LOOK_AGAIN_S:
            return [*await planner.splits(start, end)]
        ranges = batch_ranges(start, end)
        url = await planner.in_session(lambda zookeeper, _: archive_url(zookeeper, options.cluster_root, archive.url))
        key = await planner.cluster_key()
        archived, rest, found = await divide(url, key, ranges)
        if rest and not archived:
            self._passed_at_s = now_s
        return [
            *archive_splits(url, key, _pieces(options, archived), found),
            *(await planner.splits_of(rest) if rest else []),
        ]


async def _plan_archive(options: ReadOptions, archive: ObjectStore) -> list[Split | ArchiveSplit]:
    """Everything is read from the archive, whose end is the end of the log."""
    assert options.archive is not None
    url = options.archive.url
    key = await only_cluster(archive, options.archive.cluster_key)
    there = await archived_partitions(archive, key)
    selected = (
        there
        if options.partitions is None
        else select_partitions(options.partitions, max(there, default=NO_TRANSACTION) + 1)
    )
    missing = sorted(set(selected) - set(there))
    if missing:
        raise PlanningError(f"option partitions: nothing of partition {missing[0]} is in the archive {archive.url}")
    found = await _read_manifests(archive, key, selected)

    async def marks_at(time_ms: int) -> dict[int, int]:
        return {partition_id: mark_at(partition_id, found[partition_id], time_ms) for partition_id in selected}

    options = await with_offsets_of(options, marks_at)
    starting = options.starting_offsets or FROM_EARLIEST
    check_named_partitions(STARTING_OFFSETS, starting, selected)
    check_named_partitions(ENDING_OFFSETS, options.ending_offsets, selected)
    ranges = [
        resolve_range(
            partition_id,
            starting,
            options.ending_offsets,
            end_of(found[partition_id]) - 1,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for partition_id in selected
    ]
    return [*archive_splits(url, key, _pieces(options, ranges), found)]


async def _read_manifests(
    archive: ObjectStore, key: UUID, partition_ids: Iterable[int]
) -> dict[int, list[ArchivedRange]]:
    """What is archived of each partition; some manifests are read at once."""
    at_once = asyncio.Semaphore(MANIFESTS_AT_ONCE)

    async def read(partition_id: int) -> tuple[int, list[ArchivedRange]]:
        async with at_once:
            return partition_id, await read_ranges(Place(archive, key, partition_id))

    return dict(await asyncio.gather(*map(read, partition_ids)))


def end_of(ranges: Sequence[ArchivedRange]) -> int:
    """The first transaction that is not archived."""
    return ranges[-1].end if ranges else 0


def mark_at(partition_id: int, ranges: Sequence[ArchivedRange], time_ms: int) -> int:
    """The last transaction that, by the times of objects alone, is known to have been committed by a time.

    An object tells the times of its first and last transaction only, so the mark is early by less than one object. -1:
    none is known. Raises ``PlanningError`` when no object of the partition tells a time.
    """
    known = [
        (committed_ms, transaction_id)
        for each in ranges
        for committed_ms, transaction_id in (
            (each.first_time_ms, each.first),
            (each.last_time_ms, each.name.last),
        )
        if committed_ms is not None
    ]
    if not known:
        raise PlanningError(
            f"the archive does not tell when transactions of partition {partition_id} were committed: no server told "
            "the archiver; give offsets"
        )
    return max(
        (transaction_id for committed_ms, transaction_id in known if committed_ms <= time_ms), default=NO_TRANSACTION
    )


async def archive_url(zookeeper: ZooKeeper, root: str, given: str, option: str = ARCHIVE) -> str:
    """The address that the option gives, or the one that the cluster has written down, now.

    Raises ``PlanningError`` if it has none, ``ArchiveAddressError``, ``ZooKeeperError``.
    """
    if given != OF_CLUSTER:
        return given
    url = await read_archive_url(zookeeper, root)
    if url is None:
        raise PlanningError(
            f"option {option}={OF_CLUSTER}: the cluster has no address of an archive; set it (waltz archive set-url), "
            "give it as the option, or leave the option out"
        )
    return url


class Divided(NamedTuple):
    """Ranges, divided at the end of the archive."""

    archived: list[OffsetRange]
    rest: list[OffsetRange]
    found: Mapping[int, Sequence[ArchivedRange]]
    """By partition all that is archived of it."""


async def divide(url: str, key: UUID, ranges: Sequence[OffsetRange]) -> Divided:
    """What of the ranges is archived, and what is not. Raises ``ConfigError``, ``ArchiveError``."""
    wanted = [each for each in ranges if each.start < each.end]
    found = await _read_manifests(open_store(url), key, [each.partition_id for each in wanted])
    archived, rest = [], []
    for each in wanted:
        seam = min(max(end_of(found[each.partition_id]), each.start), each.end)
        if each.start < seam:
            archived.append(each._replace(end=seam))
        if seam < each.end:
            rest.append(each._replace(start=seam))
    return Divided(archived, rest, found)


def archive_splits(
    url: str, key: UUID, pieces: Sequence[OffsetRange], found: Mapping[int, Sequence[ArchivedRange]]
) -> list[ArchiveSplit]:
    """A split of each of the pieces, all of which are archived."""
    return [
        ArchiveSplit(piece, url, key, tuple(covering(found[piece.partition_id], piece.start, piece.end)))
        for piece in pieces
    ]


def _pieces(options: RangeOptions, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    return split_ranges(ranges, options.max_rows_per_split, options.min_partitions)
