"""One segment of a partition's log: a data file, and the index file with the offset of each record."""

import logging
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from waltz.common.records import Record, RecordHeader
from waltz.storage.disk.files.descriptors import SegmentFiles
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.files.tail_file import TailFile
from waltz.storage.disk.segment.segment_format import (
    HEADER_SIZE_BYTES,
    INDEX_ENTRY_SIZE_BYTES,
    RECORD_PREFIX,
    STORED_OVERHEAD_BYTES,
    WIRE_PIECES,
    SegmentHeader,
    decode_index,
    decode_record,
    decode_span,
    encode_index,
    encode_span,
    header_span,
    index_offset,
    index_path,
    intact_sizes,
    stored_id_and_size,
    valid_record_size,
)
from waltz.storage.errors import CorruptionError, StorageError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_READ_BLOCK_BYTES = 4 << 20
_READ_BLOCK_RECORDS = 4096


class SegmentWrite(NamedTuple):
    """The records of one group of appends for one segment."""

    first_transaction_id: int
    starts_segment: bool
    offset: int
    chunks: list[bytes]
    record_offsets: list[int]
    end_offset: int
    checkpoint: bool


class ReadLimit:
    """The number of bytes of records on disk that a read may still return. The first record is always granted."""

    __slots__ = ("_begun", "reached", "remaining_bytes")

    def __init__(self, max_bytes: int | None) -> None:
        """``None``: no limit."""
        self.remaining_bytes = sys.maxsize if max_bytes is None else max_bytes
        self.reached = False
        self._begun = False

    def take(self, size_bytes: int) -> bool:
        """Whether ``size_bytes`` are granted."""
        self.reached = self._begun and size_bytes > self.remaining_bytes
        if not self.reached:
            self._begun = True
            self.remaining_bytes -= size_bytes
        return not self.reached


class Extent(NamedTuple):
    """The end of a segment for a reader."""

    next_transaction_id: int
    end_offset: int


Converter = Callable[[bytes, Sequence[int], int], tuple[int, T]]
"""Converts the bytes of consecutive records; the arguments include their bounds in the file and the first id.

It stops at the first damaged record, and returns the number of records before it.
"""


class StoredRecords(NamedTuple):
    """Consecutive intact records in the form of the disk, and the size of each in bytes."""

    sizes: list[int]
    data: bytes


def as_records(buffer: bytes, bounds: Sequence[int], transaction_id: int) -> tuple[int, list[Record]]:
    """A converter that decodes records."""
    records = decode_span(buffer, bounds, transaction_id)
    return len(records), records


def as_headers(buffer: bytes, bounds: Sequence[int], transaction_id: int) -> tuple[int, tuple[list[RecordHeader], int]]:
    """A converter that keeps the headers of records, and returns the number of bytes read for them."""
    headers = header_span(buffer, bounds, transaction_id)
    return len(headers), (headers, len(buffer))


def as_wire_pieces(buffer: bytes, bounds: Sequence[int], transaction_id: int) -> tuple[int, list[bytes]]:
    """A converter that encodes records for a list on the wire, :data:`WIRE_PIECES` each."""
    pieces = encode_span(buffer, bounds, transaction_id)
    return len(pieces) // WIRE_PIECES, pieces


def as_stored(buffer: bytes, bounds: Sequence[int], transaction_id: int) -> tuple[int, StoredRecords]:
    """A converter that returns the records unchanged."""
    sizes = intact_sizes(buffer, bounds, transaction_id)
    return len(sizes), StoredRecords(sizes, buffer)


class RecordCheck(NamedTuple):
    """The result of the check of one record for a tool. ``record`` is ``None`` unless the checksum is right."""

    transaction_id: int
    index_ok: bool
    checksum_ok: bool
    record: Record | None


class Segment:
    """The paths and the extent of a segment. Methods get the open files as arguments.

    ``next_transaction_id`` and ``end_offset`` rise with writes. Readers get the visible extent as an argument.
    """

    __slots__ = (
        "cut_bytes",
        "damaged",
        "end_offset",
        "header",
        "header_damaged",
        "index_path",
        "next_transaction_id",
        "path",
    )

    def __init__(self, path: str, header: SegmentHeader) -> None:
        """An empty segment; ``segment_opening`` makes segments with files."""
        self.path = path
        self.index_path = index_path(path)
        self.header = header
        self.next_transaction_id = header.first_transaction_id
        self.end_offset = HEADER_SIZE_BYTES
        self.damaged: tuple[tuple[int, int], ...] = ()
        """First and last ids of records that are known to be damaged, ascending."""
        self.header_damaged = False
        """Whether a scan found the header of the data file damaged."""
        self.cut_bytes = 0
        """Size of the torn write that was cut when the segment was opened."""

    @property
    def first_transaction_id(self) -> int:
        """The id of the first record, also of an empty segment."""
        return self.header.first_transaction_id

    def open_files(self, files: Files) -> SegmentFiles:
        """Open both files again."""
        data = files.open(self.path, create=False)
        try:
            return SegmentFiles(data, TailFile(files.open(self.index_path, create=False)))
        except BaseException:
            data.close()
            raise

    # Writing

    def write(self, handles: SegmentFiles, write: SegmentWrite) -> None:
        """Write records behind all earlier records. They count when :meth:`sync` has made them durable."""
        handles.data.write(write.offset, write.chunks)

    def sync(self, handles: SegmentFiles, write: SegmentWrite) -> None:
        """Make written records durable, in the order of the writes, then write the index entries.

        The index is written after the sync of the data, so that after a crash the index never refers to records that
        were not durable.
        """
        handles.data.datasync()
        self.write_index(handles, write)
        if write.checkpoint:
            handles.index.datasync()

    def write_index(self, handles: SegmentFiles, write: SegmentWrite) -> None:
        """Write the index entries of durable records."""
        entries_offset = index_offset(self.header.first_transaction_id, write.first_transaction_id)
        handles.index.write(entries_offset, [encode_index(write.record_offsets)])
        self.next_transaction_id = write.first_transaction_id + len(write.record_offsets)
        self.end_offset = write.end_offset

    def write_index_later(self, handles: SegmentFiles, write: SegmentWrite) -> None:
        """As :meth:`write_index`, but the entries may wait in memory until the next :meth:`flush`.

        After a crash before that, only the journal proves that the records were durable.
        """
        entries_offset = index_offset(self.header.first_transaction_id, write.first_transaction_id)
        handles.index.write_later(entries_offset, encode_index(write.record_offsets))
        self.next_transaction_id = write.first_transaction_id + len(write.record_offsets)
        self.end_offset = write.end_offset

    def cut_offset(self, handles: SegmentFiles, transaction_id: int) -> int:
        """The offset at which the data file has to be cut to keep the records up to ``transaction_id``.

        An intact record has to confirm the index.

        Raises ``StorageError`` when the id is out of range, ``CorruptionError`` when the place is damaged, ``OSError``.
        """
        if not self.first_transaction_id <= transaction_id + 1 <= self.next_transaction_id:
            raise StorageError(f"transaction id out of range: file={self.path}")
        if transaction_id + 1 == self.next_transaction_id:
            return self.end_offset
        if transaction_id < self.first_transaction_id:
            return HEADER_SIZE_BYTES
        entries = self._index_entries(handles, transaction_id, 2)
        if len(entries) == 2:
            size = valid_record_size(handles.data, entries[0], self.end_offset, transaction_id)
            if size is not None:
                return entries[0] + size
            if valid_record_size(handles.data, entries[1], self.end_offset, transaction_id + 1) is not None:
                return entries[1]
        raise self._corruption(transaction_id, "neither the record nor the next record is intact")

    def truncate(self, handles: SegmentFiles, transaction_id: int, offset: int) -> None:
        """Remove the records after ``transaction_id``, which ends at ``offset``, durably. Raises ``OSError``.

        The index is cut first: it never extends beyond the records.
        """
        if transaction_id + 1 == self.next_transaction_id:
            return
        handles.index.truncate(index_offset(self.first_transaction_id, transaction_id + 1))
        handles.index.sync()
        handles.data.truncate(offset)
        handles.data.sync()
        self._end_with(transaction_id, offset)

    def cut(self, handles: SegmentFiles, transaction_id: int, offset: int) -> None:
        """As :meth:`truncate`, but durable only after the next :meth:`flush`. Raises ``OSError``."""
        handles.index.truncate(index_offset(self.first_transaction_id, transaction_id + 1))
        handles.data.truncate(offset)
        self._end_with(transaction_id, offset)

    def _end_with(self, transaction_id: int, offset: int) -> None:
        self.next_transaction_id = transaction_id + 1
        self.end_offset = offset
        self.damaged = tuple(
            (first, min(last, transaction_id)) for first, last in self.damaged if first <= transaction_id
        )

    def mend_index(self, handles: SegmentFiles, entries: Sequence[tuple[int, int]], *, header: bool) -> None:
        """Write index entries (transaction id, offset) anew, durably, and on request the header. Raises ``OSError``."""
        if header:
            handles.index.write(0, [self.header._replace(version=0).encode()])
        for transaction_id, offset in entries:
            handles.index.write(index_offset(self.first_transaction_id, transaction_id), [encode_index([offset])])
        handles.index.datasync()

    def add_damage(self, transaction_id: int) -> None:
        """Remember that a record is damaged."""
        if any(first <= transaction_id <= last for first, last in self.damaged):
            return
        self.damaged = tuple(sorted((*self.damaged, (transaction_id, transaction_id))))

    def flush(self, handles: SegmentFiles) -> None:
        """Make data and index durable, in this order: the index never refers to missing records."""
        handles.data.sync()
        handles.index.sync()

    # Reading

    def read_blocks(
        self, handles: SegmentFiles, first: int, stop: int, visible: Extent, limit: ReadLimit, convert: Converter[T]
    ) -> Iterator[T]:
        """The records ``first`` to ``stop - 1``, converted block by block, up to the limit.

        Raises ``CorruptionError`` at a damaged record, ``OSError``.
        """
        while first < stop:
            offsets = self._record_bounds(handles, first, min(stop - first, _READ_BLOCK_RECORDS), visible)
            count = _count_within(offsets, offsets[0] + min(_READ_BLOCK_BYTES, limit.remaining_bytes))
            if not limit.take(offsets[count] - offsets[0]):
                return
            yield self._read_span(handles, first, offsets[: count + 1], visible, convert)
            first += count

    def _record_bounds(self, handles: SegmentFiles, first: int, count: int, visible: Extent) -> Sequence[int]:
        """Offsets of ``count`` records, and the end of the last one."""
        to_end = first + count == visible.next_transaction_id
        offsets = array("q", self._index_entries(handles, first, count if to_end else count + 1))
        if to_end:
            offsets.append(visible.end_offset)
        if len(offsets) != count + 1:
            raise self._corruption(first, f"{self.index_path} is too short")
        return offsets

    def _index_entries(self, handles: SegmentFiles, first: int, count: int) -> Sequence[int]:
        start = index_offset(self.first_transaction_id, first)
        return decode_index(handles.index.read(start, INDEX_ENTRY_SIZE_BYTES * count))

    def _read_span(
        self, handles: SegmentFiles, first: int, offsets: Sequence[int], visible: Extent, convert: Converter[T]
    ) -> T:
        """The records between the offsets, with one read."""
        start, end = offsets[0], offsets[-1]
        if not HEADER_SIZE_BYTES <= start < end <= visible.end_offset:
            raise self._corruption(first, f"{self.index_path} refers to a place outside of the records")
        count, converted = convert(handles.data.read(start, end - start), offsets, first)
        if count < len(offsets) - 1:
            raise self._corruption(first + count, f"no intact record at offset {offsets[count]}")
        return converted

    def verify(self, handles: SegmentFiles) -> Iterator[RecordCheck]:
        """Check the index entry and the checksum of every record. Raises ``OSError``."""
        for transaction_id in range(self.first_transaction_id, self.next_transaction_id):
            yield self.verify_record(handles, transaction_id)

    def verify_record(self, handles: SegmentFiles, transaction_id: int) -> RecordCheck:
        """Check one record. Raises ``StorageError`` when the id is not in the segment, ``OSError``."""
        if not self.first_transaction_id <= transaction_id < self.next_transaction_id:
            raise StorageError(f"transaction id out of range: file={self.path}")
        entries = self._index_entries(handles, transaction_id, 1)
        offset = entries[0] if entries and HEADER_SIZE_BYTES <= entries[0] < self.end_offset else None
        prefix = b"" if offset is None else handles.data.read(offset, RECORD_PREFIX.size)
        if offset is None or len(prefix) < RECORD_PREFIX.size:
            return RecordCheck(transaction_id, index_ok=False, checksum_ok=False, record=None)
        found_id, size = stored_id_and_size(prefix)
        record = None
        if STORED_OVERHEAD_BYTES <= size <= self.end_offset - offset:
            record = decode_record(handles.data.read(offset, size), 0, size, found_id)
        return RecordCheck(transaction_id, found_id == transaction_id, record is not None, record)

    def _corruption(self, transaction_id: int, reason: str) -> CorruptionError:
        return CorruptionError(self.header.partition_id, transaction_id, self.path, reason)


def _count_within(offsets: Sequence[int], farthest: int) -> int:
    """The number of records that end at or before ``farthest``; at least one.

    Offsets ascend, except in a damaged index. Then the read of the records finds the damage, and reads no more than the
    bytes up to ``farthest``.
    """
    count = max(bisect_right(offsets, farthest, 1) - 1, 1)
    return count if offsets[count] > offsets[0] else 1
