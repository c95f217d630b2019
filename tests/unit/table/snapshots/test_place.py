"""Snapshots in a store that fails at each call, loses answers, and holds damaged objects."""

import asyncio
import itertools

import pytest

from tests.unit.archive.records import KEY, MemoryStore, fail
from tests.unit.table.snapshots.places import FACTS, filled, memory_view, place_in, saved, some_rows
from waltz.archive.errors import ArchiveError, NewerFormError, StoreUnavailableError
from waltz.table.snapshots import writing
from waltz.table.snapshots.loading import verify
from waltz.table.snapshots.manifest import misfit
from waltz.table.snapshots.place import (
    SnapshotPlace,
    clusters_with_snapshots,
    leftovers,
    partitions_with_snapshots,
    remove_leftovers,
    remove_old,
)

pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GROUP_ROWS", 4)
    monkeypatch.setattr(writing, "FILE_BYTES", 1)


def fails_at(store: MemoryStore, step: int, *, after: bool) -> None:
    """Have one call fail, with an effect or without."""
    calls = itertools.count()

    def failing(verb: str, path: str) -> None:
        if next(calls) == step:
            fail(verb, path)

    if after:
        store.after = failing
    else:
        store.before = failing


def heals(store: MemoryStore) -> None:
    store.before = store.after = lambda verb, path: None


async def check_whole(place: SnapshotPlace, ids: list[int]) -> None:
    """Exactly these snapshots are there, each of them whole."""
    assert await place.ids() == ids
    for applied in ids:
        assert await verify(place, applied) == []


@pytest.mark.parametrize("after", [False, True])
async def test_a_failure_at_each_call_leaves_a_whole_snapshot_or_none(after: bool) -> None:
    """Three files and the manifest are written, after a look at the manifests that there are."""
    for step in range(4 if after else 5):
        store = MemoryStore()
        place = place_in(store)
        await filled(place, 1)
        fails_at(store, step, after=after)
        with pytest.raises(StoreUnavailableError):
            await saved(place, memory_view(some_rows(10, 2)), "first")
        heals(store)
        is_there = after and step == 3
        await check_whole(place, [0, 1] if is_there else [0])
        assert len(await leftovers(place)) == (0 if is_there else step + 1 if after else max(step - 1, 0))
        await saved(place, memory_view(some_rows(10, 2)), "second")
        await check_whole(place, [0, 1])
        assert all("/first/" in name for name in await remove_leftovers(place))
        await check_whole(place, [0, 1])
        assert await leftovers(place) == []


async def test_a_manifest_whose_answer_was_lost_is_recognised() -> None:
    place = place_in()
    (manifest,) = await filled(place, 1)
    assert await place.create(manifest)
    assert not await place.create(manifest._replace(saved_at_ms=1))
    assert await place.read(0) == manifest


async def test_of_two_that_save_the_same_transaction_one_counts() -> None:
    place = place_in()
    view = memory_view(some_rows(10, 2))
    one, other = await asyncio.gather(saved(place, view, "one"), saved(place, view, "other"))
    assert one == other
    await check_whole(place, [1])
    (loser,) = {name.split("/")[1] for name in await leftovers(place)}
    assert {loser, one.files[0].name.split("/")[1]} == {"one", "other"}


@pytest.mark.parametrize("after", [False, True])
async def test_a_removal_that_fails_at_each_call_leaves_whole_snapshots_only(after: bool) -> None:
    for step in itertools.count():
        store = MemoryStore()
        place = place_in(store)
        await filled(place, 1, 2, 3, 5)
        fails_at(store, step, after=after)
        try:
            removed = await remove_old(place, 2)
        except StoreUnavailableError:
            heals(store)
            ids = await place.ids()
            assert ids[-2:] == [2, 4]
            await check_whole(place, ids)
            await remove_old(place, 2)
            await check_whole(place, [2, 4])
            await remove_leftovers(place)
            assert {name.split("/")[0] for name in await leftovers(place)} == set()
        else:
            assert removed == ([0, 1], 6)
            heals(store)
            await check_whole(place, [2, 4])
            assert len(store.objects) == 2 * 4
            break
    assert step >= 8


async def test_damaged_snapshots_are_removed_and_not_counted() -> None:
    store = MemoryStore()
    place = place_in(store)
    await filled(place, 1, 2, 3)
    store.objects[place.manifest_path(2)] = b"nothing"
    assert (await remove_old(place, 1)).snapshots == [0, 2]
    await check_whole(place, [1])
    with pytest.raises(ValueError, match="keep must be at least 1; found 0"):
        await remove_old(place, 0)


async def test_what_a_newer_program_saved_is_not_removed() -> None:
    store = MemoryStore()
    place = place_in(store)
    await filled(place, 1, 2)
    path = place.manifest_path(0)
    store.objects[path] = store.objects[path].replace(b"waltz-snapshot 1 ", b"waltz-snapshot 2 ")
    with pytest.raises(NewerFormError, match="upgrade this one"):
        await remove_old(place, 1)
    assert await place.ids() == [0, 1]


async def test_the_newest_that_fits_is_chosen() -> None:
    store = MemoryStore()
    place = place_in(store)
    await filled(place, 1, 2, 3)
    store.objects[place.manifest_path(2)] = b"nothing"
    told: list[tuple[int, str]] = []

    async def newest(bound: int | None, max_body_bytes: int = FACTS.max_body_bytes) -> int | None:
        told.clear()
        found = await place.newest(
            bound, lambda each: misfit(max_body_bytes, each), lambda applied, why: told.append((applied, str(why)))
        )
        return None if found is None else found.applied

    assert await newest(None) == 1
    assert [applied for applied, _ in told] == [2]
    assert "is not the manifest of a snapshot" in told[0][1]
    assert await newest(1) == 1
    assert await newest(0) == 0
    assert await newest(-1) is None
    assert told == []
    assert await newest(1, 7) is None
    assert [applied for applied, _ in told] == [1, 0]
    assert "maxDecompressedSizeInBytes was 1000, and it is 7 now" in told[0][1]
    store.before = fail
    with pytest.raises(StoreUnavailableError):
        await newest(None)


async def test_an_old_listing_shows_older_snapshots() -> None:
    store = MemoryStore()
    place = place_in(store)
    await filled(place, 1)
    store.listed = dict(store.objects)
    await filled(place, 2)
    assert await place.ids() == [0]
    store.listed = dict(store.objects)
    await remove_old(place, 1)
    assert await place.ids() == [0, 1]
    with pytest.raises(ArchiveError, match="."):
        await place.read(0)


async def test_clusters_and_partitions_are_listed() -> None:
    store = MemoryStore()
    store.objects["snapshots/readme/x"] = b""
    assert await clusters_with_snapshots(store) == []
    for key, partition_id in ((KEY, 10), (KEY, 2)):
        await filled(SnapshotPlace(store, key, partition_id), 1)
    assert await clusters_with_snapshots(store) == [KEY]
    assert await partitions_with_snapshots(store, KEY) == [2, 10]
