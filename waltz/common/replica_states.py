"""The states of a replica with their remedies: the words of every tool, page and health answer. Pure."""

import enum
from typing import NamedTuple

RUNBOOK = "docs/runbook.md"


class ReplicaStatus(enum.Enum):
    """The present state of a replica in its partition."""

    CURRENT = "current"
    """A member of the session that follows the log: its vote counts."""
    LAGGING = "lagging"
    """A member that lacks committed transactions for longer than a moment, and copies them from the others."""
    COPYING = "copying"
    """Connected, and on its way into the session: it is inspected, brought up to date and recorded in the metadata."""
    BEHIND = "behind"
    """No member of the session, though its storage answers: copying, barred or refused, which only the owner knows."""
    BARRED = "barred"
    """Left out of this session, because the storage may still act on a request whose answer never came, or has lost
    acknowledged records; the next session lets it in."""
    AWAY = "away"
    """Its storage does not answer, its owner does not reach it, or no session runs."""
    REFUSED = "refused"
    """The storage cannot be taken in: an operator has to act."""
    OFFLINE = "offline"
    """The storage answers, and does not serve the replica: switched off, out of service, or missing."""


class Remedy(NamedTuple):
    """A remedy, and its section in the runbook."""

    do: str
    section: str
    """Anchor in the runbook."""

    def __str__(self) -> str:
        return f"{self.do} ({RUNBOOK}#{self.section})"


REMEDIES = {
    ReplicaStatus.LAGGING: Remedy("wait, and see whether the lag falls", "replica-lagging"),
    ReplicaStatus.COPYING: Remedy("wait, and see whether the lag falls", "replica-lagging"),
    ReplicaStatus.BEHIND: Remedy(
        "wait a minute; then /health of the partition's server says whether it is copying, barred or refused",
        "under-replicated",
    ),
    ReplicaStatus.BARRED: Remedy("nothing: the next store session lets it in, within minutes", "under-replicated"),
    ReplicaStatus.AWAY: Remedy("start the storage, or mend the network to it", "storage-down"),
    ReplicaStatus.REFUSED: Remedy("read the error in the log of the partition's server", "under-replicated"),
    ReplicaStatus.OFFLINE: Remedy("look at /health of the storage", "out-of-service"),
}
"""For every state but :attr:`ReplicaStatus.CURRENT`."""
