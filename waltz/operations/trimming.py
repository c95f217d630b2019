"""Trims of partitions: how far one may go, and who would be hurt."""

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import read_replicas
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.zk.client import NoNodeError
from waltz.common.zk.features import TRIM, read_features
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import sync_cluster
from waltz.common.zk.trim_points import raise_trim_point, read_trim_point
from waltz.operations.features import old_nodes
from waltz.operations.storages import TIMEOUT_S, connection
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

ARCHIVE = "archive"
"""The name of the archive among those who need transactions."""

_POSITION = "transactionId"
"""The key of the position in the node of a cursor."""

ArchivedEnd = Callable[[int], Awaitable[int | None]]
"""Tells the end of what the cluster's archive has of a partition; ``None`` without an archive. Raises ``WaltzError``
if that cannot be found out."""


class Need(NamedTuple):
    """Somebody who needs the transactions of a partition from one on."""

    name: str
    """``cursor GROUP``, ``consumer GROUP`` or ``archive``, as :func:`trim` takes it."""
    first: int
    reason: str


class Plan(NamedTuple):
    """A trim that is possible, unless a need is left."""

    partition_id: int
    before: int
    """The present trim point."""
    first: int
    """The trim point after it."""
    needs: tuple[Need, ...]
    """Those that would lose what they need."""


async def plan_trim(cluster: ClusterHandle, partition_id: int, first: int, archived_end: ArchivedEnd) -> Plan:
    """Look what a trim of all transactions before ``first`` means.

    Raises ``WaltzError`` like :func:`check_trims`, and for transactions that are not certainly committed.
    """
    await check_trims(cluster)
    return await plan_allowed(cluster, partition_id, first, archived_end)


class OldNodesError(WaltzError):
    """Nodes have come into the cluster that cannot live with trimmed partitions: nothing is trimmed meanwhile."""

    def __init__(self, nodes: Sequence[str]) -> None:
        super().__init__(
            f"nothing is trimmed while the cluster has nodes that cannot live with it: {'; '.join(nodes)}; take them "
            "out of the cluster, or install the present version there"
        )
        self.nodes = tuple(nodes)
        """The nodes, in words."""


async def check_trims(cluster: ClusterHandle) -> None:
    """Make sure that partitions of the cluster may be trimmed. Raises ``WaltzError`` without the feature ``trim``,
    and :class:`OldNodesError` if nodes of the original have come since it was enabled."""
    await sync_cluster(cluster.zookeeper, cluster.root)
    if TRIM not in (await read_features(cluster.zookeeper, cluster.root)).names:
        raise WaltzError(f"the cluster does not have the feature {TRIM}: waltz cluster features --enable {TRIM}")
    nodes = await old_nodes(cluster)
    if nodes:
        raise OldNodesError(nodes)


async def plan_allowed(cluster: ClusterHandle, partition_id: int, first: int, archived_end: ArchivedEnd) -> Plan:
    """Like :func:`plan_trim`, for callers that have called :func:`check_trims` before."""
    zookeeper, root = cluster.zookeeper, cluster.root
    await sync_cluster(zookeeper, root)
    before = await read_trim_point(zookeeper, root, partition_id)
    mark = await low_water_mark(cluster, partition_id)
    if first > mark + 1:
        raise WaltzError(
            f"partition {partition_id}: only transactions up to the low-water mark can be trimmed, which is {mark} in "
            "the present store session"
        )
    needs = [each for each in await needs_of(cluster, partition_id, archived_end) if each.first < first]
    return Plan(partition_id, before, max(before, first), tuple(needs))


async def trim(cluster: ClusterHandle, plan: Plan, forced: Collection[str]) -> int:
    """Carry a plan out: raise the trim point. Returns the trim point after that.

    Raises ``WaltzError`` when somebody who is not in ``forced`` needs what would be trimmed, or when one of those in
    ``forced`` does not.
    """
    hurt = {need.name for need in plan.needs}
    missing = [need for need in plan.needs if need.name not in forced]
    if missing:
        texts = "; ".join(f"{need.name} needs those from {need.first} on ({need.reason})" for need in missing)
        raise WaltzError(f"partition {plan.partition_id} was not trimmed before {plan.first}: {texts}")
    needless = sorted(set(forced) - hurt)
    if needless:
        raise WaltzError(f"partition {plan.partition_id} was not trimmed: {', '.join(needless)} would not be hurt")
    return await raise_trim_point(cluster.zookeeper, cluster.root, plan.partition_id, plan.first)


async def first_within(cluster: ClusterHandle, partition_id: int, size_bytes: int) -> int:
    """The first transaction of the newest segments with ``size_bytes`` or more of records together, on the replica of
    the present store session that keeps most.

    Raises ``WaltzError`` when none of them answers.
    """

    async def ask(client: StorageClient, session_id: int) -> int:
        if not client.trims:
            raise WaltzError("it is a node of the original, or of an older version")
        return await client.first_within(session_id, partition_id, size_bytes, timeout_s=TIMEOUT_S)

    return min(await _ask_members(cluster, partition_id, ask))


async def last_committed_at(cluster: ClusterHandle, partition_id: int, time_ms: int) -> int:
    """The last transaction that is known to have been committed at a time, in milliseconds since 1970; -1 if none is.

    Raises ``WaltzError`` when no replica of the present store session answers.
    """

    async def ask(client: StorageClient, session_id: int) -> int:
        if not client.keeps_times:
            raise WaltzError("it keeps no times")
        found = await client.time_entry(session_id, partition_id, TimeQuestion.LAST_AT, time_ms, timeout_s=TIMEOUT_S)
        return NO_TRANSACTION if found is None else found[0]

    return max(await _ask_members(cluster, partition_id, ask))


async def _ask_members(
    cluster: ClusterHandle, partition_id: int, ask: Callable[[StorageClient, int], Awaitable[int]]
) -> list[int]:
    """The answers of the replicas in the present store session, at least one. Raises ``WaltzError``."""
    replicas = await read_replicas(cluster.zookeeper, cluster.root, [partition_id])
    metadata = replicas.metadata[partition_id]
    if metadata is None:
        raise _silence(partition_id, ())
    found, reasons = [], []
    for storage, _ in replicas.choose(partition_id).sources:
        try:
            async with connection(StorageClient, cluster, Endpoint.parse(storage)) as client:
                found.append(await ask(client, metadata.session_id))
        except WaltzError as error:
            reasons.append(f"{storage}: {error}")
    if not found:
        raise _silence(partition_id, reasons)
    return found


async def low_water_mark(cluster: ClusterHandle, partition_id: int) -> int:
    """The highest low-water mark of the replicas in the present store session: everything up to it is committed.

    Raises ``WaltzError`` when none of them answers.
    """
    replicas = await read_replicas(cluster.zookeeper, cluster.root, [partition_id])
    marks, reasons = [], []
    for storage, endpoint in replicas.choose(partition_id).sources:
        try:
            async with connection(StorageAdminClient, cluster, endpoint) as client:
                marks.append((await client.last_session_info(partition_id)).low_water_mark)
        except WaltzError as error:
            reasons.append(f"{storage}: {error}")
    if not marks:
        raise _silence(partition_id, reasons)
    return max(marks)


def _silence(partition_id: int, reasons: Sequence[str]) -> WaltzError:
    return WaltzError(
        f"no replica of partition {partition_id} in the present store session answers"
        + (f": {'; '.join(reasons)}" if reasons else "")
    )


async def needs_of(cluster: ClusterHandle, partition_id: int, archived_end: ArchivedEnd) -> list[Need]:
    """Everybody who is known to need transactions of a partition. Raises ``WaltzError``.

    A reader at a position needs the transaction there, too: it compares it with what it has read (rule S10).
    """
    zookeeper, paths = cluster.zookeeper, ClusterPaths.of(cluster.root)
    needs: list[Need] = []
    groups = await _children(cluster, paths.cursors)
    for group in groups:
        path = paths.cursor(group, partition_id)
        try:
            data, _ = await zookeeper.get(path)
        except NoNodeError:
            continue
        try:
            position = json.loads(data or b"")[_POSITION]
            if type(position) is not int or position < NO_TRANSACTION:
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            needs.append(Need(f"cursor {group}", 0, f"{path} does not hold a position"))
        else:
            needs.append(Need(f"cursor {group}", max(position, 0), f"it stands at {position}"))
    placed = {need.name.removeprefix("cursor ") for need in needs}
    needs += [
        Need(f"consumer {group}", 0, "it keeps its positions elsewhere")
        for group in await _children(cluster, paths.consumers)
        if group not in placed and await _children(cluster, paths.consumer_members(group))
    ]
    try:
        end = await archived_end(partition_id)
    except WaltzError as error:
        needs.append(Need(ARCHIVE, 0, str(error)))
    else:
        if end is not None:
            needs.append(Need(ARCHIVE, end, "the rest is not archived yet"))
    return sorted(needs)


async def _children(cluster: ClusterHandle, path: str) -> list[str]:
    try:
        return sorted(await cluster.zookeeper.children(path))
    except NoNodeError:
        return []
