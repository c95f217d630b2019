"""The order of appends that connections have asked for: each at the id that its client has foreseen. Pure.

The foreseen id follows from the number of the append's request, so nothing is kept for an append: neither its way
through the server, nor the end of a store session, nor the refusal of others changes it. So what enters the log of such
a connection is a beginning of what it has sent, whatever gets lost.
"""

from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.ids import SEQ_NUM_MASK, ReqId
from waltz.common.wire.append_order import AppendOrderRequest
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink


class _Order(NamedTuple):
    seq_num: int
    transaction_id: int


class AppendOrders:
    """The orders of the connections of one partition."""

    __slots__ = ("by_link",)

    def __init__(self) -> None:
        self.by_link: dict[ClientLink, _Order] = {}
        """Most partitions have none; each run of appends looks."""

    def set(self, link: ClientLink, message: AppendOrderRequest) -> None:
        """The order of the appends of a mounted connection that follow."""
        self.by_link[link] = _Order(ReqId(message.req_id).seq_num, message.transaction_id)

    def forget(self, link: ClientLink) -> None:
        """A connection has closed, or mounts again."""
        self.by_link.pop(link, None)

    def admitted_count(self, link: ClientLink, requests: Sequence[AppendCall], next_id: int) -> int:
        """How many requests, from the first on, are at their place if the next transaction gets the id ``next_id``."""
        order = self.by_link.get(link)
        if order is None:
            return len(requests)
        for count, request in enumerate(requests):
            ahead = (ReqId(request.req_id).seq_num - order.seq_num) & SEQ_NUM_MASK
            if order.transaction_id + ahead != next_id + count or request.lock_count:
                return count
        return len(requests)
