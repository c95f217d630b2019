"""The replicas of a partition against its archive: the same records make the same bytes."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from waltz.archive.chain import Place, read_ranges
from waltz.archive.manifest import ArchivedRange
from waltz.archive.object_format import Limit
from waltz.archive.process.copying import gather_object
from waltz.archive.process.source import RecordSource, SourceError, choose, connect_replica
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.zk.store_admin import read_store_params

_NO_LIMIT = 1 << 62


class Compared(NamedTuple):
    """A replica beside the archive."""

    storage: str
    objects: int
    """Number of objects that are the same."""
    problem: str | None
    """The first difference, or why the replica could not be read."""


async def compare_replicas(cluster: ClusterHandle, place: Place) -> AsyncIterator[Compared]:
    """Compare every replica that may be read with every object of its partition.

    The archive is read first: everything in it was committed before the replicas are chosen. Raises ``ArchiveError``,
    ``SourceError`` when there is no replica, and ``WaltzError`` of ZooKeeper.
    """
    ranges = await read_ranges(place)
    store = await read_store_params(cluster.zookeeper, cluster.root)
    for source in sorted(await choose(cluster, place.partition_id)):
        same = 0
        problem = None
        try:
            replica = await connect_replica(cluster, store, place.partition_id, source)
            try:
                for each in ranges:
                    sealed_name = await _name_at(place, replica, each)
                    if sealed_name != str(each.name):
                        problem = f"transactions {each.first} to {each.end - 1} differ: {sealed_name}, not {each.name}"
                        break
                    same += 1
            finally:
                await replica.close()
        except SourceError as error:
            problem = str(error)
        yield Compared(source.storage, same, problem)


async def _name_at(place: Place, replica: RecordSource, each: ArchivedRange) -> str:
    limit = Limit(each.end - each.first, _NO_LIMIT)
    gathered = await gather_object(place, replica, each.first, each.end, limit, _at_once, with_rest=True)
    assert gathered.sealed is not None
    return str(gathered.sealed.name)


async def _at_once(size_bytes: int) -> None:
    """No limit of the rate."""
