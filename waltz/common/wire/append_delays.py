"""The message about quotas, which version 6 adds to the protocol between clients and servers.

Clients of older versions are held back by a server that does not read from them.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import INT, REQ_ID


class AppendsDelayed(NamedTuple):
    """The client should send no appends to the partition of this request id for a while: its quota is nearly used up,
    or used up. The message says nothing about the append of this id."""

    req_id: bytes
    delay_ms: int


def append_delay_layouts() -> dict[int, Layout[Any]]:
    """The message by its type byte."""
    return {45: layout(AppendsDelayed, REQ_ID, INT)}
