"""The message about quotas: part of version 6 of the protocol between clients and servers.

A server holds back clients of older versions by not reading from their connections.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import INT, REQ_ID


class AppendsDelayed(NamedTuple):
    """Asks the client to send no appends to the partition of the request id for a while, since its quota is nearly or
    wholly used up. The message says nothing about the append of this request id."""

    req_id: bytes
    delay_ms: int


def append_delay_layouts() -> dict[int, Layout[Any]]:
    """The message by its type byte."""
    return {45: layout(AppendsDelayed, REQ_ID, INT)}
