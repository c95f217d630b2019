"""The log of one partition in memory; several drivers, on several loops and threads, may share it."""

import threading
from collections.abc import Callable
from typing import Self

from waltz.common.checksum import checksum
from waltz.common.ids import NO_TRANSACTION, ReqId
from waltz.common.records import Record
from waltz.common.wire.append_request import AppendRequest

_OTHERS_CLIENT_ID = -2


class MockServerPartition:
    """Commits at once. Locks are compared by their exact hash: there are no conflicts without a need."""

    def __init__(self, partition_id: int) -> None:
        self.partition_id = partition_id
        self._records: list[Record] = []
        self._locks: dict[int, int] = {}
        self._mutex = threading.Lock()
        self._listeners: list[Callable[[int], None]] = []

    @classmethod
    def create(cls, count: int) -> list[Self]:
        """Partitions 0 to ``count`` - 1, to be shared by several drivers."""
        return [cls(partition_id) for partition_id in range(count)]

    @property
    def high_water_mark(self) -> int:
        """Id of the last transaction; -1 when there is none."""
        return len(self._records) - 1

    @property
    def transactions(self) -> list[Record]:
        """All that is committed."""
        return list(self._records)

    def read(self, first_id: int, max_count: int) -> list[Record]:
        """Transactions from an id on."""
        return self._records[max(first_id, 0) : max(first_id + max_count, 0)]

    def add(self, data: bytes, header: int = 0) -> int:
        """Commit a transaction as if some other client had appended it; returns its id."""
        with self._mutex:
            transaction_id = len(self._records)
            req_id = ReqId.of(_OTHERS_CLIENT_ID, 0, self.partition_id, transaction_id & 0x7FFF_FFFF)
            self._records.append(Record(transaction_id, req_id, header, data, checksum(data)))
        self._tell()
        return transaction_id

    def append(self, request: AppendRequest) -> int | None:
        """Commit ``request``, or return the id of the transaction that one of its locks conflicts with."""
        with self._mutex:
            locks = self._locks
            conflict = max(
                (locks.get(lock, NO_TRANSACTION) for lock in (*request.write_locks, *request.read_locks)),
                default=NO_TRANSACTION,
            )
            if conflict > request.client_high_water_mark:
                return conflict
            transaction_id = len(self._records)
            self._records.append(Record(transaction_id, request.req_id, request.header, request.data, request.checksum))
            for lock in (*request.write_locks, *request.append_locks):
                locks[lock] = transaction_id
        self._tell()
        return None

    def listen(self, listener: Callable[[int], None]) -> None:
        """Have ``listener`` called with the id of this partition after a commit, on whichever thread that happens."""
        self._listeners.append(listener)

    def forget(self, listener: Callable[[int], None]) -> None:
        """Call it no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener(self.partition_id)
