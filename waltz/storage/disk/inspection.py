"""Reads the files of a storage node that is not running, without any change.

The control file is locked meanwhile. After a crash, the segments may lack changes that are in the journal: such a
directory has to be drained first. The content of a segment is decided as at its opening, but nothing is cut or rebuilt.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.files.descriptors import SegmentFiles
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.offline import open_control_file
from waltz.storage.disk.segment.segment import RecordCheck, Segment
from waltz.storage.disk.segment.segment_format import HEADER_SIZE_BYTES, SegmentHeader
from waltz.storage.disk.segment.segment_opening import read_header
from waltz.storage.disk.segment.segment_recovery import Known, SegmentContents, recover
from waltz.storage.errors import CorruptionError, StorageError


class InspectedSegment(NamedTuple):
    """A segment with its files open for reading."""

    segment: Segment
    handles: SegmentFiles
    index_header: SegmentHeader

    def check(self, transaction_id: int) -> RecordCheck:
        """Check one record. Raises ``StorageError`` when the id is not in the segment, ``OSError``."""
        return self.segment.verify_record(self.handles, transaction_id)

    def check_all(self) -> Iterator[RecordCheck]:
        """Check every record. Raises ``OSError``."""
        return self.segment.verify(self.handles)


@contextmanager
def inspect_control_file(files: Files, path: Path) -> Iterator[ControlFile]:
    """The control file at ``path``.

    Raises ``StorageError`` when the node is running or the directory has to be drained first, ``OSError``.
    """
    control_file = open_control_file(files, str(path.parent))
    try:
        if control_file.guarded:
            raise StorageError(
                f"{path.parent} was not left in order: its other files may lack changes that are in its journal; "
                f"run waltz disk drain {path.parent}, then repeat"
            )
        yield control_file
    finally:
        control_file.close()


@contextmanager
def inspect_segment(files: Files, path: Path) -> Iterator[InspectedSegment]:
    """The segment whose data file is at ``path``, in its place below a storage directory.

    Raises ``StorageError`` when it is not the segment of the directory's partition or the node is running, ``OSError``.
    """
    path = path.absolute()
    if not path.parent.name.isdecimal():
        raise StorageError(f"{path.parent} is not the directory of a partition: its name is not a number")
    partition_id = int(path.parent.name)
    with inspect_control_file(files, path.parent.parent / "waltz-storage.ctl") as control_file:
        header = read_header(files, str(path), control_file.cluster_key, partition_id)
        if header is None:
            raise StorageError(f"{path} has no header: its creation was interrupted")
        segment = Segment(str(path), header)
        handles = segment.open_files(files)
        try:
            _measure(segment, handles, control_file)
            index_header = handles.index.read(0, HEADER_SIZE_BYTES).ljust(HEADER_SIZE_BYTES, b"\0")
            yield InspectedSegment(segment, handles, SegmentHeader.decode(index_header))
        finally:
            handles.close()


def _measure(segment: Segment, handles: SegmentFiles, control_file: ControlFile) -> None:
    """Find the end of the segment; in a damaged segment, the end according to the index."""
    header, data, index = segment.header, handles.data, handles.index
    contents = SegmentContents(
        header.partition_id, segment.path, header.first_transaction_id, data, data.size(), index, index.size()
    )
    try:
        mark = control_file.partition(header.partition_id).local_low_water_mark
        recovered = recover(contents, Known(mark))
    except CorruptionError:
        segment.next_transaction_id = contents.index_max + 1
        segment.end_offset = contents.data_size
    else:
        segment.next_transaction_id = recovered.next_transaction_id
        segment.end_offset = recovered.end_offset
