"""The message about trimmed transactions: part of version 6 of the protocol between clients and servers.

Clients of older versions get an error instead of data, and no mount: none of them is fed with a gap.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID


class Trimmed(NamedTuple):
    """The request of this id was for transactions that were trimmed; ``transaction_id`` is the first available one.

    With the id of a mount, the client is not fed.
    """

    req_id: bytes
    transaction_id: int


def trimmed_layouts() -> dict[int, Layout[Any]]:
    """The message by its type byte."""
    return {57: layout(Trimmed, REQ_ID, LONG)}
