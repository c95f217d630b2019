"""The message of ordered appends, which version 6 adds to the protocol between clients and servers.

A client that has many appends in flight learns too late that one of them got lost: those behind it have taken its
place. In order, an append enters the log at the place that its client has foreseen, or not at all.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID


class AppendOrderRequest(NamedTuple):
    """The appends to the partition that follow on the connection have to get consecutive ids, from ``transaction_id``
    on.

    ``req_id`` is that of the first of them; each later one has the next number. An append that would get another id is
    refused, and so are those with locks. The next mount of the connection ends the order.
    """

    req_id: bytes
    transaction_id: int


def append_order_layouts() -> dict[int, Layout[Any]]:
    """The message by its type byte."""
    return {56: layout(AppendOrderRequest, REQ_ID, LONG)}
