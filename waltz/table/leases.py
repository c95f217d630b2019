"""Leases: rows that name a holder for a while, and what is known of their end.

A lease ends by what is written: its release, or the grant to somebody else. Each of the two parties measures a duration
by its own clock only. The holder counts from before it asked. Whoever wants the lease next counts from when it has seen
the last grant or renewal, which is later, and its grant is refused if there was another one meanwhile. The holder
counts a tenth less, so that clocks may differ in pace by that much.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from waltz.table.errors import LeaseLostError
from waltz.table.rows import TableRow, Version

HOLDER_SHARE: Final = 0.9
"""The part of the duration for which the holder counts on the lease."""
MIN_DURATION_MS, MAX_DURATION_MS = 100, 3_600_000
MAX_HOLDER_CHARACTERS: Final = 256
MAX_SIGHTINGS: Final = 10_000
"""Leases of others that a process keeps in mind; one that is forgotten is waited for from the beginning."""


class Reads(Protocol):
    """A transaction of a table."""

    def get(self, key: bytes, *, prefix: bytes = b"") -> TableRow | None:
        """The row of a key."""
        ...


class LeaseRow(NamedTuple):
    """The value of the row of a lease."""

    holder: str
    duration_ms: int
    term: int | None
    """``None`` in the row of a grant: the term is the id of its transaction."""

    def encode(self) -> bytes:
        """The value."""
        fields: dict[str, object] = {"holder": self.holder, "duration_ms": self.duration_ms}
        if self.term is not None:
            fields["term"] = self.term
        return json.dumps(fields).encode()


def lease_row(row: TableRow | None) -> LeaseRow | None:
    """The lease of a row, with its term; ``None`` if nobody has it. Raises ``ValueError`` for the value of something
    else.
    """
    if row is None:
        return None
    try:
        fields = json.loads(row.value or b"")
        if not isinstance(fields, Mapping):
            raise ValueError("no object")
        holder, duration_ms = fields.get("holder"), fields.get("duration_ms")
        term = fields.get("term", row.version.transaction_id)
        if not isinstance(holder, str) or type(duration_ms) is not int or type(term) is not int:
            raise ValueError("no lease")
    except (ValueError, RecursionError):
        raise ValueError(f"the row {row.key!r} is no lease, and is left as it is") from None
    return LeaseRow(holder, duration_ms, term)


class Lease(NamedTuple):
    """A lease that was granted, for its holder.

    Examples:
        ```python
        lease: waltz.table.Lease = await table.acquire(b"mailer", "process-1", duration_s=30)


        def work(transaction: waltz.table.TableTransaction) -> None:
            lease.check(transaction)
            transaction.put(b"mails sent", b"1")


        await table.transaction(work)
        lease = await table.renew(lease)
        await table.release(lease)
        ```
    """

    key: bytes
    prefix: bytes
    holder: str
    term: int
    """Grows with each grant, and stays through renewals: the id of the transaction of the grant."""
    duration_s: float
    ends_s: float
    """By ``time.monotonic()`` of this process: from then on somebody else may have the lease."""

    @property
    def left_s(self) -> float:
        """For so many seconds nobody else can have the lease; 0 when it is lost."""
        return max(self.ends_s - time.monotonic(), 0.0)

    def check(self, transaction: Reads) -> None:
        """Let a transaction be committed only while this term has not ended, whatever clocks say.

        Raises:
            LeaseLostError: It has ended.
        """
        row = lease_row(transaction.get(self.key, prefix=self.prefix))
        if row is None or (row.holder, row.term) != (self.holder, self.term):
            raise LeaseLostError(f"term {self.term} of the lease {self.key!r} has ended")


class Sightings:
    """The leases of others, and since when this process has seen each unchanged."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[bytes, bytes], tuple[Version, float]] = OrderedDict()

    def wait_s(self, row: TableRow, duration_ms: int, now_s: float) -> float:
        """How long the row has to stay as it is until the lease is over; 0 if it is.

        ``now_s`` was read from a monotonic clock after the row was read.
        """
        place = row.prefix, row.key
        version, since_s = self._seen.get(place, (None, now_s))
        if version != row.version:
            since_s = now_s
        self._seen[place] = row.version, since_s
        self._seen.move_to_end(place)
        if len(self._seen) > MAX_SIGHTINGS:
            self._seen.popitem(last=False)
        return max(duration_ms / 1000 - (now_s - since_s), 0.0)


def duration_ms_of(duration_s: float) -> int:
    """A duration in milliseconds. Raises ``ValueError`` if it is out of bounds."""
    duration_ms = int(1000 * duration_s)
    if not MIN_DURATION_MS <= duration_ms <= MAX_DURATION_MS:
        raise ValueError(f"duration_s must be from {MIN_DURATION_MS / 1000:g} to {MAX_DURATION_MS / 1000:g}")
    return duration_ms


def check_holder(holder: str) -> None:
    """Raise ``ValueError`` for a name that is empty or too long."""
    if not 0 < len(holder) <= MAX_HOLDER_CHARACTERS:
        raise ValueError(f"the name of a holder has 1 to {MAX_HOLDER_CHARACTERS} characters")
