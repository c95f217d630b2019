"""Served tables for threads, with the parts that tables have."""

from typing import TypeVar

from waltz.common.serializers import Serializer
from waltz.table.face.blocking import TableMapping
from waltz.table.face.blocking_parts import BlockingPrefixedTable, BlockingTypedTable
from waltz.table.served.blocking_table import ServedTableCalls

T = TypeVar("T")


class BlockingServedTable(ServedTableCalls):
    """A table that view nodes serve, made by ``waltz.blocking.Client.table``."""

    def mapping(self, prefix: bytes = b"") -> TableMapping:
        """The rows of one prefix as a dictionary of bytes."""
        return TableMapping(self, prefix)

    def prefixed(self, prefix: bytes) -> BlockingPrefixedTable:
        """The rows of one prefix as a table of their own, like :class:`~waltz.table.face.parts.PrefixedTable`."""
        return BlockingPrefixedTable(self, prefix)

    def typed(self, serializer: Serializer[T], prefix: bytes = b"") -> BlockingTypedTable[T]:
        """The rows of one prefix with values that are not bytes, like :class:`~waltz.table.face.parts.TypedTable`."""
        return BlockingTypedTable(self, serializer, prefix)
