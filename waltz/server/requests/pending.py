"""A request to a partition that cannot be answered yet, and the reason of its wait."""

from enum import Enum

from waltz.common.ids import ReqId
from waltz.common.wire.client_server import FeedRequest, FlushRequest, HighWaterMarkRequest, MountRequest
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    HeartbeatOption,
    HeartbeatRequest,
    LastTransactionIdRequest,
)
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink
from waltz.server.requests.permission import right_of

AnyFeedRequest = FeedRequest | MarkFeedRequest
"""Asks for the transactions or marks after the client's mark."""

WaitingRequest = (
    AppendCall
    | AnyFeedRequest
    | FlushRequest
    | HeartbeatRequest
    | HighWaterMarkRequest
    | LastTransactionIdRequest
    | MountRequest
)

_ENTRY_SIZE_BYTES = 200


class Awaits(Enum):
    """The states of a request."""

    TURN = "everything that arrived before it has been looked at"
    COMMIT = "a transaction is committed"
    SESSION = "a session of the generation that its client knows opens"
    PROOF = "the high-water mark is proved to be the log's own"
    FENCE = "a store session begins that is begun for its sake"
    INTERVAL = "the last fence is long enough ago for another one"
    NOTHING = "nothing: it has been answered, or nobody wants the answer"


class Pending:
    """One request and its link."""

    __slots__ = ("awaits", "deadline_s", "link", "next_id", "noted", "order", "request", "write_session")

    def __init__(self, link: ClientLink, request: WaitingRequest, write_session: int = NO_WRITE_SESSION) -> None:
        self.link = link
        self.request = request
        self.write_session = write_session
        """The write session that an append carries."""
        self.noted = link.rights.lenient and link.passes_audit(right_of(request), ReqId(request.req_id).partition_id)
        """Whether the audit has noted that the client lacks the right."""
        self.awaits = Awaits.TURN
        self.order = 0
        """Order of the requests that wait for a commit."""
        self.next_id = 0
        """The first transaction id that was given after the request was looked at."""
        self.deadline_s = 0.0

    def __lt__(self, other: "Pending") -> bool:
        return self.order < other.order

    @property
    def size_bytes(self) -> int:
        """Approximate memory."""
        request = self.request
        return _ENTRY_SIZE_BYTES + (request.size_bytes if type(request) is AppendCall else 0)

    @property
    def is_fence(self) -> bool:
        """Whether the request asks for a new write session."""
        request = self.request
        if type(request) is HeartbeatRequest:
            return HeartbeatOption.EXCLUSIVE in request.heartbeat
        return type(request) is LastTransactionIdRequest and FenceOption.FENCE in request.fence

    @property
    def answered(self) -> bool:
        """Whether the request is answered."""
        return self.awaits is Awaits.NOTHING

    @property
    def abandoned(self) -> bool:
        """Whether the client has gone. An append is still executed."""
        return self.answered or (self.link.channel.closed and type(self.request) is not AppendCall)

    def end(self) -> None:
        """The request is answered, or needs no answer any more."""
        self.awaits = Awaits.NOTHING
