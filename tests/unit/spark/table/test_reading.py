"""Whole splits, from chunks to Spark's batches, beside a dictionary."""

import logging
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.cluster.fakes import KEY
from tests.unit.spark.table.logs import chunks_of, log_of
from tests.unit.table import strategies
from tests.unit.table.model import Model
from waltz.spark.chunk import Chunk
from waltz.spark.offsets import OffsetRange
from waltz.spark.planning import Split
from waltz.spark.table import reading
from waltz.spark.table.columns import SCHEMA
from waltz.spark.table.options import parse_batch_options
from waltz.spark.table.planning import TableSplit
from waltz.table.ages import Ages
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES, Batch, Envelope, Row, envelope_of
from waltz.table.rows import TableRow
from waltz.table.taking import rows_in

CLUSTER = {"zookeeper": "zk:2181", "clusterRoot": "/waltz"}
histories = st.lists(st.none() | strategies.near_envelopes(), max_size=20)


def read(
    log: Sequence[bytes],
    *,
    now_ms: int = 0,
    ages: Ages = Ages(),  # noqa: B008 - it cannot be changed
    **options: str,
) -> list[tuple[object, ...]]:
    def read_chunks(found: object, split: Split) -> Iterator[Chunk]:
        _, start, end = split.range
        return (chunk for whole in chunks_of(log, 7) for chunk in part_of(whole, start, end))

    seam = len(log) // 3
    parts = tuple(Split(OffsetRange(3, *bounds), (), KEY, 4) for bounds in ((0, seam), (seam, len(log))))
    split = TableSplit(3, parts, DEFAULT_MAX_BODY_BYTES, ages, now_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_chunks", read_chunks)
        batches = list(reading.read_table_split(parse_batch_options(CLUSTER | options), SCHEMA, split))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def part_of(chunk: Chunk, start: int, end: int) -> Iterator[Chunk]:
    """Those of its records that are among transactions ``start`` to ``end - 1``."""
    low, high = max(start - chunk.first, 0), min(end - chunk.first, chunk.count)
    if low < high:
        yield chunk.part(low, high)


def as_output(row: TableRow) -> tuple[object, ...]:
    return (3, row.prefix, row.key, row.value, row.timestamp_ms, row.tombstone, *row.version)


def by_key(rows: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=lambda row: row[1:3])


@given(histories, strategies.clock, st.sampled_from((0, 5, 30)), st.sampled_from((0, 5, 30)))
def test_the_state(history: list[Envelope | None], now_ms: int, age_ms: int, version_age_ms: int) -> None:
    model = Model()
    model.apply_all(history)
    log, ages = log_of(history), Ages(0, 0, age_ms, version_age_ms)
    seen = model.scan(raw=False, now_ms=now_ms, ages=ages)
    assert by_key(read(log, now_ms=now_ms, ages=ages)) == list(map(as_output, seen))
    assert by_key(read(log, now_ms=now_ms, ages=ages, raw="true")) == list(map(as_output, model.scan(raw=True)))
    some = [as_output(row) for row in seen if b"a" <= row.key < b"b"]
    assert by_key(read(log, now_ms=now_ms, ages=ages, startKey="a", endKey="b")) == some


@given(histories)
def test_all_versions(history: list[Envelope | None]) -> None:
    log = log_of(history)
    every = [row for number, data in enumerate(log) for row in rows_in(number, envelope_of(number, data))]
    assert read(log, versions="all") == list(map(as_output, every))
    for prefix in ("", "a"):
        some = [as_output(row) for row in every if row.prefix == prefix.encode()]
        assert read(log, versions="all", prefix=prefix) == some


@pytest.mark.parametrize("versions", ["latest", "all"])
def test_what_was_skipped_is_told(versions: str, caplog: pytest.LogCaptureFixture) -> None:
    log = log_of([Batch(1, [Row(b"", b"k", b"v")]), None, Batch(2, []), None])
    with caplog.at_level(logging.WARNING):
        assert len(read(log, versions=versions)) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "partition 3: 2 transactions are no envelopes, and were skipped; the first is 1"
    ]
    assert read([], versions=versions) == []
