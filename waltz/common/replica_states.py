"""The state of a replica, and what an operator does about it: the words of every tool, page and health answer. Pure."""

import enum
from typing import NamedTuple

RUNBOOK = "docs/runbook.md"


class ReplicaStatus(enum.Enum):
    """What a replica is worth to its partition at present."""

    CURRENT = "current"
    """A member of the session that follows the log: its vote counts."""
    LAGGING = "lagging"
    """A member that lacks what has been committed for a while, and copies it from the others."""
    COPYING = "copying"
    """Connected, and on its way into the session: it is inspected, brought up to date and recorded in the metadata."""
    BEHIND = "behind"
    """No member of the session, though its storage answers: copying, barred or refused. Only the owner knows which."""
    BARRED = "barred"
    """Left out of this session, because the storage may still act on a request whose answer never came, or has lost
    what it had acknowledged; the next session lets it in."""
    AWAY = "away"
    """Its storage does not answer, its owner does not reach it, or no session runs."""
    REFUSED = "refused"
    """The storage cannot be taken in as it is: an operator has to look at it."""
    OFFLINE = "offline"
    """The storage answers, and does not serve the replica: switched off, out of service, or not there."""


class Remedy(NamedTuple):
    """What to do, and where it is explained."""

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
