"""The optimistic lock table of one partition. Pure.

The table is an array of slots, each with a transaction id. A lock is represented by its 32-bit hash, and has three
slots. The *estimate* of a lock, the newest transaction that may have changed it, is the minimum of its slots. Distinct
locks may share slots. That can only raise an estimate, so a conflict may be false, but is never missed.

Transaction ids are dense and assigned in order. So an admitted request raises its slots immediately to its provisional
id, not at the commit. No request ever waits for a lock, and no marks for requests in flight are needed. In return,
provisional ids must not outlive their store session (rule S3), and a conflict with a provisional id is not reported
before the commit of the id (rule S4).
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from waltz.common.ids import NO_TRANSACTION

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost

_MASK = 0x3FFFFFFF
_MULTIPLIER = 1103515245
_INCREMENT = 12345

# The three positions of a hash are three steps of one linear congruential generator. Each step is linear in the hash,
# and only its low 30 bits count, so every position is one multiplication of the hash.
_A1 = _MULTIPLIER & _MASK
_C1 = _INCREMENT
_A2 = _A1 * _MULTIPLIER & _MASK
_C2 = (_C1 * _MULTIPLIER + _INCREMENT) & _MASK
_A3 = _A2 * _MULTIPLIER & _MASK
_C3 = (_C2 * _MULTIPLIER + _INCREMENT) & _MASK


def slot_positions(lock_hash: int, table_size: int) -> tuple[int, int, int]:
    """The three slots of a lock hash (signed or unsigned 32 bits) in a table of ``table_size`` slots."""
    low = lock_hash & _MASK
    return (
        (_A1 * low + _C1 & _MASK) % table_size,
        (_A2 * low + _C2 & _MASK) % table_size,
        (_A3 * low + _C3 & _MASK) % table_size,
    )


class LockedRequest(Protocol):
    """The locks of a request."""

    client_high_water_mark: int
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    transaction_id: int
    """The provisional id; set when the request passes."""


RequestT = TypeVar("RequestT", bound=LockedRequest)


class Conflict(NamedTuple, Generic[RequestT]):
    """A request that was refused."""

    request: RequestT
    estimate: int
    """The newest transaction that may have changed one of its locks. It may be uncommitted."""
    next_id: int
    """The id that the request would have got."""


class AdmittedRun(NamedTuple, Generic[RequestT]):
    """Outcome of the requests of a run."""

    admitted: list[RequestT]
    conflicts: list[Conflict[RequestT]]
    lock_count: int
    """The number of locks of the admitted requests, apart from single write locks."""


class LockTable:
    """Slots of one partition.

    A new table has the high-water mark in every slot: earlier transactions may have changed any lock.
    """

    __slots__ = ("_size", "_slots")

    def __init__(self, size: int, high_water_mark: int) -> None:
        if size < 1:
            raise ValueError(f"a lock table needs at least one slot, not {size}")
        self._size = size
        self._slots = _filled(size, high_water_mark)

    def admit(
        self,
        write_locks: Sequence[int],
        read_locks: Sequence[int],
        append_locks: Sequence[int],
        client_high_water_mark: int,
        transaction_id: int,
    ) -> int | None:
        """Check a request and, if it passes, record ``transaction_id`` under its write and append locks.

        Returns None for an admitted request. Otherwise returns the estimate of the conflict: the largest estimate of
        all write and read locks, which exceeds ``client_high_water_mark``. Nothing is recorded for a refused request.
        Append locks never cause a conflict. A client mark below -1 counts as -1.
        """
        size = self._size
        slots = self._slots
        seen = client_high_water_mark if client_high_water_mark > NO_TRANSACTION else NO_TRANSACTION
        for lock_hash in read_locks:
            low = lock_hash & _MASK
            if (  # the minimum of the slots is rarely beyond the mark: the first slot nearly always decides
                slots[(_A1 * low + _C1 & _MASK) % size] > seen
                and slots[(_A2 * low + _C2 & _MASK) % size] > seen
                and slots[(_A3 * low + _C3 & _MASK) % size] > seen
            ):
                return self.estimate(write_locks, read_locks)
        raised: list[int] = []
        for lock_hash in write_locks:
            low = lock_hash & _MASK
            first = (_A1 * low + _C1 & _MASK) % size
            second = (_A2 * low + _C2 & _MASK) % size
            third = (_A3 * low + _C3 & _MASK) % size
            if slots[first] > seen and slots[second] > seen and slots[third] > seen:
                return self.estimate(write_locks, read_locks)
            raised += first, second, third
        for lock_hash in append_locks:
            raised += slot_positions(lock_hash, size)
        for position in raised:
            slots[position] = transaction_id
        return None

    def admit_run(self, requests: Iterable[RequestT], transaction_id: int) -> AdmittedRun[RequestT]:
        """Check requests one by one. Admitted requests get the next ids, from ``transaction_id`` on.

        The same as :meth:`admit` for each request, with a fast path for the common cases: no lock, and a single write
        lock.
        """
        size = self._size
        slots = self._slots
        admitted: list[RequestT] = []
        conflicts: list[Conflict[RequestT]] = []
        add = admitted.append
        lock_count = 0
        for request in requests:
            write_locks = request.write_locks
            if request.read_locks or request.append_locks or len(write_locks) > 1:
                estimate = self.admit(
                    write_locks,
                    request.read_locks,
                    request.append_locks,
                    request.client_high_water_mark,
                    transaction_id,
                )
                if estimate is not None:
                    conflicts.append(Conflict(request, estimate, transaction_id))
                    continue
                lock_count += len(write_locks) + len(request.read_locks) + len(request.append_locks)
            elif write_locks:
                low = write_locks[0] & _MASK
                first = (_A1 * low + _C1 & _MASK) % size
                second = (_A2 * low + _C2 & _MASK) % size
                third = (_A3 * low + _C3 & _MASK) % size
                mark = slots[first]
                if mark > request.client_high_water_mark:  # the other two slots may be lower
                    mark = min(mark, slots[second], slots[third])
                    if mark > request.client_high_water_mark and mark > NO_TRANSACTION:
                        conflicts.append(Conflict(request, mark, transaction_id))
                        continue
                slots[first] = slots[second] = slots[third] = transaction_id
            request.transaction_id = transaction_id
            transaction_id += 1
            add(request)
        run: AdmittedRun[RequestT] = _new_tuple(AdmittedRun, (admitted, conflicts, lock_count))
        return run

    def estimate(self, write_locks: Sequence[int], read_locks: Sequence[int]) -> int:
        """The largest estimate of the given locks; -1 without locks."""
        size = self._size
        slots = self._slots
        estimate = NO_TRANSACTION
        for locks in (write_locks, read_locks):
            for lock_hash in locks:
                low = lock_hash & _MASK
                first = slots[(_A1 * low + _C1 & _MASK) % size]
                if first > estimate:  # any slot that is not beyond the present maximum decides
                    second = slots[(_A2 * low + _C2 & _MASK) % size]
                    if second > estimate:
                        third = slots[(_A3 * low + _C3 & _MASK) % size]
                        if third > estimate:
                            estimate = min(first, second, third)
        return estimate

    def reset(self, high_water_mark: int) -> None:
        """Assign ``high_water_mark`` to every slot (rule S3: assigned, not the maximum of both)."""
        self._slots = _filled(self._size, high_water_mark)


def _filled(size: int, transaction_id: int) -> "array[int]":
    """A compact array of slots. In a list each slot would refer to an integer elsewhere, with two cache misses."""
    return array("q", [transaction_id]) * size
