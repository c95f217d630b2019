"""States that begin with a saved snapshot, in Spark's workers, beside a dictionary."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.archive.records import MemoryStore
from tests.unit.common.cluster.fakes import KEY, make_record
from tests.unit.spark.table.logs import chunks_of, log_of
from tests.unit.spark.table.test_reading import as_output, by_key, histories, part_of
from tests.unit.table import strategies
from tests.unit.table.model import Model
from tests.unit.table.stores.cases import opened
from waltz.archive.errors import ArchiveDamagedError
from waltz.spark.chunk import Chunk
from waltz.spark.errors import DataLossError
from waltz.spark.offsets import OffsetRange
from waltz.spark.planning import Split
from waltz.spark.table import reading, saved
from waltz.spark.table.columns import SCHEMA, schema_of
from waltz.spark.table.options import parse_batch_options
from waltz.spark.table.planning import TableSplit
from waltz.spark.table.saved import SavedPart
from waltz.spark.table.saved import part_of as saved_part
from waltz.table.ages import Ages
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES, Batch, Envelope, Row
from waltz.table.snapshots import writing
from waltz.table.snapshots.place import SnapshotPlace
from waltz.table.snapshots.writing import Facts, save
from waltz.table.stores.interface import Changes
from waltz.table.view import steps

URL = "memory://snapshots"
OPTIONS = {"zookeeper": "zk:2181", "clusterRoot": "/waltz"}


def save_log(store: MemoryStore, log: list[bytes]) -> SavedPart:
    """Save the state of a log of partition 3, with several files and row groups."""
    view = opened("memory", Path())
    for step in steps(enumerate(log), -1):
        step = step._replace(request_id=bytes(make_record(0, step.applied).req_id))
        if isinstance(step, Changes):
            view.apply(step)
        else:
            view.sweep(step)
    place = SnapshotPlace(store, KEY, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "GROUP_ROWS", 2)
        patch.setattr(writing, "FILE_BYTES", 2500)
        manifest = asyncio.run(save(place, view.snapshot(), Facts(1, DEFAULT_MAX_BODY_BYTES, 5), "a"))
    return saved_part(URL, manifest, manifest.files)


def read(
    store: MemoryStore,
    log: list[bytes],
    part: SavedPart,
    *,
    ages: Ages = Ages(),  # noqa: B008 - it cannot be changed
    now_ms: int = 0,
    columns: str | None = None,
    **options: str,
) -> list[tuple[object, ...]]:
    """The state after the whole log, as a planner that found the snapshot has it read."""

    def read_chunks(found: object, split: Split) -> Iterator[Chunk]:
        _, start, end = split.range
        return (chunk for whole in chunks_of(log, 3) for chunk in part_of(whole, start, end))

    tail = () if part.applied == len(log) - 1 else (Split(OffsetRange(3, part.applied, len(log)), (), KEY, 4),)
    split = TableSplit(3, tail, DEFAULT_MAX_BODY_BYTES, ages, now_ms, part)
    parsed = parse_batch_options(OPTIONS | {"snapshots": URL} | options)
    schema = SCHEMA if columns is None else schema_of(columns.split(","))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_chunks", read_chunks)
        patch.setattr(saved, "open_store", lambda url: store)
        batches = list(reading.read_table_split(parsed, schema, split))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@given(histories.filter(bool), st.data(), strategies.clock, st.sampled_from((0, 5, 30)))
def test_the_state(history: list[Envelope | None], data: st.DataObject, now_ms: int, age_ms: int) -> None:
    model = Model()
    model.apply_all(history)
    log, ages = log_of(history), Ages(0, 0, age_ms, 0)
    store = MemoryStore()
    part = save_log(store, log[: data.draw(st.integers(1, len(log)))])
    seen = model.scan(raw=False, now_ms=now_ms, ages=ages)
    assert by_key(read(store, log, part, now_ms=now_ms, ages=ages)) == list(map(as_output, seen))
    assert by_key(read(store, log, part, raw="true")) == list(map(as_output, model.scan(raw=True)))
    some = [as_output(row) for row in seen if row.prefix == b"a" and b"a" <= row.key < b"b"]
    given_keys = {"prefix": "a", "startKey": "a", "endKey": "b"}
    assert by_key(read(store, log, part, now_ms=now_ms, ages=ages, **given_keys)) == some
    keys = [(row.key, row.version.transaction_id) for row in seen]
    without_values = read(store, log, part, now_ms=now_ms, ages=ages, columns="key,transaction_id")
    assert sorted(without_values) == sorted(keys)


LOG = log_of([Batch(number, [Row(b"", b"%d" % row, b"%d" % number) for row in range(6)]) for number in range(4)])


def test_a_snapshot_of_another_log_is_refused() -> None:
    store = MemoryStore()
    part = save_log(store, LOG[:2])
    assert len(read(store, LOG, part)) == 6
    with pytest.raises(DataLossError, match="the snapshot of transaction 1 in memory://snapshots is of another log"):
        read(store, LOG, part._replace(request_id=bytes(16)))


@pytest.mark.parametrize("count", [2, 4])
def test_a_damaged_file_is_refused(count: int) -> None:
    store = MemoryStore()
    part = save_log(store, LOG[:count])
    (path,) = [path for path in store.objects if path.endswith(part.files[-1].name)]
    store.objects[path] = store.objects[path][:-1] + b"?"
    with pytest.raises(ArchiveDamagedError, match="parquet is damaged: it does not match its checksum"):
        read(store, LOG, part)
