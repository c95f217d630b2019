"""The requests that wait at a partition, in bounded memory."""

from collections import deque
from typing import NamedTuple, Protocol

from waltz.common.wire import storage as wire
from waltz.storage.node.session_rule import ReadRequest, StorageRequest

MAX_READS_AT_ONCE = 32


class QueueLimits(NamedTuple):
    """The limits of the requests that wait at a partition, and of those that are taken up together.

    Requests above the limits are refused. So the limits are larger than the requests that a server has in flight to one
    partition on a slow disk: a few requests, the last of which may be a transaction of the largest usual size, 32 MiB,
    behind a window of 2 MiB. A server of the original has one append in flight.
    """

    max_requests: int = 1000
    """The number of requests in each lane. The requests that begin a session come once in a session, and have the same
    room in addition."""
    max_append_bytes: int = 40 << 20
    """The largest size of the waiting appends; a single append may have any size."""
    max_group_bytes: int = 8 << 20
    """The largest size of the appends that one sync makes durable; a single append may have any size."""
    write_ahead_bytes: int = 256 << 10
    """Groups of at least this size are written during the sync of another group. For a smaller group, a second turn of
    a thread costs more than the write."""


DEFAULT_LIMITS = QueueLimits()


class Requester(Protocol):
    """The connection of a request. All calls are made in the event loop."""

    @property
    def writable(self) -> bool:
        """Whether further large answers may be sent; false while too many bytes are unsent."""
        ...

    def answer(self, frame: bytes) -> None:
        """Send an answer. Without effect after the end of the connection."""
        ...

    def hold_back(self, request: "PartitionRequest") -> None:
        """Take back a read that was not executed. The requester hands it in again when it is writable."""
        ...


class PartitionRequest(NamedTuple):
    """A request in the queue of a partition."""

    message: StorageRequest
    kind: int
    """Type number of the message."""
    size_bytes: int
    requester: Requester


class RequestQueue:
    """Two lanes: requests that have to be executed in order, and reads that may be executed at any time."""

    def __init__(self, limits: QueueLimits) -> None:
        self.ordered: deque[PartitionRequest] = deque()
        self.reads: deque[PartitionRequest] = deque()
        self._limits = limits
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self.ordered) + len(self.reads)

    def offer(self, request: PartitionRequest, lane: deque[PartitionRequest]) -> bool:
        """Queue a request in one of the two lanes. Returns false, without a change, when the lane is full."""
        limits = self._limits
        max_requests = limits.max_requests
        if isinstance(request.message, wire.AppendRequest):
            if self._size_bytes > limits.max_append_bytes:
                return False
        elif not isinstance(request.message, ReadRequest):
            max_requests *= 2
        if len(lane) >= max_requests:
            return False
        lane.append(request)
        self._size_bytes += request.size_bytes
        return True

    def take_group(self) -> list[PartitionRequest]:
        """Take the request at the head of the ordered lane; with an append, also the appends directly behind it."""
        group = [self.ordered.popleft()]
        size_bytes = group[0].size_bytes
        if isinstance(group[0].message, wire.AppendRequest):
            while self.ordered and isinstance(self.ordered[0].message, wire.AppendRequest):
                if size_bytes + self.ordered[0].size_bytes > self._limits.max_group_bytes:
                    break
                size_bytes += self.ordered[0].size_bytes
                group.append(self.ordered.popleft())
        self._size_bytes -= size_bytes
        return group

    def put_back(self, group: list[PartitionRequest]) -> None:
        """Undo :meth:`take_group`."""
        self.ordered.extendleft(reversed(group))
        self._size_bytes += sum(request.size_bytes for request in group)

    def has_small_group(self, max_bytes: int) -> bool:
        """Whether an append is at the head of the ordered lane, and all waiting requests together have at most this
        size."""
        ordered = self.ordered
        return self._size_bytes <= max_bytes and bool(ordered) and isinstance(ordered[0].message, wire.AppendRequest)

    @property
    def has_large_group(self) -> bool:
        """Whether the appends at the head of the ordered lane have to be written ahead."""
        size_bytes = self._limits.write_ahead_bytes
        if self._size_bytes < size_bytes:
            return False
        for request in self.ordered:
            if not isinstance(request.message, wire.AppendRequest):
                return False
            size_bytes -= request.size_bytes
            if size_bytes <= 0:
                return True
        return False

    def take_reads(self) -> list[PartitionRequest]:
        """Take some requests of the lane of reads."""
        batch = [self.reads.popleft() for _ in range(min(len(self.reads), MAX_READS_AT_ONCE))]
        self._size_bytes -= sum(request.size_bytes for request in batch)
        return batch

    def take_all(self) -> list[PartitionRequest]:
        """Take all requests of both lanes."""
        everything = [*self.ordered, *self.reads]
        self.ordered.clear()
        self.reads.clear()
        self._size_bytes = 0
        return everything
