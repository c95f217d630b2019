"""The right that each request to a partition needs."""

from collections.abc import Mapping
from typing import Final

from waltz.common.access import Right
from waltz.common.wire.append_order import AppendOrderRequest
from waltz.common.wire.client_server import (
    FeedRequest,
    FlushRequest,
    HighWaterMarkRequest,
    MountRequest,
    TransactionDataRequest,
)
from waltz.common.wire.client_times import TimeRequest
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest
from waltz.common.wire.consistency import AppendAckRequest, AppendLevelRequest
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.partition_properties import SetPropertiesRequest
from waltz.common.wire.version5 import TransactionDataListRequest
from waltz.common.wire.write_sessions import HeartbeatOption, HeartbeatRequest, LastTransactionIdRequest
from waltz.server.requests.appends import AppendCall

RIGHTS: Final[Mapping[type[object], Right]] = {
    AppendCall: Right.APPEND,
    MountRequest: Right.METADATA,
    FeedRequest: Right.METADATA,
    MarkFeedRequest: Right.METADATA,
    FlushRequest: Right.METADATA,
    TransactionDataRequest: Right.READ,
    TransactionDataListRequest: Right.READ,
    HighWaterMarkRequest: Right.DESCRIBE,
    ConfirmedMarkRequest: Right.DESCRIBE,
    TimeRequest: Right.DESCRIBE,
    AppendLevelRequest: Right.APPEND,
    AppendOrderRequest: Right.APPEND,
    AppendAckRequest: Right.METADATA,
    HeartbeatRequest: Right.APPEND,
    LastTransactionIdRequest: Right.DESCRIBE,
    SetPropertiesRequest: Right.CONFIGURE,
}
"""By the kind of request. Requests that also fence need :attr:`~waltz.common.access.Right.FENCE` instead."""


def right_of(request: object) -> Right:
    """The right that a request needs."""
    if isinstance(request, LastTransactionIdRequest) and request.fence:
        return Right.FENCE
    if isinstance(request, HeartbeatRequest) and HeartbeatOption.EXCLUSIVE in request.heartbeat:
        return Right.FENCE
    return RIGHTS[type(request)]


def tells_refusal(request: object) -> bool:
    """Whether a refusal may be told with the id of the request. A flush has the id of an append: the client would take
    the refusal for that of the append, which may be in the log. A flush without an answer is repeated."""
    return type(request) is not FlushRequest
