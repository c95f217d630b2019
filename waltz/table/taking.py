"""Rows in the order of the log: every row that was written, whether it won or not. Pure."""

from typing import NamedTuple

from waltz.table.envelope import Batch, Envelope
from waltz.table.rows import TableRow, Version


class Taken(NamedTuple):
    """Rows of whole transactions, and the cursor of the next take.

    Examples:
        ```python
        taken: waltz.table.Taken = await table.take(after=-1, limit=100)
        print([row.key for row in taken.rows], "the next take begins after", taken.cursor)
        ```
    """

    rows: list[TableRow]
    cursor: int
    """The last transaction that was read: ``after`` of the next take."""
    at_end: bool
    """Whether the cursor was the end of the log when the take began."""


def rows_in(transaction_id: int, envelope: Envelope | None) -> list[TableRow]:
    """The rows of a transaction with this envelope; none if it is no batch."""
    if not isinstance(envelope, Batch):
        return []
    written_at_ms = envelope.written_at_ms
    return [
        TableRow(
            row.prefix,
            row.key,
            row.value,
            written_at_ms if row.timestamp_ms is None else row.timestamp_ms,
            Version(transaction_id, place),
            written_at_ms,
            row.tombstone,
        )
        for place, row in enumerate(envelope.rows)
    ]
