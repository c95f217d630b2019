"""The manifest in the store: reading the chain of entries, and adding one.

A listing of the store may be old. So it only says where to begin: from there on entries are asked for by name until
there is none, which no store answers wrongly.
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
        """Where its objects are."""
        return f"{self.cluster_key}/{self.partition_id}"

    def object_path(self, found: ArchivedRange) -> str:
        """The path of an object."""
        return f"{self.folder}/{found.name}"

    def entry_path(self, first: int) -> str:
        """The path of an entry of the manifest."""
        return f"{self.folder}/{MANIFEST_FOLDER}/{entry_name(first)}"

    async def read_entry(self, first: int) -> Page | None:
        """The entry whose range begins at ``first``, if there is one. Raises ``ArchiveError``."""
        path = self.entry_path(first)
        try:
            data = await self.store.get(path)
        except NotFoundInStoreError:
            return None
        return decode_page(data, self.cluster_key, self.partition_id, first, f"{self.store.url}/{path}")


async def newest_page(place: Place, known: Page | None = None) -> Page:
    """The page of the last entry; the search begins at a page that is ``known``.

    Raises ``ArchiveDamagedError``, and ``StoreUnavailableError``, also when the store has not got the known page any
    more: then it is another directory, because a file system is not mounted, and nothing must be written there.
    """
    page = known or await _listed_page(place)
    if known is not None and known.ranges and await place.read_entry(known.ranges[-1].first) is None:
        raise StoreUnavailableError(
            f"the object store {place.store.url} has lost {place.entry_path(known.ranges[-1].first)}: "
            "is a file system not mounted, or was the archive moved? If it was given up, start the archiver again"
        )
    while (following := await place.read_entry(page.end)) is not None:
        page = following
    return page


async def _listed_page(place: Place) -> Page:
    """The page of the last entry that a listing shows."""
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
    """All objects of a partition that count, from transaction 0 on, without gaps.

    Raises ``StoreUnavailableError``, ``ArchiveDamagedError``.
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
    """Write an object, and then the entry with which it counts; ``page`` is the newest that is known.

    It may be repeated whenever it failed, also if its outcome is unknown: the object then overwrites itself, and the
    entry is recognised. Raises ``StoreUnavailableError``, and ``ArchiveConflictError`` when another range begins there.
    """
    added = ArchivedRange(sealed.name, len(sealed.data), sealed.index_bytes, first_time_ms, last_time_ms)
    await place.store.put(place.object_path(added), sealed.data)
    wanted = with_range(page, added)
    if await place.store.create(place.entry_path(added.first), encode_page(wanted)):
        return wanted
    found = await place.read_entry(added.first)
    if found is None or found.ranges[-1].name != sealed.name:
        raise ArchiveConflictError(
            f"partition {place.partition_id}: another archiver has archived from transaction {added.first} on"
        )
    return found
