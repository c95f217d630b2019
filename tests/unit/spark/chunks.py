"""Records as the data source cuts them out of answers."""

from waltz.common.records import Record, encode_records
from waltz.spark.chunk import Chunk, decode_chunk


def make_chunk(records: list[Record]) -> Chunk:
    """The records as they come over the wire."""
    chunk = decode(records)
    assert chunk is not None
    return chunk


def decode(records: list[Record]) -> Chunk | None:
    """Decode chunks, also of no records."""
    encoded = b"behind us" + len(records).to_bytes(4, "big") + encode_records(records)
    return decode_chunk(encoded + b"ahead", 9, len(encoded), partition_id=0, source="storage a:1")
