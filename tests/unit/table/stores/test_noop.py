"""A store that keeps nothing but its place in the log."""

import pytest

from tests.unit.table.stores.cases import feed, joined, request_id
from waltz.table.envelope import Batch, Row, Truncate
from waltz.table.errors import ViewGapError
from waltz.table.stores.interface import Changes, Progress, Removal
from waltz.table.stores.noop import NoopStore


def test_it_takes_everything_and_finds_nothing() -> None:
    store = NoopStore()
    snapshot = store.snapshot()
    feed(store, [Batch(1, [Row(b"p", b"k", b"v")]), None, Truncate(1)])
    assert store.progress == (2, 0, 0, 1, 1, request_id(2))
    assert snapshot.progress == Progress()
    assert store.get(joined(b"k")) == [None]
    assert list(store.scan(b"", None)) == []
    assert store.take_prefix(b"p", -1, 10) == []
    for step in (Changes(1, 2, {}, [], 0), Removal(2, None)):
        with pytest.raises(ViewGapError):
            store.apply(step) if isinstance(step, Changes) else store.sweep(step)
    store.close()
