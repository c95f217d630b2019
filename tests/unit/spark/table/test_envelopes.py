"""What is cut out of envelopes is what the codec of tables reads in them, one by one."""

import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.spark.table.logs import chunk_of, chunks_of, payloads, rows_in
from waltz.spark.errors import PayloadError
from waltz.spark.table import envelopes
from waltz.spark.table.envelopes import ROWS, EnvelopeReader
from waltz.table import codecs, taking
from waltz.table.codecs import Codec
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES, Batch, Row, SweepMark, Truncate, decode, encode
from waltz.table.errors import CodecUnavailableError, EnvelopeError
from waltz.table.rows import TableRow


def expected(log: Sequence[bytes], max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> tuple[list[object], list[int]]:
    """Rows and marks in the order of the log, and what is skipped."""
    found: list[object] = []
    skipped = []
    for transaction_id, data in enumerate(log):
        try:
            envelope = decode(data, max_body_bytes)
        except EnvelopeError:
            skipped.append(transaction_id)
            continue
        found += taking.rows_in(transaction_id, envelope) if isinstance(envelope, Batch) else [envelope]
    return found, skipped


def read(reader: EnvelopeReader, log: Sequence[bytes], size: int = 1000) -> list[object]:
    found: list[object] = []
    for chunk in chunks_of(log, size):
        for item in reader.read(chunk):
            if isinstance(item, pa.RecordBatch):
                assert item.num_rows
                item.validate(full=True)
                assert item.schema == ROWS
                found += rows_in(item)
            else:
                found.append(item)
    return found


@given(st.lists(payloads(), min_size=1, max_size=12), st.integers(1, 12), st.sampled_from((1, 40, 1 << 20)))
def test_everything_is_what_the_codec_reads(log: list[bytes], size: int, max_bodies_bytes: int) -> None:
    reader = EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelopes, "MAX_BODIES_BYTES", max_bodies_bytes)
        found = read(reader, log, size)
    rows, skipped = expected(log)
    assert found == rows
    assert reader.skipped == len(skipped)
    assert reader.first_skipped == (skipped[0] if skipped else None)


@given(st.lists(payloads(), min_size=1, max_size=6), st.integers(1, 200))
def test_bodies_that_are_too_large_are_no_envelopes(log: list[bytes], max_body_bytes: int) -> None:
    reader = EnvelopeReader(0, max_body_bytes)
    assert read(reader, log) == expected(log, max_body_bytes)[0]


def test_every_way_to_cut_and_to_change_an_envelope() -> None:
    """Between two sound ones, whose bytes must not be taken for the rest of it."""
    rows = [Row(b"p", b"key", b"value", 5), Row(b"", b"k", None, None, True), Row(b"q", b"", b"")]
    sound = encode(Batch(1, rows))
    for size in range(len(sound)):
        log = [sound, sound[:size], sound]
        assert read(EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES), log) == expected(log)[0], size
    for place in range(4, len(sound)):
        for change in (0, 1, 2, 8, 0x10, 0x7F, 0xFF):
            log = [sound, sound[:place] + bytes((change,)) + sound[place + 1 :], sound]
            assert read(EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES), log) == expected(log)[0], (place, change)


def test_batches_end_at_their_bound() -> None:
    log = [encode(Batch(1, [Row(b"", b"%d" % number, bytes(6 << 20))])) for number in range(5)]
    counts = [
        item.num_rows for item in EnvelopeReader(0, 1 << 30).read(chunk_of(log)) if isinstance(item, pa.RecordBatch)
    ]
    assert counts == [2, 2, 1]


def test_bodies_that_no_column_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "_MAX_MEMORY_BYTES", 1000)
    data = encode(Batch(1, [Row(b"", b"k", bytes(2000))]), Codec.ZLIB)
    with pytest.raises(PayloadError, match="partition 3, transaction 1: its rows take 2023 bytes; at most 1000 are"):
        read(EnvelopeReader(3, DEFAULT_MAX_BODY_BYTES), [encode(Truncate(1)), data])


def test_compressed_and_plain_ones_in_any_order() -> None:
    large = Batch(7, [Row(b"", b"%d" % number, b"v" * 50) for number in range(10)])
    log = [encode(large, codec) for codec in (Codec.NONE, Codec.ZLIB, Codec.NONE, Codec.ZLIB, Codec.ZLIB, Codec.NONE)]
    (batch,) = EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES).read(chunk_of(log))
    assert isinstance(batch, pa.RecordBatch)
    assert rows_in(batch) == expected(log)[0]


def test_marks_stand_between_the_rows() -> None:
    row = Batch(1, [Row(b"", b"k", b"v")])
    log = [encode(envelope) for envelope in (Truncate(1), row, row, SweepMark(2, 3, 4, 5, 6), row)]
    kinds = [type(item) for item in EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES).read(chunk_of(log))]
    assert kinds == [Truncate, pa.RecordBatch, SweepMark, pa.RecordBatch]


def test_without_values() -> None:
    log = [encode(Batch(1, [Row(b"", b"k", b"v")]))]
    (batch,) = EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES, values=False).read(chunk_of(log))
    assert isinstance(batch, pa.RecordBatch)
    assert rows_in(batch) == [row._replace(value=None) for row in expected(log)[0] if isinstance(row, TableRow)]


def test_a_codec_that_is_missing_is_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(codec: Codec) -> None:
        raise CodecUnavailableError(f"the codec {codec.name.lower()} needs cramjam")

    monkeypatch.setattr(codecs, "_functions", missing)
    data = b"WT\x01" + bytes((Codec.ZSTD,)) + struct.pack(">I", 17) + b"whatever"
    with pytest.raises(CodecUnavailableError, match="zstd needs cramjam"):
        read(EnvelopeReader(0, DEFAULT_MAX_BODY_BYTES), [encode(Truncate(1)), data])
