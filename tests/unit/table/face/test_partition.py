"""The close of what has many rows in memory."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.table.stores.cases import feed, opened
from waltz.table.envelope import Batch, Row
from waltz.table.errors import StoreError
from waltz.table.face.partition import close_in_pages
from waltz.table.stores.interface import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in memory with rows for several pages."""
    store = opened("memory", tmp_path)
    feed(store, [Batch(5, [Row(b"", b"%d" % number, b"") for number in range(25_000)])])
    return store


async def turns_until_closed(closing: asyncio.Task[None]) -> int:
    """Number of turns of the loop that another task has meanwhile."""
    turns = 0
    while not closing.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_other_work_gets_turns_while_a_store_is_closed(store: Store) -> None:
    assert await turns_until_closed(asyncio.create_task(close_in_pages(store))) >= 4


async def test_a_snapshot_that_has_kept_little_is_closed_at_once(store: Store) -> None:
    """Each scan has one."""
    snapshot = store.snapshot()
    feed(store, [Batch(6, [Row(b"", b"a", b"")])])
    assert await turns_until_closed(asyncio.create_task(close_in_pages(snapshot))) == 1
    with pytest.raises(StoreError, match="closed"):
        snapshot.get([b"a"])


async def test_a_close_that_is_cancelled_closes(store: Store) -> None:
    snapshot = store.snapshot()
    feed(store, [Batch(6, [Row(b"", b"%d" % number, b"x") for number in range(25_000)])])
    closing = asyncio.create_task(close_in_pages(snapshot))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not snapshot.release_page()
