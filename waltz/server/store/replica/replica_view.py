"""The state of every replica of a partition as the owner of the partition sees it, for operators. Pure."""

import enum
from typing import NamedTuple


class ReplicaStatus(enum.Enum):
    """What a replica is worth to its partition at present."""

    CURRENT = "current"
    """A member of the session that follows the log: its vote counts."""
    LAGGING = "lagging"
    """A member that fell so far behind that it copies from the others what it has missed."""
    COPYING = "copying"
    """Connected, and on its way into the session: it is inspected, brought up to date and recorded in the metadata."""
    BARRED = "barred"
    """Left out of this session, because the storage may still act on a request whose answer never came, or has lost
    what it had acknowledged; the next session lets it in."""
    AWAY = "away"
    """Not connected, or no session runs."""
    REFUSED = "refused"
    """The storage cannot be taken in as it is: an operator has to look at it."""


class ReplicaView(NamedTuple):
    """One replica at one moment."""

    storage: str
    """Connect string (``host:port``)."""
    status: ReplicaStatus
    lag_transactions: int | None
    """Committed transactions that the storage is not known to have; ``None`` while nothing is known of it."""
