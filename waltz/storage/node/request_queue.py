"""The requests that wait at a partition, and the back pressure on those who sent them."""

from collections import deque
from typing import NamedTuple, Protocol

from waltz.common.wire import storage as wire
from waltz.storage.node.session_rule import StorageRequest

MAX_QUEUED_REQUESTS = 1000
MAX_QUEUED_BYTES = 40 << 20
"""A queue with more than this is congested: the connections that filled it are not read, for any partition. So it is
more than what a server has in flight to one partition while the disk is slow: few requests, of which the last may be a
transaction of the largest usual size, 32 MiB, behind a window of 2 MiB."""

MAX_GROUP_BYTES = 8 << 20
"""Appends are gathered for one sync up to this size (one append is taken whatever its size)."""

MAX_READS_AT_ONCE = 32


class Requester(Protocol):
    """The connection that a request came from. All calls on the loop."""

    @property
    def writable(self) -> bool:
        """False while so much is unsent that it should get no more large answers."""
        ...

    def answer(self, frame: bytes) -> None:
        """Send the answer; dropped when the connection is gone."""
        ...

    def hold_back(self, request: "PartitionRequest") -> None:
        """Take back a read that was not executed, to hand it in again when writable."""
        ...

    def partition_drained(self, partition_id: int) -> None:
        """The congested partition that the requester waits for has room again (or is closed)."""
        ...


class PartitionRequest(NamedTuple):
    """A request in the queue of a partition."""

    message: StorageRequest
    kind: int
    """Type number of the message."""
    size_bytes: int
    requester: Requester


class RequestQueue:
    """Two lanes: what has to be executed in order, and reads that may be executed at any time."""

    def __init__(self, partition_id: int) -> None:
        self._partition_id = partition_id
        self.ordered: deque[PartitionRequest] = deque()
        self.reads: deque[PartitionRequest] = deque()
        self._size_bytes = 0
        self._waiters: dict[Requester, None] = {}

    def __len__(self) -> int:
        return len(self.ordered) + len(self.reads)

    @property
    def congested(self) -> bool:
        """Whether so much is queued that who sent it should not be read for a while."""
        return self._size_bytes > MAX_QUEUED_BYTES or len(self) > MAX_QUEUED_REQUESTS

    def add(self, request: PartitionRequest, lane: deque[PartitionRequest]) -> None:
        """Queue a request in one of the two lanes."""
        lane.append(request)
        self._size_bytes += request.size_bytes

    def take_group(self) -> list[PartitionRequest]:
        """The request at the head of the ordered lane; if it is an append, all appends right behind it too."""
        group = [self.ordered.popleft()]
        size_bytes = group[0].size_bytes
        if isinstance(group[0].message, wire.AppendRequest):
            while self.ordered and isinstance(self.ordered[0].message, wire.AppendRequest):
                if size_bytes + self.ordered[0].size_bytes > MAX_GROUP_BYTES:
                    break
                size_bytes += self.ordered[0].size_bytes
                group.append(self.ordered.popleft())
        self._release(size_bytes)
        return group

    def has_appends_of(self, size_bytes: int) -> bool:
        """Whether the appends at the head of the ordered lane have this size together."""
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
        """Some requests of the other lane."""
        batch = [self.reads.popleft() for _ in range(min(len(self.reads), MAX_READS_AT_ONCE))]
        self._release(sum(request.size_bytes for request in batch))
        return batch

    def take_all(self) -> list[PartitionRequest]:
        """Everything, and nothing stays."""
        everything = [*self.ordered, *self.reads]
        self.ordered.clear()
        self.reads.clear()
        self._release(self._size_bytes)
        return everything

    def notify_when_drained(self, requester: Requester) -> None:
        """Call ``partition_drained`` of the requester once, when the queue has fallen to half its limits."""
        self._waiters[requester] = None

    def forget(self, requester: Requester) -> None:
        """The requester wants no notice any more."""
        self._waiters.pop(requester, None)

    def _release(self, size_bytes: int) -> None:
        self._size_bytes -= size_bytes
        if not self._waiters or 2 * self._size_bytes > MAX_QUEUED_BYTES or 2 * len(self) > MAX_QUEUED_REQUESTS:
            return
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.partition_drained(self._partition_id)
