"""Scans whole segments in the background: every record and every index entry is checked, piece by piece.

The opening of a segment checks only its end. A scan checks the rest. Damaged records have to come from another replica.
Wrong index entries are computed from the records and mended in place.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from waltz.storage.disk.files.descriptors import SegmentFiles
from waltz.storage.disk.files.files import File
from waltz.storage.disk.segment.segment import Extent, Segment
from waltz.storage.disk.segment.segment_format import (
    HEADER_SIZE_BYTES,
    Reader,
    SegmentHeader,
    find_later_record,
    scan_records,
    valid_record_size,
)
from waltz.storage.disk.segment.segment_recovery import SegmentContents

logger = logging.getLogger(__name__)

STEP_BYTES = 256 << 10
"""Bytes of the data file that are checked in one step."""

_BLOCK_BYTES = 4096


class TolerantReader(Reader):
    """A reader that returns zeros in place of unreadable bytes."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.unreadable = False

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``."""
        try:
            return self._file.read(offset, size)
        except OSError as error:
            logger.error("cannot read %d bytes at offset %d: %s", size, offset, error)
            self.unreadable = True
        end = min(offset + size, self._file.size())
        pieces = []
        while offset < end:
            piece_size = min(_BLOCK_BYTES - offset % _BLOCK_BYTES, end - offset)
            try:
                pieces.append(self._file.read(offset, piece_size).ljust(piece_size, b"\0"))
            except OSError:
                pieces.append(bytes(piece_size))
            offset += piece_size
        return b"".join(pieces)


class Run(NamedTuple):
    """Intact records that stand back to back."""

    first: int
    last: int
    offset: int
    end_offset: int


class SegmentScan:
    """One pass over a segment, up to the end that is visible at the beginning of the pass."""

    __slots__ = (
        "_grows",
        "_index_end",
        "_next_id",
        "_offset",
        "damaged",
        "damaged_header",
        "epoch",
        "segment",
        "visible",
        "wrong_entries",
        "wrong_header",
    )

    def __init__(self, segment: Segment, visible: Extent, epoch: int, *, grows: bool) -> None:
        """``epoch`` is that of the log: a truncation ends the scan. ``grows``: the segment is the current one."""
        self.segment = segment
        self.visible = visible
        self.epoch = epoch
        self.damaged: list[tuple[int, int]] = []
        """First and last ids of damaged records found."""
        self.wrong_entries: list[tuple[int, int]] = []
        """Transaction ids and offsets of intact records with a wrong index entry."""
        self.damaged_header = False
        """Whether the header of the data file has changed."""
        self.wrong_header = False
        """Whether the header of the index file differs from that of the data file."""
        self._next_id = segment.first_transaction_id
        self._offset = HEADER_SIZE_BYTES
        self._grows = grows
        self._index_end = visible.next_transaction_id

    def step(self, handles: SegmentFiles) -> bool:
        """Check another piece; returns whether it was the last one. Blocking; ``OSError`` when the files are gone."""
        if self._offset == HEADER_SIZE_BYTES:
            if not self._grows:  # the bytes of the medium have to be read, not those of the page cache
                handles.data.discard_cache()
            self._check_headers(handles)
        stop_id, end = self.visible.next_transaction_id, self.visible.end_offset
        if self._next_id >= stop_id:
            return True
        contents = self._contents(handles)
        step_end = min(self._offset + STEP_BYTES, end)
        offsets = scan_records(contents.data, self._offset, step_end, self._next_id)
        self._check_entries(contents, offsets)
        self._next_id += len(offsets) - 1
        self._offset = offsets[-1]
        if self._next_id < stop_id and self._offset < end:
            size = valid_record_size(contents.data, self._offset, end, self._next_id)
            if size is not None:  # the record only extends beyond the step
                self._check_entries(contents, (self._offset, self._offset + size))
                self._next_id += 1
                self._offset += size
            else:
                self._skip_damage(contents)
        elif self._next_id < stop_id:
            self._add_damage(stop_id)
        return self._next_id >= stop_id

    def _contents(self, handles: SegmentFiles) -> SegmentContents:
        segment = self.segment
        return SegmentContents(
            segment.header.partition_id,
            segment.path,
            segment.first_transaction_id,
            TolerantReader(handles.data),
            self.visible.end_offset,
            TolerantReader(handles.index),
            handles.index.size(),
        )

    def _check_headers(self, handles: SegmentFiles) -> None:
        """Check the headers. They may differ in the time of creation only."""
        expected = self.segment.header._replace(version=0, creation_time_ms=0)
        found = []
        for file in (handles.data, handles.index):
            header = SegmentHeader.decode(
                TolerantReader(file).read(0, HEADER_SIZE_BYTES).ljust(HEADER_SIZE_BYTES, b"\0")
            )
            found.append(header._replace(creation_time_ms=0) == expected)
        self.damaged_header = not found[0]
        if self.damaged_header:
            logger.error("%s: the header of the data file is damaged", self.segment.path)
        self.wrong_header = not found[1]
        if self.wrong_header:
            logger.error("%s: the header is damaged; writing it anew", self.segment.index_path)

    def _check_entries(self, contents: SegmentContents, offsets: Sequence[int]) -> None:
        """Compare the index with the true offsets of the records from the next id on."""
        count = len(offsets) - 1
        if count == 0:
            return
        entries = contents.index_entries(self._next_id, self._next_id + count)
        wrong = [
            (transaction_id, offset)
            for transaction_id, offset in enumerate(offsets[:count], self._next_id)
            if transaction_id - self._next_id >= len(entries) or entries[transaction_id - self._next_id] != offset
        ]
        if wrong:
            text = "%s: %d index entries from transaction %d on are wrong; writing them anew"
            logger.error(text, self.segment.index_path, len(wrong), wrong[0][0])
            self.wrong_entries += wrong

    def _skip_damage(self, contents: SegmentContents) -> None:
        # The beginning of the damage is certain: the end of the record before.
        self._check_entries(contents, (self._offset, self._offset))
        stop_id, end = self.visible.next_transaction_id, self.visible.end_offset
        later = contents.later_indexed_record(self._offset, self._next_id, end, min(stop_id, self._index_end))
        if later is None:
            self._index_end = self._next_id  # the index is useless from here on
            found = find_later_record(contents.data, self._offset, end, self._next_id)
            later = found if found is not None and found[0] < stop_id else None
        if later is None:
            self._add_damage(stop_id)
        else:
            self._add_damage(later[0])
            self._offset = later[1]

    def _add_damage(self, end_id: int) -> None:
        text = "partition %d: %s is damaged at offset %d; transactions %d to %d have to come from another replica"
        segment = self.segment
        logger.error(text, segment.header.partition_id, segment.path, self._offset, self._next_id, end_id - 1)
        self.damaged.append((self._next_id, end_id - 1))
        self._next_id = end_id
