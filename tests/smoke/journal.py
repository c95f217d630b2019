"""What a client was told, and what it applied: one side of what the checker compares."""

import enum
import pickle
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Outcome(enum.Enum):
    """What the client library said about a transaction in the end."""

    PENDING = "pending"
    COMMITTED = "committed"
    FAILED = "failed"
    """For good: no attempt of it may be in the log."""
    UNKNOWN = "unknown"
    """The client was closed before it knew."""


@dataclass(slots=True)
class Submitted:
    """One transaction that an application wanted."""

    number: int
    partition_id: int
    outcome: Outcome = Outcome.PENDING
    attempts: int = 0
    digest: int = 0
    """Of the last attempt."""
    transaction_id: int = -1
    """Where the client found it in the log, if committed."""
    reason: str = ""
    """Why it failed."""


class Fence(NamedTuple):
    """A write session that a client has begun."""

    partition_id: int
    number: int
    transaction_id: int
    """Behind it nothing comes of an older session."""
    exclusive: bool
    """Nothing comes of anybody else, either, as long as there is something of this session."""


class Sample(NamedTuple):
    """When a committed transaction was submitted and when it was applied, by ``time.monotonic``, in seconds."""

    partition_id: int
    submitted_at_s: float
    applied_at_s: float


@dataclass(slots=True)
class Journal:
    """Everything that one client submitted and applied."""

    client: int
    submitted: list[Submitted] = field(default_factory=list)
    applied: list["array[int]"] = field(default_factory=list)
    """For each partition the digests of what was applied; transaction ``n`` is at index ``n``."""
    samples: list[Sample] = field(default_factory=list)
    """Of the committed transactions, in the order of their application."""
    fences: list[Fence] = field(default_factory=list)
    """The write sessions that it has begun, as far as it has been told."""
    violations: list[str] = field(default_factory=list)
    """What the client itself saw that must not happen."""
    retries: int = 0
    """Attempts beyond the first, for whatever reason."""
    lock_failures: int = 0

    def count(self, outcome: Outcome) -> int:
        """How many transactions ended so."""
        return sum(submitted.outcome is outcome for submitted in self.submitted)

    def write(self, path: Path) -> None:
        """Keep it in a file for :meth:`read`."""
        with path.open("wb") as file:
            pickle.dump(self, file, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def read(path: Path) -> "Journal":
        """What :meth:`write` wrote; only for files of one's own."""
        with path.open("rb") as file:
            journal = pickle.load(file)
        assert isinstance(journal, Journal)
        return journal
