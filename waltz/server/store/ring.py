"""The batches of one store session that replicas may still need, shared by all replicas (rule S8). Pure."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.records import decode_record
from waltz.server.store.interface import Append
from waltz.server.store.memory import MIN_SHARE_BYTES, MemoryAccount

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost


class Batch:
    """Records of consecutive ids, encoded once for all replicas."""

    __slots__ = ("appends", "count", "first_id", "given_s", "last_id", "payload")

    def __init__(
        self, first_id: int, payload: bytes, count: int, appends: Sequence[Append], given_s: float = 0.0
    ) -> None:
        self.first_id = first_id
        self.last_id = first_id + count - 1
        self.count = count
        self.payload = payload
        self.appends: Sequence[Append] = appends
        self.given_s = given_s
        """The time when it was given to the replicas, by the clock of the metrics."""

    def rest(self, first_id: int) -> "Batch":
        """The records from this id on, for a replica whose log ends within the batch."""
        offset = 0
        for _ in range(first_id - self.first_id):
            _, offset = decode_record(self.payload, offset, len(self.payload))
        return Batch(first_id, self.payload[offset:], self.last_id + 1 - first_id, (), self.given_s)


class Committed(NamedTuple):
    """Result of one step of commitment."""

    appends: Sequence[Append]
    records: Sequence[bytes]
    """The records of the appends, encoded, one piece per batch."""
    given_s: float = 0.0
    """The time when the first of the batches was given to the replicas."""


class BatchRing:
    """Batches in the order of their ids: committed batches that a lagging replica may still need, then undecided
    batches.

    Committed batches are dropped, the oldest first, when every live replica has them or their bytes exceed the limit. A
    replica that needs a dropped batch catches up from other replicas.
    """

    __slots__ = (
        "_batches",
        "_limit_bytes",
        "_undecided",
        "by_first_id",
        "kept_bytes",
        "memory",
        "next_id",
        "undecided_bytes",
        "undecided_count",
    )

    def __init__(self, first_id: int, limit_bytes: int) -> None:
        self.next_id = first_id
        """The id of the next record to be added."""
        self.undecided_bytes = 0
        self.undecided_count = 0
        """Number of undecided batches."""
        self.kept_bytes = 0
        """Bytes of committed batches."""
        self.memory: MemoryAccount | None = None
        """Limits the committed batches in addition; :meth:`trim` reports their bytes to it."""
        self._limit_bytes = limit_bytes
        self._batches: deque[Batch] = deque()
        self._undecided: deque[Batch] = deque()
        self.by_first_id: dict[int, Batch] = {}
        """The batches by their first ids. :meth:`get` also finds the rest of a batch."""

    @property
    def first_id(self) -> int:
        """The first id in the ring; :attr:`next_id` for an empty ring."""
        return self._batches[0].first_id if self._batches else self.next_id

    @property
    def decision_wanted(self) -> int:
        """The id whose commit decides the oldest undecided batch; the next id without an undecided batch."""
        return self._undecided[0].last_id if self._undecided else self.next_id

    def get(self, first_id: int) -> Batch | None:
        """The batch that begins with this id, or the rest of a batch from this id on, if it is in the ring.

        Only a replica that joins again needs such a rest, after a torn or short write of a batch.
        """
        batch = self.by_first_id.get(first_id)
        if batch is None and self.first_id < first_id < self.next_id:
            return next(batch for batch in self._batches if batch.last_id >= first_id).rest(first_id)
        return batch

    def add(self, payload: bytes, appends: Sequence[Append], given_s: float = 0.0) -> Batch:
        """Add an undecided batch of the next ids."""
        batch = Batch(self.next_id, payload, len(appends), appends, given_s)
        self.next_id = batch.last_id + 1
        self._batches.append(batch)
        self._undecided.append(batch)
        self.undecided_count += 1
        self.by_first_id[batch.first_id] = batch
        self.undecided_bytes += len(payload)
        return batch

    def commit(self, mark: int) -> Committed | None:
        """Commit the batches up to ``mark``. Returns their appends and records, in order; None without such a batch."""
        undecided = self._undecided
        if not undecided or undecided[0].last_id > mark:
            return None
        batch = undecided.popleft()
        appends, batch.appends, given_s = batch.appends, (), batch.given_s
        payloads = [batch.payload]
        if undecided and undecided[0].last_id <= mark:
            appends = list(appends)
            while undecided and undecided[0].last_id <= mark:
                batch = undecided.popleft()
                appends += batch.appends
                batch.appends = ()
                payloads.append(batch.payload)
        self.undecided_count = len(undecided)
        size_bytes = sum(map(len, payloads))
        self.undecided_bytes -= size_bytes
        self.kept_bytes += size_bytes
        committed: Committed = _new_tuple(Committed, (appends, payloads, given_s))
        return committed

    def trim(self, needed_from: int) -> None:
        """Drop committed batches below ``needed_from``, and the oldest batches beyond the limit."""
        batches = self._batches
        kept = len(batches) - len(self._undecided)
        memory, limit_bytes = self.memory, self._limit_bytes
        if memory is not None and self.kept_bytes > MIN_SHARE_BYTES:
            limit_bytes = min(limit_bytes, memory.share_bytes)
        while kept and (batches[0].last_id < needed_from or self.kept_bytes > limit_bytes):
            batch = batches.popleft()
            del self.by_first_id[batch.first_id]
            self.kept_bytes -= len(batch.payload)
            kept -= 1
        if memory is not None and memory.used_bytes != self.kept_bytes:
            memory.set(self.kept_bytes)

    def undecided(self) -> list[Append]:
        """The undecided appends, in order."""
        return [append for batch in self._undecided for append in batch.appends]
