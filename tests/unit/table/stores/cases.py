"""What all stores have in common, compared with a dictionary."""

import random
from collections.abc import Sequence
from pathlib import Path

from tests.unit.table.model import Model
from waltz.common.ids import ReqId
from waltz.table.envelope import NO_BOUND, Batch, Envelope, Row, SweepMark, Truncate, encode
from waltz.table.rows import TableRow, row_key
from waltz.table.stores.directory import StoreIdentity
from waltz.table.stores.interface import Changes, Snapshot, Store
from waltz.table.stores.registry import open_store
from waltz.table.view import KeyRange, Reading, steps

KEEPING = ("memory", "sqlite", "rocksdb", "lmdb")
"""The stores that keep rows."""

ON_DISK = KEEPING[1:]

IDENTITY = StoreIdentity(3, "incarnation")
PREFIXES = (b"", b"\x00", b"a", b"a\x00", b"a\x00\x01", b"b")
NOT_AN_ENVELOPE = b"anything"


def opened(name: str, directory: Path, identity: StoreIdentity = IDENTITY) -> Store:
    """A store in a folder of the directory."""
    return open_store(name, directory / name, identity)


def encoded(envelope: Envelope | None) -> bytes:
    """The data of a transaction; ``None`` is one that is no envelope."""
    return NOT_AN_ENVELOPE if envelope is None else encode(envelope)


def request_id(transaction_id: int) -> bytes:
    """The request id of a transaction; a few are unknown."""
    return b"" if transaction_id < 0 or transaction_id % 5 == 3 else bytes(ReqId.of(1, 0, 0, transaction_id))


def feed(store: Store, envelopes: Sequence[Envelope | None], max_rows: int = 1000, *, take_out: bool = True) -> None:
    """Have the store apply what comes next in the log, and take out what is removed."""
    after = store.progress.applied
    records = [(after + number, encoded(envelope)) for number, envelope in enumerate(envelopes, 1)]
    for step in steps(records, after, max_rows=max_rows):
        step = step._replace(request_id=request_id(step.applied))
        if isinstance(step, Changes):
            store.apply(step)
        else:
            store.sweep(step)
    while take_out and store.removing:
        store.remove_page()


def random_history(seed: int, transactions: int, keys: int = 300) -> list[Envelope | None]:
    """Out of order, with duplicates, deletions, sweeps, truncates, and data that is none of it."""
    chance = random.Random(seed)

    def row(now_ms: int) -> Row:
        key = b"%d" % chance.randrange(keys)
        timestamp_ms = now_ms + chance.randint(-50, 50) if chance.random() < 0.5 else None
        if chance.random() < 0.2:
            return Row(chance.choice(PREFIXES), key, None, timestamp_ms, tombstone=True)
        value = chance.choice((None, b"", chance.randbytes(chance.randrange(120))))
        return Row(chance.choice(PREFIXES), key, value, timestamp_ms)

    history: list[Envelope | None] = []
    for now_ms in range(1000, 1000 + transactions):
        kind = chance.random()
        if kind < 0.96:
            history.append(Batch(now_ms, [row(now_ms) for _ in range(chance.randrange(8))]))
        elif kind < 0.98:
            history.append(None)
        elif kind < 0.995:
            bounds = (NO_BOUND if chance.random() < 0.4 else now_ms - chance.randint(0, 100) for _ in range(4))
            history.append(SweepMark(now_ms, *bounds))
        else:
            history.append(Truncate(now_ms))
    return history


def check_equal(rows: Snapshot, model: Model, chance: random.Random, *, counts: bool = True) -> None:
    """Gets, scans and takes are those of the model, and the counts where none are still to come."""
    progress = rows.progress
    tombstones = sum(row.tombstone for row in model.rows.values())
    if counts:
        assert (progress.rows, progress.tombstones) == (len(model.rows), tombstones)
    assert (progress.applied, progress.skipped) == (model.applied, model.skipped)
    assert (progress.newest_ms, progress.request_id) == (model.newest_ms, request_id(model.applied))
    raw = Reading(rows, 0, raw=True)
    everything = model.scan(raw=True)
    assert list(raw.scan()) == everything
    assert list(raw.scan(reverse=True)) == everything[::-1]
    assert list(Reading(rows, 0).scan()) == model.scan(raw=False)
    for prefix in PREFIXES:
        keys = [b"%d" % chance.randrange(400) for _ in range(20)]
        assert raw.get(prefix, keys) == [model.rows.get((prefix, key)) for key in keys]
        if prefix:
            after, limit = chance.randint(-1, model.applied + 1), chance.choice((1, 7, 10_000))
            assert rows.take_prefix(prefix, after, limit) == model.take(prefix, after, limit)
    for _ in range(5):
        check_range(raw, everything, chance)


def check_range(raw: Reading, everything: list[TableRow], chance: random.Random) -> None:
    """A range of keys, within one prefix or across some."""
    end_prefix = chance.choice((None, *PREFIXES))
    start, end = b"%d" % chance.randrange(400), chance.choice((None, b"", b"%d" % chance.randrange(400)))
    key_range = KeyRange(chance.choice(PREFIXES), start, end, end_prefix)
    last = key_range.prefix if end_prefix is None else end_prefix
    expected = [
        row
        for row in everything
        if (key_range.prefix, start) <= (row.prefix, row.key)
        and (row.prefix <= last if end is None else (row.prefix, row.key) < (last, end))
    ]
    assert list(raw.scan([key_range])) == expected
    assert list(raw.scan([key_range], reverse=True)) == expected[::-1]


def joined(*keys: bytes) -> list[bytes]:
    """Keys without a prefix as stores know them."""
    return [row_key(b"", key) for key in keys]
