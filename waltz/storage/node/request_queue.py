"""The requests that wait at a partition, in bounded memory."""

from collections import deque
from typing import NamedTuple, Protocol

from waltz.common.wire import storage as wire
from waltz.storage.node.session_rule import ReadRequest, StorageRequest

MAX_READS_AT_ONCE = 32


class QueueLimits(NamedTuple):
    """How many requests may wait at a partition, and how many of them are taken up together.

    What is sent beyond it is refused, so it is more than what a server has in flight to one partition while the disk is
    slow: few requests, of which the last may be a transaction of the largest usual size, 32 MiB, behind a window of
    2 MiB. A server of the original has one append in flight.
    """

    max_requests: int = 1000
    """The requests in each lane. Requests that come once in a session, and without which no session begins, have as
    much room again."""
    max_append_bytes: int = 40 << 20
    """The bytes that wait beyond which no further append is taken; a single append is taken whatever its size."""
    max_group_bytes: int = 8 << 20
    """The size of the appends that one sync makes durable; a single append is taken whatever its size."""
    write_ahead_bytes: int = 256 << 10
    """Groups of this size are written while another is being synced. For smaller ones a second turn of a thread costs
    more than the write."""


DEFAULT_LIMITS = QueueLimits()


class Requester(Protocol):
    """The connection from which a request came. All calls are made in the event loop."""

    @property
    def writable(self) -> bool:
        """Whether further large answers may be sent; false while too many bytes are unsent."""
        ...

    def answer(self, frame: bytes) -> None:
        """Send an answer. Without effect when the connection is gone."""
        ...

    def hold_back(self, request: "PartitionRequest") -> None:
        """Take back a read that was not executed, to hand it in again when writable."""
        ...


class PartitionRequest(NamedTuple):
    """A request in the queue of a partition."""

    message: StorageRequest
    kind: int
    """Type number of the message."""
    size_bytes: int
    requester: Requester


class RequestQueue:
    """Two lanes: requests that have to be carried out in order, and reads that may be carried out at any time."""

    def __init__(self, limits: QueueLimits) -> None:
        self.ordered: deque[PartitionRequest] = deque()
        self.reads: deque[PartitionRequest] = deque()
        self._limits = limits
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self.ordered) + len(self.reads)

    def offer(self, request: PartitionRequest, lane: deque[PartitionRequest]) -> bool:
        """Queue a request in one of the two lanes; false, without any change, when the lane is full."""
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
        """Take the request at the head of the ordered lane; if it is an append, also the appends right behind it."""
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
        """Whether an append is at the head of the ordered lane, and all requests that wait have at most these bytes."""
        ordered = self.ordered
        return self._size_bytes <= max_bytes and bool(ordered) and isinstance(ordered[0].message, wire.AppendRequest)

    @property
    def has_large_group(self) -> bool:
        """Whether the appends at the head of the ordered lane are to be written ahead."""
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
