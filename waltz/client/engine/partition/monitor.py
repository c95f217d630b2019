"""The undecided appends of one partition, and their decisions by events.

Pure: no clock, no I/O. The rules rest on one fact: the order of registration is the order on the wire, and servers
process appends in that order. So when an append is found committed, no older undecided append is in the log.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Generic, TypeVar

from waltz.client.errors import ClientClosedError, PartitionInactiveError

T = TypeVar("T")


class MonitorState(Enum):
    """``CLOSED`` is final."""

    STOPPED = "stopped"
    STARTED = "started"
    CLOSED = "closed"


class Registration(Enum):
    """The result of a registration."""

    REGISTERED = "registered"
    DUPLICATE = "duplicate"
    """The request id is registered already, so the new append fails immediately."""
    FULL = "full"


_STARTED, _REGISTERED = MonitorState.STARTED, Registration.REGISTERED  # module names: each append looks them up


class TransactionMonitor(Generic[T]):
    """The undecided appends of one partition, in the order of registration. At most ``max_pending`` at a time.

    ``request in monitor``: whether the request was registered, and has not left.
    """

    # No object is created for an append: objects that live until its decision would be the main work of the garbage
    # collector, and the more so the more are in flight.
    __slots__ = ("_items", "_last", "_order", "_partition_id", "max_pending", "pending", "state")

    def __init__(self, partition_id: int, max_pending: int) -> None:
        self._partition_id = partition_id
        self.max_pending = max_pending
        self.state = MonitorState.STOPPED
        self.pending = 0
        """The number of registered, undecided appends."""
        self._items: dict[bytes, T | None] = {}  # by request id; None after the decision
        self._order: deque[bytes] = deque()  # a dict alone is slow at the removal of its oldest keys
        self._last = b""

    def start(self) -> bool:
        """Accept registrations. Returns whether that is a change."""
        return self._change(MonitorState.STOPPED, MonitorState.STARTED)

    def stop(self) -> bool:
        """Refuse registrations. Registered appends are still decided. Returns whether that is a change."""
        return self._change(MonitorState.STARTED, MonitorState.STOPPED)

    def _change(self, before: MonitorState, after: MonitorState) -> bool:
        if self.state is not before:
            return False
        self.state = after
        return True

    def register(self, req_id: bytes, item: T) -> Registration:
        """Register an append that is about to be sent.

        Raises :class:`PartitionInactiveError` when stopped and :class:`ClientClosedError` when closed.
        """
        if self.state is not _STARTED:
            if self.state is MonitorState.CLOSED:
                raise ClientClosedError
            raise PartitionInactiveError(self._partition_id)
        items = self._items
        if req_id in items:
            return Registration.DUPLICATE
        if self.pending >= self.max_pending:
            return Registration.FULL
        items[req_id] = item
        self._last = req_id
        self._order.append(req_id)
        self.pending += 1
        return _REGISTERED

    def take_oldest(self, req_id: bytes) -> T | None:
        """Like :meth:`committed`, if the append is the oldest one and undecided. Otherwise without effect."""
        order = self._order
        if not order or order[0] != req_id:
            return None
        item = self._items[req_id]
        if item is not None:
            order.popleft()
            del self._items[req_id]
            self.pending -= 1
        return item

    def committed(self, req_id: bytes) -> tuple[T | None, Sequence[T]] | None:
        """The append was found in the feed: it and all older appends leave. ``None`` for an append of another client.

        Returns the registered object (``None`` if the append was decided before), and the older appends that are
        certainly not in the log, oldest first.
        """
        if req_id not in self._items:
            return None
        failed = self._remove_older(req_id)
        return self._remove_oldest(), failed

    def flush(self, req_id: bytes) -> Sequence[T]:
        """All appends up to this one are decided, so undecided ones have failed. They leave, and are returned."""
        commit = self.committed(req_id)
        if commit is None:
            return ()
        item, failed = commit
        return failed if item is None else [*failed, item]

    def abort(self, req_id: bytes) -> T | None:
        """The append has failed. Its entry stays until a commit or a flush removes it. ``None`` if it was decided
        before."""
        item = self._items.get(req_id)
        if item is not None:
            self._items[req_id] = None
            self.pending -= 1
        return item

    def close(self) -> Sequence[T]:
        """End for ever. Returns the undecided appends, oldest first."""
        self.state = MonitorState.CLOSED
        undecided = [item for req_id in self._order if (item := self._items[req_id]) is not None]
        self.pending = 0
        self._order.clear()
        self._items.clear()
        return undecided

    def get(self, req_id: bytes) -> T | None:
        """The object registered with an undecided append."""
        return self._items.get(req_id)

    def __contains__(self, req_id: bytes) -> bool:
        return req_id in self._items

    def __len__(self) -> int:
        return len(self._order)

    @property
    def oldest(self) -> bytes | None:
        """The first registered request that has not left, decided or not."""
        return self._order[0] if self._order else None

    @property
    def last_enqueued(self) -> bytes | None:
        """The last registered request, if it has not left."""
        return self._last if self._last in self._items else None

    def _remove_older(self, req_id: bytes) -> Sequence[T]:
        order = self._order
        if order[0] == req_id:
            return ()
        failed: list[T] = []
        while order[0] != req_id:
            item = self._remove_oldest()
            if item is not None:
                failed.append(item)
        return failed

    def _remove_oldest(self) -> T | None:
        item = self._items.pop(self._order.popleft())
        if item is not None:
            self.pending -= 1
        return item
