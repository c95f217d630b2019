"""The manifest in the store: reading its chain of entries, and adding an entry.

A listing of the store may be out of date. So the listing only says where to begin. From there on entries are read by
name until an entry does not exist: every store answers reads by name correctly.
"""

from typing import NamedTuple
from uuid import UUID

from waltz.archive.errors import (
    ArchiveConflictError,
    ArchiveDamagedError,
    NotFoundInStoreError,
    StoreUnavailableError,
)
from waltz.archive.manifest import (
    MANIFEST_FOLDER,
    ArchivedRange,
    Page,
    check_consecutive,
    decode_page,
    empty_page,
    encode_page,
    entry_name,
    with_range,
)
from waltz.archive.object_format import SealedObject
from waltz.archive.store import ObjectStore


class Place(NamedTuple):
    """A partition of one cluster in a store."""

    store: ObjectStore
    cluster_key: UUID
    partition_id: int

    @property
    def folder(self) -> str:
        """The folder of the partition's objects."""
        return f"{self.cluster_key}/{self.partition_id}"

    def object_path(self, found: ArchivedRange) -> str:
        """The path of an object."""
        return f"{self.folder}/{found.name}"

    def entry_path(self, first: int) -> str:
        """The path of an entry of the manifest."""
        return f"{self.folder}/{MANIFEST_FOLDER}/{entry_name(first)}"

    async def read_entry(self, first: int) -> Page | None:
        """Read the entry of the range from ``first`` on; ``None`` if there is no such entry.

        Raises:
            ArchiveDamagedError: The entry is damaged.
            StoreUnavailableError: The store failed.
        """
        path = self.entry_path(first)
        try:
            data = await self.store.get(path)
        except NotFoundInStoreError:
            return None
        return decode_page(data, self.cluster_key, self.partition_id, first, f"{self.store.url}/{path}")


async def newest_page(place: Place, known: Page | None = None) -> Page:
    """The page of the last entry.

    Args:
        place: The partition in the store.
        known: A page from an earlier call; the search begins there.

    Raises:
        ArchiveDamagedError: An entry is damaged.
        StoreUnavailableError: The store failed, or has lost the known page. In the second case the address may lead to
            another directory, because a file system is not mounted: nothing must be written there.
    """
    page = known or await _listed_page(place)
    if known is not None and known.ranges and await place.read_entry(known.ranges[-1].first) is None:
        raise StoreUnavailableError(
            f"the object store {place.store.url} has lost {place.entry_path(known.ranges[-1].first)}: "
            "mount its file system, or give the new address if the archive was moved. "
            "If the archive was deleted on purpose, restart the archiver"
        )
    while (following := await place.read_entry(page.end)) is not None:
        page = following
    return page


async def _listed_page(place: Place) -> Page:
    """The page of the last entry in a listing of the store."""
    last = None
    async for name in place.store.names(f"{place.folder}/{MANIFEST_FOLDER}"):
        if name.isdecimal():
            last = int(name)
    if last is None:
        return empty_page(place.cluster_key, place.partition_id)
    page = await place.read_entry(last)
    if page is None:
        raise ArchiveDamagedError(f"{place.store.url}/{place.entry_path(last)} is listed, but cannot be read")
    return page


async def read_ranges(place: Place) -> list[ArchivedRange]:
    """All objects of a partition with an entry in the manifest, from transaction 0 on, without gaps.

    Raises:
        ArchiveDamagedError: An entry is missing or damaged.
        StoreUnavailableError: The store failed.
    """
    page = await newest_page(place)
    pages = [page]
    while page.previous is not None:
        before = await place.read_entry(page.previous)
        if before is None or before.end != page.ranges[0].first:
            raise ArchiveDamagedError(f"{place.store.url}/{place.entry_path(page.previous)} is missing or damaged")
        page = before
        pages.append(page)
    ranges = [each for page in reversed(pages) for each in page.ranges]
    check_consecutive(ranges, 0, f"the manifest in {place.store.url}/{place.folder}")
    return ranges


async def add_object(
    place: Place, page: Page, sealed: SealedObject, first_time_ms: int | None, last_time_ms: int | None
) -> Page:
    """Write an object, and then its entry in the manifest.

    After a failure the call may be repeated, even if its outcome is unknown: the same object is written over the first
    one, and an existing entry is recognised.

    Args:
        place: The partition in the store.
        page: The newest known page of the manifest.
        sealed: The object; begins at the end of ``page``.
        first_time_ms: Time of commit of the first transaction, in milliseconds since the epoch; ``None``: unknown.
        last_time_ms: Time of commit of the last transaction, likewise.

    Returns:
        The page that ends with the new object.

    Raises:
        ArchiveConflictError: The manifest has another range at this place.
        StoreUnavailableError: The store failed.
    """
    added = ArchivedRange(sealed.name, len(sealed.data), sealed.index_bytes, first_time_ms, last_time_ms)
    await place.store.put(place.object_path(added), sealed.data)
    wanted = with_range(page, added)
    if await place.store.create(place.entry_path(added.first), encode_page(wanted)):
        return wanted
    found = await place.read_entry(added.first)
    if found is None or found.ranges[-1].name != sealed.name:
        raise ArchiveConflictError(
            f"partition {place.partition_id}: another archiver has already archived transaction {added.first}"
        )
    return found
