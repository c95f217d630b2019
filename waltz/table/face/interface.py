"""What parts of tables and partitioned tables need of a table, wherever its view is."""

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Protocol, Self

from waltz.table.envelope import Row
from waltz.table.face.levels import Answer, ReadConsistency
from waltz.table.face.partition import TIMEOUT_S
from waltz.table.face.ranges import Ranges
from waltz.table.face.sweeping import SweepCheck
from waltz.table.face.transacting import Work
from waltz.table.rows import TableRow, Version
from waltz.table.taking import Taken


class AnyTable(Protocol):
    """A table with a view in this process, or one that view nodes serve."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    @property
    def applied(self) -> int:
        """The last transaction that the table has, or has seen."""
        ...

    async def put(
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

    async def delete(
        self, key: bytes, *, prefix: bytes = b"", timestamp_ms: int | None = None, consistency: str | None = None
    ) -> int:
        """Delete one row."""
        ...

    async def batch(self, rows: Sequence[Row], *, any_timestamp: bool = False, consistency: str | None = None) -> int:
        """Write rows in one transaction."""
        ...

    async def truncate(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Remove every row written before."""
        ...

    async def sweep(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Remove the rows that have reached their age."""
        ...

    async def sweep_if_due(self, *, timeout_s: float = TIMEOUT_S) -> int | None:
        """Sweep if some row is past its age."""
        ...

    async def check_sweep(self) -> SweepCheck:
        """The rows that a sweep would remove."""
        ...

    async def put_if(self, key: bytes, value: bytes | None, version: Version | None, *, prefix: bytes = b"") -> int:
        """Write a row if the present row has that version."""
        ...

    async def transaction(
        self, work: Work, *, timeout_s: float = TIMEOUT_S, max_attempts: int | None = None
    ) -> int | None:
        """Read and write rows in isolation."""
        ...

    async def refresh(self, *, strict: bool = True) -> None:
        """Have later reads see everything that was committed before."""
        ...

    async def high_water_mark(self, *, strict: bool = True) -> int:
        """A mark that covers everything that was committed before."""
        ...

    async def get(
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
    ) -> AsyncGenerator[TableRow, None]:
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
    ) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """Prefixes and keys of the rows of a scan."""
        ...

    async def approximate_count(self, *, raw: bool = False) -> int:
        """Number of rows."""
        ...

    async def take(self, after: int, limit: int = 1000, *, prefix: bytes | None = None) -> Taken:
        """Rows in the order of the log."""
        ...

    def follow(
        self, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> AsyncGenerator[Taken, None]:
        """A stream of takes."""
        ...
