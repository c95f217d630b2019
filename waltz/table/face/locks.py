"""The locks of rows: hashes of (prefix, key), taken by every write, so that transactions notice the write. Pure."""

from collections.abc import Sequence

from waltz.client.locks import PartitionLocalLock, lock_id
from waltz.table.envelope import Row
from waltz.table.rows import row_key

ROW_LOCK = "waltz.table.row"
"""Name of the locks of rows; the id is that of the joined key."""

TABLE_LOCK = PartitionLocalLock("waltz.table", 0)
"""Lock of the whole table: taken by removals of rows and by batches of more than :data:`MAX_ROW_LOCKS` rows."""

MAX_ROW_LOCKS = 1000
"""Most locks of one batch; a larger batch locks the whole table instead."""


def row_lock(prefix: bytes, key: bytes) -> PartitionLocalLock:
    """The lock of one row."""
    return PartitionLocalLock(ROW_LOCK, lock_id(row_key(prefix, key)))


def locks_of_batch(rows: Sequence[Row]) -> list[PartitionLocalLock]:
    """The locks that a batch appends."""
    return [row_lock(row.prefix, row.key) for row in rows] if len(rows) <= MAX_ROW_LOCKS else [TABLE_LOCK]
