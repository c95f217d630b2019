"""The log of one partition on disk: ordered segments, of which the last one grows.

Life of a group of appends: ``prepare`` checks the order and encodes, ``write_and_sync`` makes it durable in a thread,
``publish`` makes it visible. A large group may be written while the one before it is being synced: ``write``, then
``sync``. Readers work on an immutable view, so they need no lock against the writer and never see
what is not durable.

A new segment begins with the record after the one that passed the size threshold. Everything in the old segment is
durable before the new one exists, so no crash leaves a gap between two segments.
"""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from waltz.common.ids import NO_TRANSACTION
from waltz.common.records import Record, RecordHeader
from waltz.storage.disk.descriptors import DescriptorCache, SegmentFiles
from waltz.storage.disk.files import Files
from waltz.storage.disk.group_encoder import GroupEncoder, LogEnd
from waltz.storage.disk.scan import SegmentScan
from waltz.storage.disk.segment import (
    Converter,
    Extent,
    ReadLimit,
    Segment,
    SegmentWrite,
    StoredRecords,
    as_records,
    as_stored,
    as_wire_pieces,
    create_segment,
    open_segment,
    read_header,
)
from waltz.storage.disk.segment_format import DATA_SUFFIX, WIRE_PIECES, SegmentHeader, index_path
from waltz.storage.disk.segment_recovery import Known, SegmentEnd
from waltz.storage.errors import CorruptionError, ReadOnlyError, StorageError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_READ_ATTEMPTS = 8


@dataclass(slots=True, frozen=True)
class _View:
    """What readers see. ``epoch`` changes with every truncation: what was read across one is read again."""

    segments: tuple[Segment, ...]
    end: LogEnd
    epoch: int


@dataclass(slots=True)
class Prepared:
    """Encoded appends, ready to be written as one group.

    ``errors[i]`` tells why batch ``i`` was refused at one of its records, ``None`` when all of it was accepted.
    """

    start: LogEnd
    end: LogEnd
    errors: list[StorageError | None]
    writes: list[SegmentWrite]
    view: _View | None = field(default=None, repr=False)

    @property
    def first_transaction_id(self) -> int:
        """Id of the first accepted record, if there is one."""
        return self.start.next_transaction_id

    @property
    def record_count(self) -> int:
        """Number of accepted records."""
        return self.end.next_transaction_id - self.start.next_transaction_id


class PartitionLog:
    """All records of a partition.

    Blocking methods are called inside ``files.run``. Of those that change files only one runs at a time (the caller's
    duty); reads may run beside it, and beside each other, in other threads.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        cluster_key: UUID,
        partition_id: int,
        *,
        segments: tuple[Segment, ...],
        descriptors: DescriptorCache,
        segment_size_threshold_bytes: int,
    ) -> None:
        """Use :meth:`open`."""
        self.directory = directory
        self.partition_id = partition_id
        self.read_only_reason: str | None = None
        """Why nothing is written any more: the failed write or sync. Lasts until the log is opened again."""
        self._files = files
        self._cluster_key = cluster_key
        self._threshold_bytes = segment_size_threshold_bytes
        self._descriptors = descriptors
        self._view = _View(segments, _end_of(segments[-1]), 0)
        self._damage_lock = threading.Lock()
        self._suspects: set[Segment] = set()
        self._mended_entries = 0
        self._closed = False

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        cluster_key: UUID,
        partition_id: int,
        *,
        local_low_water_mark: int,
        segment_size_threshold_bytes: int,
        segment_cache_capacity: int,
        clean_end: LogEnd | None = None,
    ) -> "PartitionLog":
        """Open and recover the log in its directory, which is created when missing. Blocking.

        ``clean_end`` is where it ended when the node was stopped in order, ``None`` when that is not known.

        Raises ``StorageError`` when the files belong to another cluster or partition, ``CorruptionError`` when records
        are damaged or missing that must not be, ``OSError``.
        """
        if not files.exists(directory):
            files.make_directory(directory)
        descriptors = DescriptorCache(segment_cache_capacity)
        try:
            segments: list[Segment] = []
            headers = _segment_headers(files, directory, cluster_key, partition_id, local_low_water_mark)
            for position, (path, header) in enumerate(headers):
                following = headers[position + 1][1].first_transaction_id if position + 1 < len(headers) else None
                known = Known(local_low_water_mark, following)
                if following is None and clean_end is not None:
                    known = known._replace(clean_end=_segment_end(header, clean_end))
                segment, handles = open_segment(files, path, header, known)
                descriptors.set_current(segment, handles)
                segments.append(segment)
            if not segments:
                segment, handles = create_segment(files, directory, cluster_key, partition_id, 0)
                descriptors.set_current(segment, handles)
                segments.append(segment)
            # What an earlier process created or removed is only known to be durable after this.
            files.sync_directory(directory)
            files.sync_directory(str(Path(directory).parent))
        except BaseException:
            descriptors.close()
            raise
        log = cls(
            files,
            directory,
            cluster_key,
            partition_id,
            segments=tuple(segments),
            descriptors=descriptors,
            segment_size_threshold_bytes=segment_size_threshold_bytes,
        )
        if log.max_transaction_id < local_low_water_mark:
            logger.error(
                "partition %d in %s ends with transaction %d, below its local low-water mark %d",
                partition_id,
                directory,
                log.max_transaction_id,
                local_low_water_mark,
            )
        return log

    @property
    def max_transaction_id(self) -> int:
        """The highest id that is durable and published; -1 when there is no record."""
        return self._view.end.next_transaction_id - 1

    @property
    def first_transaction_id(self) -> int:
        """Id with which the first segment begins; 0 unless old segments were taken away."""
        return self._view.segments[0].first_transaction_id

    @property
    def damaged_ranges(self) -> tuple[tuple[int, int], ...]:
        """First and last ids of records known to be damaged; they have to come from another replica."""
        return tuple(damaged for segment in self._view.segments for damaged in segment.damaged)

    @property
    def end(self) -> LogEnd:
        """Where the next record goes."""
        return self._view.end

    @property
    def cut_bytes(self) -> int:
        """Size of the torn write that was cut when the log was opened; 0 when it was whole."""
        return sum(segment.cut_bytes for segment in self._view.segments)

    @property
    def mended_index_entries(self) -> int:
        """Number of index entries found wrong by scans and written anew."""
        return self._mended_entries

    @property
    def segment_count(self) -> int:
        """Number of segments."""
        return len(self._view.segments)

    @property
    def open_segment_count(self) -> int:
        """Number of segments with open descriptors; at most the cache's capacity and one, and those being read."""
        return self._descriptors.open_count

    # Writing

    def prepare(self, batches: Sequence[Sequence[Record]], after: Prepared | None = None) -> Prepared:
        """Check the order of appends and encode them as one group. Changes nothing; does not block.

        Every batch is one request. At a record that is not the next one its batch is refused, with ``transaction out of
        order``; the records before it stay accepted, and the next batch goes on behind them. ``after`` is a prepared
        group still being written behind which these appends go, ``None``: behind what is published.
        """
        start = self._view.end if after is None else after.end
        encoder = GroupEncoder(start, self._threshold_bytes)
        errors = [self._refusal(batch) or encoder.add(batch) for batch in batches]
        return Prepared(start, encoder.end, errors, encoder.finish())

    def _refusal(self, batch: Sequence[Record]) -> StorageError | None:
        return self._read_only_error() if batch and self.read_only_reason is not None else None

    def write_and_sync(self, prepared: Prepared) -> None:
        """Make a group durable. Blocking.

        Any failure makes the log read-only: nothing of the group is published and nothing is ever tried again.

        Raises ``OSError``, ``ReadOnlyError`` when the log is read-only already, ``StorageError`` when the group does
        not go on behind what is published.
        """
        view = self._view
        if prepared.writes:
            self._check_order(prepared, view)
            segments = self._change("write", partial(self._write_and_sync, view.segments, prepared.writes))
            view = _View(segments, prepared.end, view.epoch)
        prepared.view = view

    def write(self, prepared: Prepared, after: Prepared | None = None) -> bool:
        """Write a group, and leave it to :meth:`sync` to make it durable. Blocking; may run beside another's sync.

        ``after`` is the written group behind which it goes, ``None``: what is published. False when it begins another
        segment; then nothing was written, and it is one for :meth:`write_and_sync` once the others are published.

        Raises as :meth:`write_and_sync`.
        """
        self._check_writable()
        view = self._view if after is None or after.view is None else after.view
        if prepared.writes:
            if len(prepared.writes) > 1 or prepared.writes[0].starts_segment:
                return False
            self._check_order(prepared, view)
            self._change("write", partial(self._write, view.segments[-1], prepared.writes[0]))
            view = _View(view.segments, prepared.end, view.epoch)
        prepared.view = view
        return True

    def sync(self, prepared: Prepared) -> None:
        """Make a group durable that was written; groups in the order of their writes. Blocking.

        Raises ``OSError``, ``ReadOnlyError`` when any write or sync has failed before; it is not tried again then.
        """
        assert prepared.view is not None, "it has to be written first"
        if prepared.writes:
            self._change("sync", partial(self._sync, prepared.view.segments[-1], prepared.writes[0]))

    def _check_order(self, prepared: Prepared, view: _View) -> None:
        self._check_writable()
        if prepared.start != view.end:
            raise StorageError("transaction out of order")

    def _write_and_sync(self, segments: tuple[Segment, ...], writes: list[SegmentWrite]) -> tuple[Segment, ...]:
        for write in writes:
            if write.starts_segment:
                segments = (*segments, self._roll(segments[-1], write.first_transaction_id))
            with self._pinned(segments[-1]) as handles:
                segments[-1].write(handles, write)
                segments[-1].sync(handles, write)
        return segments

    def _write(self, segment: Segment, write: SegmentWrite) -> None:
        with self._pinned(segment) as handles:
            segment.write(handles, write)

    def _sync(self, segment: Segment, write: SegmentWrite) -> None:
        with self._pinned(segment) as handles:
            segment.sync(handles, write)

    def _roll(self, full: Segment, first_transaction_id: int) -> Segment:
        with self._pinned(full) as handles:
            full.flush(handles)
        segment, handles = create_segment(
            self._files, self.directory, self._cluster_key, self.partition_id, first_transaction_id
        )
        self._descriptors.set_current(segment, handles)
        return segment

    def publish(self, prepared: Prepared) -> None:
        """Make a group visible that :meth:`write_and_sync` has written: its records can be read, the maximum moves."""
        assert prepared.view is not None, "only what is durable may be published"
        self._view = prepared.view

    def truncate(self, transaction_id: int) -> int:
        """Remove all records behind ``transaction_id``, durably. Returns the new maximum. Blocking.

        Raises ``StorageError`` when the id is out of range or the place to cut is damaged (nothing has changed then),
        ``OSError`` (the log may be read-only then).
        """
        view = self._view
        self._check_writable()
        if self.max_transaction_id <= transaction_id:
            return self.max_transaction_id
        first = view.segments[0]
        kept = tuple(s for s in view.segments if s is first or s.first_transaction_id <= transaction_id + 1)
        last = kept[-1]
        with self._pinned(last) as handles:
            offset = last.cut_offset(handles, transaction_id)
        end = LogEnd(transaction_id + 1, last.first_transaction_id, offset)
        # Readers stop seeing the records before they go; the changed epoch tells those who are just reading them.
        self._view = _View(kept, end, view.epoch + 1)
        self._change("truncation", partial(self._cut, view.segments[len(kept) :], last, end))
        return self.max_transaction_id

    def _cut(self, dropped: tuple[Segment, ...], last: Segment, end: LogEnd) -> None:
        # From the end backwards, each removal durable before the next: no crash leaves a gap between segments.
        for segment in reversed(dropped):
            self._remove(segment)
        handles = self._descriptors.make_current(last, partial(last.open_files, self._files))
        last.truncate(handles, end.next_transaction_id - 1, end.offset)

    def _remove(self, segment: Segment) -> None:
        for path in (segment.path, segment.index_path):
            if self._files.exists(path):
                self._files.remove(path)
        self._files.sync_directory(self.directory)
        self._descriptors.discard(segment)
        self._suspects.discard(segment)

    def flush(self) -> None:
        """Make index and data of the current segment durable, as a low-water mark wants it. Blocking; ``OSError``."""
        self._change("flush", self._flush)

    def _flush(self) -> None:
        segment = self._view.segments[-1]
        with self._pinned(segment) as handles:
            segment.flush(handles)

    def close(self) -> None:
        """Flush, unless the log is read-only, and close all files; again does nothing. Blocking; ``OSError``."""
        if self._closed:
            return
        try:
            if self.read_only_reason is None:
                self.flush()
        finally:
            self._closed = True
            self._descriptors.close()

    def delete_files(self) -> None:
        """Close, and remove the files of all segments, durably; the directory stays. Blocking; ``OSError``."""
        self._closed = True
        self._descriptors.close()
        for segment in reversed(self._view.segments):
            self._remove(segment)

    def _check_writable(self) -> None:
        if self._closed:
            raise StorageError("segment closed")
        if self.read_only_reason is not None:
            raise self._read_only_error()

    def _read_only_error(self) -> ReadOnlyError:
        return ReadOnlyError(
            f"segment not writable: partition {self.partition_id} is read-only since a {self.read_only_reason}; "
            "check the disk, then restart the storage node"
        )

    def _change(self, what: str, function: Callable[[], T]) -> T:
        """Do something to the files; if it fails in any way, their state is uncertain and nothing more is written."""
        self._check_writable()
        try:
            return function()
        except BaseException as error:
            self.read_only_reason = f"{what} failed: {error}"
            logger.critical(
                "partition %d in %s is read-only: %s", self.partition_id, self.directory, self.read_only_reason
            )
            raise

    # Reading

    def read(self, first: int, max_count: int, max_bytes: int | None = None) -> list[Record]:
        """The records ``first``, ``first + 1``, ... as far as there are any, at most ``max_count``. Blocking.

        Stops before the records' size on disk would pass ``max_bytes``, but not before one record was read. Empty when
        ``first`` is out of range.

        Raises ``CorruptionError`` when one of them is damaged, ``StorageError`` when the log is closed, ``OSError``.
        """
        return self._read(partial(self._collect, first, max_count, max_bytes))

    def read_encoded(self, first: int, max_count: int, max_bytes: int | None = None) -> tuple[int, list[bytes]]:
        """Like :meth:`read`: how many records, and their encoding in a list on the wire in pieces."""
        return self._read(partial(self._collect_encoded, first, max_count, max_bytes))

    def read_stored(self, first: int, max_count: int, max_bytes: int | None = None) -> list[StoredRecords]:
        """Like :meth:`read`, but the records as they are on disk, checked, in blocks that follow each other."""
        return self._read(partial(self._collect_stored, first, max_count, max_bytes))

    def read_headers(self, first: int, max_count: int) -> list[RecordHeader]:
        """Like :meth:`read`, without the payloads (which are checked all the same)."""
        return self._read(partial(self._collect_headers, first, max_count))

    def _collect(self, first: int, max_count: int, max_bytes: int | None, view: _View) -> list[Record]:
        return [record for block in self._blocks(view, first, max_count, max_bytes, as_records) for record in block]

    def _collect_encoded(
        self, first: int, max_count: int, max_bytes: int | None, view: _View
    ) -> tuple[int, list[bytes]]:
        pieces: list[bytes] = []
        for block in self._blocks(view, first, max_count, max_bytes, as_wire_pieces):
            pieces += block
        return len(pieces) // WIRE_PIECES, pieces

    def _collect_stored(self, first: int, max_count: int, max_bytes: int | None, view: _View) -> list[StoredRecords]:
        return list(self._blocks(view, first, max_count, max_bytes, as_stored))

    def _collect_headers(self, first: int, max_count: int, view: _View) -> list[RecordHeader]:
        return [
            RecordHeader(record.transaction_id, record.req_id, record.header)
            for block in self._blocks(view, first, max_count, None, as_records)
            for record in block
        ]

    def _read(self, function: Callable[[_View], T]) -> T:
        """Read from the present view; once more if a truncation took the ground away meanwhile."""
        for _ in range(_MAX_READ_ATTEMPTS):
            view = self._view
            try:
                result = function(view)
            except (StorageError, OSError):
                if self._view.epoch == view.epoch:
                    raise
            else:
                if self._view.epoch == view.epoch:
                    return result
        raise StorageError("truncated again and again while it was read")

    def _blocks(
        self, view: _View, first: int, max_count: int, max_bytes: int | None, convert: Converter[T]
    ) -> Iterator[T]:
        stop = min(first + max_count, view.end.next_transaction_id)
        position = bisect_right(view.segments, first, key=_first_id) - 1
        if position < 0:
            return
        limit = ReadLimit(max_bytes)
        for segment in view.segments[position:]:
            if first >= stop or limit.reached:
                return
            visible = self._visible(view, segment)
            segment_stop = min(stop, visible.next_transaction_id)
            with self._pinned(segment) as handles:
                try:
                    yield from segment.read_blocks(handles, first, segment_stop, visible, limit, convert)
                except (CorruptionError, OSError) as error:
                    if self._view.epoch == view.epoch:
                        self._suspect(segment, error.transaction_id if isinstance(error, CorruptionError) else None)
                    raise
            first = segment_stop

    # Damage

    def segments_to_scan(self, *, suspicious: bool) -> list[Segment]:
        """All segments, or those in which a read has met damage."""
        return [segment for segment in self._view.segments if not suspicious or segment in self._suspects]

    @property
    def damaged_paths(self) -> list[str]:
        """Data files that are damaged in any way."""
        return [segment.path for segment in self._view.segments if segment.damaged or segment.header_damaged]

    @property
    def damaged_headers(self) -> list[str]:
        """Data files whose header is damaged in a way that does not keep them from being used."""
        return [segment.path for segment in self._view.segments if segment.header_damaged]

    @property
    def has_suspects(self) -> bool:
        """Whether a read has met damage whose extent is not known yet."""
        return bool(self._suspects)

    def begin_scan(self, segment: Segment) -> SegmentScan:
        """A scan of what is published in a segment now; it goes on with :meth:`scan_step`."""
        view = self._view
        return SegmentScan(segment, self._visible(view, segment), view.epoch, grows=segment is view.segments[-1])

    def scan_step(self, scan: SegmentScan) -> bool:
        """Check another piece of a segment; whether it was the last. Blocking.

        May run beside everything else. Raises ``StorageError`` when the log is closed, ``OSError``.
        """
        if self._view.epoch != scan.epoch:
            return True
        with self._pinned(scan.segment) as handles:
            return scan.step(handles)

    def finish_scan(self, scan: SegmentScan) -> bool:
        """Take over what a scan has found, and mend the index. Blocking; not beside another change.

        Returns false when the log was truncated meanwhile: the scan is worth nothing then. Raises ``OSError``,
        ``ReadOnlyError``.
        """
        segment = scan.segment
        if self._view.epoch != scan.epoch or segment not in self._view.segments:
            return False
        if scan.wrong_entries or scan.wrong_header:
            self._change("mending of the index", partial(self._mend, scan))
            self._mended_entries += len(scan.wrong_entries)
        with self._damage_lock:
            stop = scan.visible.next_transaction_id
            segment.header_damaged = scan.damaged_header
            segment.damaged = (*scan.damaged, *(found for found in segment.damaged if found[0] >= stop))
            self._suspects.discard(segment)
        return True

    def _mend(self, scan: SegmentScan) -> None:
        with self._pinned(scan.segment) as handles:
            scan.segment.mend_index(handles, scan.wrong_entries, header=scan.wrong_header)

    def _suspect(self, segment: Segment, transaction_id: int | None) -> None:
        """A read of the segment failed; at this transaction, if that is known."""
        with self._damage_lock:
            self._suspects.add(segment)
            if transaction_id is not None:
                segment.add_damage(transaction_id)

    @staticmethod
    def _visible(view: _View, segment: Segment) -> Extent:
        if segment is view.segments[-1]:
            return Extent(view.end.next_transaction_id, view.end.offset)
        return Extent(segment.next_transaction_id, segment.end_offset)

    def _pinned(self, segment: Segment) -> AbstractContextManager[SegmentFiles]:
        return self._descriptors.pinned(segment, partial(segment.open_files, self._files))


def _end_of(segment: Segment) -> LogEnd:
    return LogEnd(segment.next_transaction_id, segment.first_transaction_id, segment.end_offset)


def _segment_end(last: SegmentHeader, clean_end: LogEnd) -> SegmentEnd | None:
    """The clean end as that of the last segment; ``None`` when another program has begun another segment since."""
    if last.first_transaction_id != clean_end.segment_first_id:
        return None
    return SegmentEnd(clean_end.next_transaction_id, clean_end.offset)


def _first_id(segment: Segment) -> int:
    return segment.first_transaction_id


def _segment_headers(
    files: Files, directory: str, cluster_key: UUID, partition_id: int, local_low_water_mark: int
) -> list[tuple[str, SegmentHeader]]:
    """Paths and headers of all segments in the order of their first ids."""
    paths = [str(Path(directory) / name) for name in files.list_directory(directory) if name.endswith(DATA_SUFFIX)]
    found = [(path, read_header(files, path, cluster_key, partition_id)) for path in paths]
    headers = [(path, header) for path, header in found if header is not None]
    headers.sort(key=lambda item: item[1].first_transaction_id)
    for (path, header), (_, following) in pairwise(headers):
        if header.first_transaction_id == following.first_transaction_id:
            raise CorruptionError(partition_id, header.first_transaction_id, path, "two segments begin with this id")
    beyond = max([local_low_water_mark, *(header.first_transaction_id for _, header in headers)])
    for path in (path for path, header in found if header is None):
        _discard_unfinished(files, directory, path, partition_id, beyond)
    if not headers and local_low_water_mark > NO_TRANSACTION:
        reason = f"there is no segment, but the local low-water mark is {local_low_water_mark}"
        raise CorruptionError(partition_id, None, directory, reason)
    return headers


def _discard_unfinished(files: Files, directory: str, path: str, partition_id: int, beyond: int) -> None:
    """Remove a segment whose creation was interrupted; it never held a record. Anywhere but at the end it is damage."""
    stem = Path(path).stem
    if not stem.isdecimal() or int(stem) <= beyond:
        raise CorruptionError(partition_id, None, path, "the header of the segment is missing")
    logger.warning("partition %d: discarding %s, whose creation was interrupted", partition_id, path)
    files.remove(path)
    if files.exists(index_path(path)):
        files.remove(index_path(path))
    files.sync_directory(directory)
