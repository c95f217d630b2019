"""Messages of the feed of marks: part of version 6 of the protocol between clients and servers.

A bulk reader has to learn that the log has advanced. A mark is enough, since the reader gets the headers of
transactions with their data.
"""

from typing import Any, NamedTuple

from waltz.common.wire.catalogue import Layout, layout
from waltz.common.wire.fields import LONG, REQ_ID


class MarkFeedRequest(NamedTuple):
    """Asks for high-water marks in place of the feed, until the next feed request or mount of the connection.

    The server sends the mark if it is above ``client_high_water_mark``, and after each change. ``req_id`` is that of
    the mount.
    """

    req_id: bytes
    client_high_water_mark: int


class MarkAdvanced(NamedTuple):
    """All transactions up to this one are committed. All readers get the same frame: ``req_id`` only names the
    partition."""

    req_id: bytes
    transaction_id: int


MarkFeedMessage = MarkFeedRequest | MarkAdvanced


def mark_feed_layouts() -> dict[int, Layout[Any]]:
    """The messages by type byte."""
    return {
        50: layout(MarkFeedRequest, REQ_ID, LONG),
        51: layout(MarkAdvanced, REQ_ID, LONG),
    }
