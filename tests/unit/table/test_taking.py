"""The rows that a transaction wrote."""

from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Row, Truncate, encode, envelope_of
from waltz.table.rows import TableRow, Version
from waltz.table.taking import rows_in


def test_rows_come_as_they_were_written() -> None:
    data = encode(Batch(7, [Row(b"p", b"a", b"v" * 300), Row(b"", b"b", None, 5, tombstone=True)]), Codec.ZLIB)
    assert rows_in(4, envelope_of(4, data)) == [
        TableRow(b"p", b"a", b"v" * 300, 7, Version(4, 0), 7, tombstone=False),
        TableRow(b"", b"b", None, 5, Version(4, 1), 7, tombstone=True),
    ]


def test_other_transactions_wrote_none() -> None:
    assert rows_in(0, envelope_of(0, b"anything")) == []
    assert rows_in(0, Truncate(1)) == []
    too_large = encode(Batch(7, [Row(b"", b"a", bytes(300))]), Codec.ZLIB)
    assert rows_in(0, envelope_of(0, too_large, max_body_bytes=100)) == []
