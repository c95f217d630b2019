"""Rows as Parquet files, and files that are none of a snapshot."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402 - after the check that it is there

from tests.unit.table.snapshots.places import memory_view  # noqa: E402
from tests.unit.table.strategies import batches  # noqa: E402
from waltz.archive.errors import ArchiveDamagedError  # noqa: E402
from waltz.table.envelope import Batch  # noqa: E402
from waltz.table.snapshots.parquet import SCHEMA, FileWriter, read_batches, rows_of  # noqa: E402


def written(*groups: list[tuple[bytes, bytes]]) -> bytes:
    writer = FileWriter()
    for group in filter(None, groups):
        assert writer.add(group) > 0
    return writer.finish()


@given(st.lists(batches(), max_size=4), st.integers(0, 9))
def test_rows_are_read_as_they_were_written(log: list[Batch], seam: int) -> None:
    rows = list(memory_view(list(log)).scan(b"", None))
    data = written(rows[:seam], rows[seam:])
    assert [row for batch in read_batches(data, "it") for row in rows_of(batch, "it")] == rows
    keys = [key for batch in read_batches(data, "it", ["key"]) for key in batch.column("key").to_pylist()]
    assert len(keys) == len(rows)
    assert pq.read_schema(io.BytesIO(data)).equals(SCHEMA)


def file_of(table: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_other_files_are_refused() -> None:
    for data, text in (
        (b"", "it is damaged: "),
        (written()[:-9], "it is damaged: "),
        (file_of(pa.table({"key": [b"a"]})), "its columns are not those of a snapshot"),
    ):
        with pytest.raises(ArchiveDamagedError, match=text):
            list(read_batches(data, "it"))


@pytest.mark.parametrize("changed", [{"transaction_id": -1}, {"row": -1}, {"tombstone": True}])
def test_rows_that_no_transaction_writes_are_refused(changed: dict[str, object]) -> None:
    row = {
        "prefix": b"p",
        "key": b"k",
        "value": b"v",
        "timestamp": 1,
        "written_at": 2,
        "tombstone": False,
        "transaction_id": 3,
        "row": 4,
    }
    (whole,) = pa.Table.from_pylist([row], SCHEMA).to_batches()
    assert len(rows_of(whole, "it")) == 1
    (batch,) = pa.Table.from_pylist([row | changed], SCHEMA).to_batches()
    with pytest.raises(ArchiveDamagedError, match="it is damaged: it has a row that no transaction can write"):
        rows_of(batch, "it")
