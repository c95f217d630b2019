"""The time index of one partition: a file beside each segment, with entries of committed transactions.

The times of some transactions are unknown: of transactions that a node of the original wrote, or whose entries a crash
has lost. No time is ever guessed. Entries are in memory until they are written, together and without a sync.
"""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from uuid import UUID

from waltz.common.ids import NO_TRANSACTION
from waltz.storage.disk.files.files import File, Files
from waltz.storage.disk.times.time_format import (
    ENTRY_BYTES,
    HEADER_BYTES,
    TIME_INDEX_SUFFIX,
    TimeEntry,
    TimeHeader,
    decode_entry,
    encode_entry,
    entry_count,
    entry_offset,
    last_position,
    time_index_name,
)

logger = logging.getLogger(__name__)

MAX_UNWRITTEN = 1024
"""The largest number of entries in memory while the files of a partition cannot be written; beyond it the oldest
entries are dropped."""

_READ_ENTRIES = 4096
"""Entries that are read at once."""

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost
_NONE = TimeEntry(NO_TRANSACTION, 0)


class TimeIndex:
    """The time index of a partition, without entries before :meth:`open`.

    :meth:`add` belongs to the event loop's thread; all other methods block.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        cluster_key: UUID,
        partition_id: int,
        segments: Callable[[], Sequence[int]],
    ) -> None:
        """Read nothing yet.

        Args:
            files: The file system.
            directory: The partition's directory.
            cluster_key: The key of the cluster; files with another key are not used.
            partition_id: The partition; files of another partition are not used.
            segments: The first ids of the log's segments, ascending, at the moment of the call.
        """
        self._files = files
        self._directory = Path(directory)
        self._cluster_key = cluster_key
        self._partition_id = partition_id
        self._segments = segments
        self._usable = False
        self._first_ids: list[int] = []
        self._last: TimeEntry | None = None
        self._unwritten: list[TimeEntry] = []
        self._on_disk = threading.Lock()
        """Held during each use of the files."""
        self._in_memory = threading.Lock()
        """Guards ``_last`` and ``_unwritten``. Never held during a use of the files: the event loop must not wait for a
        disk."""

    def open(self, max_transaction_id: int) -> None:
        """Open the files of a recovered log. Entries behind the maximum of the log are cut; files of other segments are
        removed.

        After an ``OSError`` no entry is known, and none is added.
        """
        known, found = set(self._segments()), []
        for name in self._files.list_directory(str(self._directory)):
            path = Path(name)
            if path.suffix != TIME_INDEX_SUFFIX or not path.stem.isdecimal():
                continue
            if int(path.stem) in known and name == time_index_name(int(path.stem)):
                found.append(int(path.stem))
            else:
                self._files.remove(str(self._directory / name))
        self._first_ids = found
        try:
            self._last = self._cut_files(max_transaction_id)
        except OSError:
            self._first_ids = []
            raise
        self._usable = True

    def add(self, transaction_id: int, time_ms: int) -> None:
        """Add an entry: a transaction, and all before it, were committed at a time. Does not block.

        Times in the index never fall. After a step of the clock backwards, an entry gets the time of the entry before
        it.
        """
        with self._in_memory:
            last = self._last or _NONE
            if transaction_id <= last.transaction_id or not self._usable:
                return
            self._last = _new_tuple(TimeEntry, (transaction_id, max(time_ms, last.time_ms)))
            self._unwritten.append(self._last)
            if len(self._unwritten) > MAX_UNWRITTEN:
                del self._unwritten[0]

    @property
    def last_time_ms(self) -> int | None:
        """The time of the last entry, in milliseconds since the epoch; ``None`` without one."""
        last = self._last
        return None if last is None else last.time_ms

    @property
    def has_unwritten(self) -> bool:
        """Whether :meth:`write` has something to do."""
        return bool(self._unwritten)

    def write(self) -> None:
        """Write the entries in memory to the files, without a sync. After an ``OSError`` a later call writes the
        rest."""
        with self._on_disk:
            self._write()

    def enter(self, entries: Iterable[tuple[int, int]]) -> TimeEntry | None:
        """Enter times that another storage knows, of committed transactions that the log holds; the last entry after
        that.

        Entries of known transactions stay. Between two known entries a new one has a time between theirs: what the
        first says is true, and the second one is true for all before it. Raises ``OSError``; some may be entered.
        """
        if not self._usable:
            return None
        new = sorted({entry[0]: TimeEntry(*entry) for entry in entries if entry[0] >= 0}.values())
        with self._on_disk:
            behind = iter([entry for entry in new if entry.transaction_id > (self._last or _NONE).transaction_id])
            self._write()
            while chunk := list(islice(behind, MAX_UNWRITTEN // 2)):
                for entry in chunk:
                    self.add(*entry)
                self._write()
            segments = self._segments()
            groups = groupby(new, lambda entry: _segment_of(segments, entry.transaction_id))
            # From the end: the times of a segment's new entries are bounded by those behind it.
            for first_id, group in reversed([(first_id, list(group)) for first_id, group in groups]):
                if first_id is not None:
                    self._merge(first_id, group)
            return self._last

    def entries(self, transaction_id: int, max_count: int) -> list[TimeEntry]:
        """The first entries that are not before a transaction, in order. Raises ``OSError``."""
        found: list[TimeEntry] = []
        with self._on_disk:
            position = max(0, bisect_right(self._first_ids, transaction_id) - 1)
            for first_id in self._first_ids[position:]:
                if len(found) >= max_count:
                    break
                with self._opened(first_id) as (file, header):
                    if file is None:
                        continue
                    before = _last_in(file, header, lambda entry: entry.transaction_id < transaction_id)
                    known = _entries(file, header, 0 if before is None else before + 1)
                    found += islice(known, max_count - len(found))
            with self._in_memory:
                found += [each for each in self._unwritten if each.transaction_id >= transaction_id]
        return found[:max_count]

    def cut(self, transaction_id: int) -> None:
        """Remove all entries behind a transaction, durably, before its records are removed. Raises ``OSError``."""
        if self._last is None or self._last.transaction_id <= transaction_id:
            return
        with self._on_disk:
            last = self._cut_files(transaction_id)
            with self._in_memory:
                self._unwritten = [each for each in self._unwritten if each.transaction_id <= transaction_id]
                self._last = self._unwritten[-1] if self._unwritten else last

    def forget(self, first_id: int) -> None:
        """Forget the entries of a segment that is removed together with its file of times. Blocking."""
        with self._on_disk:
            self._first_ids = [each for each in self._first_ids if each != first_id]

    def at(self, time_ms: int) -> TimeEntry | None:
        """The last entry that is not later than a time. Raises ``OSError``."""
        with self._on_disk:
            with self._in_memory:
                in_memory = [each for each in self._unwritten if each.time_ms <= time_ms]
            if in_memory:
                return in_memory[-1]
            return self._last_in_files(self._first_ids, lambda entry: entry.time_ms <= time_ms)

    def covering(self, transaction_id: int) -> TimeEntry | None:
        """The first entry that is not before a transaction. Raises ``OSError``."""
        with self._on_disk:
            position = max(0, bisect_right(self._first_ids, transaction_id) - 1)
            for first_id in self._first_ids[position:]:
                with self._opened(first_id) as (file, header):
                    if file is None:
                        continue
                    found = self._first_behind(file, header, transaction_id)
                if found is not None:
                    return found
            with self._in_memory:
                return next((each for each in self._unwritten if each.transaction_id >= transaction_id), None)

    # Files

    def _write(self) -> None:
        with self._in_memory:
            entries = list(self._unwritten)
        segments = self._segments()
        for first_id, group in groupby(entries, lambda entry: _segment_of(segments, entry.transaction_id)):
            written = list(group)
            if first_id is not None:
                self._append(first_id, written)
            with self._in_memory:
                # Those that are given up meanwhile are the oldest.
                self._unwritten = [each for each in self._unwritten if each > written[-1]]

    def _merge(self, first_id: int, new: Sequence[TimeEntry]) -> None:
        """Have the new entries, ascending and all of one segment, in its file. Unless they are behind its end, the file
        is replaced as a whole: one that is half old and half new would have its entries out of order."""
        is_behind = False
        with self._opened(first_id) as (file, header):
            last = None if file is None else _last_in(file, header, lambda _: True)
            if file is None or last is None:
                known = []
            elif (end := _read(file, header, last)) is not None and end.transaction_id < new[0].transaction_id:
                known, is_behind = [end], True
            else:
                known = list(_entries(file, header, 0))
        ids = {entry.transaction_id for entry in known}
        missing = [entry for entry in new if entry.transaction_id not in ids]
        at = bisect_right(self._first_ids, first_id - 1)
        before = self._last_in_files(self._first_ids[:at], lambda _: True)
        behind = self._first_in_files(self._first_ids[bisect_right(self._first_ids, first_id) :])
        if behind is None:
            with self._in_memory:
                behind = self._unwritten[0] if self._unwritten else None
        # What came into memory meanwhile is written behind all that is in the file.
        missing = [entry for entry in missing if behind is None or entry.transaction_id < behind.transaction_id]
        if not missing:
            return
        merged = _merged(before or _NONE, known, missing, behind)
        if is_behind:
            self._append(first_id, merged[1:])
            return
        # ``open`` removes a file of this name, which has a digit more than its own.
        path = str(self._directory / f"0{time_index_name(first_id)}")
        replacement = self._files.open(path, create=True)
        try:
            replacement.truncate(0)
            replacement.write(0, [header.encode(), *(encode_entry(header, entry) for entry in merged)])
            replacement.sync()
        finally:
            replacement.close()
        self._files.rename(path, self._path(first_id))
        self._know(first_id)

    def _know(self, first_id: int) -> None:
        if first_id not in self._first_ids:
            self._first_ids = sorted([*self._first_ids, first_id])

    def _first_in_files(self, first_ids: Sequence[int]) -> TimeEntry | None:
        for first_id in first_ids:
            with self._opened(first_id) as (file, header):
                found = None if file is None else next(_entries(file, header, 0), None)
            if found is not None:
                return found
        return None

    def _append(self, first_id: int, entries: Sequence[TimeEntry]) -> None:
        header = TimeHeader(self._cluster_key, self._partition_id, first_id)
        file = self._files.open(self._path(first_id), create=True)
        try:
            if file.read(0, HEADER_BYTES) != header.encode():
                file.truncate(0)
                file.write(0, [header.encode()])
            offset = entry_offset(entry_count(file.size()))
            file.write(offset, [encode_entry(header, entry) for entry in entries])
        finally:
            file.close()
        self._know(first_id)

    def _cut_files(self, transaction_id: int) -> TimeEntry | None:
        """Cut the files behind a transaction, and cut torn ends. Returns the last remaining entry."""
        dropped = [first_id for first_id in self._first_ids if first_id > transaction_id]
        self._first_ids = [first_id for first_id in self._first_ids if first_id <= transaction_id]
        for first_id in reversed(dropped):
            if self._files.exists(self._path(first_id)):
                self._files.remove(self._path(first_id))
        if dropped:
            self._files.sync_directory(str(self._directory))
        for first_id in reversed(self._first_ids):
            with self._opened(first_id) as (file, header):
                if file is None:
                    continue
                last = _last_in(file, header, lambda entry: entry.transaction_id <= transaction_id)
                size_bytes = HEADER_BYTES if last is None else entry_offset(last + 1)
                if file.size() > size_bytes:
                    file.truncate(size_bytes)
                    file.sync()
                if last is not None:
                    return _read(file, header, last)
        return None

    def _last_in_files(self, first_ids: Sequence[int], is_wanted: Callable[[TimeEntry], bool]) -> TimeEntry | None:
        for first_id in reversed(first_ids):
            with self._opened(first_id) as (file, header):
                if file is None:
                    continue
                last = _last_in(file, header, is_wanted)
                if last is not None:
                    return _read(file, header, last)
        return None

    def _first_behind(self, file: File, header: TimeHeader, transaction_id: int) -> TimeEntry | None:
        before = _last_in(file, header, lambda entry: entry.transaction_id < transaction_id)
        positions = range(0 if before is None else before + 1, entry_count(file.size()))
        return next((entry for at in positions if (entry := _read(file, header, at)) is not None), None)

    @contextmanager
    def _opened(self, first_id: int) -> Iterator[tuple[File | None, TimeHeader]]:
        """A file; ``None`` if the file is missing or has another header. Readers treat such a file as empty."""
        header = TimeHeader(self._cluster_key, self._partition_id, first_id)
        try:
            file = self._files.open(self._path(first_id), create=False)
        except FileNotFoundError:
            yield None, header
            return
        try:
            yield (file if file.read(0, HEADER_BYTES) == header.encode() else None), header
        finally:
            file.close()

    def _path(self, first_id: int) -> str:
        return str(self._directory / time_index_name(first_id))


def _segment_of(segments: Sequence[int], transaction_id: int) -> int | None:
    position = bisect_right(segments, transaction_id) - 1
    return segments[position] if position >= 0 else None


def _read(file: File, header: TimeHeader, position: int) -> TimeEntry | None:
    return decode_entry(header, file.read(entry_offset(position), ENTRY_BYTES))


def _entries(file: File, header: TimeHeader, position: int) -> Iterator[TimeEntry]:
    """The entries from a position on that are not damaged."""
    count = entry_count(file.size())
    while position < count:
        data = file.read(entry_offset(position), min(count - position, _READ_ENTRIES) * ENTRY_BYTES)
        for start in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
            entry = decode_entry(header, data[start : start + ENTRY_BYTES])
            if entry is not None:
                yield entry
        position += max(1, len(data) // ENTRY_BYTES)


def _merged(
    before: TimeEntry, known: Sequence[TimeEntry], missing: Sequence[TimeEntry], behind: TimeEntry | None
) -> list[TimeEntry]:
    """All entries in order; those that were missing get times between those of the known ones around them."""
    new = {entry.transaction_id for entry in missing}
    merged = sorted([*known, *missing])
    latest_ms = None if behind is None else behind.time_ms
    for place in reversed(range(len(merged))):
        entry = merged[place]
        if entry.transaction_id in new and latest_ms is not None and entry.time_ms > latest_ms:
            merged[place] = entry = entry._replace(time_ms=latest_ms)
        latest_ms = entry.time_ms
    earliest_ms = before.time_ms
    for place, entry in enumerate(merged):
        if entry.time_ms < earliest_ms:
            merged[place] = entry = entry._replace(time_ms=earliest_ms)
        earliest_ms = entry.time_ms
    return merged


def _last_in(file: File, header: TimeHeader, is_wanted: Callable[[TimeEntry], bool]) -> int | None:
    return last_position(partial(_read, file, header), entry_count(file.size()), is_wanted)
