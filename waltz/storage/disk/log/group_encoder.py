"""Encodes a group of appends for the disk and divides it among segments. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from waltz.common.checksum import crc32
from waltz.common.records import Record
from waltz.storage.disk.segment.segment import SegmentWrite
from waltz.storage.disk.segment.segment_format import (
    HEADER_SIZE_BYTES,
    RECORD_CRC,
    RECORD_PREFIX,
    STORED_OVERHEAD_BYTES,
)
from waltz.storage.disk.segment.segment_recovery import CHECKPOINT_INTERVAL
from waltz.storage.errors import StorageError

_COPY_LIMIT_BYTES = 4096


class LogEnd(NamedTuple):
    """Where the next record goes."""

    next_transaction_id: int
    segment_first_id: int
    offset: int


class GroupEncoder:
    """Encodes batches of records one behind the other.

    A segment takes records until it is larger than the threshold; the next record then begins another one.
    """

    def __init__(self, start: LogEnd, threshold_bytes: int) -> None:
        """Go on at ``start``. A threshold below the size of a header cannot be kept: every segment takes a record."""
        self._threshold_bytes = max(threshold_bytes, HEADER_SIZE_BYTES)
        self._next_id, self._segment_first_id, self._offset = start
        self._writes: list[SegmentWrite] = []
        self._begin(starts_segment=False)

    @property
    def end(self) -> LogEnd:
        """Where the next record goes."""
        return LogEnd(self._next_id, self._segment_first_id, self._offset)

    def add(self, batch: Sequence[Record]) -> StorageError | None:
        """Encode a batch up to its first record that is out of order. The hot path: one loop, no calls of our own."""
        next_id, offset, threshold_bytes = self._next_id, self._offset, self._threshold_bytes
        chunks, record_offsets = self._chunks, self._record_offsets
        pack_prefix, pack_crc = RECORD_PREFIX.pack, RECORD_CRC.pack
        error = None
        for transaction_id, req_id, header, data, checksum in batch:
            if transaction_id != next_id:
                error = StorageError("transaction out of order")
                break
            if offset > threshold_bytes:
                self._next_id, self._offset = next_id, offset
                self._roll()
                offset = self._offset
                chunks, record_offsets = self._chunks, self._record_offsets
            size = len(data)
            prefix = pack_prefix(transaction_id, req_id, header, size, checksum)
            if size < _COPY_LIMIT_BYTES:
                body = prefix + data
                chunks.append(body)
                chunks.append(pack_crc(crc32(body)))
            else:
                chunks += (prefix, data, pack_crc(crc32(data, crc32(prefix))))
            record_offsets.append(offset)
            offset += STORED_OVERHEAD_BYTES + size
            next_id += 1
        self._next_id, self._offset = next_id, offset
        return error

    def finish(self) -> list[SegmentWrite]:
        """All writes, in order; none when no record was accepted."""
        if self._record_offsets:
            self._end_segment()
        return self._writes

    def _begin(self, *, starts_segment: bool) -> None:
        self._starts_segment = starts_segment
        self._write_first_id = self._next_id
        self._write_offset = self._offset
        self._chunks: list[bytes] = []
        self._record_offsets: list[int] = []

    def _roll(self) -> None:
        if self._record_offsets:
            self._end_segment()
        self._segment_first_id, self._offset = self._next_id, HEADER_SIZE_BYTES
        self._begin(starts_segment=True)

    def _end_segment(self) -> None:
        checkpoint = self._next_id // CHECKPOINT_INTERVAL != self._write_first_id // CHECKPOINT_INTERVAL
        self._writes.append(
            SegmentWrite(
                self._write_first_id,
                self._starts_segment,
                self._write_offset,
                self._chunks,
                self._record_offsets,
                self._offset,
                checkpoint,
            )
        )
