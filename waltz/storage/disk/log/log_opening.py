"""Opens the segments of a log: finds the files, their order, and the content of each."""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from waltz.common.ids import NO_TRANSACTION
from waltz.storage.disk.files.descriptors import DescriptorCache
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.group_encoder import LogEnd
from waltz.storage.disk.segment.segment import Segment
from waltz.storage.disk.segment.segment_format import (
    DATA_SUFFIX,
    INDEX_SUFFIX,
    SegmentHeader,
    data_file_name,
    index_path,
)
from waltz.storage.disk.segment.segment_opening import create_segment, open_segment, read_header
from waltz.storage.disk.segment.segment_recovery import Known, SegmentEnd
from waltz.storage.disk.times.time_format import TIME_INDEX_SUFFIX
from waltz.storage.errors import CorruptionError

logger = logging.getLogger(__name__)

_REPAIR = "fill it from another replica (waltz storage repair)"


def open_segments(
    files: Files,
    directory: str,
    cluster_key: UUID,
    partition_id: int,
    *,
    local_low_water_mark: int,
    clean_end: LogEnd | None,
    trim_point: int,
    descriptors: DescriptorCache,
) -> tuple[Segment, ...]:
    """Open and recover all segments of a directory; a missing directory, or the first segment of a new log, is created.
    Blocking.

    The removal of trimmed segments, which a crash may have interrupted, is completed. ``clean_end`` is the end of the
    log at the orderly stop of the node, ``None`` if it is not known. The files stay open in ``descriptors``.

    Raises ``StorageError`` when files belong to another cluster or partition, ``CorruptionError`` when required records
    are damaged or missing, ``OSError``.
    """
    if not files.exists(directory):
        files.make_directory(directory)
    segments: list[Segment] = []
    headers = _segment_headers(files, directory, cluster_key, partition_id, local_low_water_mark)
    _check_begin(directory, partition_id, headers, trim_point)
    headers = _without_trimmed(files, directory, partition_id, headers, trim_point)
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
    # Only this makes files durable that an earlier process has created or removed.
    files.sync_directory(directory)
    files.sync_directory(str(Path(directory).parent))
    return tuple(segments)


def _segment_end(last: SegmentHeader, clean_end: LogEnd) -> SegmentEnd | None:
    """The clean end of the last segment; ``None`` if another program has begun a further segment since."""
    if last.first_transaction_id != clean_end.segment_first_id:
        return None
    return SegmentEnd(clean_end.next_transaction_id, clean_end.offset)


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
        reason = f"there is no segment, but the local low-water mark is {local_low_water_mark}; {_REPAIR}"
        raise CorruptionError(partition_id, None, directory, reason)
    return headers


def _check_begin(directory: str, partition_id: int, headers: list[tuple[str, SegmentHeader]], trim_point: int) -> None:
    """Raise ``CorruptionError`` when the first segment with records from the trim point on is missing."""
    if not headers:
        return
    first_id = headers[0][1].first_transaction_id
    if first_id > trim_point:
        trimmed = f"only those before {trim_point} were trimmed" if trim_point else "nothing was trimmed"
        reason = (
            f"the segment with this transaction is missing from {directory}: the log begins with transaction "
            f"{first_id}, but {trimmed}; {_REPAIR}"
        )
        raise CorruptionError(partition_id, trim_point, str(Path(directory) / data_file_name(trim_point)), reason)


def _without_trimmed(
    files: Files, directory: str, partition_id: int, headers: list[tuple[str, SegmentHeader]], trim_point: int
) -> list[tuple[str, SegmentHeader]]:
    """Remove the segments that have no records from the trim point on. Returns the other segments."""
    if not (headers and trim_point):
        return headers
    trimmed_count = trimmed_segments([header.first_transaction_id for _, header in headers], trim_point)
    for path, _ in headers[:trimmed_count]:
        logger.info("partition %d: removing %s, which is trimmed", partition_id, path)
        remove_trimmed(files, directory, path)
    kept = headers[trimmed_count:]
    # A crash may have left any of the files of a segment whose removal was not durable yet.
    for name in files.list_directory(directory):
        stem = Path(name).stem
        left = name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)) and stem.isdecimal()
        if left and int(stem) < kept[0][1].first_transaction_id:
            files.remove(str(Path(directory) / name))
    return kept


def trimmed_segments(first_ids: Sequence[int], trim_point: int) -> int:
    """The number of segments, by their ascending first ids, that have no records from the trim point on. The last
    segment, which grows, is never one of them."""
    return max(bisect_right(first_ids, trim_point) - 1, 0)


def remove_trimmed(files: Files, directory: str, path: str) -> None:
    """Remove the files of a trimmed segment by the path of its data file. Blocking; raises ``OSError``.

    The data file is the last one: as long as it exists, the next start completes the removal.
    """
    for each in (str(Path(path).with_suffix(TIME_INDEX_SUFFIX)), index_path(path), path):
        if files.exists(each):
            files.remove(each)
    files.sync_directory(directory)


def _discard_unfinished(files: Files, directory: str, path: str, partition_id: int, beyond: int) -> None:
    """Remove a segment whose creation was interrupted, and which never had a record. Before the last place it is
    damage."""
    stem = Path(path).stem
    if not stem.isdecimal() or int(stem) <= beyond:
        raise CorruptionError(partition_id, None, path, "the header of the segment is missing")
    logger.warning("partition %d: discarding %s, whose creation was interrupted", partition_id, path)
    files.remove(path)
    if files.exists(index_path(path)):
        files.remove(index_path(path))
    files.sync_directory(directory)
