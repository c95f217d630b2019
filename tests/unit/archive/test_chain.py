"""The chain of entries in a store that loses answers, is away, lists old states, and is used by two at once."""

import asyncio
import itertools

import pytest

from tests.unit.archive.records import KEY, PARTITION, MemoryStore, fail, sealed
from waltz.archive import manifest
from waltz.archive.chain import Place, add_object, newest_page, read_ranges
from waltz.archive.errors import ArchiveConflictError, ArchiveDamagedError, StoreUnavailableError
from waltz.archive.manifest import Page, empty_page
from waltz.archive.object_format import decode_object


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "PAGE_RANGES", 3)


def place_in(store: MemoryStore) -> Place:
    return Place(store, KEY, PARTITION)


async def add(place: Place, page: Page, count: int = 2) -> Page:
    return await add_object(place, page, sealed(page.end, [b"x"] * count), None, 7)


async def filled(store: MemoryStore, objects: int) -> Page:
    page = empty_page(KEY, PARTITION)
    for _ in range(objects):
        page = await add(place_in(store), page)
    return page


@pytest.mark.parametrize("objects", [0, 1, 3, 4, 10])
async def test_all_ranges_are_read_over_pages(objects: int) -> None:
    store = MemoryStore()
    page = await filled(store, objects)
    assert await newest_page(place_in(store)) == page
    ranges = await read_ranges(place_in(store))
    assert [each.first for each in ranges] == [*range(0, 2 * objects, 2)]
    for each in ranges:
        data = store.objects[place_in(store).object_path(each)]
        decode_object(data, KEY, PARTITION, each.name, "it")
        assert len(data) == each.size_bytes


async def test_an_old_listing_hides_nothing() -> None:
    store = MemoryStore()
    await filled(store, 2)
    store.listed = {**store.objects}
    page = empty_page(KEY, PARTITION)
    page = await newest_page(place_in(store), page)
    for _ in range(4):
        page = await add(place_in(store), page)
    assert await newest_page(place_in(store)) == page
    store.listed = {}
    assert len(await read_ranges(place_in(store))) == 6


async def test_a_failure_at_each_call_leaves_all_that_counts_and_is_repeated() -> None:
    for step, is_after in itertools.product(range(2), (False, True)):
        store = MemoryStore()
        before = await filled(store, 2)
        calls = itertools.count()

        def failing(verb: str, path: str, calls: "itertools.count[int]" = calls, step: int = step) -> None:
            if next(calls) == step:
                fail(verb, path)

        if is_after:
            store.after = failing
        else:
            store.before = failing
        with pytest.raises(StoreUnavailableError):
            await add(place_in(store), before)
        store.before = store.after = lambda verb, path: None
        seen = await read_ranges(place_in(store))
        assert len(seen) == (3 if (step, is_after) == (1, True) else 2)
        for each in seen:
            assert place_in(store).object_path(each) in store.objects, "an entry without its object"
        page = await add(place_in(store), before)
        assert [each.first for each in await read_ranges(place_in(store))] == [0, 2, 4]
        assert await newest_page(place_in(store)) == page


async def test_of_two_archivers_one_counts() -> None:
    store = MemoryStore()
    before = await filled(store, 1)
    place = place_in(store)
    same = await asyncio.gather(add(place, before), add(place, before))
    assert same[0] == same[1]
    outcomes = await asyncio.gather(add(place, same[0], 1), add(place, same[0], 3), return_exceptions=True)
    (loser,) = (each for each in outcomes if isinstance(each, ArchiveConflictError))
    assert "another archiver has already archived transaction 4" in str(loser)
    assert [each.first for each in await read_ranges(place)] == [0, 2, 4]
    assert (await newest_page(place, before)).end in (5, 7)


async def test_another_directory_in_the_place_of_the_archive_is_noticed() -> None:
    store = MemoryStore()
    page = await filled(store, 2)
    store.objects.clear()
    with pytest.raises(StoreUnavailableError, match="mount its file system"):
        await newest_page(place_in(store), page)
    assert await newest_page(place_in(store)) == empty_page(KEY, PARTITION)


async def test_a_missing_page_is_noticed() -> None:
    store = MemoryStore()
    await filled(store, 7)
    del store.objects[place_in(store).entry_path(4)]
    with pytest.raises(ArchiveDamagedError, match="is missing or damaged"):
        await read_ranges(place_in(store))
