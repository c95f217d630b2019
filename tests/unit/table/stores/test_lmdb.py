"""LMDB: a map that grows, and keys that it cannot hold."""

from pathlib import Path

import pytest

from tests.unit.table.stores.cases import IDENTITY, feed, joined, opened
from waltz.table.envelope import Batch, Row
from waltz.table.errors import KeyTooLongError
from waltz.table.limits import LMDB_MAX_ENTRY_KEY_BYTES as MAX_ENTRY_KEY_BYTES
from waltz.table.limits import LMDB_MAX_ROW_KEY_BYTES as MAX_ROW_KEY_BYTES
from waltz.table.stores.directory import DirectoryStore
from waltz.table.stores.engine import Space
from waltz.table.stores.lmdb import LmdbEngine


def test_the_map_grows_as_often_as_it_has_to(tmp_path: Path) -> None:
    engine = LmdbEngine(tmp_path, map_bytes=1 << 18)
    value = b"v" * 1000
    entries = [(Space.ROWS, b"%05d" % number, value) for number in range(3000)]
    engine.write(entries[:10])
    engine.write(entries[10:])
    assert engine.get(Space.ROWS, [b"00000", b"02999"]) == [value, value]
    engine.close()
    again = LmdbEngine(tmp_path, map_bytes=1 << 18)
    assert len(again.page(Space.ROWS, b"", None, 5000)) == 3000
    again.write([(Space.ROWS, b"more", value)])
    again.close()


def test_the_map_grows_beside_snapshots(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, IDENTITY, "lmdb", lambda directory: LmdbEngine(directory, map_bytes=1 << 18))
    feed(store, [Batch(1, [Row(b"", b"k", b"old")])])
    snapshot = store.snapshot()
    before = snapshot.get(joined(b"k"))
    feed(
        store,
        [Batch(2, [Row(b"", b"%d" % number, b"v" * 1000) for number in range(1000)]), Batch(3, [Row(b"", b"k", b"")])],
    )
    assert snapshot.get(joined(b"k", b"1")) == [*before, None]
    store.close()


def test_a_key_of_the_promised_size_goes_and_one_beyond_the_limit_is_named(tmp_path: Path) -> None:
    """The prefix counts, with what ends it; where there is one, so does the index's entry of it."""
    store = opened("lmdb", tmp_path)
    feed(store, [Batch(1, [Row(b"", b"k" * (MAX_ROW_KEY_BYTES - 2), b"v")])])
    feed(store, [Batch(1, [Row(b"p" * (MAX_ROW_KEY_BYTES - 2), b"", b"v")])])
    progress = store.progress
    for row in (Row(b"", b"k" * (MAX_ENTRY_KEY_BYTES - 1), b"v"), Row(b"p" * (MAX_ROW_KEY_BYTES - 1), b"", b"v")):
        with pytest.raises(KeyTooLongError, match="at most 511"):
            feed(store, [Batch(1, [Row(b"", b"beside", b"v"), row])])
    assert store.progress == progress
    assert store.get(joined(b"beside", b"k" * 600)) == [None, None]
    assert len(list(store.scan(b"", b"p" * 600))) == 2
    assert len(list(store.scan(b"", b"p" * 600, reverse=True))) == 2
    store.close()
