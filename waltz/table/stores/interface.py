"""The interface of stores: seven operations, and the progress through the log."""

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
"""Number of rows that are read at once."""


class Progress(NamedTuple):
    """A store's progress through the log. Written in one step with the rows that it covers."""

    applied: int = NO_TRANSACTION
    """The last transaction whose effect is in the store."""
    rows: int = 0
    """Number of winning rows, with tombstones and rows that a sweep mark still has to take out."""
    tombstones: int = 0
    skipped: int = 0
    """Number of transactions that were no envelopes."""
    newest_ms: int = LONG_MIN
    """The latest time at which a batch was written, by the clock of its writer."""
    request_id: bytes = b""
    """Request id of the last transaction; empty if it is not known."""


class IndexEntry(NamedTuple):
    """The place of one row of a prefix in the log, whether it wins or not."""

    prefix: bytes
    transaction_id: int
    row: int
    """Index in the batch of that transaction."""
    key: bytes


class Changes(NamedTuple):
    """The rows of consecutive transactions, to be written in one step."""

    after: int
    """The transaction before the first of them."""
    applied: int
    """The last of these transactions."""
    rows: Mapping[bytes, bytes]
    """By joined key, the row that wins among these (:mod:`waltz.table.rows`)."""
    prefixed: Sequence[IndexEntry]
    """All rows that have a prefix, in the order of the log."""
    skipped: int
    """Number of the transactions that were no envelopes."""
    oldest: Oldest = Oldest(LONG_MIN, LONG_MIN, LONG_MIN, LONG_MIN)
    """Lower bounds of the rows' times."""
    newest_ms: int = LONG_MIN
    """The latest time at which a batch was written."""
    request_id: bytes = b""
    """Request id of the last transaction."""


class Removal(NamedTuple):
    """One transaction that removes rows."""

    applied: int
    mark: SweepMark | None
    """``None`` removes every row."""
    request_id: bytes = b""
    """Request id of the transaction."""

    @property
    def after(self) -> int:
        """The transaction before it."""
        return self.applied - 1

    def voids(self, row: bytes) -> bool:
        """Whether it removes a given winning row."""
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
        """The rows of :meth:`scan` in pages small enough for an event loop; a page may be empty."""
        rows = self.scan(start, end, reverse=reverse)
        while page := list(islice(rows, PAGE_ROWS)):
            yield page

    @abstractmethod
    def take_prefix(self, prefix: bytes, after: int, limit: int) -> list[IndexEntry]:
        """Rows of a prefix in the order of the log, of whole transactions after ``after``.

        Ends with the transaction that reaches ``limit`` rows. The empty prefix is not indexed: ``ValueError``.
        """

    def release_page(self) -> bool:
        """Let some of the memory go before :meth:`close`, the only other call that may follow; whether there is more.

        A close that lets millions of rows go at once would hold an event loop.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """Release the snapshot. Later reads raise :class:`~waltz.table.errors.StoreError`."""


class Store(Snapshot):
    """Rows, the index by prefix, and the progress, which :meth:`apply` and :meth:`sweep` change all at once.

    One thread at a time uses a store and its snapshots. ``StoreDamagedError`` may come from every operation.
    """

    finds_rows: ClassVar[bool] = True
    """Whether reads find the rows that were written. If not, no decision may rest on reads of this store."""

    loads_rows: ClassVar[bool] = False
    """Whether an empty store can begin with rows that were saved: :meth:`begin_load`, :meth:`load`, :meth:`end_load`.

    A store that is closed before :meth:`end_load`, or whose process is killed, is empty when it is opened again.
    """

    indexed_after: int = NO_TRANSACTION
    """The index by prefix has the rows of later transactions only."""

    @abstractmethod
    def apply(self, changes: Changes) -> None:
        """Write the rows that win over present rows. Raises :class:`~waltz.table.errors.ViewGapError`."""

    @abstractmethod
    def sweep(self, removal: Removal) -> None:
        """Remove rows: no read returns them any more. The index by prefix, which is about the log, stays.

        The rows may be taken out later, by :meth:`remove_page`; the rest of an earlier removal comes first. Raises
        ``ViewGapError``.
        """

    @property
    def removing(self) -> bool:
        """Whether removed rows still have to be taken out."""
        return False

    def remove_page(self) -> None:
        """Take some removed rows out: a number small enough for an event loop."""
        raise NotImplementedError

    def may_remove(self, mark: SweepMark) -> bool:
        """Whether a sweep mark might remove rows; ``False`` only if it certainly removes none."""
        return True

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """The present state, to be closed after use; keeps a copy of all rows that change meanwhile."""

    def begin_load(self) -> None:
        """Prepare an empty store for rows that were saved, instead of those of the log."""
        raise NotImplementedError

    def load(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write a page of joined keys and rows, each key once. No other call is allowed before :meth:`end_load`."""
        raise NotImplementedError

    def end_load(self, progress: Progress) -> None:
        """End the load: the store is as if it had applied the log up to ``progress.applied``, but for the index by
        prefix. The store has counted the rows by itself."""
        raise NotImplementedError

    def condemn(self) -> None:
        """Have the next opening rebuild the store, since its content is of another log. Raises ``StoreError``."""
        raise StoreError("this store cannot be rebuilt from here: remove its files, and open the table again")


def check_follows(progress: Progress, step: Changes | Removal) -> None:
    """Raise :class:`ViewGapError` unless the step begins where the store ends."""
    if step.after != progress.applied:
        raise ViewGapError(f"the view ends at transaction {progress.applied}, changes begin after {step.after}")
