"""Repairs a closed partition's files: intact records are kept, missing ones are added from other replicas.

An incomplete segment is written anew under another name, checked, and put in the place of the old segment. The old
segment is kept as ``<name>.seg.quarantined-<n>``. All calls block.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waltz.common.ids import NO_TRANSACTION
from waltz.common.records import Record
from waltz.storage.disk.files.files import File, Files
from waltz.storage.disk.log.trim_point import read_trim_point
from waltz.storage.disk.segment.scan import STEP_BYTES, Run, TolerantReader
from waltz.storage.disk.segment.segment_format import (
    DATA_SUFFIX,
    HEADER_SIZE_BYTES,
    RECORD_PREFIX,
    STORED_OVERHEAD_BYTES,
    Reader,
    SegmentHeader,
    data_file_name,
    encode_index,
    encode_record,
    find_later_record,
    index_path,
    scan_records,
    stored_id_and_size,
    valid_record_size,
)
from waltz.storage.disk.segment.segment_recovery import Known, SegmentContents, recover
from waltz.storage.errors import CorruptionError, StorageError

logger = logging.getLogger(__name__)

STAGED_NAME = "repair.staged"
"""File of the partition's directory with the records of a repair."""

_COPY_BYTES = 1 << 20
_NEW_SUFFIX = ".repaired"


class SegmentSurvey(NamedTuple):
    """The intact records of a segment; ``stop`` is the first id after the segment."""

    path: str
    first: int
    stop: int
    runs: tuple[Run, ...]
    whole: bool

    @property
    def missing(self) -> Iterator[tuple[int, int]]:
        """First and last ids of the other records."""
        next_id = self.first
        for run in self.runs:
            if run.first > next_id:
                yield next_id, run.first - 1
            next_id = run.last + 1
        if self.stop > next_id:
            yield next_id, self.stop - 1


class Reported(NamedTuple):
    """The report on a log that the repairing tool has received and judged."""

    missing: tuple[tuple[int, int], ...]
    """First and last ids of records that are damaged or missing, ascending."""
    last_transaction_id: int

    def covers(self, first: int, last: int) -> bool:
        """Whether a cut from the first id to the last one removes only reported records."""
        return last <= self.last_transaction_id and any(start <= first <= end for start, end in self.missing)


class Survey(NamedTuple):
    """The intact records of a partition's log."""

    segments: tuple[SegmentSurvey, ...]

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """First and last ids of records that are damaged or missing, ascending."""
        return tuple(missing for segment in self.segments for missing in segment.missing)

    @property
    def last_transaction_id(self) -> int:
        """The expected last id; -1 for an empty log."""
        return self.segments[-1].stop - 1 if self.segments else NO_TRANSACTION

    @property
    def reported(self) -> Reported:
        """The report of this survey."""
        return Reported(self.missing, self.last_transaction_id)


class Salvage:
    """The closed files of one partition."""

    def __init__(self, files: Files, directory: str, cluster_key: UUID, partition_id: int) -> None:
        """``directory`` is the partition's."""
        self._files = files
        self._directory = directory
        self._cluster_key = cluster_key
        self._partition_id = partition_id

    def survey(self, local_low_water_mark: int, last_known_id: int, damaged: Collection[str] = ()) -> Survey:
        """Find the intact records. Those before the trim point are not missed.

        Segments with errors at opening, and the segments at the paths ``damaged``, are scanned completely. Expected are
        all records up to the local low-water mark, up to ``last_known_id``, and before any intact record. Raises
        ``CorruptionError`` when the range of a segment cannot be told, ``OSError``.
        """
        found = self._first_ids()
        surveys: list[SegmentSurvey] = []
        for position, (first, path) in enumerate(found):
            following = found[position + 1][0] if position + 1 < len(found) else None
            known = Known(local_low_water_mark, following)
            last = max(local_low_water_mark, last_known_id) if following is None else following - 1
            surveys.append(self._survey_segment(path, first, known, last, deep=path in damaged))
        last_id = max(local_low_water_mark, last_known_id)
        begin = read_trim_point(self._files, self._directory, self._partition_id)
        stop = found[0][0] if found else last_id + 1
        if begin < stop:
            path = str(Path(self._directory) / data_file_name(begin))
            surveys.insert(0, SegmentSurvey(path, begin, stop, (), whole=False))
        return Survey(tuple(surveys))

    def _first_ids(self) -> list[tuple[int, str]]:
        """First ids and paths of all data files."""
        if not self._files.exists(self._directory):
            return []
        names = [name for name in self._files.list_directory(self._directory) if name.endswith(DATA_SUFFIX)]
        found = sorted((self._first_id(str(Path(self._directory) / name)), name) for name in names)
        firsts = [first for first, _name in found]
        if len(set(firsts)) < len(firsts):
            raise CorruptionError(self._partition_id, None, self._directory, "two segments begin with the same id")
        return [(first, str(Path(self._directory) / name)) for first, name in found]

    def _first_id(self, path: str) -> int:
        """The id in the header, if the header is of this partition and the name or the first record agrees; otherwise
        the id in the name."""
        stem = Path(path).stem
        with _opened(self._files, path) as file:
            reader = TolerantReader(file)
            data = reader.read(0, HEADER_SIZE_BYTES)
            if len(data) == HEADER_SIZE_BYTES:
                header = SegmentHeader.decode(data)
                first = header.first_transaction_id
                ours = header.cluster_key == self._cluster_key and header.partition_id == self._partition_id
                if ours and (
                    stem == f"{first:019d}"
                    or valid_record_size(reader, HEADER_SIZE_BYTES, file.size(), first) is not None
                ):
                    return first
        if stem.isdecimal():
            return int(stem)
        raise CorruptionError(self._partition_id, None, path, "neither header nor name tells which records it held")

    def _survey_segment(self, path: str, first: int, known: Known, last: int, *, deep: bool) -> SegmentSurvey:
        with _opened(self._files, path) as data, _opened(self._files, index_path(path), create=True) as index:
            reader = TolerantReader(data)
            size = data.size()
            contents = SegmentContents(
                self._partition_id, path, first, reader, size, TolerantReader(index), index.size()
            )
            header = reader.read(0, HEADER_SIZE_BYTES).ljust(HEADER_SIZE_BYTES, b"\0")
            expected = SegmentHeader(0, 0, self._cluster_key, self._partition_id, first)
            whole = SegmentHeader.decode(header)._replace(creation_time_ms=0) == expected
            whole = whole and _is_index_of(contents.index.read(0, HEADER_SIZE_BYTES), expected)
            if whole and not deep:
                try:
                    recovered = recover(contents, known)
                except CorruptionError as error:
                    logger.info("%s", error)
                    if known.following_first_id is None and error.transaction_id is not None:
                        last = max(last, error.transaction_id)  # also when nothing else is known of such a record
                else:
                    is_intact = not (recovered.damaged or recovered.lost_bits or reader.unreadable)
                    if is_intact and recovered.next_transaction_id > last:
                        run = Run(first, recovered.next_transaction_id - 1, HEADER_SIZE_BYTES, recovered.end_offset)
                        runs = (run,) if recovered.next_transaction_id > first else ()
                        return SegmentSurvey(path, first, recovered.next_transaction_id, runs, whole=True)
            found = tuple(_intact_runs(contents, known.following_first_id))
        stop = max(last + 1, found[-1].last + 1 if found else first)
        whole = whole and [(run.first, run.last) for run in found] == ([] if stop == first else [(first, stop - 1)])
        return SegmentSurvey(path, first, stop, found, whole)

    def rebuild(self, survey: Survey, staged: "Staged | None", certain_up_to: int, reported: Reported | None) -> None:
        """Make the log whole. All changes are durable at the return.

        Missing records that were not staged: above ``certain_up_to`` the log is cut before them, if all cut records
        were ``reported``. Otherwise ``StorageError`` is raised, and nothing has changed. Raises ``OSError``.
        """
        borders = [segment.first for segment in survey.segments]
        staged_runs = () if staged is None else tuple(_split_at(borders, staged.runs, staged.file))
        end_id = self._end_of_rebuilt(survey, staged_runs, certain_up_to, reported)
        for segment in reversed(survey.segments):
            if segment.first >= end_id and segment.first > survey.segments[0].first:
                self._put_aside(segment.path)
            elif not segment.whole or segment.stop > end_id:
                self._rebuild_segment(segment._replace(stop=min(segment.stop, end_id)), staged, staged_runs)

    def _end_of_rebuilt(
        self, survey: Survey, staged: Sequence[Run], certain_up_to: int, reported: Reported | None
    ) -> int:
        for first, last in survey.missing:
            absent = _first_absent(first, last, staged)
            if absent is None:
                continue
            if absent <= certain_up_to:
                raise StorageError(f"transaction {absent} is missing, and no other replica has delivered a copy")
            if reported is None or not reported.covers(absent, survey.last_transaction_id):
                raise StorageError(
                    f"transaction {absent} is damaged now, and the log may have grown since the repair began, so"
                    " nothing is cut; nothing was changed: repeat the repair"
                )
            logger.warning(
                "partition %d: cutting the log before transaction %d, which is damaged and was never committed",
                self._partition_id,
                absent,
            )
            return absent
        return survey.last_transaction_id + 1

    def _rebuild_segment(self, segment: SegmentSurvey, staged: "Staged | None", staged_runs: Sequence[Run]) -> None:
        header = SegmentHeader(0, self._files.time_ms(), self._cluster_key, self._partition_id, segment.first)
        new_data, new_index = segment.path + _NEW_SUFFIX, index_path(segment.path) + _NEW_SUFFIX
        former = self._files.exists(segment.path)
        with _opened(self._files, new_data, create=True) as target:
            target.truncate(0)
            target.write(0, [header.encode()])
            with _opened(self._files, segment.path if former else new_data) as source:
                pieces = [(run, source) for run in segment.runs]
                if staged is not None:
                    pieces += [(run, staged.file) for run in staged_runs if segment.first <= run.first < segment.stop]
                position = HEADER_SIZE_BYTES
                for run, file in sorted(pieces, key=lambda piece: piece[0].first):
                    position = _copy(run, file, target, position, segment.stop)
            target.sync()
            entries = _scan_copy(target, position, segment)
        with _opened(self._files, new_index, create=True) as index:
            index.truncate(0)
            index.write(0, [header.encode(), encode_index(entries)])
            index.sync()
        if former:
            self._keep_aside(segment.path)
        self._files.rename(new_data, segment.path)
        self._files.rename(new_index, index_path(segment.path))
        self._files.sync_directory(self._directory)
        logger.warning(
            "partition %d: %s is whole again, transactions %d to %d",
            self._partition_id,
            segment.path,
            segment.first,
            segment.stop - 1,
        )

    def _keep_aside(self, path: str) -> None:
        """Keep the former content of a file under another name."""
        aside = _free_name(self._files, path)
        self._files.link(path, aside)
        self._files.sync_directory(self._directory)
        logger.warning("partition %d: the former %s is kept as %s", self._partition_id, path, aside)

    def _put_aside(self, path: str) -> None:
        """Remove a data file and its index, keeping the former under another name."""
        self._files.rename(path, _free_name(self._files, path))
        if self._files.exists(index_path(path)):
            self._files.remove(index_path(path))
        self._files.sync_directory(self._directory)


class Staged:
    """The records of a repair, in a file of the partition's directory until they are in the segments."""

    def __init__(self, files: Files, directory: str) -> None:
        """Begin an empty file. Blocking; ``OSError``."""
        self._files = files
        self._path = str(Path(directory) / STAGED_NAME)
        self.file = files.open(self._path, create=True)
        self.file.truncate(0)
        self.runs: list[Run] = []
        self._size = 0

    def add(self, records: Sequence[Record]) -> None:
        """Take records with ascending ids. Blocking; ``StorageError`` when they are not, ``OSError``."""
        for record in records:
            last = self.runs[-1] if self.runs else None
            if last is not None and record.transaction_id <= last.last:
                raise StorageError("transaction out of order")
            encoded = encode_record(record)
            self.file.write(self._size, [encoded])
            end = self._size + len(encoded)
            if last is not None and record.transaction_id == last.last + 1:
                self.runs[-1] = last._replace(last=record.transaction_id, end_offset=end)
            else:
                self.runs.append(Run(record.transaction_id, record.transaction_id, self._size, end))
            self._size = end

    def close(self) -> None:
        """Drop the records. Blocking; ``OSError``."""
        self.file.close()
        if self._files.exists(self._path):
            self._files.remove(self._path)


class _opened:
    """An open file that is closed at the end."""

    def __init__(self, files: Files, path: str, *, create: bool = False) -> None:
        self._file = files.open(path, create=create)

    def __enter__(self) -> File:
        return self._file

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def _is_index_of(header: bytes, expected: SegmentHeader) -> bool:
    """Whether an index with that header can be used or rebuilt when the segment is opened."""
    if len(header) < HEADER_SIZE_BYTES or not any(header):
        return True
    found = SegmentHeader.decode(header)
    return (found.cluster_key, found.partition_id) == (expected.cluster_key, expected.partition_id)


def _intact_runs(contents: SegmentContents, stop: int | None) -> Iterator[Run]:
    """The intact records of a data file, in order, before the id ``stop``."""
    reader, size = contents.data, contents.data_size
    index_stop = contents.index_max + 1 if stop is None else stop
    next_id, offset = contents.first_transaction_id, HEADER_SIZE_BYTES
    while offset < size and (stop is None or next_id < stop):
        run_first, run_offset = next_id, offset
        next_id, offset = _end_of_run(reader, size, next_id, offset)
        if next_id > run_first:
            yield Run(run_first, next_id - 1, run_offset, offset)
        later = contents.later_indexed_record(offset, next_id, size, index_stop)
        if later is None:
            index_stop = next_id  # the index is useless from here on, and is not read again after the next damage
            later = find_later_record(reader, offset, size, next_id)
        if later is None:
            return
        next_id, offset = later


def _end_of_run(reader: Reader, size: int, next_id: int, offset: int) -> tuple[int, int]:
    """Id and offset after the last record of an intact run."""
    while True:
        offsets = scan_records(reader, offset, min(offset + STEP_BYTES, size), next_id)
        if len(offsets) > 1:
            next_id, offset = next_id + len(offsets) - 1, offsets[-1]
            continue
        record_size = valid_record_size(reader, offset, size, next_id)
        if record_size is None:
            return next_id, offset
        next_id, offset = next_id + 1, offset + record_size


def _first_absent(first: int, last: int, runs: Sequence[Run]) -> int | None:
    """The first id of a range that is in none of the ascending runs."""
    for run in runs:
        if run.first <= first <= run.last:
            first = run.last + 1
    return first if first <= last else None


def _split_at(borders: Sequence[int], runs: Sequence[Run], source: File) -> Iterator[Run]:
    """The runs, split at ascending borders."""
    for run in runs:
        rest = run
        for border in borders:
            if rest.first < border <= rest.last:
                offset = _offset_of(border, rest, source)
                yield rest._replace(last=border - 1, end_offset=offset)
                rest = rest._replace(first=border, offset=offset)
        yield rest


def _offset_of(transaction_id: int, run: Run, source: Reader) -> int:
    """The offset of a record of the run."""
    offset = run.offset
    for passed_id in range(run.first, transaction_id):
        prefix = source.read(offset, RECORD_PREFIX.size)
        found_id, size = stored_id_and_size(prefix) if len(prefix) == RECORD_PREFIX.size else (NO_TRANSACTION, 0)
        if found_id != passed_id or size < STORED_OVERHEAD_BYTES:
            raise StorageError(f"transaction {passed_id} has become unreadable during the repair; repeat the repair")
        offset += size
    return offset


def _copy(run: Run, source: File, target: File, position: int, stop: int) -> int:
    """Append the records of a run before the id ``stop``; returns the position after them."""
    end = run.end_offset if run.last < stop else _offset_of(stop, run, source)
    for start in range(run.offset, end, _COPY_BYTES):
        piece = source.read(start, min(_COPY_BYTES, end - start))
        target.write(position, [piece])
        position += len(piece)
    return position


def _scan_copy(file: File, size: int, segment: SegmentSurvey) -> Sequence[int]:
    """Check every record of a rewritten segment, and find the offsets. Raises ``StorageError``."""
    offsets = scan_records(file, HEADER_SIZE_BYTES, size, segment.first)
    if len(offsets) - 1 != segment.stop - segment.first or offsets[-1] != size:
        raise StorageError(f"the repaired copy of {segment.path} is not whole; nothing was replaced")
    return offsets[:-1]


def _free_name(files: Files, path: str) -> str:
    number = 1
    while files.exists(f"{path}.quarantined-{number}"):
        number += 1
    return f"{path}.quarantined-{number}"
