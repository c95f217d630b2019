"""Decides the content of a segment at its opening. This module only reads: the segment carries out the decision.

Records before a start point are not checked at the opening, but by a scan in the background. The start point is the
last record if the end is known: a later segment follows, or the node was stopped in order. Otherwise the start point is
the last index entry; when the index extends beyond the local low-water mark, the checkpoint (multiple of 1000) before
the last index entry, or the mark if the mark is later. Every record from the start point on is checked. For a damaged
record there are these cases:

- a later record is intact at the exact place in the index: damage in the middle, because index entries are written
  after synced records. The segment opens with all its records, and reads of the damaged records fail; these have to
  come from another replica;
- the record is at or below the local low-water mark, or before a known end: also damage. The next records are found by
  a search; if there are none and the end is unknown, the segment is refused. The only exception is an index that ends
  before the mark: the index covered the mark when the mark was set, so the log was cut since, and the present records
  were written after the cut;
- one bit is missing, and both a lost sector and a flipped bit explain that: the bit is set, and the record is intact;
- an interrupted write explains the damage, and nothing else does: neither this record nor any later record was
  acknowledged. Later records may be intact, because pieces of a write may reach the medium in another order. The log is
  cut from the damaged record on;
- otherwise the record may have been acknowledged, although the index has no entry for it: the segment is refused (rule
  S9).
"""

import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from waltz.storage.disk.segment.segment_format import (
    HEADER_SIZE_BYTES,
    INDEX_ENTRY_SIZE_BYTES,
    Reader,
    decode_index,
    find_later_record,
    index_offset,
    scan_records,
    valid_record_size,
)
from waltz.storage.disk.segment.torn_write import Bit, WithBits, is_torn, lost_bit
from waltz.storage.errors import CorruptionError

logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = 1000
"""Index and data are synced whenever the next transaction id is a multiple of this."""

_INDEX_BLOCK_ENTRIES = 8192


@dataclass(slots=True, frozen=True)
class SegmentContents:
    """The two files of a segment as found. Sizes in bytes; a missing index has size 0."""

    partition_id: int
    path: str
    first_transaction_id: int
    data: Reader
    data_size: int
    index: Reader
    index_size: int

    @property
    def index_max(self) -> int:
        """The last transaction id that has an index entry."""
        entries = max(self.index_size - HEADER_SIZE_BYTES, 0) // INDEX_ENTRY_SIZE_BYTES
        return self.first_transaction_id + entries - 1

    def was_cut_before(self, transaction_id: int) -> bool:
        """Whether the index ends before a record that is below the local low-water mark. A low-water mark is set after
        the index up to the mark is durable.

        In this case the log was cut there after the mark was set. An index without its header proves nothing.
        """
        return self.index_size >= HEADER_SIZE_BYTES and self.index_max < transaction_id

    def index_entries(self, first_id: int, end_id: int) -> Sequence[int]:
        """The index entries of a range of ids; all of these ids must have an entry."""
        start = index_offset(self.first_transaction_id, first_id)
        return decode_index(self.index.read(start, INDEX_ENTRY_SIZE_BYTES * (end_id - first_id)))

    def later_indexed_record(self, offset: int, transaction_id: int, end: int, end_id: int) -> tuple[int, int] | None:
        """The first later record that is intact at the place in its index entry, before the offset and the id
        ``end``."""
        end_id = min(end_id, self.index_max + 1)
        for block_id in range(transaction_id + 1, end_id, _INDEX_BLOCK_ENTRIES):
            block_end = min(block_id + _INDEX_BLOCK_ENTRIES, end_id)
            for later_id, later_offset in enumerate(self.index_entries(block_id, block_end), block_id):
                if offset < later_offset < end and valid_record_size(self.data, later_offset, end, later_id):
                    return later_id, later_offset
        return None


class SegmentEnd(NamedTuple):
    """The end of a segment."""

    next_transaction_id: int
    offset: int


class Known(NamedTuple):
    """Facts about a segment before it is read.

    ``following_first_id``: the first id of the next segment, ``None`` for the last one. ``clean_end``: the end of the
    last segment at an orderly stop of the node, ``None`` after a crash.
    """

    local_low_water_mark: int
    following_first_id: int | None = None
    clean_end: SegmentEnd | None = None

    @property
    def next_transaction_id(self) -> int | None:
        """The id after the last record that was certainly durable, if it is known."""
        if self.following_first_id is not None:
            return self.following_first_id
        return None if self.clean_end is None else self.clean_end.next_transaction_id

    def was_durable(self, transaction_id: int) -> bool:
        """Whether the record was certainly durable once."""
        end_id = self.next_transaction_id
        return transaction_id <= self.local_low_water_mark or (end_id is not None and transaction_id < end_id)


class Recovered(NamedTuple):
    """The decided state of a segment.

    ``entries`` are the index entries from ``start_transaction_id`` on; earlier entries stay unchanged. Everything after
    ``end_offset`` has to be cut.
    """

    next_transaction_id: int
    end_offset: int
    start_transaction_id: int
    entries: Sequence[int]
    damaged: tuple[tuple[int, int], ...]
    lost_bits: tuple[Bit, ...]
    """The bits that have to be set, durably, before the index refers to their records."""


def recover(contents: SegmentContents, known: Known) -> Recovered:
    """Decide the content of a segment.

    Raises ``CorruptionError`` when required records are missing, ``OSError`` when the files cannot be read.
    """
    start_id, offset = _start(contents, known)
    data = contents.data
    entries: array[int] = array("q")
    damaged: list[tuple[int, int]] = []
    lost_bits: list[Bit] = []
    next_id, index_end = start_id, contents.index_max + 1
    while True:
        offsets = scan_records(contents.data, offset, contents.data_size, next_id)
        entries.extend(offsets[:-1])
        next_id += len(offsets) - 1
        offset = offsets[-1]
        if offset == contents.data_size or next_id == known.following_first_id:
            break
        later = contents.later_indexed_record(offset, next_id, contents.data_size, index_end)
        if later is None:
            index_end = next_id  # the index is useless from here on, and is not read again after the next damage
            bit = lost_bit(contents.data, offset, contents.data_size, next_id)
            if bit is not None:
                lost_bits.append(bit)
                contents = replace(contents, data=WithBits(data, lost_bits))
                continue
            later = _after_damage(contents, known, offset, next_id)
        if later is None:
            break
        later_id, later_offset = later
        damaged.append((next_id, later_id - 1))
        _report(contents, offset, next_id, later_id - 1)
        # The beginning of the damage is certain; places inside the damage are in the index only.
        entries.append(offset)
        inside_end = max(min(later_id, contents.index_max + 1), next_id + 1)
        entries.extend(contents.index_entries(next_id + 1, inside_end))
        entries.extend([offset] * (later_id - inside_end))
        next_id, offset = later_id, later_offset
    _check_complete(contents, next_id, known)
    return Recovered(next_id, offset, start_id, entries, tuple(damaged), tuple(lost_bits))


def _start(contents: SegmentContents, known: Known) -> tuple[int, int]:
    """The transaction id and the offset from which on records are checked; the first record if the index is useless."""
    first_id, index_max = contents.first_transaction_id, contents.index_max
    if index_max <= known.local_low_water_mark or index_max + 1 == known.next_transaction_id:
        start_id = index_max
    else:
        checkpoint = (index_max - 1) // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL
        start_id = max(checkpoint, known.local_low_water_mark)
    if start_id > first_id:
        # A log that was cut below the mark may have new entries without a later sync: after a crash there may be later
        # entries without earlier ones.
        unsynced_from = max(first_id, (start_id - 1) // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL)
        entries = contents.index_entries(unsynced_from, start_id + 1)
        offset = entries[-1]
        intact = valid_record_size(contents.data, offset, contents.data_size, start_id) is not None
        if intact and min(entries) >= HEADER_SIZE_BYTES:
            return start_id, offset
        logger.warning("%s: no intact record %d at its place in the index; scanning all", contents.path, start_id)
    return first_id, HEADER_SIZE_BYTES


def _after_damage(contents: SegmentContents, known: Known, offset: int, transaction_id: int) -> tuple[int, int] | None:
    """The next records after a damaged record, if the index does not have them; ``None`` for a torn tail."""
    size = contents.data_size
    if known.was_durable(transaction_id):
        later = find_later_record(contents.data, offset, size, transaction_id)
        later = later or _known_end(contents, known, offset, transaction_id)
        if later is not None:
            return later
        if known.following_first_id is not None:
            return None  # the check of the end finds that the segment ends too early
        if contents.was_cut_before(transaction_id) and is_torn(contents.data, offset, size, transaction_id):
            return None
        raise CorruptionError(
            contents.partition_id,
            transaction_id,
            contents.path,
            f"no intact record at offset {offset}, but the local low-water mark is {known.local_low_water_mark}",
        )
    if is_torn(contents.data, offset, size, transaction_id):
        return None
    raise CorruptionError(
        contents.partition_id,
        transaction_id,
        contents.path,
        f"no intact record at offset {offset}, and the bytes there are not the rest of an interrupted write: "
        "it may have been acknowledged",
    )


def _known_end(contents: SegmentContents, known: Known, offset: int, transaction_id: int) -> tuple[int, int] | None:
    """The end of a segment with damaged last records, if all of these records have their bytes and their index
    entries."""
    end_id = known.next_transaction_id
    if end_id is None or transaction_id >= end_id or contents.index_max + 1 < end_id:
        return None
    end_offset = contents.data_size if known.clean_end is None else known.clean_end.offset
    return (end_id, end_offset) if offset < end_offset <= contents.data_size else None


def _report(contents: SegmentContents, offset: int, first: int, last: int) -> None:
    text = "partition %d: %s is damaged at offset %d; transactions %d to %d have to come from another replica"
    logger.error(text, contents.partition_id, contents.path, offset, first, last)


def _check_complete(contents: SegmentContents, next_id: int, known: Known) -> None:
    following_first_id, low_water_mark = known.following_first_id, known.local_low_water_mark
    if following_first_id is not None and next_id != following_first_id:
        raise CorruptionError(
            contents.partition_id,
            next_id,
            contents.path,
            f"the segment ends before transaction {next_id}, the next segment begins with {following_first_id}",
        )
    if next_id <= min(low_water_mark, contents.index_max):
        raise CorruptionError(
            contents.partition_id,
            next_id,
            contents.path,
            f"the data file ends before transaction {next_id}, but the local low-water mark is {low_water_mark}",
        )
