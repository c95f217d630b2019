"""The content of a store: the logs in it, and a check of every object that counts."""

from typing import NamedTuple
from uuid import UUID

from waltz.archive.chain import Place, read_ranges
from waltz.archive.errors import ArchiveDamagedError, ArchiveError, NotFoundInStoreError
from waltz.archive.manifest import ArchivedRange
from waltz.archive.object_format import decode_object, parse_name
from waltz.archive.store import ObjectStore


class Verified(NamedTuple):
    """The state of a partition's archive."""

    ranges: list[ArchivedRange]
    problems: list[str]
    """A text for each object that is missing or damaged."""
    uncounted: list[str]
    """Objects without an entry in the manifest: a stopped archiver left them. They do no harm."""


async def archived_clusters(store: ObjectStore) -> list[UUID]:
    """The keys of the clusters with an archive in the store.

    Raises:
        StoreUnavailableError: The store failed.
    """
    found = []
    for name in await store.folders(""):
        try:
            found.append(UUID(name))
        except ValueError:
            continue
    return found


async def only_cluster(store: ObjectStore, wanted: UUID | None) -> UUID:
    """The cluster to read: the ``wanted`` one, or else the only one in the store.

    Raises:
        ArchiveError: The wanted cluster is not in the store; or none is wanted, and the store has none or several.
        StoreUnavailableError: The store failed.
    """
    found = await archived_clusters(store)
    if wanted is not None:
        if wanted not in found:
            raise ArchiveError(f"the archive {store.url} has no transactions of cluster {wanted}: {_listed(found)}")
        return wanted
    if len(found) != 1:
        raise ArchiveError(f"the archive {store.url} does not hold exactly one cluster; give a key: {_listed(found)}")
    return found[0]


def _listed(keys: list[UUID]) -> str:
    return f"it has {', '.join(map(str, keys))}" if keys else "it is empty"


async def archived_partitions(store: ObjectStore, cluster_key: UUID) -> list[int]:
    """The partitions with archived transactions, ascending.

    Raises:
        StoreUnavailableError: The store failed.
    """
    return sorted(int(name) for name in await store.folders(str(cluster_key)) if name.isdecimal())


async def verify_partition(place: Place) -> Verified:
    """Read and check every object of a partition.

    Raises:
        ArchiveDamagedError: The manifest is damaged.
        StoreUnavailableError: The store failed.
    """
    ranges = await read_ranges(place)
    problems = []
    for each in ranges:
        path = place.object_path(each)
        try:
            data = await place.store.get(path)
            decode_object(data, place.cluster_key, place.partition_id, each.name, path)
        except (ArchiveDamagedError, NotFoundInStoreError) as error:
            problems.append(str(error))
    counted = {str(each.name) for each in ranges}
    names = [name async for name in place.store.names(place.folder)]
    return Verified(ranges, problems, [name for name in names if parse_name(name) and name not in counted])
