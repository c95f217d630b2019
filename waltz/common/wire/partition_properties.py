"""Messages that set the properties of a partition: part of version 6 of the protocol between clients and servers.

In a protected ZooKeeper servers may write properties, and clients may not. A server asks for a right of the partition
alone.
"""

import enum
from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, NULLABLE_STRING, REQ_ID, enumeration, not_null


class SetPropertiesRequest(NamedTuple):
    """Asks any server to replace the properties of the partition of its ``req_id``."""

    req_id: bytes
    change: int
    """The number of changes before: of the properties that the client has read. With another number nothing is done."""
    properties: str
    """A JSON object with the properties that differ from their defaults, except the trim point, which stays."""


class SetPropertiesStatus(enum.IntEnum):
    """The outcome of a request."""

    DONE = 0
    CHANGED = 1
    """Nothing was done: the properties have had another number of changes. The client reads them again."""
    FAILED = 2


class SetPropertiesResponse(NamedTuple):
    """The answer to a :class:`SetPropertiesRequest`."""

    req_id: bytes
    properties_status: SetPropertiesStatus
    change: int
    """The number of changes now; -1 if it is not known."""
    text: str | None
    """The reason of a failure."""


PropertiesMessage = SetPropertiesRequest | SetPropertiesResponse


def partition_properties_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    status = enumeration(SetPropertiesStatus, "status")
    return {
        58: layout(SetPropertiesRequest, REQ_ID, LONG, not_null(NULLABLE_STRING, "properties")),
        59: layout(SetPropertiesResponse, REQ_ID, status, LONG, NULLABLE_STRING),
    }
