"""The answers to the clients of a partition after decisions."""

from collections.abc import Iterable

from waltz.common.errors import ProtocolError
from waltz.common.ids import LONG_MIN
from waltz.common.wire.client_server import (
    MAX_FEED_COUNT,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    MountRequest,
    MountResponse,
    PartitionState,
    encode,
)
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.versions import FIRST_WITH_PARTIAL_MOUNTS
from waltz.server.feeding.feed import Feed, FeedContext, Notices, marks_context
from waltz.server.partition.sequencer import Verdict
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import AnyFeedRequest, Pending

_MOUNT_STATES = {Verdict.AHEAD: PartitionState.CLIENT_AHEAD, Verdict.UNKNOWN: PartitionState.NOT_READY}


class Answers:
    """Turns verdicts into messages and feeds."""

    def __init__(self, partition_id: int, feed: Feed, min_fetch_size: int) -> None:
        self._partition_id = partition_id
        self._feed = feed
        self._min_fetch_size = min_fetch_size

    def give(self, pending: Pending, verdict: Verdict, high_water_mark: int | None) -> None:
        """Answer a request other than an append. A feed request that is ready goes to :meth:`feed`."""
        link, request = pending.link, pending.request
        mark = high_water_mark if verdict is Verdict.READY else None
        if type(request) is HighWaterMarkRequest:
            link.send(HighWaterMarkResponse(request.req_id, LONG_MIN if mark is None else mark))
        elif type(request) is MountRequest:
            if mark is None:
                link.send(MountResponse(request.req_id, _MOUNT_STATES[verdict]))
            else:
                self._mount(link, request, mark)
        elif type(request) is FlushRequest:
            if mark is not None:  # the client repeats a flush without an answer
                link.send(FlushResponse(request.req_id, mark))
        elif isinstance(request, AnyFeedRequest) and verdict is Verdict.AHEAD:
            link.fail(
                ProtocolError(
                    f"feed of partition {self._partition_id} from {request.client_high_water_mark} on, "
                    f"which is above the high-water mark {high_water_mark}"
                )
            )

    def _mount(self, link: ClientLink, request: MountRequest, high_water_mark: int) -> None:
        """Feed the transactions committed before the mount, then send that the partition is ready."""
        gap = high_water_mark - request.client_high_water_mark
        ready = encode(MountResponse(request.req_id, PartitionState.READY), link.channel.version)
        if gap == 0:
            link.channel.send(ready)
            return
        if link.channel.version >= FIRST_WITH_PARTIAL_MOUNTS:
            gap = min(gap, MAX_FEED_COUNT)
        try:
            self._feed.add(FeedContext(link, request.client_high_water_mark, gap, ready))
        except ProtocolError as error:
            link.fail(error)

    def feed(self, link: ClientLink, request: AnyFeedRequest, high_water_mark: int) -> None:
        """Feed the committed transactions after the client's mark (at most the high-water mark), or the mark alone.

        From version 5 on, the number of transactions is :data:`MAX_FEED_COUNT` or, at the tip, half of it, but at least
        the configured minimum. In earlier versions it is the number of all transactions, or the minimum, as in the
        original. Raises ``ProtocolError`` when the connection has too many feeds already."""
        if type(request) is MarkFeedRequest:
            self._feed.add(marks_context(link, request.client_high_water_mark))
            return
        suspended = encode(FeedSuspended(request.req_id), link.channel.version)
        if link.channel.version >= FIRST_WITH_PARTIAL_MOUNTS:
            count = MAX_FEED_COUNT
            spare = max(count - max(count // 2, self._min_fetch_size), 0)
        else:
            count = max(high_water_mark - request.client_high_water_mark, self._min_fetch_size)
            spare = 0
        self._feed.add(FeedContext(link, request.client_high_water_mark, count, suspended, spare))


def lock_failures(decided: Iterable[tuple[int, Pending]]) -> Notices:
    """The lock failures among requests that waited for commits. They go into the feeds of their clients (rule S4)."""
    failures: dict[ClientLink, list[tuple[int, bytes]]] = {}
    for conflict, pending in decided:
        link, request = pending.link, pending.request
        if type(request) is AppendCall:
            frame = encode(LockFailure(request.req_id, conflict), link.channel.version)
            failures.setdefault(link, []).append((conflict, frame))
    return failures
