"""What parts of tables and partitioned tables for threads need of a table, wherever its view is.

Made of ``waltz/table/face/interface.py`` by ``make twins``: change that module, not this one.
"""

from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Protocol, Self

from waltz.table.envelope import Row
from waltz.table.face.levels import Answer, ReadConsistency
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges
from waltz.table.face.sweeping import SweepCheck
from waltz.table.face.threads import BlockingWork
from waltz.table.rows import TableRow, Version
from waltz.table.taking import Taken


class AnyTableCalls(Protocol):
    """A table with a view in this process, or one that view nodes serve."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    @property
    def applied(self) -> int:
        """The last transaction that the table has, or has seen."""
        ...

    def put(
        self,
        key: bytes,
        value: bytes | None,
        *,
        prefix: bytes = b"",
        timestamp_ms: int | None = None,
        consistency: str | None = None,
    ) -> int:
        """Write one row."""
        ...

    def delete(
        self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None, consistency: str | None = None
    ) -> int:
        """Delete one row."""
        ...

    def batch(self, rows: Sequence[Row], *, any_timestamp: bool = False, consistency: str | None = None) -> int:
        """Write rows in one transaction."""
        ...

    def truncate(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Remove every row written before."""
        ...

    def sweep(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Remove the rows that have reached their age."""
        ...

    def sweep_if_due(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Sweep if some row is past its age."""
        ...

    def check_sweep(self) -> SweepCheck:
        """The rows that a sweep would remove."""
        ...

    def put_if(self, key: bytes, value: bytes | None, version: Version | None, *, prefix: bytes = b"") -> int:
        """Write a row if the present row has that version."""
        ...

    def transaction(
        self, work: BlockingWork, *, timeout_s: float = TIMEOUT_S, max_attempts: int | None = None
    ) -> int | None:
        """Read and write rows in isolation."""
        ...

    def refresh(self, *, strict: bool = True) -> None:
        """Have later reads see everything that was committed before."""
        ...

    def high_water_mark(self, *, strict: bool = True) -> int:
        """A mark that covers everything that was committed before."""
        ...

    def get(
        self,
        keys: Sequence[bytes],
        *,
        prefix: bytes = b"",
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Answer:
        """The rows of keys."""
        ...

    def scan(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Generator[TableRow, None, None]:
        """The rows of ranges of keys."""
        ...

    def scan_keys(
        self,
        ranges: Ranges | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        raw: bool = False,
        fresh: bool = False,
        consistency: ReadConsistency | None = None,
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Prefixes and keys of the rows of a scan."""
        ...

    def approximate_count(self, *, raw: bool = False) -> int:
        """Number of rows."""
        ...

    def take(self, after: int, limit: int = 1000, *, prefix: bytes | None = None) -> Taken:
        """Rows in the order of the log."""
        ...

    def follow(
        self, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> Generator[Taken, None, None]:
        """A stream of takes."""
        ...
