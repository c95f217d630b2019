"""What any program may put into a table's partition: data of transactions that are envelopes, or look like it."""

from tests.fuzz.target import Target
from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Envelope, Row, SweepMark, Truncate, decode, encode
from waltz.table.errors import EnvelopeError
from waltz.table.rows import row_key, split_row_key
from waltz.table.stores.interface import Changes
from waltz.table.view import steps

MAX_BODY_BYTES = 1 << 20


def decode_envelope(data: bytes) -> None:
    """What is decoded can be encoded, and is the same again; a view skips the rest."""
    try:
        envelope = decode(data, MAX_BODY_BYTES)
    except EnvelopeError:
        (step,) = steps([(0, data)], -1, max_body_bytes=MAX_BODY_BYTES)
        assert isinstance(step, Changes)
        assert (step.applied, step.skipped, len(step.rows)) == (0, 1, 0)
        return
    for codec in Codec:
        assert decode(encode(envelope, codec)) == envelope
    applied = [step.applied for step in steps([(0, data)], -1, max_body_bytes=MAX_BODY_BYTES)]
    assert applied == [0]


def split_keys(data: bytes) -> None:
    """What comes apart goes together again."""
    try:
        prefix, key = split_row_key(data)
    except ValueError:
        return
    assert row_key(prefix, key) == data


def _envelope_seeds() -> list[bytes]:
    rows = [
        Row(b"", b"key", b"value"),
        Row(b"prefix", b"key", None, 5),
        Row(b"p", b"k", None, -1, tombstone=True),
        Row(b"", b"", b""),
        Row(b"", b"large", b"v" * 300),
    ]
    envelopes: list[Envelope] = [Batch(1, rows), Batch(2, rows[:1]), Truncate(3), SweepMark(4, 1, 2, 3, 4)]
    return [encode(envelope, codec) for envelope in envelopes for codec in Codec]


TARGETS = {
    "table-envelope": Target(decode_envelope, _envelope_seeds),
    "table-keys": Target(
        split_keys, lambda: [row_key(b"p\x00q", b"k\x00"), row_key(b"", b"key"), row_key(b"\x00", b"")]
    ),
}
