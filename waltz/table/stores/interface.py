"""What a store does: seven operations, and the progress that it has made through the log."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import ClassVar, NamedTuple

from waltz.common.ids import LONG_MIN, NO_TRANSACTION
from waltz.table.ages import Oldest, is_swept
from waltz.table.envelope import SweepMark
from waltz.table.errors import StoreError, ViewGapError
from waltz.table.rows import transaction_id_of, unpack_head

PAGE_ROWS = 256
"""As many rows are read at once."""


class Progress(NamedTuple):
    """How far through the log a store has come. Written together with what it is about, or not at all."""

    applied: int = NO_TRANSACTION
    """The last transaction whose effect the store holds."""
    rows: int = 0
    """Rows that win, tombstones included; those that a sweep mark has still to take out, too."""
    tombstones: int = 0
    skipped: int = 0
    """Transactions that were no envelopes."""
    newest_ms: int = LONG_MIN
    """The latest time at which a batch was written, by the clock of its writer."""
    request_id: bytes = b""
    """That of the last transaction; empty where it is not known."""


class IndexEntry(NamedTuple):
    """Where one row of a prefix stands in the log, whether it wins or not."""

    prefix: bytes
    transaction_id: int
    row: int
    """Its place in the batch of that transaction."""
    key: bytes


class Changes(NamedTuple):
    """The rows of consecutive transactions, to be written in one."""

    after: int
    """The transaction before the first of them."""
    applied: int
    """The last of them."""
    rows: Mapping[bytes, bytes]
    """By joined key, the row that wins among them (:mod:`waltz.table.rows`)."""
    prefixed: Sequence[IndexEntry]
    """All rows that have a prefix, in the order of the log."""
    skipped: int
    """How many of the transactions were no envelopes."""
    oldest: Oldest = Oldest(LONG_MIN, LONG_MIN, LONG_MIN, LONG_MIN)
    """None of the rows is older."""
    newest_ms: int = LONG_MIN
    """The latest time at which a batch was written."""
    request_id: bytes = b""
    """That of the last of them."""


class Removal(NamedTuple):
    """One transaction that removes rows."""

    applied: int
    mark: SweepMark | None
    """``None`` removes every row."""
    request_id: bytes = b""
    """That of the transaction."""

    @property
    def after(self) -> int:
        """The transaction before it."""
        return self.applied - 1

    def voids(self, row: bytes) -> bool:
        """Whether it removes a row that wins."""
        return transaction_id_of(row) < self.applied and (self.mark is None or is_swept(unpack_head(row), self.mark))


class Snapshot(ABC):
    """The rows as they were after one transaction."""

    progress: Progress

    @abstractmethod
    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of these joined keys, in their order."""

    @abstractmethod
    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Joined keys and rows of the range [``start``, ``end``), in order. ``None`` is open.

        Changes made meanwhile do not show.
        """

    def pages(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[list[tuple[bytes, bytes]]]:
        """What :meth:`scan` gives, as many rows at a time as a loop can be held for; a page may be empty."""
        rows = self.scan(start, end, reverse=reverse)
        while page := list(islice(rows, PAGE_ROWS)):
            yield page

    @abstractmethod
    def take_prefix(self, prefix: bytes, after: int, limit: int) -> list[IndexEntry]:
        """Rows of a prefix in the order of the log, of whole transactions behind ``after``.

        As many transactions as it takes to reach ``limit`` rows. The empty prefix is not indexed: ``ValueError``.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up what is held for it. Reading raises :class:`~waltz.table.errors.StoreError` from now on."""


class Store(Snapshot):
    """Rows, the index by prefix, and the progress, which :meth:`apply` and :meth:`sweep` change all at once.

    One thread at a time uses a store and its snapshots. ``StoreDamagedError`` may come from every operation.
    """

    finds_rows: ClassVar[bool] = True
    """Whether it finds what it was given. Where it does not, nothing may be decided on the rows that it gives."""

    @abstractmethod
    def apply(self, changes: Changes) -> None:
        """Write rows that win over those that are there. :class:`~waltz.table.errors.ViewGapError`."""

    @abstractmethod
    def sweep(self, removal: Removal) -> None:
        """Remove rows: no read gives them any more. The index by prefix stays: it tells of the log. ``ViewGapError``.

        They may be taken out later, by :meth:`remove_page`; what is left of another removal is done first.
        """

    @property
    def removing(self) -> bool:
        """Whether rows are to be taken out that were removed."""
        return False

    def remove_page(self) -> None:
        """Take some of them out: as many as a loop can be held for."""
        raise NotImplementedError

    def may_remove(self, mark: SweepMark) -> bool:
        """Whether a sweep mark might remove something; ``False`` only if that is certain."""
        return True

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """The present state, for as long as it is needed; it costs what changes meanwhile."""

    def condemn(self) -> None:
        """Have it begin anew when it is opened again: what it holds is of another log. Raises ``StoreError``."""
        raise StoreError("this store cannot be rebuilt from here: remove its files, and open the table again")


def check_follows(progress: Progress, step: Changes | Removal) -> None:
    """Raise :class:`ViewGapError` unless the step begins where the store ends."""
    if step.after != progress.applied:
        raise ViewGapError(f"the view ends at transaction {progress.applied}, changes begin after {step.after}")
