"""Snapshots of stores that were fed with transactions, in an object store in memory."""

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from tests.unit.archive.records import KEY, PARTITION, MemoryStore
from tests.unit.table.stores.cases import feed, opened, request_id
from waltz.table.envelope import Batch, Envelope, Row
from waltz.table.snapshots.loading import progress_of, saved_pages
from waltz.table.snapshots.manifest import Manifest
from waltz.table.snapshots.place import RemovingStore, SnapshotPlace
from waltz.table.snapshots.writing import Facts, save
from waltz.table.stores.interface import Store

FACTS = Facts(4, 1000, 77)


def place_in(store: RemovingStore | None = None) -> SnapshotPlace:
    return SnapshotPlace(MemoryStore() if store is None else store, KEY, PARTITION)


def memory_view(envelopes: Sequence[Envelope | None], *, take_out: bool = True) -> Store:
    """A view in memory."""
    view = opened("memory", Path())
    feed(view, envelopes, take_out=take_out)
    return view


def some_rows(count: int, transactions: int = 1) -> list[Envelope | None]:
    """Transactions with so many rows each, every second one with a prefix."""
    return [
        Batch(9, [Row(b"p" * (number % 2), b"%d" % number, b"%d" % transaction) for number in range(count)])
        for transaction in range(transactions)
    ]


async def saved(place: SnapshotPlace, view: Store, token: str = "one") -> Manifest:
    """Save a view as it is."""
    rows = view.snapshot()
    try:
        return await save(place, rows, FACTS, token)
    finally:
        rows.close()


async def load(place: SnapshotPlace, manifest: Manifest, view: Store) -> None:
    """Load all rows of a snapshot into an empty view."""
    view.begin_load()
    async with aclosing(saved_pages(place, manifest)) as pages:
        async for page in pages:
            view.load(page)
    view.end_load(progress_of(manifest))


async def filled(place: SnapshotPlace, *counts: int) -> list[Manifest]:
    """Snapshots of logs with so many transactions of ten rows."""
    return [await saved(place, memory_view(some_rows(10, count)), f"of-{count}") for count in counts]


def is_known(transaction_id: int) -> bool:
    """Whether the request id of a transaction is known."""
    return request_id(transaction_id) != b""
