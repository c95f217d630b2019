"""Which appends of one partition are undecided, and what each event decides about them.

Pure: no clock, no I/O. The rules rest on one fact: the order of registration is the order on the wire, and servers
process appends in that order. So when an append is found committed, every older one that is still undecided is not in
the log.
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
    """What became of a registration."""

    REGISTERED = "registered"
    DUPLICATE = "duplicate"
    """The request id is registered already: the new append counts as failed at once."""
    FULL = "full"


_STARTED, _REGISTERED = MonitorState.STARTED, Registration.REGISTERED  # looked up for every append


class Entry(Generic[T]):
    """One registered append."""

    __slots__ = ("flushed", "item", "registered_at_s", "req_id")

    def __init__(self, req_id: bytes, item: T, registered_at_s: float) -> None:
        self.req_id = req_id
        self.item: T | None = item
        """What was registered; ``None`` once the append is decided."""
        self.registered_at_s = registered_at_s
        self.flushed = False
        """Whether the entry has left the monitor."""


class TransactionMonitor(Generic[T]):
    """The undecided appends of one partition in the order of registration; at most ``max_pending`` at a time."""

    __slots__ = ("_entries", "_last", "_order", "_partition_id", "max_pending", "pending", "state")

    def __init__(self, partition_id: int, max_pending: int) -> None:
        self._partition_id = partition_id
        self.max_pending = max_pending
        self.state = MonitorState.STOPPED
        self.pending = 0
        """Number of registered appends that are not decided."""
        self._entries: dict[bytes, Entry[T]] = {}
        self._order: deque[Entry[T]] = deque()  # a dict alone is slow at forgetting its oldest keys
        self._last: Entry[T] | None = None

    def start(self) -> bool:
        """Accept registrations; whether that changed anything."""
        return self._change(MonitorState.STOPPED, MonitorState.STARTED)

    def stop(self) -> bool:
        """Refuse registrations; what is registered is still decided. Whether that changed anything."""
        return self._change(MonitorState.STARTED, MonitorState.STOPPED)

    def _change(self, before: MonitorState, after: MonitorState) -> bool:
        if self.state is not before:
            return False
        self.state = after
        return True

    def register(self, req_id: bytes, item: T, now_s: float) -> Registration:
        """Register an append that is about to be sent.

        Raises :class:`PartitionInactiveError` when stopped and :class:`ClientClosedError` when closed.
        """
        if self.state is not _STARTED:
            if self.state is MonitorState.CLOSED:
                raise ClientClosedError
            raise PartitionInactiveError(self._partition_id)
        if req_id in self._entries:
            return Registration.DUPLICATE
        if self.pending >= self.max_pending:
            return Registration.FULL
        entry = Entry(req_id, item, now_s)
        self._entries[req_id] = self._last = entry
        self._order.append(entry)
        self.pending += 1
        return _REGISTERED

    def committed(self, req_id: bytes) -> tuple[T | None, Sequence[T]] | None:
        """The append was found in the feed; it and all older ones leave. ``None`` if it is none of ours.

        Returns what was registered with it (``None`` if it had been decided before), and older appends that are known
        now not to be in the log, oldest first.
        """
        entry = self._entries.pop(req_id, None)
        if entry is None:
            return None
        failed: Sequence[T] = ()
        order = self._order
        if order[0] is not entry:
            failed = self._remove_older(entry)
        order.popleft()
        entry.flushed = True
        item = entry.item
        if item is not None:
            entry.item = None
            self.pending -= 1
        return item, failed

    def flush(self, req_id: bytes) -> Sequence[T]:
        """All appends up to this one are decided, and those undecided here failed. They leave, and are returned."""
        entry = self._entries.get(req_id)
        if entry is None:
            return ()
        failed = self._remove_older(entry)
        item = self._complete(entry)
        self._remove_oldest()
        return failed if item is None else [*failed, item]

    def abort(self, req_id: bytes) -> T | None:
        """The append failed. Its entry stays until a commit or a flush takes it along. ``None`` if decided before."""
        entry = self._entries.get(req_id)
        return None if entry is None else self._complete(entry)

    def close(self) -> Sequence[T]:
        """End for good; what was undecided is returned, oldest first."""
        self.state = MonitorState.CLOSED
        undecided = [item for entry in self._order if (item := self._complete(entry)) is not None]
        for entry in self._order:
            entry.flushed = True
        self._order.clear()
        self._entries.clear()
        return undecided

    def get(self, req_id: bytes) -> T | None:
        """What was registered with an undecided append."""
        entry = self._entries.get(req_id)
        return None if entry is None else entry.item

    def __len__(self) -> int:
        return len(self._order)

    @property
    def oldest(self) -> Entry[T] | None:
        """The oldest entry, decided or not."""
        return self._order[0] if self._order else None

    @property
    def last_enqueued(self) -> Entry[T] | None:
        """The entry registered last, if it has not left."""
        last = self._last
        return None if last is None or last.flushed else last

    @property
    def last_enqueued_at_s(self) -> float:
        """When something was registered last; -1 if never."""
        return -1.0 if self._last is None else self._last.registered_at_s

    def _remove_older(self, entry: Entry[T]) -> Sequence[T]:
        if self._order[0] is entry:
            return ()
        failed: list[T] = []
        while self._order[0] is not entry:
            item = self._complete(self._order[0])
            if item is not None:
                failed.append(item)
            self._remove_oldest()
        return failed

    def _remove_oldest(self) -> None:
        entry = self._order.popleft()
        del self._entries[entry.req_id]
        entry.flushed = True

    def _complete(self, entry: Entry[T]) -> T | None:
        item = entry.item
        if item is not None:
            entry.item = None
            self.pending -= 1
        return item
