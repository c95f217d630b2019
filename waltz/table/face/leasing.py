"""Grants, renewals and ends of leases, by transactions of a table."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from waltz.client.errors import NotAppendedError
from waltz.table.errors import LeaseHeldError, LeaseLostError, PropertiesError
from waltz.table.face.partition import TablePartition
from waltz.table.face.transacting import Transacting, transacted
from waltz.table.face.transaction import TableTransaction
from waltz.table.leases import HOLDER_SHARE, Lease, LeaseRow, Sightings, check_holder, duration_ms_of, lease_row

LOOK_S = 0.5
"""Longest pause between two looks at a lease that somebody else has: it may be released."""

Grant = Callable[[float], Awaitable[int]]
"""Asks once for a lease, within so many seconds; returns its term, or raises ``LeaseHeldError``."""


class Leasing:
    """The leases of one table, as they are seen by this process."""

    def __init__(self, view: TablePartition, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._clock = clock
        self._sightings = Sightings()

    async def grant(self, key: bytes, prefix: bytes, holder: str, duration_ms: int, timeout_s: float) -> int:
        """Grant a lease that nobody else has; returns the term.

        Raises ``LeaseHeldError``, ``PropertiesError`` where rows expire, ``ValueError`` for a row that is no lease, and
        the errors of transactions.
        """
        properties = self._view.properties
        if properties.ttl_timestamp_age_ms or properties.ttl_version_age_ms:
            raise PropertiesError(
                f"partition {self._view.partition_id}: rows expire here by the clocks of readers, and leases must not: "
                "use a partition without ttlTimestampAgeInMillis and ttlVersionAgeInMillis"
            )

        def work(transaction: TableTransaction) -> None:
            row = transaction.get(key, prefix=prefix)
            lease = lease_row(row)
            if row is not None and lease is not None and lease.holder != holder:
                wait_s = self._sightings.wait_s(row, lease.duration_ms, self._clock())
                if wait_s > 0:
                    raise LeaseHeldError(lease.holder, wait_s)
            transaction.put(key, LeaseRow(holder, duration_ms, None).encode(), prefix=prefix)

        transaction_id = await transacted(Transacting(self._view, timeout_s, None), work)
        assert transaction_id is not None, "a row is written"
        return transaction_id

    async def renew(self, key: bytes, prefix: bytes, holder: str, term: int, timeout_s: float) -> int:
        """Have all others begin to wait anew; returns the id of the transaction. Raises ``LeaseLostError``."""

        def work(transaction: TableTransaction) -> None:
            lease = lease_row(transaction.get(key, prefix=prefix))
            if lease is None or (lease.holder, lease.term) != (holder, term):
                raise LeaseLostError(f"term {term} of the lease {key!r} has ended")
            transaction.put(key, lease.encode(), prefix=prefix)

        return await self._changed(work, timeout_s)

    async def release(self, key: bytes, prefix: bytes, holder: str, term: int, timeout_s: float) -> int | None:
        """End a lease; returns the id of the transaction, or ``None`` if it has ended before."""

        def work(transaction: TableTransaction) -> None:
            lease = lease_row(transaction.get(key, prefix=prefix))
            if lease is None or (lease.holder, lease.term) != (holder, term):
                raise LeaseLostError(f"term {term} of the lease {key!r} has ended")
            transaction.delete(key, prefix=prefix)

        try:
            return await self._changed(work, timeout_s)
        except LeaseLostError:
            return None

    async def _changed(self, work: Callable[[TableTransaction], None], timeout_s: float) -> int:
        """Change a lease; that it is lost counts only after the view has caught up with the owner."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        try:
            transaction_id = await transacted(Transacting(self._view, timeout_s, None), work)
        except LeaseLostError:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._view.refresh(strict=False)
            except TimeoutError:
                raise NotAppendedError("the lease cannot be looked at in time; nothing is written") from None
            left_s = max(deadline_s - asyncio.get_running_loop().time(), 0.0)
            transaction_id = await transacted(Transacting(self._view, left_s, None), work)
        assert transaction_id is not None, "a row is written"
        return transaction_id


async def acquired(grant: Grant, key: bytes, prefix: bytes, holder: str, duration_s: float, timeout_s: float) -> Lease:
    """Ask for a lease until it is granted. Raises ``LeaseHeldError`` at the deadline, and the errors of ``grant``."""
    check_holder(holder)
    duration_ms_of(duration_s)
    deadline_s = time.monotonic() + timeout_s
    while True:
        began_s = time.monotonic()
        left_s = max(deadline_s - began_s, 0.0)
        try:
            term = await grant(left_s)
        except LeaseHeldError as held:
            pause_s = min(held.wait_s, LOOK_S)
            if pause_s >= deadline_s - time.monotonic():
                raise
            await asyncio.sleep(pause_s)
            continue
        lease = Lease(key, prefix, holder, term, duration_s, began_s + HOLDER_SHARE * duration_s)
        if lease.left_s == 0:
            raise LeaseLostError(f"the lease {key!r} was granted too late for its duration of {duration_s:g} s")
        return lease


async def renewed(renew: Callable[[], Awaitable[object]], lease: Lease) -> Lease:
    """Renew a lease that is not lost; its new end counts from before the request. Raises ``LeaseLostError``."""
    began_s = time.monotonic()
    if began_s >= lease.ends_s:
        raise LeaseLostError(f"term {lease.term} of the lease {lease.key!r} was not renewed in time")
    await renew()
    return lease._replace(ends_s=began_s + HOLDER_SHARE * lease.duration_s)
