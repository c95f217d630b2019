"""A store that keeps nothing, for tables of which only the log is used."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from waltz.table.stores.interface import Changes, IndexEntry, Progress, Removal, Snapshot, Store, check_follows


class NoopStore(Store):
    """Takes every change, and finds nothing."""

    finds_rows: ClassVar[bool] = False

    def __init__(self) -> None:
        self.progress = Progress()

    def apply(self, changes: Changes) -> None:
        check_follows(self.progress, changes)
        skipped = self.progress.skipped + changes.skipped
        newest_ms = max(self.progress.newest_ms, changes.newest_ms)
        self.progress = Progress(
            applied=changes.applied, skipped=skipped, newest_ms=newest_ms, request_id=changes.request_id
        )

    def sweep(self, removal: Removal) -> None:
        check_follows(self.progress, removal)
        self.progress = self.progress._replace(applied=removal.applied, request_id=removal.request_id)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [None] * len(keys)

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def take_prefix(self, prefix: bytes, after: int, limit: int) -> list[IndexEntry]:
        return []

    def snapshot(self) -> Snapshot:
        frozen = NoopStore()
        frozen.progress = self.progress
        return frozen

    def close(self) -> None:
        """Nothing: no file is open."""
