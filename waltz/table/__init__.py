"""Tables on the log: an envelope in the data of transactions, and views that are built from them.

    async with waltz.connect("client.yml") as client:
        await waltz.table.configure(client, 0, {"format": "table"})
        async with client.table(0) as table:
            await table.put(b"key", b"value")

Tables need no support of servers and storages: a table works on any cluster, also of the original. The names for
applications can be imported from here; each is loaded at its first use.

1. ``envelope`` (pure) with ``codecs``: rows in the data of a transaction; ``limits`` (pure): the rows that may be
   written; ``properties``: the properties of a partition.
2. ``rows`` (pure): the order of rows and the row that wins; ``ages`` (pure): hidden and removed rows; ``view`` (pure):
   the state after a prefix of the log; ``taking`` (pure): rows in the order of the log; ``leases``: rows that
   name a holder for a while.
3. ``stores``: the rows of a view. ``snapshots``: rows saved in an object store. ``face``: the calls of
   applications; ``served``: the same over view nodes.
4. ``errors``.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waltz.common.serializers import JsonSerializer, ModelSerializer
    from waltz.table.envelope import Row
    from waltz.table.errors import (
        CodecUnavailableError,
        CursorConflict,
        EnvelopeError,
        KeyTooLongError,
        LeaseHeldError,
        LeaseLostError,
        PropertiesError,
        StoreDamagedError,
        StoreError,
        StoreLockedError,
        StoreUnavailableError,
        TableError,
        TimestampError,
        VersionConflict,
        ViewUnavailableError,
    )
    from waltz.table.face.configured import configure, properties_of
    from waltz.table.face.cursors import NamedCursor
    from waltz.table.face.levels import Answer, AsOf, AtLeast
    from waltz.table.face.parts import PrefixedTable, TypedTable
    from waltz.table.face.several import PartitionedTable
    from waltz.table.face.sweeping import SweepCheck
    from waltz.table.face.table import Table
    from waltz.table.face.transaction import TableTransaction
    from waltz.table.leases import Lease
    from waltz.table.properties import PartitionProperties
    from waltz.table.rows import TableRow, Version
    from waltz.table.served.table import ServedTable
    from waltz.table.taking import Taken
    from waltz.table.view import KeyRange

__all__ = [
    "Answer",
    "AsOf",
    "AtLeast",
    "CodecUnavailableError",
    "CursorConflict",
    "EnvelopeError",
    "JsonSerializer",
    "KeyRange",
    "KeyTooLongError",
    "Lease",
    "LeaseHeldError",
    "LeaseLostError",
    "ModelSerializer",
    "NamedCursor",
    "PartitionProperties",
    "PartitionedTable",
    "PrefixedTable",
    "PropertiesError",
    "Row",
    "ServedTable",
    "StoreDamagedError",
    "StoreError",
    "StoreLockedError",
    "StoreUnavailableError",
    "SweepCheck",
    "Table",
    "TableError",
    "TableRow",
    "TableTransaction",
    "Taken",
    "TimestampError",
    "TypedTable",
    "Version",
    "VersionConflict",
    "ViewUnavailableError",
    "configure",
    "properties_of",
]

_HOMES = {
    "waltz.common.serializers": ("JsonSerializer", "ModelSerializer"),
    "waltz.table.envelope": ("Row",),
    "waltz.table.errors": (
        "CodecUnavailableError",
        "CursorConflict",
        "EnvelopeError",
        "KeyTooLongError",
        "LeaseHeldError",
        "LeaseLostError",
        "PropertiesError",
        "StoreDamagedError",
        "StoreError",
        "StoreLockedError",
        "StoreUnavailableError",
        "TableError",
        "TimestampError",
        "VersionConflict",
        "ViewUnavailableError",
    ),
    "waltz.table.face.configured": ("configure", "properties_of"),
    "waltz.table.face.cursors": ("NamedCursor",),
    "waltz.table.face.levels": ("Answer", "AsOf", "AtLeast"),
    "waltz.table.face.parts": ("PrefixedTable", "TypedTable"),
    "waltz.table.face.several": ("PartitionedTable",),
    "waltz.table.face.sweeping": ("SweepCheck",),
    "waltz.table.face.table": ("Table",),
    "waltz.table.face.transaction": ("TableTransaction",),
    "waltz.table.leases": ("Lease",),
    "waltz.table.properties": ("PartitionProperties",),
    "waltz.table.rows": ("TableRow", "Version"),
    "waltz.table.served.table": ("ServedTable",),
    "waltz.table.taking": ("Taken",),
    "waltz.table.view": ("KeyRange",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
