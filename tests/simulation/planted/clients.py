"""Bugs to plant in what clients keep beside the log: positions of consumers, and views of tables."""

from typing import Any
from unittest import mock

from waltz.client.databases.marks import Key, Mark, MarkTable
from waltz.client.plain.merged import MergedFeed
from waltz.table.face.transaction import Intent, TableTransaction

_intent = TableTransaction.intent
_move = MarkTable.move


def position_before_its_work() -> "mock._patch[Any]":
    """What was handed out counts as done with."""
    return mock.patch.object(MergedFeed, "positions", MergedFeed.handed_out)


def moved_from_anywhere(table: MarkTable[Any], connection: Any, key: Key, before: int, after: Mark) -> bool:
    """A mark is moved from whatever is stored, if that is not further."""
    stored = table.read(connection, key)
    if stored is not None and stored.transaction_id < after.transaction_id:
        before = stored.transaction_id
    return _move(table, connection, key, before, after)


def without_read_locks(transaction: TableTransaction) -> Intent | None:
    """What is only read is not locked."""
    intent = _intent(transaction)
    return None if intent is None else intent._replace(read_locks=[])
