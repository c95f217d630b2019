"""The message about a missing right, which version 6 adds to the protocol between clients and servers.

Clients of older versions get the answer of a server that does not have the partition.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import NULLABLE_STRING, REQ_ID


class NotAuthorized(NamedTuple):
    """The request of this id was not executed, since the client lacks a right; the text says which.

    With the id of a mount: the feed has ended, and the client has to mount again.
    """

    req_id: bytes
    text: str | None


def refused_layouts() -> dict[int, Layout[Any]]:
    """The message by its type byte."""
    return {41: layout(NotAuthorized, REQ_ID, NULLABLE_STRING)}
