"""From options to splits: the questions that a batch read puts to a cluster before it reads.

The order is that of rule S6: first the committed high-water marks from the owners, then metadata, assignment and admin
ports from ZooKeeper, none of them older than the marks.
"""

import asyncio
import operator
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar
from uuid import UUID

from waltz.client.errors import TrimmedError
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import MarkUnknownError, read_committed_marks
from waltz.common.cluster.owners import RETRY_INITIAL_S, RETRY_MAXIMUM_S
from waltz.common.cluster.replicas import Choice, Source, read_replicas
from waltz.common.config.schemas import ClientConfig
from waltz.common.net.backoff import Backoff
from waltz.common.net.tls import client_context
from waltz.common.polling import poll_until
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.configured import configured_login, configured_tls
from waltz.common.zk.kazoo_client import connect
from waltz.common.zk.storage_labels import Labels, nearness, read_labels
from waltz.common.zk.store_admin import StoreAdminError, read_store_params
from waltz.common.zk.trim_points import read_trim_point
from waltz.common.zk.znodes import StoreParams
from waltz.spark.errors import PlanningError
from waltz.spark.offsets import (
    EARLIEST,
    ENDING_OFFSETS,
    LATEST,
    STARTING_OFFSETS,
    OffsetRange,
    OffsetSpec,
    check_named_partitions,
    resolve_range,
    select_partitions,
    split_ranges,
)
from waltz.spark.options import ClusterOptions, RangeOptions

SESSION_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0

FROM_EARLIEST = OffsetSpec(EARLIEST, {})

Options = TypeVar("Options", bound=RangeOptions)


class Split(NamedTuple):
    """The work of one task, with everything it needs to know of the cluster."""

    range: OffsetRange
    sources: tuple[Source, ...]
    """Replicas in the order in which they are to be tried."""
    cluster_key: UUID
    partition_count: int


async def plan(options: RangeOptions) -> list[Split]:
    """Plan a read of the cluster that the options name.

    Raises ``ConfigError`` (key stores), ``ZooKeeperUnreachableError``, ``PlanningError``, ``ZooKeeperError``.
    """
    tls = client_context(options.tls)
    deadline_s = asyncio.get_running_loop().time() + options.planning_timeout_s
    zookeeper = await connect_zookeeper(options)
    try:
        return await plan_with(zookeeper, options, tls=tls, deadline_s=deadline_s)
    finally:
        await zookeeper.close()


async def connect_zookeeper(options: ClusterOptions) -> ZooKeeper:
    """Connect to the ZooKeeper that the options name.

    Raises ``ZooKeeperUnreachableError``, and ``ConfigError`` for the user, and for files of passwords and of TLS.
    """
    user, password, password_file, with_tls = options.zookeeper_access
    config = ClientConfig(
        zookeeper_connect_string=options.zookeeper,
        cluster_root=options.cluster_root,
        zookeeper_user=user,
        zookeeper_password=password,
        zookeeper_password_file=password_file,
        zookeeper_ssl_enabled=with_tls,
        tls=options.tls,
    )
    return await connect(
        options.zookeeper,
        session_timeout_s=SESSION_TIMEOUT_S,
        connect_timeout_s=min(CONNECT_TIMEOUT_S, options.planning_timeout_s),
        operation_timeout_s=options.planning_timeout_s,
        login=configured_login(config),
        tls=configured_tls(config),
    )


async def plan_with(
    zookeeper: ZooKeeper,
    options: RangeOptions,
    *,
    tls: ssl.SSLContext | None,
    deadline_s: float,
) -> list[Split]:
    """As :func:`plan`, with a ZooKeeper that is connected; ``deadline_s`` is a time of the loop."""
    store = await read_store(zookeeper, options)
    ranges = await committed_ranges(zookeeper, options, store, tls=tls, deadline_s=deadline_s)
    return await plan_ranges(zookeeper, options, store, ranges, deadline_s)


async def committed_ranges(
    zookeeper: ZooKeeper,
    options: RangeOptions,
    store: StoreParams,
    *,
    tls: ssl.SSLContext | None,
    deadline_s: float,
) -> list[OffsetRange]:
    """What a batch reads of each partition: the options' bounds, below the marks as they are now."""
    selected = select_partitions(options.partitions, store.partition_count)
    options = await with_offsets_of_times(zookeeper, options, selected, tls=tls, deadline_s=deadline_s)
    starting = options.starting_offsets or FROM_EARLIEST
    check_named_partitions(STARTING_OFFSETS, starting, selected)
    check_named_partitions(ENDING_OFFSETS, options.ending_offsets, selected)
    marks = await committed_marks(zookeeper, options, selected, tls=tls, deadline_s=deadline_s)
    return [
        resolve_range(
            partition_id,
            starting,
            options.ending_offsets,
            marks[partition_id],
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for partition_id in selected
    ]


async def with_offsets_of_times(
    zookeeper: ZooKeeper,
    options: Options,
    selected: Sequence[int],
    *,
    tls: ssl.SSLContext | None,
    deadline_s: float,
) -> Options:
    """The options with offsets in the place of times, asked of the owners now: before the marks, which are higher.

    Raises ``PlanningError`` when they are still unknown at ``deadline_s``, and at once where nobody knows times.
    """

    async def marks_at(time_ms: int) -> Mapping[int, int]:
        return await committed_marks(zookeeper, options, selected, tls=tls, deadline_s=deadline_s, time_ms=time_ms)

    return await with_offsets_of(options, marks_at)


async def with_offsets_of(options: Options, marks_at: Callable[[int], Awaitable[Mapping[int, int]]]) -> Options:
    """The options with offsets in the place of times.

    ``marks_at`` tells, by partition, the last transaction that is known to have been committed by a time.
    """

    async def behind(time_ms: int | None) -> dict[int, int] | None:
        """By partition the first transaction that is not known to have been committed by a time."""
        if time_ms is None:
            return None
        return {partition_id: mark + 1 for partition_id, mark in (await marks_at(time_ms)).items()}

    starts, ends = await behind(options.starting_time_ms), await behind(options.ending_time_ms)
    if starts is not None and ends is not None:  # a storage that was away may have known more of the start
        ends = {partition_id: max(end, starts[partition_id]) for partition_id, end in ends.items()}
    return replace(
        options,
        starting_offsets=options.starting_offsets if starts is None else OffsetSpec(EARLIEST, starts),
        ending_offsets=options.ending_offsets if ends is None else OffsetSpec(LATEST, ends),
    )


async def plan_ranges(
    zookeeper: ZooKeeper, options: RangeOptions, store: StoreParams, ranges: Sequence[OffsetRange], deadline_s: float
) -> list[Split]:
    """Splits of ranges that are known to be committed; the replicas that may serve are looked up now (S6)."""
    pieces = split_ranges(ranges, options.max_rows_per_split, options.min_partitions)
    return await plan_pieces(zookeeper, options, store, pieces, deadline_s)


async def plan_pieces(
    zookeeper: ZooKeeper, options: RangeOptions, store: StoreParams, pieces: Sequence[OffsetRange], deadline_s: float
) -> list[Split]:
    """A split of each of the ranges; as :func:`plan_ranges`. Raises ``TrimmedError``, too."""
    wanted = {piece.partition_id for piece in pieces}
    await _check_available(zookeeper, options.cluster_root, pieces)
    sources = await read_sources(zookeeper, options.cluster_root, wanted, deadline_s)
    labels = (await read_labels(zookeeper, options.cluster_root)).labels if options.zone else {}
    # The position in the whole list also spreads partitions that have a single split.
    return [
        Split(
            piece,
            nearest_first(rotate(sources[piece.partition_id], index), options.zone, labels),
            store.key,
            store.partition_count,
        )
        for index, piece in enumerate(pieces)
    ]


async def _check_available(zookeeper: ZooKeeper, root: str, pieces: Sequence[OffsetRange]) -> None:
    """Raise ``TrimmedError`` if a range begins before the first transaction that was not trimmed: a shorter answer
    would be a wrong one."""
    starts: dict[int, int] = {}
    for partition_id, start, _ in pieces:
        starts[partition_id] = min(start, starts.get(partition_id, start))
    points = await asyncio.gather(*(read_trim_point(zookeeper, root, partition_id) for partition_id in starts))
    for (partition_id, start), point in zip(starts.items(), points, strict=True):
        if start < point:
            raise TrimmedError(partition_id, point)


def nearest_first(sources: Iterable[Source], zone: Labels, labels: Mapping[str, Labels]) -> tuple[Source, ...]:
    """Sources in the reader's rack, then those in its datacenter, then the others; in this order among themselves."""
    return tuple(sorted(sources, key=lambda source: -nearness(zone, labels.get(source.storage, {}))))


async def read_store(zookeeper: ZooKeeper, options: ClusterOptions) -> StoreParams:
    """Key and size of the cluster. Raises ``PlanningError`` when there is none."""
    try:
        return await read_store_params(zookeeper, options.cluster_root)
    except StoreAdminError:
        raise PlanningError(
            f"there is no cluster at {options.cluster_root} in the ZooKeeper at {options.zookeeper}; "
            "check the options clusterRoot and zookeeper"
        ) from None


async def committed_marks(
    zookeeper: ZooKeeper,
    options: ClusterOptions,
    partition_ids: Iterable[int],
    *,
    tls: ssl.SSLContext | None,
    deadline_s: float,
    time_ms: int | None = None,
) -> dict[int, int]:
    """The committed high-water mark of every partition, now or at a time, -1 for an empty one; first half of rule S6.

    Raises ``PlanningError`` when a mark is still missing at ``deadline_s``.
    """
    try:
        return await read_committed_marks(
            ClusterHandle(zookeeper, options.cluster_root, tls),
            partition_ids,
            deadline_s=deadline_s,
            time_ms=time_ms,
        )
    except MarkUnknownError as error:
        raise PlanningError(str(error)) from None


async def read_sources(
    zookeeper: ZooKeeper, root: str, partition_ids: Iterable[int], deadline_s: float
) -> dict[int, tuple[Source, ...]]:
    """The replicas that may serve each partition.

    While a new session recovers there may be none for a moment: they are looked up again until the deadline.
    """
    backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random())
    sources: dict[int, tuple[Source, ...]] = {}
    missing = set(partition_ids)

    async def look() -> dict[int, Choice]:
        choices = await _choose(zookeeper, root, missing) if missing else {}
        sources.update({partition_id: choice.sources for partition_id, choice in choices.items() if choice.sources})
        missing.difference_update(sources)
        return {partition_id: choices[partition_id] for partition_id in missing}

    refused = await poll_until(look, operator.not_, deadline_s=deadline_s, next_delay_s=backoff.next_delay_s)
    if refused:
        partition_id = min(refused)
        raise _no_source(partition_id, refused[partition_id])
    return sources


async def _choose(zookeeper: ZooKeeper, root: str, partition_ids: Iterable[int]) -> dict[int, Choice]:
    replicas = await read_replicas(zookeeper, root, partition_ids)
    return {partition_id: replicas.choose(partition_id) for partition_id in sorted(replicas.metadata)}


def _no_source(partition_id: int, choice: Choice) -> PlanningError:
    reasons = "; ".join(f"{storage}: {reason}" for storage, reason in choice.refused.items())
    return PlanningError(
        f"no replica of partition {partition_id} may serve a read: {reasons or 'none is assigned to any storage node'}"
    )


def rotate(sources: Sequence[Source], places: int) -> tuple[Source, ...]:
    """The same sources in rotated order, so that splits spread their load."""
    start = places % len(sources)
    return (*sources[start:], *sources[:start])
