"""Replay: the changes in the journal are made in the files where they belong, in order. Blocks.

A second replay of the same journal changes nothing. A partition's entries before its last *settled* are left out: the
segments were durable up to there, and appends that were synced directly since then are not in the journal. If a
partition has entries after its last *settled*, every record behind the last of these entries belongs to a write that
was not acknowledged and may be incomplete: the replay cuts such records. So the recovery that follows finds segments
that end with a whole record.

If groups are lost, a file in the directory of each partition that they may have concerned marks the partition as
damaged, durably. Nothing of a damaged partition is cut.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import File, Files
from waltz.storage.disk.journal.entries import (
    DROPPED,
    FENCED,
    MARKED,
    NEW_SEGMENT,
    RECORDS,
    RECORDS_FIELDS,
    SETTLED,
    TRUNCATED,
    Entry,
    EntryError,
    Fenced,
    Marked,
    NewSegment,
    Settled,
    Truncated,
    decode_entry,
    walk_entries,
)
from waltz.storage.disk.journal.groups import GroupHead, entries_at
from waltz.storage.disk.journal.journal import DIRECTORY_NAME
from waltz.storage.disk.journal.reading import Contents, Lost, Place, read_bodies
from waltz.storage.disk.journal.ring import is_missing
from waltz.storage.disk.segment.segment_format import (
    DATA_SUFFIX,
    HEADER_SIZE_BYTES,
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_SUFFIX,
    SegmentHeader,
    add_record_offsets,
    data_file_name,
    decode_index,
    encode_index,
    index_offset,
    index_path,
    scan_records,
)
from waltz.storage.disk.segment.segment_recovery import CHECKPOINT_INTERVAL
from waltz.storage.errors import CorruptionError, StorageError

logger = logging.getLogger(__name__)

LOST_NAME = "journal.lost"
"""A file in the directory of a partition, with the reason why the partition is not served."""

_LEFT_OUT = (
    "the journal had records of the partition while its volume was missing; bring them from the other replicas (waltz "
    "storage repair)"
)
_NO_GROUP = -1
_MAX_REASON_BYTES = 4096
_MAX_WRITE_BYTES = 1 << 20
_MIN_WRITE_BYTES = 64 << 10
_PROGRESS_BYTES = 16 << 20

Progress = Callable[[int, int], None]
"""Is called with the number of replayed bytes and the number of all bytes."""


@dataclass(slots=True)
class Report:
    """The result of a replay."""

    groups: int = 0
    size_bytes: int = 0
    """The size of the groups in the journal."""
    partitions: set[int] = field(default_factory=set)
    """The partitions of which a file was changed."""
    damaged: dict[int, str] = field(default_factory=dict)
    """Partitions that must not be served, with the reason; their directories are marked."""
    left_out: dict[int, str] = field(default_factory=dict)
    """Absent partitions that lack what the journal has for them, in words."""


def replay(
    files: Files,
    storage_directory: str,
    control_file: ControlFile,
    fence_file: FenceFile,
    contents: Contents,
    progress: Progress | None = None,
    absent: Collection[int] = (),
    *,
    journal_directory: str | None = None,
    concerned: Collection[int] | None = None,
) -> Report:
    """Make the changes in a journal where they belong, durably. Without a guarded control file, do nothing. Blocking.

    Args:
        files: The file system.
        storage_directory: The directory to which the journal belongs; no log in the directory is open.
        control_file: The control file of the directory.
        fence_file: The fence file of the directory.
        contents: What was read of the journal.
        progress: Called now and then.
        absent: Partitions whose segments cannot be reached. Their fences and marks are written.
        journal_directory: The directory of the journal; ``None``: that in the storage directory itself.
        concerned: The partitions that a damaged group may have concerned; ``None``: any partition.

    Raises:
        OSError: A file cannot be read, written or synced; the replay may be tried again.
        StorageError: The journal was changed meanwhile, or the control or fence file cannot be written.
        EntryError: A group holds an entry that this version does not know.
    """
    report = Report()
    if not control_file.guarded:
        return report
    if is_missing(files, journal_directory or str(Path(storage_directory) / DIRECTORY_NAME)):
        contents = replace(contents, lost=[Lost(_NO_GROUP, None)])
    everybody = range(control_file.partition_count) if concerned is None else concerned
    run = _Replay(files, storage_directory, control_file, fence_file, contents, report, absent, everybody)
    run.all_groups(progress or _ignore)
    return report


def replay_partition(
    files: Files, storage_directory: str, cluster_key: UUID, partition_id: int, places: Sequence[Place]
) -> Settled | None:
    """Make the changes of one partition's segments that a journal in use holds, durably. Blocking.

    Args:
        files: The file system.
        storage_directory: The directory to which the journal belongs.
        cluster_key: The key of the cluster.
        partition_id: The partition; the log of the partition is not open.
        places: The groups that may concern the partition, in order; all of them are whole.

    Returns:
        The place up to which the segments are durable then; ``None``: the groups do not concern the segments.

    Raises:
        OSError: A file cannot be read, written or synced; the replay may be tried again.
        StorageError: Bytes before the first change are missing.
    """
    since = -1, 0
    for head, body in read_bodies(files, [place for place in places if place.head.voids]):
        for at, (kind, each, _, _) in enumerate(walk_entries(body, entries_at(head), head.entry_count)):
            if each == partition_id and kind in (SETTLED, DROPPED):
                since = head.number, at
    partition = _Partition(files, str(Path(storage_directory) / str(partition_id)), cluster_key, partition_id)
    for head, body in read_bodies(files, places):
        for at, (kind, each, begin, end) in enumerate(walk_entries(body, entries_at(head), head.entry_count)):
            if each != partition_id or (head.number, at) <= since:
                continue
            if kind == RECORDS:
                partition.records(body, begin, end)
            elif kind in (NEW_SEGMENT, TRUNCATED):
                partition.change(decode_entry(body, kind, each, begin, end))
        partition.flush_much()
    partition.finish(cut=True)
    if partition.missing is not None:
        raise StorageError(partition.missing)
    partition.sync()
    return partition.end


def mark_lost(files: Files, partition_directory: str, reason: str) -> None:
    """Write the file that keeps a partition from being served, durably. Raises ``OSError``."""
    if not files.exists(partition_directory):
        files.make_directory(partition_directory)
        files.sync_directory(str(Path(partition_directory).parent))
    file = files.open(str(Path(partition_directory) / LOST_NAME), create=True)
    try:
        file.truncate(0)
        file.write(0, [reason.encode()])
        file.sync()
    finally:
        file.close()
    files.sync_directory(partition_directory)


def lost_reason(files: Files, partition_directory: str) -> str | None:
    """Why a partition is kept from being served; ``None`` when it may be served. Raises ``OSError``."""
    path = str(Path(partition_directory) / LOST_NAME)
    if not files.exists(path):
        return None
    with _Opened(files, path) as file:
        return file.read(0, _MAX_REASON_BYTES).decode(errors="replace")


def forget_lost(files: Files, partition_directory: str) -> None:
    """Remove the file of :func:`mark_lost`, durably: the partition is whole again, or empty. Raises ``OSError``."""
    if files.exists(str(Path(partition_directory) / LOST_NAME)):
        files.remove(str(Path(partition_directory) / LOST_NAME))
        files.sync_directory(partition_directory)


class _Since(NamedTuple):
    """The last *settled* and *dropped* of a partition, by group and place in it: earlier entries are left out."""

    settled: tuple[int, int] = (-1, 0)
    dropped: tuple[int, int] = (-1, 0)

    def concerns(self, kind: int, at: tuple[int, int]) -> bool:
        """Whether an entry of this kind at this place counts."""
        return at > (self.dropped if kind in (FENCED, MARKED) else self.settled)


class _Replay:
    """One replay."""

    def __init__(
        self,
        files: Files,
        storage_directory: str,
        control_file: ControlFile,
        fence_file: FenceFile,
        contents: Contents,
        report: Report,
        absent: Collection[int],
        everybody: Collection[int],
    ) -> None:
        self._absent = absent
        self._everybody = everybody
        self._files = files
        self._directory = storage_directory
        self._control_file = control_file
        self._fence_file = fence_file
        self._contents = contents
        self._report = report
        self._partitions: dict[int, _Partition | None] = {}
        self._fences: dict[int, int] = {}
        self._marks: dict[int, list[Marked]] = {}

    def all_groups(self, progress: Progress) -> None:
        since = self._survey()
        damaged = self._damaged()
        total, done, told = self._contents.size_bytes, 0, 0
        for head, body in read_bodies(self._files, self._contents.places):
            self._take_group(head, body, since)
            done += head.size_bytes
            if done - told >= _PROGRESS_BYTES:
                told = done
                progress(done, total)
                self._flush()
        for partition_id, partition in self._partitions.items():
            if partition is not None:
                partition.finish(cut=partition_id not in damaged)
                damaged.update({partition_id: partition.missing} if partition.missing else {})
                self._report.partitions.add(partition_id)
        self._sync(each for each in self._partitions.values() if each is not None)
        self._raise_fences_and_marks()
        for partition_id in self._absent:
            if partition_id in damaged:
                self._report.left_out[partition_id] = damaged.pop(partition_id)
        for partition_id, reason in damaged.items():
            logger.critical("partition %d is damaged: %s", partition_id, reason)
            mark_lost(self._files, str(Path(self._directory) / str(partition_id)), reason)
        self._report.damaged.update(damaged)
        self._report.groups, self._report.size_bytes = len(self._contents.places), total

    def _survey(self) -> dict[int, _Since]:
        """Look for the entries that make earlier entries void."""
        found: dict[int, _Since] = {}
        voiding = [place for place in self._contents.places if place.head.voids]
        for head, body in read_bodies(self._files, voiding):
            entries = walk_entries(body, entries_at(head), head.entry_count)
            for at, (kind, partition_id, _, _) in enumerate(entries):
                if kind == SETTLED:
                    found[partition_id] = found.get(partition_id, _Since())._replace(settled=(head.number, at))
                elif kind == DROPPED:
                    found[partition_id] = _Since((head.number, at), (head.number, at))
        return found

    def _damaged(self) -> dict[int, str]:
        """The assigned partitions that lost groups may have concerned, with the reason."""
        damaged: dict[int, str] = {}
        for lost in self._contents.lost:
            group = f"group {lost.number} of the journal is damaged"
            what = "the journal is missing" if lost.number == _NO_GROUP else group
            for partition_id in self._concerned(lost):
                damaged[partition_id] = (
                    f"{what}, and may have held records of the partition that were acknowledged; bring them from the "
                    "other replicas (waltz storage repair)"
                )
        return damaged

    def _concerned(self, lost: Lost) -> Iterable[int]:
        known = range(self._control_file.partition_count)
        concerned = self._everybody if lost.partitions is None else set(lost.partitions)
        return [each for each in concerned if each in known and self._is_assigned(each)]

    def _is_assigned(self, partition_id: int) -> bool:
        try:
            return self._control_file.partition(partition_id).assigned
        except CorruptionError:
            return True  # in doubt the partition is assigned

    def _take_group(self, head: GroupHead, body: bytes, since: dict[int, _Since]) -> None:
        """The hot path: one call and one copy for each entry of records."""
        partitions = self._partitions
        entries = walk_entries(body, entries_at(head), head.entry_count)
        for at, (kind, partition_id, begin, end) in enumerate(entries):
            if partition_id in since and not since[partition_id].concerns(kind, (head.number, at)):
                continue
            if kind == RECORDS:
                partition = partitions[partition_id] if partition_id in partitions else self._partition(partition_id)
                if partition is not None:
                    partition.records(body, begin, end)
                continue
            entry = decode_entry(body, kind, partition_id, begin, end)
            if isinstance(entry, Fenced):
                self._fences[partition_id] = max(entry.session_id, self._fences.get(partition_id, entry.session_id))
            elif isinstance(entry, Marked):
                self._marks.setdefault(partition_id, []).append(entry)
            elif kind in (NEW_SEGMENT, TRUNCATED):
                partition = self._partition(partition_id)
                if partition is not None:
                    partition.change(entry)

    def _flush(self) -> None:
        for partition in self._partitions.values():
            if partition is not None:
                partition.flush_much()

    def _partition(self, partition_id: int) -> "_Partition | None":
        """The partition of an entry; ``None`` when the partition is not assigned any more."""
        if partition_id not in self._partitions:
            known = 0 <= partition_id < self._control_file.partition_count and self._is_assigned(partition_id)
            if known and partition_id in self._absent:
                self._report.left_out[partition_id] = _LEFT_OUT
                known = False
            directory = str(Path(self._directory) / str(partition_id))
            key = self._control_file.cluster_key
            self._partitions[partition_id] = _Partition(self._files, directory, key, partition_id) if known else None
        return self._partitions[partition_id]

    def _sync(self, partitions: Iterable["_Partition"]) -> None:
        self._files.for_each(_Partition.sync, partitions)
        self._files.sync_directory(self._directory)

    def _raise_fences_and_marks(self) -> None:
        """Write fences and marks after the segments are synced: a mark never covers records that are not durable."""
        everybody = range(self._control_file.partition_count)
        for partition_id, session_id in self._fences.items():
            if partition_id in everybody and self._is_assigned(partition_id):
                self._raise_fence(partition_id, session_id)
        for partition_id, marks in self._marks.items():
            if partition_id in everybody and self._is_assigned(partition_id):
                for marked in marks:  # one update for each: the bytes are those of a node without a journal
                    self._raise_mark(marked)

    def _raise_fence(self, partition_id: int, session_id: int) -> None:
        try:
            self._fence_file.raise_to(partition_id, session_id)
        except CorruptionError as error:
            logger.error("partition %d: session %d was admitted, but %s", partition_id, session_id, error)

    def _raise_mark(self, marked: Marked) -> None:
        try:
            info = self._control_file.partition(marked.partition_id)
        except CorruptionError as error:
            logger.error("partition %d: the marks of the journal are left out: %s", marked.partition_id, error)
            return
        before = info[:3]
        after = marked[1:]
        if before != after and all(new >= old for old, new in zip(before, after, strict=True)):
            self._control_file.set_low_water_mark(*marked)


def _ignore(_done: int, _total: int) -> None:
    pass


class _Partition:
    """The segments of one partition while they are replayed. Consecutive records are written together."""

    def __init__(self, files: Files, directory: str, cluster_key: UUID, partition_id: int) -> None:
        self._gap: tuple[int, int] | None = None
        """The segment and offset from which bytes are missing that lie before a replayed write.

        A later truncation in the journal may have reached the disk before the stop; its replay closes the gap.
        """
        self._files = files
        self._directory = directory
        self._cluster_key = cluster_key
        self._partition_id = partition_id
        self._segment: int | None = None
        self._next_id = 0
        self._offset = 0
        """The end of the log after all entries so far: first id of the segment, next id, offset."""
        self._follows_direct = False
        """Whether the waiting records do not follow an entry of the journal: records before them may have been synced
        directly, and then the last of these records have index entries that were not synced."""
        self._chunks: list[bytes] = []
        self._chunks_offset = 0
        self._entry_offsets: list[int] = []
        self._touched: set[str] = set()

    @property
    def missing(self) -> str | None:
        """A text about the missing bytes; ``None`` when none are missing."""
        if self._gap is None:
            return None
        segment, offset = self._gap
        path = self._path(segment)
        return f"bytes of {path} are missing from offset {offset} on, and the journal has later bytes only"

    @property
    def end(self) -> Settled | None:
        """The end of the log after all entries; ``None`` without entries."""
        if self._segment is None:
            return None
        return Settled(self._partition_id, self._next_id, self._segment, self._offset)

    def change(self, entry: Entry) -> None:
        """Make the next change, a new segment or a truncation."""
        self.flush()
        if isinstance(entry, NewSegment):
            self._begin(entry)
        elif isinstance(entry, Truncated):
            self._cut(entry.segment_first_id, entry.transaction_id + 1, entry.offset)

    def records(self, body: bytes, begin: int, end: int) -> None:
        """Take up the next entry of records; its fields are at this place of a body."""
        if end - begin < RECORDS_FIELDS.size:
            raise EntryError("an entry of records is too short")
        _, segment, offset, first_id, count = RECORDS_FIELDS.unpack_from(body, begin)
        if offset != self._offset or first_id != self._next_id or segment != self._segment:
            self.flush()
            self._segment, self._next_id, self._offset = segment, first_id, offset
            self._follows_direct = True
        if not self._chunks:
            self._chunks_offset = offset
        begin += RECORDS_FIELDS.size
        self._chunks.append(body[begin:end])
        add_record_offsets(self._entry_offsets, body, begin, end, count, offset)
        self._next_id = first_id + count
        self._offset = offset + end - begin
        if self._offset - self._chunks_offset >= _MAX_WRITE_BYTES:
            self.flush()

    def flush_much(self) -> None:
        """Write the records that wait, if they are large enough for a write of their own."""
        if self._offset - self._chunks_offset >= _MIN_WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the records that wait."""
        if not self._chunks:
            return
        assert self._segment is not None
        chunks, self._chunks = self._chunks, []
        offsets, self._entry_offsets = self._entry_offsets, []
        path = self._path(self._segment)
        size = self._write(path, self._chunks_offset, chunks)
        if size < self._chunks_offset:
            self._gap = min(self._gap or (self._segment, size), (self._segment, size))
            return
        first_id = self._next_id - len(offsets)
        if self._follows_direct:
            self._follows_direct = False
            self._complete_index(path, self._segment, first_id, self._chunks_offset)
        # An index that ends before this place is completed when the segment is opened.
        self._write(index_path(path), index_offset(self._segment, first_id), [encode_index(offsets)])

    def _complete_index(self, path: str, segment: int, end_id: int, end_offset: int) -> None:
        """Write the missing index entries of the last records before a place. The data of these records was synced, and
        the index is synced with every record whose id is a multiple of ``CHECKPOINT_INTERVAL``.

        Otherwise the entries from the journal would follow a gap, which the opening of the segment takes for synced.
        """
        first_id = max(segment, (end_id - 1) // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL)
        if first_id >= end_id or not self._files.exists(index_path(path)):
            return
        with _Opened(self._files, index_path(path)) as index:
            size = INDEX_ENTRY_SIZE_BYTES * (end_id - first_id)
            data = index.read(index_offset(segment, first_id), size)
        offsets = decode_index(data.ljust(size, b"\0"))
        present = next((number for number, offset in enumerate(offsets) if offset < HEADER_SIZE_BYTES), len(offsets))
        if present == len(offsets) or (present == 0 and first_id > segment):
            return
        known_id, known_offset = (
            (first_id + present - 1, offsets[present - 1]) if present else (segment, HEADER_SIZE_BYTES)
        )
        with _Opened(self._files, path) as records:
            found = scan_records(records, known_offset, end_offset, known_id)
        if found[-1] == end_offset and len(found) - 1 == end_id - known_id:
            self._write(index_path(path), index_offset(segment, known_id), [encode_index(found[:-1])])

    def finish(self, *, cut: bool) -> None:
        """After the last entry: write the records that wait, and with ``cut`` cut the bytes behind the last entry."""
        self.flush()
        if cut and self._segment is not None and self._gap is None:
            self._cut(self._segment, self._next_id, self._offset)

    def sync(self) -> None:
        """Make all changes durable."""
        for path in sorted(self._touched):
            if self._files.exists(path):
                with _Opened(self._files, path) as file:
                    file.sync()
        if self._files.exists(self._directory):
            self._files.sync_directory(self._directory)

    def _begin(self, entry: NewSegment) -> None:
        if not self._files.exists(self._directory):
            self._files.make_directory(self._directory)
        first_id = entry.first_transaction_id
        header = SegmentHeader(0, entry.creation_time_ms, self._cluster_key, self._partition_id, first_id).encode()
        path = self._path(first_id)
        for each in (index_path(path), path):
            self._write(each, 0, [header], create=True)
        self._segment, self._next_id, self._offset = first_id, first_id, HEADER_SIZE_BYTES

    def _cut(self, segment: int, next_id: int, offset: int) -> None:
        """Remove later segments, from the end backwards, each durably: no crash leaves a gap. Then cut this segment."""
        self._segment, self._next_id, self._offset = segment, next_id, offset
        if self._gap is not None and self._gap >= (segment, offset):
            self._gap = None
        if not self._files.exists(self._directory):
            return
        for later in sorted((each for each in self._segments() if each > segment), reverse=True):
            path = self._path(later)
            for each in (path, index_path(path)):
                if self._files.exists(each):
                    self._files.remove(each)
            self._files.sync_directory(self._directory)
        path = self._path(segment)
        self._shorten(index_path(path), index_offset(segment, next_id))
        self._shorten(path, offset)

    def _segments(self) -> set[int]:
        """The first ids of the segments of which there is a file."""
        names = self._files.list_directory(self._directory)
        stems = [Path(name).stem for name in names if name.endswith((DATA_SUFFIX, INDEX_SUFFIX))]
        return {int(stem) for stem in stems if stem.isdecimal()}

    def _path(self, segment: int) -> str:
        return str(Path(self._directory) / data_file_name(segment))

    def _write(self, path: str, offset: int, chunks: Sequence[bytes], *, create: bool = False) -> int:
        """Write, unless the file ends before the offset or does not exist; returns the size before the write."""
        if not create and not self._files.exists(path):
            return 0
        with _Opened(self._files, path, create=create) as file:
            size = file.size()
            if size >= offset:
                file.write(offset, chunks)
                self._touched.add(path)
        return size

    def _shorten(self, path: str, size: int) -> None:
        if not self._files.exists(path):
            return
        with _Opened(self._files, path) as file:
            if file.size() > size:
                file.truncate(size)
                self._touched.add(path)


class _Opened:
    """A file that is open within a ``with`` block."""

    def __init__(self, files: Files, path: str, *, create: bool = False) -> None:
        self._file = files.open(path, create=create)

    def __enter__(self) -> File:
        return self._file

    def __exit__(self, *_exception: object) -> None:
        self._file.close()
