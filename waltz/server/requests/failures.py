"""Tells clients of version 5 about appends that are known not to be in the log (rule S5)."""

from collections.abc import Iterable

from waltz.common.ids import LONG_MIN
from waltz.common.wire.version5 import AppendFailed, AppendFailure
from waltz.common.wire.versions import FIRST_WITH_APPEND_FAILED
from waltz.server.requests.link import ClientLink


def tell_failed(
    link: ClientLink, req_ids: Iterable[bytes], reason: AppendFailure, high_water_mark: int | None, text: str
) -> None:
    """Tell a client, if its version has the message. An unknown mark is sent as the smallest integer, as elsewhere."""
    if link.channel.closed or link.channel.version < FIRST_WITH_APPEND_FAILED:
        return
    mark = LONG_MIN if high_water_mark is None else high_water_mark
    for req_id in req_ids:
        link.send(AppendFailed(req_id, reason, mark, text))
