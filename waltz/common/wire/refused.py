"""The message about a missing right: part of version 6 of the protocol between clients and servers.

Clients of older versions get the same answer as from a server that does not own the partition.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import NULLABLE_STRING, REQ_ID


class NotAuthorized(NamedTuple):
    """The request of this id was not executed, because the client lacks a right; the text names the right.

    With the id of a mount, the feed has ended, and the client has to mount again.
    """

    req_id: bytes
    text: str | None


def refused_layouts() -> dict[int, Layout[Any]]:
    """The message by its type byte."""
    return {41: layout(NotAuthorized, REQ_ID, NULLABLE_STRING)}
