"""Checks rows before they are written: sizes and timestamps that a partition or a store allows. Pure."""

from collections.abc import Iterable

from waltz.table.envelope import Row
from waltz.table.errors import KeyTooLongError, TimestampError
from waltz.table.rows import POSITION_BYTES, row_key

LMDB_MAX_ENTRY_KEY_BYTES = 511
"""The limit that LMDB is built with, known here without its library."""

LMDB_MAX_ROW_KEY_BYTES = LMDB_MAX_ENTRY_KEY_BYTES - POSITION_BYTES
"""Limit of prefix (escaped and terminated) and key together; the index by prefix needs the rest."""


def check_rows(rows: Iterable[Row], *, max_key_bytes: int | None, latest_ms: int | None) -> None:
    """Refuse rows that the partition does not allow; ``None`` is no limit.

    Raises :class:`TimestampError` for timestamps that are not positive, or above ``latest_ms``: these would win over
    all writes until that time. Raises :class:`KeyTooLongError`.
    """
    for row in rows:
        if max_key_bytes is not None and len(row_key(row.prefix, row.key)) > max_key_bytes:
            raise KeyTooLongError(f"prefix and key take more than the {max_key_bytes} bytes that this table allows")
        if row.timestamp_ms is not None:
            if row.timestamp_ms <= 0:
                raise TimestampError(f"a timestamp must be positive, not {row.timestamp_ms}")
            if latest_ms is not None and row.timestamp_ms > latest_ms:
                raise TimestampError(
                    f"the timestamp {row.timestamp_ms} is too far ahead of this clock; at most {latest_ms} is "
                    "possible, by maxTimestampSkewInMillis"
                )
