"""Times of commits for replicas that tools have filled: copied from members of the partition's store session."""

from collections.abc import Callable
from functools import partial

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import Replicas
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.operations.storages import TIMEOUT_S, connection
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.time_copies import EnterTimes, copy_times


async def copy_times_of_members(
    cluster: ClusterHandle,
    replicas: Replicas,
    partition_id: int,
    enter: EnterTimes,
    first: int,
    last: int,
    report: Callable[[str], None],
    *,
    except_from: str,
) -> None:
    """Copy the times of committed transactions from the first member that has them.

    Records are complete without times, so a failure is only reported. ``except_from`` is the storage that gets them.
    """
    metadata = replicas.metadata[partition_id]
    if first > last or metadata is None:
        return
    reasons = []
    for storage, _ in replicas.choose(partition_id).sources:
        if storage == except_from:
            continue
        try:
            async with connection(StorageClient, cluster, Endpoint.parse(storage)) as source:
                if not source.keeps_times:
                    continue
                read = partial(source.times, metadata.session_id, partition_id, timeout_s=TIMEOUT_S)
                if await copy_times(read, enter, first, last):
                    return
        except WaltzError as error:
            reasons.append(f"{storage}: {error}")
    if reasons:
        report(f"partition {partition_id}: the times of its transactions were not copied: {'; '.join(reasons)}")
