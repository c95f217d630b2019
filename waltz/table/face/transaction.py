"""One attempt of a transaction over a table: its reads, its writes, and the locks that follow from them. Pure."""

from typing import NamedTuple, Protocol

from waltz.client.locks import PartitionLocalLock
from waltz.table.envelope import Row
from waltz.table.face.locks import TABLE_LOCK, row_lock
from waltz.table.rows import TableRow, Version
from waltz.table.view import Reading

NOT_COMMITTED = Version(-1, -1)
"""The version of a row that the transaction itself has written."""


class Intent(NamedTuple):
    """The append of a transaction: its rows and locks."""

    rows: list[Row]
    write_locks: list[PartitionLocalLock]
    read_locks: list[PartitionLocalLock]


class State(Protocol):
    """The state of a table that a transaction reads."""

    @property
    def now_ms(self) -> int:
        """The time of the writes."""
        ...

    def visible(self, prefix: bytes, key: bytes) -> TableRow | None:
        """The row that readers see."""
        ...

    def newest_ms(self, prefix: bytes, key: bytes) -> int | None:
        """The timestamp of the row of a key, which readers may not see; ``None`` where that does not matter."""
        ...


class ViewState:
    """The state of a view."""

    def __init__(self, reading: Reading) -> None:
        """The reading has to be raw: written rows have to win over hidden ones, too."""
        self.now_ms = reading.now_ms
        self._reading = reading
        self._visible = reading._replace(raw=False)

    def visible(self, prefix: bytes, key: bytes) -> TableRow | None:
        return self._visible.get(prefix, [key])[0]

    def newest_ms(self, prefix: bytes, key: bytes) -> int | None:
        (row,) = self._reading.get(prefix, [key])
        return None if row is None else row.timestamp_ms


class TableTransaction:
    """Reads the table as of one transaction of the log; its own writes come first.

    Examples:
        ```python
        def move(transaction: waltz.table.TableTransaction) -> None:
            row = transaction.get(b"alice")
            transaction.put(b"bob", row.value if row else b"0")
            transaction.delete(b"alice")


        transaction_id = await table.transaction(move)
        ```
    """

    def __init__(self, state: State) -> None:
        """Made by the table; ``state`` is what it reads."""
        self._state = state
        self._read: set[tuple[bytes, bytes]] = set()
        self._written: dict[tuple[bytes, bytes], Row] = {}

    @property
    def keys(self) -> set[bytes]:
        """The keys that were read or written so far, without their prefixes."""
        return {key for _, key in self._read | self._written.keys()}

    def get(self, key: bytes, *, prefix: bytes = b"") -> TableRow | None:
        """The row of a key, as this transaction sees it."""
        own = self._written.get((prefix, key))
        if own is not None:
            now_ms = self._state.now_ms
            row = TableRow(prefix, key, own.value, own.timestamp_ms or now_ms, NOT_COMMITTED, now_ms, own.tombstone)
            return None if own.tombstone else row
        self._read.add((prefix, key))
        return self._state.visible(prefix, key)

    def put(self, key: bytes, value: bytes | None, *, prefix: bytes = b"") -> None:
        """Write a row when the transaction is committed."""
        self._write(Row(prefix, key, value))

    def delete(self, key: bytes, *, prefix: bytes = b"") -> None:
        """Delete a row when the transaction is committed."""
        self._write(Row(prefix, key, None, tombstone=True))

    def _write(self, row: Row) -> None:
        """Write a row with at least the timestamp of the present row, whose writer's clock may have been ahead."""
        newest_ms = self._state.newest_ms(row.prefix, row.key)
        if newest_ms is not None and newest_ms > self._state.now_ms:
            row = row._replace(timestamp_ms=newest_ms)
        self._written[row.prefix, row.key] = row

    def intent(self) -> Intent | None:
        """The append; ``None`` when nothing is written."""
        if not self._written:
            return None
        only_read = self._read - self._written.keys()
        return Intent(
            list(self._written.values()),
            [row_lock(*pair) for pair in self._written],
            [TABLE_LOCK, *(row_lock(*pair) for pair in only_read)],
        )
