"""Creates, identifies and opens the files of a segment, after any kind of crash or damage."""

import logging
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from waltz.storage.disk.files.descriptors import SegmentFiles
from waltz.storage.disk.files.files import File, Files, see_the_medium
from waltz.storage.disk.files.tail_file import TailFile
from waltz.storage.disk.segment.segment import Segment
from waltz.storage.disk.segment.segment_format import (
    HEADER_SIZE_BYTES,
    SegmentHeader,
    data_file_name,
    encode_index,
    index_offset,
    valid_record_size,
)
from waltz.storage.disk.segment.segment_recovery import Known, Recovered, SegmentContents, recover
from waltz.storage.disk.segment.torn_write import Bit
from waltz.storage.errors import CorruptionError, StorageError

logger = logging.getLogger(__name__)


def create_segment(
    files: Files, directory: str, cluster_key: UUID, partition_id: int, first_transaction_id: int
) -> tuple[Segment, SegmentFiles]:
    """Create both files of an empty segment, durably; the index file first, as in the original.

    Remains of an interrupted creation or deletion with the same names are discarded: an index file without its data
    file, or a data file without a complete header.

    Raises ``StorageError`` when the data file exists already, ``OSError``.
    """
    header = SegmentHeader(0, files.time_ms(), cluster_key, partition_id, first_transaction_id)
    segment = Segment(str(Path(directory) / data_file_name(first_transaction_id)), header)
    if files.exists(segment.path):
        if read_header(files, segment.path, cluster_key, partition_id) is not None:
            raise StorageError(f"segment file not empty: {segment.path}")
        files.remove(segment.path)
    if files.exists(segment.index_path):
        logger.warning("discarding %s: it has no data file", segment.index_path)
        files.remove(segment.index_path)
    index = _create_file(files, segment.index_path, header)
    try:
        data = _create_file(files, segment.path, header)
    except BaseException:
        index.close()
        raise
    handles = SegmentFiles(data, TailFile(index))
    try:
        files.sync_directory(directory)
    except BaseException:
        handles.close()
        raise
    return segment, handles


def _create_file(files: Files, path: str, header: SegmentHeader) -> File:
    file = files.open(path, create=True)
    try:
        file.write(0, [header.encode()])
        file.sync()
    except BaseException:
        file.close()
        raise
    return file


def read_header(files: Files, path: str, cluster_key: UUID, partition_id: int) -> SegmentHeader | None:
    """The header of a data file; ``None`` if the creation of the file was interrupted: such a file never had a record.

    The header has the first transaction id. If the name of the file has another id, the first record decides.

    Raises ``StorageError`` when the file is not a segment of this partition, ``CorruptionError`` when the range of its
    records is unknown, ``OSError``.
    """
    file = files.open(path, create=False)
    try:
        see_the_medium(file)
        size = file.size()
        data = file.read(0, HEADER_SIZE_BYTES)
        if len(data) < HEADER_SIZE_BYTES or (size == HEADER_SIZE_BYTES and not any(data)):
            return None
        header = SegmentHeader.decode(data)
        if header.cluster_key != cluster_key or header.partition_id != partition_id:
            raise StorageError(f"failed to open segment file: {path}")
        first_id, stem = header.first_transaction_id, Path(path).stem
        if (
            stem.isdecimal()
            and int(stem) != first_id
            and valid_record_size(file, HEADER_SIZE_BYTES, size, first_id) is None
        ):
            reason = f"the first transaction is {first_id} according to the header, {int(stem)} according to the name"
            raise CorruptionError(partition_id, None, path, reason)
        return header
    finally:
        file.close()


def open_segment(
    files: Files,
    path: str,
    header: SegmentHeader,
    known: Known,
) -> tuple[Segment, SegmentFiles]:
    """Open a segment and recover it: rebuild the index if needed, cut a torn tail, make the rest durable.

    ``header`` is the result of :func:`read_header`.

    Raises ``StorageError`` when the index file belongs to another segment, ``CorruptionError`` (no file has changed
    then), ``OSError``.
    """
    segment = Segment(path, header)
    data = files.open(path, create=False)
    try:
        index = files.open(segment.index_path, create=True)
    except BaseException:
        data.close()
        raise
    handles = SegmentFiles(data, TailFile(index))
    try:
        see_the_medium(index)
        index_size = _usable_index_size(segment, index)
        contents = SegmentContents(
            header.partition_id, path, header.first_transaction_id, data, data.size(), index, index_size
        )
        recovered = recover(contents, known)
        _settle(segment, handles, recovered, index_size)
    except BaseException:
        handles.close()
        raise
    return segment, handles


def _usable_index_size(segment: Segment, index: File) -> int:
    """The size of the index file; 0 when the header was never completed: the index is rebuilt then."""
    data = index.read(0, HEADER_SIZE_BYTES)
    if len(data) < HEADER_SIZE_BYTES or not any(data):
        logger.warning("%s has no header; rebuilding it", segment.index_path)
        return 0
    header = SegmentHeader.decode(data)
    if header.cluster_key != segment.header.cluster_key:
        raise StorageError(f"the cluster key does not match: {segment.index_path}")
    if header.partition_id != segment.header.partition_id:
        raise StorageError(f"partition id does not match: {segment.index_path}")
    if header.first_transaction_id != segment.first_transaction_id:
        logger.error("%s: the first transaction in the header is wrong; mending it", segment.index_path)
        index.write(0, [segment.header.encode()])
    return index.size()


def _settle(segment: Segment, handles: SegmentFiles, recovered: Recovered, index_size: int) -> None:
    """Carry out the decision of recovery with the least changes, and make the files durable."""
    data, index = handles.data, handles.index
    if recovered.lost_bits:
        _set_lost_bits(segment, data, recovered.lost_bits)
    if index_size == 0:
        index.truncate(0)
        index.write(0, [segment.header.encode()])
    start = index_offset(segment.first_transaction_id, recovered.start_transaction_id)
    entries = encode_index(recovered.entries)
    if index.read(start, len(entries)) != entries:
        index.write(start, [entries])
    if index.size() > start + len(entries):
        index.truncate(start + len(entries))
    index.sync()
    torn = data.size() - recovered.end_offset
    if torn > 0:
        logger.warning(
            "partition %d: cutting a torn write of %d bytes behind transaction %d from %s",
            segment.header.partition_id,
            torn,
            recovered.next_transaction_id - 1,
            segment.path,
        )
        data.truncate(recovered.end_offset)
        segment.cut_bytes = torn
    data.sync()
    segment.next_transaction_id = recovered.next_transaction_id
    segment.end_offset = recovered.end_offset
    segment.damaged = recovered.damaged


def _set_lost_bits(segment: Segment, data: File, bits: Sequence[Bit]) -> None:
    for bit in bits:
        logger.warning(
            "partition %d: setting bit %#04x at offset %d of %s, which a loss of power or the medium has cleared",
            segment.header.partition_id,
            bit.mask,
            bit.offset,
            segment.path,
        )
        data.write(bit.offset, [bytes([data.read(bit.offset, 1)[0] | bit.mask])])
    data.sync()
