"""What stores cannot hold, known without their libraries."""

from waltz.table.rows import POSITION_BYTES

LMDB_MAX_ENTRY_KEY_BYTES = 511
"""What LMDB is built with."""

LMDB_MAX_ROW_KEY_BYTES = LMDB_MAX_ENTRY_KEY_BYTES - POSITION_BYTES
"""Of prefix (escaped, and ended) and key together, so that the index by prefix has room as well."""
