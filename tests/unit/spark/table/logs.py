"""Logs of tables, for tests."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from hypothesis import strategies as st

from tests.unit.common.cluster.fakes import make_record
from tests.unit.spark.chunks import make_chunk
from tests.unit.table import strategies
from waltz.spark.chunk import Chunk
from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Envelope, encode
from waltz.table.rows import TableRow, Version


def chunk_of(payloads: Sequence[bytes], first: int = 0) -> Chunk:
    """The transactions as they come from a storage."""
    return make_chunk([make_record(0, first + number, payload) for number, payload in enumerate(payloads)])


def chunks_of(payloads: Sequence[bytes], size: int) -> Iterator[Chunk]:
    """The log, cut into several answers."""
    for first in range(0, len(payloads), size):
        yield chunk_of(payloads[first : first + size], first)


def rows_in(found: pa.RecordBatch | pa.Table) -> list[TableRow]:
    """The rows of Spark's workers as those that a view has."""
    return [
        TableRow(
            row["prefix"],
            row["key"],
            row["value"],
            row["timestamp"],
            Version(row["transaction_id"], row["row"]),
            row["written_at"],
            row["tombstone"],
        )
        for row in found.to_pylist()
    ]


def log_of(envelopes: Sequence[Envelope | None], codec: Codec = Codec.NONE) -> list[bytes]:
    """The data of transactions, ``None`` being one that is no envelope."""
    return [b"foreign" if envelope is None else encode(envelope, codec) for envelope in envelopes]


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """An envelope, or one that is damaged, or something else."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=30))
    codec = draw(st.sampled_from((Codec.NONE, Codec.NONE, Codec.ZLIB)))
    envelope = draw(strategies.envelopes())
    if draw(st.booleans()) and isinstance(envelope, Batch):
        envelope = envelope._replace(rows=[*envelope.rows] * 20)  # large enough to be compressed
    data = bytearray(encode(envelope, codec))
    damage = draw(st.integers(0, 9))
    if damage == 0:
        data = data[: draw(st.integers(0, len(data)))]
    elif damage == 1:
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    elif damage == 2:
        data += draw(st.binary(min_size=1, max_size=3))
    return bytes(data)
