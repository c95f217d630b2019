"""Compares the replicas of a partition with its archive: the same records make the same objects."""

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
    """The result of comparing a replica with the archive."""

    storage: str
    objects: int
    """Number of equal objects."""
    problem: str | None
    """The first difference, or the error of reading the replica; ``None``: the replica is equal."""


async def compare_replicas(cluster: ClusterHandle, place: Place) -> AsyncIterator[Compared]:
    """Compare every readable replica with every object of its partition.

    The manifest is read first: so all archived transactions were committed before the replicas are chosen.

    Raises:
        ArchiveError: The archive cannot be read.
        SourceError: No replica may be read.
        WaltzError: ZooKeeper failed.
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
    """Read without a limit of the rate."""
