"""The known damage in the segments of one log: met by reads, or found and partly mended by scans."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from waltz.storage.disk.files.descriptors import SegmentFiles
from waltz.storage.disk.log.log_view import LogView
from waltz.storage.disk.segment.scan import SegmentScan
from waltz.storage.disk.segment.segment import Segment


class LogDamage:
    """The damage of an open log. Reads in several threads may report damage at the same time."""

    def __init__(
        self,
        view: Callable[[], LogView],
        pinned: Callable[[Segment], AbstractContextManager[SegmentFiles]],
        change: Callable[[str, Callable[[], None]], None],
    ) -> None:
        """``view`` returns the readers' view of the log, ``pinned`` the files of a segment. ``change`` carries out a
        change of the files, and names the change in the text of a failure."""
        self._view = view
        self._pinned = pinned
        self._change = change
        self._lock = threading.Lock()
        self._suspects: set[Segment] = set()
        self._mended_entries = 0

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """First and last ids of records known to be damaged; these records have to come from another replica."""
        return tuple(damaged for segment in self._view().segments for damaged in segment.damaged)

    @property
    def paths(self) -> list[str]:
        """Data files that are damaged in any way."""
        return [segment.path for segment in self._view().segments if segment.damaged or segment.header_damaged]

    @property
    def headers(self) -> list[str]:
        """Data files with a damaged header that can still be used."""
        return [segment.path for segment in self._view().segments if segment.header_damaged]

    @property
    def cut_bytes(self) -> int:
        """The size of the torn write that was cut when the log was opened; 0 when none was cut."""
        return sum(segment.cut_bytes for segment in self._view().segments)

    @property
    def mended_index_entries(self) -> int:
        """Number of index entries that scans found wrong and wrote anew."""
        return self._mended_entries

    # Met by reads

    @property
    def has_suspects(self) -> bool:
        """Whether a read has met damage of unknown extent."""
        return bool(self._suspects)

    def suspect(self, segment: Segment, transaction_id: int | None) -> None:
        """Note that a read of the segment has failed, at this transaction if that is known."""
        with self._lock:
            self._suspects.add(segment)
            if transaction_id is not None:
                segment.add_damage(transaction_id)

    def forget(self, segment: Segment) -> None:
        """Forget the damage of a segment that was removed."""
        self._suspects.discard(segment)

    # Found by scans

    def segments_to_scan(self, *, suspicious: bool) -> list[Segment]:
        """All segments, or those in which a read has met damage."""
        return [segment for segment in self._view().segments if not suspicious or segment in self._suspects]

    def begin_scan(self, segment: Segment) -> SegmentScan:
        """Begin a scan of the published part of a segment; :meth:`scan_step` continues the scan."""
        view = self._view()
        return SegmentScan(segment, view.visible(segment), view.epoch, grows=segment is view.segments[-1])

    def scan_step(self, scan: SegmentScan) -> bool:
        """Check the next piece of a segment; return whether it was the last one. Blocking.

        May run at the same time as any other method. Raises ``StorageError`` when the log is closed, ``OSError``.
        """
        if self._view().epoch != scan.epoch:
            return True
        with self._pinned(scan.segment) as handles:
            return scan.step(handles)

    def finish_scan(self, scan: SegmentScan) -> bool:
        """Take over the findings of a scan, and mend the index. Blocking; must not overlap with another change of the
        log.

        Returns false when the log was truncated meanwhile, which makes the findings worthless. Raises ``OSError``,
        ``ReadOnlyError``.
        """
        segment, view = scan.segment, self._view()
        if view.epoch != scan.epoch or segment not in view.segments:
            return False
        if scan.wrong_entries or scan.wrong_header:
            self._change("mending of the index", partial(self._mend, scan))
            self._mended_entries += len(scan.wrong_entries)
        with self._lock:
            stop = scan.visible.next_transaction_id
            segment.header_damaged = scan.damaged_header
            segment.damaged = (*scan.damaged, *(found for found in segment.damaged if found[0] >= stop))
            self._suspects.discard(segment)
        return True

    def _mend(self, scan: SegmentScan) -> None:
        with self._pinned(scan.segment) as handles:
            scan.segment.mend_index(handles, scan.wrong_entries, header=scan.wrong_header)
