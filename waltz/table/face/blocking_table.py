"""The calls of a table for threads: each blocks until it is done on the loop of a client."""

from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from waltz.table.envelope import Row
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges
from waltz.table.face.sweeping import SweepCheck
from waltz.table.face.table import Table
from waltz.table.face.threads import BlockingWork, ThreadsClient, iterated, transact
from waltz.table.properties import PartitionProperties
from waltz.table.rows import TableRow, Version
from waltz.table.taking import Taken


class TableCalls:
    """The calls of :class:`~waltz.table.face.table.Table`, each blocking until it is done, with the same errors.

    Opened by ``with``; any number of threads may use it.
    """

    def __init__(
        self,
        client: ThreadsClient,
        partition_id: int,
        properties: PartitionProperties | None = None,
        *,
        store: str | None = None,
        directory: Path | None = None,
    ) -> None:
        """The arguments are those of :class:`~waltz.table.face.table.Table`, with a client of threads."""

        async def made() -> Table:
            return Table(client.asynchronous, partition_id, properties, store=store, directory=directory)

        self._run = client.run
        self._table = self._run(made())

    def __enter__(self) -> Self:
        self._run(self._table.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._table.__aexit__(kind, error, traceback))

    def transaction(
        self,
        work: BlockingWork,
        *,
        timeout_s: float = TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Read and write rows as if nobody else did; ``work`` is called on the thread of the caller."""
        return transact(self._table, self._run, work, timeout_s=timeout_s, max_attempts=max_attempts)

    # Made of waltz/table/face/table.py by `make twins`.

    @property
    def properties(self) -> PartitionProperties:
        """Those that hold at present. Raises ``TableError`` when they have changed so that the table cannot go on."""
        return self._table.properties

    @property
    def applied(self) -> int:
        """The last transaction whose effect the view holds, -1 at first."""
        return self._table.applied

    @property
    def skipped(self) -> int:
        """Transactions up to :attr:`applied` whose data the view could not use: they were no envelopes."""
        return self._table.skipped

    def put(self, key: bytes, value: bytes | None, *, prefix: bytes = b"", timestamp_ms: int | None = None) -> int:
        """Write one row. Raises as :meth:`batch`."""
        return self._run(self._table.put(key, value, prefix=prefix, timestamp_ms=timestamp_ms))

    def delete(self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None) -> int:
        """Delete one row, whether there is one or not. Raises as :meth:`batch`."""
        return self._run(self._table.delete(key, prefix=prefix, timestamp_ms=timestamp_ms))

    def batch(self, rows: Sequence[Row], *, any_timestamp: bool = False) -> int:
        """Write rows in one transaction.

        The clock of the process is compared with the newest row and with ZooKeeper.

        Args:
            rows: The rows, one at least.
            any_timestamp: Accept timestamps further ahead than the partition allows: such rows win over all that is
                written until then.

        Returns:
            The id of the transaction.

        Raises:
            ValueError: There are no rows.
            TimestampError: A timestamp is not positive, or further ahead than the partition allows.
            KeyTooLongError: A key is longer than the partition allows.
            EnvelopeError: The rows do not fit into the envelope.
        """
        return self._run(self._table.batch(rows, any_timestamp=any_timestamp))

    def truncate(self) -> int:
        """Void every row that is in the log before this."""
        return self._run(self._table.truncate())

    def sweep(self) -> int | None:
        """Have all views remove what has reached its age; ``None`` when the partition has no ages.

        Raises as :meth:`batch` does when the clock of this process is ahead of that of ZooKeeper.
        """
        return self._run(self._table.sweep())

    def sweep_if_due(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Sweep if some row has been past its age for the interval that the partition's properties give it.

        Looks at the rows of the view until one is found; ``None`` when there is none. Of several programs that do so at
        a time one sweeps: the others are told of its mark by the lock of the table, and look again. Raises
        ``NotAppendedError`` at the deadline.
        """
        return self._run(self._table.sweep_if_due(timeout_s=timeout_s))

    def check_sweep(self) -> SweepCheck:
        """What a sweep would find at this moment; looks at all rows of the view."""
        return self._run(self._table.check_sweep())

    def put_if(
        self,
        key: bytes,
        value: bytes | None,
        version: Version | None,
        *,
        prefix: bytes = b"",
        timeout_s: float = TIMEOUT_S,
    ) -> int:
        """Write a row if the present one has that version; ``None``: if readers see none.

        Returns:
            The id of the transaction.

        Raises:
            VersionConflict: The present row has another version.
            NotAppendedError: The deadline has passed, which holds for all of it.
        """
        return self._run(self._table.put_if(key, value, version, prefix=prefix, timeout_s=timeout_s))

    def refresh(self, *, strict: bool = True) -> None:
        """Return when the view has everything that was committed when this was called.

        Args:
            strict: With ``False``, a server that cannot confirm its mark, such as the original's, may tell its own: the
                view is behind then if that server has lost the partition without knowing it yet.

        Raises:
            ConfirmedMarkNotSupportedError: The server cannot confirm its mark.
            DeadlineExceededError: No answer came in time.
        """
        self._run(self._table.refresh(strict=strict))

    def high_water_mark(self, *, strict: bool = True) -> int:
        """A mark that includes everything that was committed when this was called, -1 if there is nothing.

        ``strict`` and errors are those of :meth:`refresh`.
        """
        return self._run(self._table.high_water_mark(strict=strict))

    def get(
        self, keys: Sequence[bytes], *, prefix: bytes = b"", raw: bool = False, fresh: bool = False
    ) -> list[TableRow | None]:
        """The rows of keys, in their order. With ``raw`` tombstones and expired rows are given too.

        With ``fresh`` the view first catches up with everything that was committed when this was called, by whichever
        server; that raises as :meth:`refresh`.
        """
        return self._run(self._table.get(keys, prefix=prefix, raw=raw, fresh=fresh))

    def get_slice(
        self, key: bytes, offset: int, size: int, *, prefix: bytes = b"", fresh: bool = False
    ) -> bytes | None:
        """Part of a value; ``None`` when there is no row, or its value is null. Raises ``ValueError`` below 0."""
        return self._run(self._table.get_slice(key, offset, size, prefix=prefix, fresh=fresh))

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
    ) -> Generator[TableRow, None, None]:
        """The rows of ranges of keys, in order; all of one state of the table.

        Args:
            ranges: One range of keys, or several, one after the other; by default all rows.
            prefix: Only rows of this prefix; ``ranges`` are then ranges of its keys.
            reverse: From the last key to the first one.
            limit: Most rows.
            raw: Give tombstones and expired rows, too.
            fresh: First catch up with what the owner of the partition has committed at this moment.

        Raises:
            TypeError: ``ranges`` is neither one range nor several.
            ValueError: A range is one of another prefix.
        """
        return iterated(
            self._run, self._table.scan(ranges, prefix=prefix, reverse=reverse, limit=limit, raw=raw, fresh=fresh)
        )

    def scan_keys(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Prefix and key of what :meth:`scan` gives."""
        return iterated(
            self._run, self._table.scan_keys(ranges, prefix=prefix, reverse=reverse, limit=limit, raw=raw, fresh=fresh)
        )

    def approximate_count(self, *, raw: bool = False) -> int:
        """How many rows there are: expired ones are counted, tombstones only with ``raw``.

        Those that a sweep has removed are counted until they are taken out of the view, page by page.
        """
        return self._run(self._table.approximate_count(raw=raw))

    def take(self, after: int, limit: int = 1000, *, prefix: bytes | None = None) -> Taken:
        """Rows in the order of the log, overwritten ones included, of whole transactions behind ``after``.

        Args:
            after: Id of the transaction before the first one; -1 for all.
            limit: As many transactions are taken as it takes to reach this number of rows.
            prefix: Only rows of this prefix. The view, unless its store finds no rows, then knows where to begin and
                where to end.

        Returns:
            The rows; ``at_end`` says that there was nothing behind them at the call, as far as the server can tell.

        Raises:
            ValueError: The limit is below 1.
            ClientAheadError: The log ends before ``after``.
            CodecUnavailableError: A transaction has a codec that is not installed.

        Raises what :meth:`refresh` raises, too.
        """
        return self._run(self._table.take(after, limit, prefix=prefix))

    def follow(
        self, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> Generator[Taken, None, None]:
        """What :meth:`take` gives, as it comes, without an end, or up to the transaction ``until``.

        It is the way to read much: every take reads ahead for itself. With a prefix there are no ``rows`` where
        transactions have none of it; the ``cursor`` is behind them all the same. ``at_end`` is always false, at the end
        of the log as well: nobody is asked where that is. Raises as :meth:`take`.
        """
        return iterated(self._run, self._table.follow(after, prefix=prefix, until=until), 1)
