"""Messages of the feed of marks, which version 6 adds to the protocol between clients and servers.

Bulk readers have to learn that the log has advanced. Marks tell that without the headers of transactions, which come
with the data.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID


class MarkFeedRequest(NamedTuple):
    """Asks for the high-water mark in place of the feed, until the next feed request or mount of the connection.

    The mark is sent when it is above ``client_high_water_mark``, and at each change. ``req_id`` is that of the mount.
    """

    req_id: bytes
    client_high_water_mark: int


class MarkAdvanced(NamedTuple):
    """Everything up to the transaction is committed. All readers get one frame: ``req_id`` only names the partition."""

    req_id: bytes
    transaction_id: int


MarkFeedMessage = MarkFeedRequest | MarkAdvanced


def mark_feed_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    return {
        50: layout(MarkFeedRequest, REQ_ID, LONG),
        51: layout(MarkAdvanced, REQ_ID, LONG),
    }
