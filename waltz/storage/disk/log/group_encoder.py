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
_JOIN_LIMIT_BYTES = 256 << 10
"""Smaller writes are one piece, made once for the segment and the journal."""

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost


class LogEnd(NamedTuple):
    """The place of the next record."""

    next_transaction_id: int
    segment_first_id: int
    offset: int


def encode_group(
    start: LogEnd, threshold_bytes: int, batches: Sequence[Sequence[Record]]
) -> tuple[list[SegmentWrite], LogEnd, list[StorageError | None]]:
    """Encode batches of records one behind the other. The hot path: one loop with hardly any calls.

    A segment takes records until it is larger than the threshold; the next record begins another segment. Every segment
    takes at least one record, even with a threshold below the size of a header.

    Args:
        start: The place of the first record.
        threshold_bytes: The size of a segment.
        batches: Each batch is encoded up to its first record that is out of order; the next batch follows there.

    Returns:
        All writes, in order; the place behind them; and for each batch the reason why it was not encoded completely, or
        ``None``.
    """
    threshold_bytes = max(threshold_bytes, HEADER_SIZE_BYTES)
    next_id, segment_first_id, offset = start
    writes: list[SegmentWrite] = []
    errors: list[StorageError | None] = []
    write_first_id, write_offset, starts_segment = next_id, offset, False
    chunks: list[bytes] = []
    record_offsets: list[int] = []
    pack_prefix, pack_crc = RECORD_PREFIX.pack, RECORD_CRC.pack
    for batch in batches:
        error = None
        for transaction_id, req_id, header, data, checksum in batch:
            if transaction_id != next_id:
                error = StorageError("transaction out of order")
                break
            if offset > threshold_bytes:
                if record_offsets:
                    writes.append(_write(write_first_id, starts_segment, write_offset, chunks, record_offsets, offset))
                segment_first_id, offset = next_id, HEADER_SIZE_BYTES
                write_first_id, write_offset, starts_segment = next_id, offset, True
                chunks, record_offsets = [], []
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
        errors.append(error)
    if record_offsets:
        writes.append(_write(write_first_id, starts_segment, write_offset, chunks, record_offsets, offset))
    end: LogEnd = _new_tuple(LogEnd, (next_id, segment_first_id, offset))
    return writes, end, errors


def _write(
    first_id: int, starts_segment: bool, offset: int, chunks: list[bytes], record_offsets: list[int], end_offset: int
) -> SegmentWrite:
    if end_offset - offset <= _JOIN_LIMIT_BYTES:
        chunks = [b"".join(chunks)]
    next_id = first_id + len(record_offsets)
    checkpoint = next_id // CHECKPOINT_INTERVAL != first_id // CHECKPOINT_INTERVAL
    write: SegmentWrite = _new_tuple(
        SegmentWrite, (first_id, starts_segment, offset, chunks, record_offsets, end_offset, checkpoint)
    )
    return write
