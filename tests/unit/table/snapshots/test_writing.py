"""Rows that were saved and loaded, and the rest of the log, are the rows of the whole log."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.archive.records import KEY, PARTITION
from tests.unit.table import strategies
from tests.unit.table.model import Model
from tests.unit.table.snapshots.places import FACTS, is_known, load, memory_view, place_in, saved, some_rows
from tests.unit.table.stores.cases import KEEPING, feed, opened, request_id
from waltz.table.envelope import Envelope
from waltz.table.errors import StoreError
from waltz.table.snapshots import writing
from waltz.table.snapshots.loading import verify
from waltz.table.stores.interface import Store
from waltz.table.view import Reading

pytest.importorskip("pyarrow")

histories = st.lists(st.none() | strategies.near_envelopes(), min_size=2, max_size=20)


@st.composite
def divided(draw: st.DrawFn) -> tuple[list[Envelope | None], int]:
    """A log, and the number of its transactions that are in the snapshot."""
    history = draw(histories)
    return history, draw(st.sampled_from([count for count in range(1, len(history) + 1) if is_known(count - 1)]))


def check_same(view: Store, history: list[Envelope | None]) -> None:
    """The view is that of the whole log."""
    model = Model()
    model.apply_all(history)
    assert list(Reading(view, 0, raw=True).scan()) == model.scan(raw=True)
    assert list(Reading(view, 0).scan()) == model.scan(raw=False)
    tombstones = sum(row.tombstone for row in model.rows.values())
    assert view.progress == (
        model.applied,
        len(model.rows),
        tombstones,
        model.skipped,
        model.newest_ms,
        request_id(model.applied),
    )
    for prefix in (b"\x00", b"a"):
        after = view.indexed_after
        assert view.take_prefix(prefix, after, 100) == model.take(prefix, after, 100)


@given(divided(), st.sampled_from((1, 3, 1000)), st.sampled_from((1, 10_000)), st.booleans())
def test_a_snapshot_and_the_rest_are_the_whole_log(
    log: tuple[list[Envelope | None], int], group_rows: int, file_bytes: int, take_out: bool
) -> None:
    history, count = log
    place = place_in()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "GROUP_ROWS", group_rows)
        patch.setattr(writing, "FILE_BYTES", file_bytes)
        manifest = asyncio.run(saved(place, memory_view(history[:count], take_out=take_out)))
    model = Model()
    model.apply_all(history[:count])
    assert (manifest.cluster_key, manifest.partition_id) == (KEY, PARTITION)
    assert (manifest.applied, manifest.rows) == (count - 1, len(model.rows))
    assert manifest[3:5] == (request_id(count - 1), FACTS.properties_change)
    assert (manifest.max_body_bytes, manifest.saved_at_ms) == FACTS[1:]
    if file_bytes == 1:
        assert len(manifest.files) == -(-len(model.rows) // group_rows)
    assert asyncio.run(place.ids()) == [count - 1]
    assert asyncio.run(verify(place, count - 1)) == []
    view = memory_view([])
    asyncio.run(load(place, manifest, view))
    assert view.indexed_after == count - 1
    check_same(view, history[:count])
    feed(view, history[count:])
    check_same(view, history)


@pytest.mark.parametrize("name", KEEPING)
async def test_every_store_keeps_what_was_loaded(name: str, tmp_path: Path) -> None:
    history = some_rows(700, 3)
    place = place_in()
    manifest = await saved(place, memory_view(history))
    view = opened(name, tmp_path)
    await load(place, manifest, view)
    more = some_rows(500)
    feed(view, more)
    if name != "memory":
        view.close()
        view = opened(name, tmp_path)
    assert view.indexed_after == 2
    check_same(view, [*history, *more])
    view.close()


@pytest.mark.parametrize("pages", [0, 1, 3])
async def test_a_load_that_was_stopped_leaves_an_empty_store(pages: int, tmp_path: Path) -> None:
    """Killed, or stopped by an error: the end was not written."""
    rows = memory_view(some_rows(700)).scan(b"", None)
    view = opened("sqlite", tmp_path)
    view.begin_load()
    for _ in range(pages):
        view.load([next(rows) for _ in range(200)])
    view.close()
    view = opened("sqlite", tmp_path)
    assert (view.progress.applied, view.progress.rows, view.indexed_after) == (-1, 0, -1)
    feed(view, some_rows(20))
    check_same(view, some_rows(20))
    view.close()


async def test_a_view_that_does_not_know_its_last_transaction_is_not_saved() -> None:
    place = place_in()
    history = some_rows(2, 4)
    assert not is_known(3)
    with pytest.raises(StoreError, match="does not know the request id of transaction 3"):
        await saved(place, memory_view(history))
    assert await place.ids() == []


async def test_a_snapshot_that_is_there_stays() -> None:
    place = place_in()
    view = memory_view(some_rows(5))
    first = await saved(place, view, "one")
    assert await saved(place, view, "two") == first
    assert {each.name.split("/")[1] for each in first.files} == {"one"}
    assert len([name async for name in place.store.names(place.folder)]) == 2
