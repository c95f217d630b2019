"""Bugs to plant in the archiver: what it reads, and how objects and entries get into the store."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from waltz.archive.chain import Place, newest_page
from waltz.archive.errors import StoreUnavailableError
from waltz.archive.manifest import ArchivedRange, Page, encode_page, with_range
from waltz.archive.object_format import SealedObject
from waltz.archive.process.daemon import RunningCluster

_Marks = Callable[[RunningCluster], Coroutine[Any, Any, Mapping[int, int]]]

_committed_marks: _Marks = RunningCluster.committed_marks


async def beyond_the_mark(cluster: RunningCluster) -> Mapping[int, int]:
    """What comes next is taken for committed as well."""
    return {partition_id: mark + 1 for partition_id, mark in (await _committed_marks(cluster)).items()}


def _entry(page: Page, sealed: SealedObject) -> tuple[ArchivedRange, Page]:
    added = ArchivedRange(sealed.name, len(sealed.data), sealed.index_bytes, None, None)
    return added, with_range(page, added)


async def _object_put(place: Place, page: Page, sealed: SealedObject) -> tuple[str, Page]:
    """Put the object; the path of its entry, and the page that belongs there."""
    added, wanted = _entry(page, sealed)
    await place.store.put(place.object_path(added), sealed.data)
    return place.entry_path(added.first), wanted


async def entry_before_object(
    place: Place, page: Page, sealed: SealedObject, first_time_ms: int | None, last_time_ms: int | None
) -> Page:
    """The entry is there first, and counts an object that is yet to come."""
    added, wanted = _entry(page, sealed)
    if await place.store.create(place.entry_path(added.first), encode_page(wanted)):
        await place.store.put(place.object_path(added), sealed.data)
    return await newest_page(place, page)


async def overwritten(
    place: Place, page: Page, sealed: SealedObject, first_time_ms: int | None, last_time_ms: int | None
) -> Page:
    """Entries are written as objects are: over what is there."""
    path, wanted = await _object_put(place, page, sealed)
    await place.store.put(path, encode_page(wanted))
    return wanted


async def conflict_ignored(
    place: Place, page: Page, sealed: SealedObject, first_time_ms: int | None, last_time_ms: int | None
) -> Page:
    """An entry that is there already is taken for one's own."""
    path, wanted = await _object_put(place, page, sealed)
    await place.store.create(path, encode_page(wanted))
    return wanted


async def silence_is_success(
    place: Place, page: Page, sealed: SealedObject, first_time_ms: int | None, last_time_ms: int | None
) -> Page:
    """A write whose answer is lost is taken for done."""
    path, wanted = await _object_put(place, page, sealed)
    try:
        await place.store.create(path, encode_page(wanted))
    except StoreUnavailableError:
        return wanted
    return await newest_page(place, page)


def page_without_predecessor(page: Page, added: ArchivedRange) -> Page:
    """A new page does not name the one before, so that nobody finds what is on that."""
    wanted = with_range(page, added)
    return wanted._replace(previous=None) if len(wanted.ranges) == 1 else wanted
