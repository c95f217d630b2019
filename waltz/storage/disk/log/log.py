"""The log of one partition on disk: ordered segments, of which the last one grows.

The life of a group of appends: ``prepare`` checks the order and encodes, ``write_and_sync`` makes the group durable in
a thread, ``publish`` makes it visible. A large group may be written during the sync of the group before: ``write``,
then ``sync``. Readers use an immutable view. So they need no lock against the writer, and see durable records only.

A new segment begins after the record that has passed the size threshold. Everything in the old segment is durable
before the new one exists, so no crash leaves a gap between two segments.
"""

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from waltz.common.records import Record, RecordHeader
from waltz.storage.disk.files.descriptors import DescriptorCache, SegmentFiles
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.damage import LogDamage
from waltz.storage.disk.log.group_encoder import LogEnd, encode_group
from waltz.storage.disk.log.log_opening import open_segments, remove_trimmed, trimmed_segments
from waltz.storage.disk.log.log_view import LogView
from waltz.storage.disk.log.trim_point import forget_trim_point, read_trim_point, write_trim_point
from waltz.storage.disk.segment.segment import (
    Converter,
    ReadLimit,
    Segment,
    SegmentWrite,
    StoredRecords,
    as_headers,
    as_records,
    as_stored,
    as_wire_pieces,
)
from waltz.storage.disk.segment.segment_format import HEADER_SIZE_BYTES, WIRE_PIECES, index_offset
from waltz.storage.disk.segment.segment_opening import create_segment
from waltz.storage.disk.times.time_format import time_index_path
from waltz.storage.disk.times.time_index import TimeIndex
from waltz.storage.errors import CorruptionError, ReadOnlyError, StorageError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_READ_ATTEMPTS = 8

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost


@dataclass(slots=True)
class Prepared:
    """Encoded appends, ready to be written as one group.

    ``errors[i]`` is the reason why a record of batch ``i`` was refused, or ``None`` when the whole batch was accepted.
    """

    start: LogEnd
    end: LogEnd
    errors: list[StorageError | None]
    writes: list[SegmentWrite]
    view: LogView | None = field(default=None, repr=False)
    sync_s: float | None = None
    """The duration of the syncs; ``None`` when there was nothing to sync."""

    def sync(self, segment: Segment, handles: SegmentFiles, write: SegmentWrite) -> None:
        """Make one of the writes durable. Blocking."""
        started_s = time.monotonic()
        segment.sync(handles, write)
        self.sync_s = time.monotonic() - started_s + (self.sync_s or 0.0)

    @property
    def first_transaction_id(self) -> int:
        """Id of the first accepted record, if there is one."""
        return self.start.next_transaction_id

    @property
    def record_count(self) -> int:
        """Number of accepted records."""
        return self.end.next_transaction_id - self.start.next_transaction_id


class PartitionLog:
    """All records of a partition.

    Blocking methods are called inside ``files.run``. The caller has to make sure that methods that change files do not
    overlap. Reads may run at any time, in other threads.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        cluster_key: UUID,
        partition_id: int,
        *,
        segments: tuple[Segment, ...],
        descriptors: DescriptorCache,
        segment_size_threshold_bytes: int,
        trim_point: int,
    ) -> None:
        """Use :meth:`open`."""
        self.directory = directory
        self.partition_id = partition_id
        self.read_only_reason: str | None = None
        """The failed write or sync after which nothing is written any more. Lasts until the log is opened again."""
        self.trim_point = trim_point
        """The first id that was not trimmed. Records before it may still be here, since whole segments are removed."""
        self._files = files
        self._cluster_key = cluster_key
        self._threshold_bytes = segment_size_threshold_bytes
        self._descriptors = descriptors
        self._view = LogView(segments, _end_of(segments[-1]), 0)
        self._closed = False
        self.times = TimeIndex(
            files,
            directory,
            cluster_key,
            partition_id,
            lambda: [segment.first_transaction_id for segment in self._view.segments],
        )
        """The times at which transactions were committed."""
        self.damage = LogDamage(lambda: self._view, self._pinned, self._change)
        """The damage that did not prevent the opening of the log."""

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        cluster_key: UUID,
        partition_id: int,
        *,
        local_low_water_mark: int,
        segment_size_threshold_bytes: int,
        segment_cache_capacity: int,
        clean_end: LogEnd | None = None,
    ) -> "PartitionLog":
        """Open and recover the log in its directory, which is created when missing. Blocking.

        ``clean_end`` is the end of the log at the orderly stop of the node, ``None`` when unknown.

        Raises ``StorageError`` when the files belong to another cluster or partition, ``CorruptionError`` when required
        records are damaged or missing, ``OSError``.
        """
        descriptors = DescriptorCache(segment_cache_capacity)
        trim_point = read_trim_point(files, directory, partition_id)
        try:
            segments = open_segments(
                files,
                directory,
                cluster_key,
                partition_id,
                local_low_water_mark=local_low_water_mark,
                clean_end=clean_end,
                trim_point=trim_point,
                descriptors=descriptors,
            )
        except BaseException:
            descriptors.close()
            raise
        log = cls(
            files,
            directory,
            cluster_key,
            partition_id,
            segments=segments,
            descriptors=descriptors,
            segment_size_threshold_bytes=segment_size_threshold_bytes,
            trim_point=trim_point,
        )
        log._open_times()
        if log.max_transaction_id < local_low_water_mark:
            logger.error(
                "partition %d in %s ends with transaction %d, below its local low-water mark %d",
                partition_id,
                directory,
                log.max_transaction_id,
                local_low_water_mark,
            )
        return log

    def _open_times(self) -> None:
        try:
            self.times.open(self.max_transaction_id)
        except OSError as error:
            text = "partition %d in %s: times are neither known nor kept, since their files cannot be opened: %s"
            logger.error(text, self.partition_id, self.directory, error)

    @property
    def max_transaction_id(self) -> int:
        """The highest id that is durable and published; -1 when there is no record."""
        return self._view.end.next_transaction_id - 1

    @property
    def first_transaction_id(self) -> int:
        """The first id of the first segment; 0 unless the log is trimmed."""
        return self._view.segments[0].first_transaction_id

    @property
    def end(self) -> LogEnd:
        """Where the next record goes."""
        return self._view.end

    def lasting(self) -> tuple[int, dict[str, int]]:
        """What does not change any more while no record is removed: a number that changes with each removal, and the
        bytes from the begin of files, by their names. Does not block."""
        view, sizes = self._view, {}
        for segment in view.segments:
            visible, first_id = view.visible(segment), segment.first_transaction_id
            sizes[Path(segment.path).name] = visible.end_offset
            if segment is not view.segments[-1]:  # the index of the last one may be behind
                sizes[Path(segment.index_path).name] = index_offset(first_id, visible.next_transaction_id)
        return view.epoch, sizes

    # Writing

    def prepare(self, batches: Sequence[Sequence[Record]], after: Prepared | None = None) -> Prepared:
        """Check the order of appends and encode them as one group. Changes nothing; does not block.

        Every batch is one request. A record that is not the next one refuses the rest of its batch, with ``transaction
        out of order``. The records before it stay accepted, and the next batch continues behind them. ``after`` is the
        prepared group, still being written, that these appends follow; ``None``: they follow the published records.
        """
        start = self._view.end if after is None else after.end
        if self.read_only_reason is not None:
            return Prepared(start, start, [self._read_only_error() if batch else None for batch in batches], [])
        writes, end, errors = encode_group(start, self._threshold_bytes, batches)
        return Prepared(start, end, errors, writes)

    def write_and_sync(self, prepared: Prepared) -> None:
        """Make a group durable. Blocking.

        Any failure makes the log read-only: nothing of the group is published, and no write is tried again.

        Raises ``OSError``, ``ReadOnlyError`` when the log is read-only already, ``StorageError`` when the group does
        not follow the published records.
        """
        view = self._view
        if prepared.writes:
            if prepared.start != view.end:
                raise self._order_error()
            segments = self._change("write", partial(self._write_and_sync, view.segments, prepared))
            view = _new_tuple(LogView, (segments, prepared.end, view.epoch))
        prepared.view = view

    def write(self, prepared: Prepared, after: Prepared | None = None) -> bool:
        """Write a group that :meth:`sync` makes durable later. Blocking; may run during the sync of another group.

        ``after`` is the written group that this group follows; ``None``: the group follows the published records.
        Returns false when the group begins another segment. Then nothing was written, and the group is for
        :meth:`write_and_sync` after the groups before are published.

        Raises as :meth:`write_and_sync`.
        """
        self._check_writable()
        view = self._view if after is None or after.view is None else after.view
        if prepared.writes:
            if len(prepared.writes) > 1 or prepared.writes[0].starts_segment:
                return False
            if prepared.start != view.end:
                raise self._order_error()
            segment = view.segments[-1]
            try:
                segment.write(self._descriptors.current_files(segment), prepared.writes[0])
            except BaseException as error:
                self._give_up("write", error)
                raise
            view = _new_tuple(LogView, (view.segments, prepared.end, view.epoch))
        prepared.view = view
        return True

    def sync(self, prepared: Prepared) -> None:
        """Make a written group durable. Groups are synced in the order of their writes. Blocking.

        Raises ``OSError``, ``ReadOnlyError`` when a write or sync has failed before; no sync is tried then.
        """
        assert prepared.view is not None, "it has to be written first"
        if prepared.writes:
            self._change("sync", partial(self._sync, prepared.view.segments[-1], prepared))

    def index_written(self, prepared: Prepared) -> None:
        """Take over the index entries of a written group that the journal has made durable. Blocking.

        The entries are in the index file after :meth:`flush`. Raises as :meth:`sync`.
        """
        assert prepared.view is not None, "it has to be written first"
        if prepared.writes:
            self._check_writable()
            segment = prepared.view.segments[-1]
            try:
                segment.write_index_later(self._descriptors.current_files(segment), prepared.writes[0])
            except BaseException as error:
                self._give_up("write", error)
                raise

    def take_back(self, prepared: Prepared) -> None:
        """Remove the last written group, which will never be durable. Blocking; raises ``OSError``."""
        if prepared.writes:
            self._change("truncation", partial(self._take_back, prepared.start.offset))

    def _take_back(self, offset: int) -> None:
        self._descriptors.current_files(self._view.segments[-1]).data.truncate(offset)

    def _order_error(self) -> StorageError:
        """The error for a group that does not follow the published records."""
        self._check_writable()
        return StorageError("transaction out of order")

    def _write_and_sync(self, segments: tuple[Segment, ...], prepared: Prepared) -> tuple[Segment, ...]:
        for write in prepared.writes:
            if write.starts_segment:
                segments = (*segments, self._roll(segments[-1], write.first_transaction_id))
            handles = self._descriptors.current_files(segments[-1])
            segments[-1].write(handles, write)
            prepared.sync(segments[-1], handles, write)
        return segments

    def _sync(self, segment: Segment, prepared: Prepared) -> None:
        prepared.sync(segment, self._descriptors.current_files(segment), prepared.writes[0])

    def _roll(self, full: Segment, first_transaction_id: int) -> Segment:
        with self._pinned(full) as handles:
            full.flush(handles)
        segment, handles = create_segment(
            self._files, self.directory, self._cluster_key, self.partition_id, first_transaction_id
        )
        self._descriptors.set_current(segment, handles)
        return segment

    def publish(self, prepared: Prepared) -> None:
        """Make a durable group visible: its records can be read, and the maximum rises."""
        assert prepared.view is not None, "only what is durable may be published"
        self._view = prepared.view

    def truncate(self, transaction_id: int) -> int:
        """Remove all records behind ``transaction_id``, durably. Returns the new maximum. Blocking.

        A trimmed log has no end before its first id: nothing is left of it then, and the maximum is the id before.
        Raises ``StorageError`` when the id is out of range or the place to cut is damaged (nothing has changed then),
        ``OSError`` (the log may be read-only then).
        """
        view = self._view
        self._check_writable()
        if self.max_transaction_id <= transaction_id:
            return self.max_transaction_id
        end = self.end_behind(transaction_id)
        transaction_id = end.next_transaction_id - 1
        kept = self._kept(transaction_id)
        last = kept[-1]
        self.times.cut(transaction_id)
        # The records leave the view before the file; the changed epoch tells readers in the middle of a read.
        self._view = LogView(kept, end, view.epoch + 1)
        self._change("truncation", partial(self._cut, view.segments[len(kept) :], last, end))
        return self.max_transaction_id

    def end_behind(self, transaction_id: int) -> LogEnd:
        """The end of the log after a removal of all records behind ``transaction_id``. Blocking.

        A trimmed log ends before its first id at the earliest. Raises ``StorageError`` when the id is out of range or
        the place to cut is damaged, ``OSError``.
        """
        self._check_writable()
        if self.trim_point:
            transaction_id = max(transaction_id, self.first_transaction_id - 1)
        last = self._kept(transaction_id)[-1]
        with self._pinned(last) as handles:
            offset = last.cut_offset(handles, transaction_id)
        return LogEnd(transaction_id + 1, last.first_transaction_id, offset)

    def cut(self, end: LogEnd) -> None:
        """Remove the records behind a place in the current segment; durable with the next :meth:`flush` only. Blocking.

        Raises ``OSError`` (the log is read-only then).
        """
        view, last = self._view, self._view.segments[-1]
        self._view = LogView(view.segments, end, view.epoch + 1)
        files = self._descriptors.current_files(last)
        self._change("truncation", partial(last.cut, files, end.next_transaction_id - 1, end.offset))

    def _kept(self, transaction_id: int) -> tuple[Segment, ...]:
        """The segments that remain when all records behind ``transaction_id`` are removed."""
        first, *others = self._view.segments
        return (first, *(each for each in others if each.first_transaction_id <= transaction_id + 1))

    def _cut(self, dropped: tuple[Segment, ...], last: Segment, end: LogEnd) -> None:
        # From the end backwards, each removal durable before the next: no crash leaves a gap between segments.
        for segment in reversed(dropped):
            self._remove(segment)
        handles = self._descriptors.make_current(last, partial(last.open_files, self._files))
        last.truncate(handles, end.next_transaction_id - 1, end.offset)

    def _remove(self, segment: Segment) -> None:
        for path in (segment.path, segment.index_path, time_index_path(segment.path)):
            if self._files.exists(path):
                self._files.remove(path)
        self._files.sync_directory(self.directory)
        self._descriptors.discard(segment)
        self.damage.forget(segment)

    def trim(self, transaction_id: int) -> int:
        """Record that everything before a transaction is trimmed, and remove the oldest segment if it has no other
        records, durably. Returns the first id after that. Blocking.

        Raises ``StorageError`` when the log ends before (nothing has changed then), ``OSError`` (the log may be
        read-only then).
        """
        self._check_writable()
        if transaction_id > self.max_transaction_id + 1:
            raise StorageError(f"the log ends with transaction {self.max_transaction_id}, before {transaction_id}")
        self._change("trim", partial(self._trim, transaction_id))
        return self.first_transaction_id

    def _trim(self, transaction_id: int) -> None:
        if transaction_id > self.trim_point:
            write_trim_point(self._files, self.directory, transaction_id)
            self.trim_point = transaction_id
        view = self._view
        if trimmed_segments([segment.first_transaction_id for segment in view.segments], self.trim_point):
            self._drop_first(1)

    def _drop_first(self, count: int) -> None:
        """Remove the first segments. Readers no longer see them when their files are removed."""
        view = self._view
        self._view = LogView(view.segments[count:], view.end, view.epoch + 1)
        for segment in view.segments[:count]:
            self.times.forget(segment.first_transaction_id)
            logger.info("partition %d: removing %s, which is trimmed", self.partition_id, segment.path)
            remove_trimmed(self._files, self.directory, segment.path)
            self._descriptors.discard(segment)
            self.damage.forget(segment)

    def first_within(self, size_bytes: int) -> int:
        """The first id of the newest segments whose records have ``size_bytes`` or more together; the first id of the
        log if it is smaller."""
        view = self._view
        for segment in reversed(view.segments):
            size_bytes -= view.visible(segment).end_offset - HEADER_SIZE_BYTES
            if size_bytes <= 0:
                return segment.first_transaction_id
        return self.first_transaction_id

    def begin(self, transaction_id: int) -> None:
        """Begin the log at a transaction, without records, durably: everything before is trimmed. Blocking.

        Raises ``StorageError`` when the log has the transaction, or later ones (nothing has changed then), ``OSError``
        (the log may be read-only then).
        """
        self._check_writable()
        maximum = self.max_transaction_id
        if maximum >= transaction_id:
            raise StorageError(f"the log has transactions up to {maximum}, and does not begin at {transaction_id}")
        self._change("trim", partial(self._begin, transaction_id))

    def _begin(self, transaction_id: int) -> None:
        # After this the log is one that lags behind the trim point. After the next step a start removes the rest.
        write_trim_point(self._files, self.directory, max(transaction_id, self.trim_point))
        self.trim_point = max(transaction_id, self.trim_point)
        view = self._view
        if view.end.segment_first_id != transaction_id:  # otherwise the last segment is such a begin already
            segment, handles = create_segment(
                self._files, self.directory, self._cluster_key, self.partition_id, transaction_id
            )
            self._descriptors.set_current(segment, handles)
            self._view = LogView((*view.segments, segment), _end_of(segment), view.epoch + 1)
        self._drop_first(len(self._view.segments) - 1)

    def write_times(self) -> None:
        """Write the entries of the time index that are in memory. Blocking; entries that cannot be written may be
        lost."""
        if self._closed or self.read_only_reason is not None:
            return
        try:
            self.times.write()
        except OSError as error:
            text = "partition %d in %s: the times of commits cannot be written, and may be lost: %s"
            logger.warning(text, self.partition_id, self.directory, error)

    def flush(self) -> None:
        """Make data and index of the current segment durable, as required before a low-water mark. Blocking; raises
        ``OSError``."""
        self._change("flush", self._flush)

    def _flush(self) -> None:
        segment = self._view.segments[-1]
        with self._pinned(segment) as handles:
            segment.flush(handles)

    def close(self) -> None:
        """Flush, unless the log is read-only, and close all files. A second call does nothing. Blocking; raises
        ``OSError``."""
        if self._closed:
            return
        try:
            if self.read_only_reason is None:
                self.flush()
            self.write_times()
        finally:
            self._closed = True
            self._descriptors.close()

    def delete_files(self) -> None:
        """Close, and remove the files of all segments, durably; the directory stays. Blocking; raises ``OSError``."""
        self._closed = True
        self._descriptors.close()
        for segment in reversed(self._view.segments):
            self._remove(segment)
        forget_trim_point(self._files, self.directory)

    def _check_writable(self) -> None:
        if self._closed:
            raise StorageError("segment closed")
        if self.read_only_reason is not None:
            raise self._read_only_error()

    def _read_only_error(self) -> ReadOnlyError:
        return ReadOnlyError(
            f"segment not writable: partition {self.partition_id} is read-only since a {self.read_only_reason}; "
            "check the disk, then restart the storage node"
        )

    def _change(self, what: str, function: Callable[[], T]) -> T:
        """Carry out a change of the files. After a failure of any kind their state is unknown, and nothing more is
        written."""
        self._check_writable()
        try:
            return function()
        except BaseException as error:
            self._give_up(what, error)
            raise

    def _give_up(self, what: str, error: BaseException) -> None:
        """Write nothing more."""
        self.read_only_reason = f"{what} failed: {error}"
        logger.critical("partition %d in %s is read-only: %s", self.partition_id, self.directory, self.read_only_reason)

    # Reading

    def read(self, first: int, max_count: int, max_bytes: int | None = None) -> list[Record]:
        """The records ``first``, ``first + 1``, ..., at most ``max_count``. Blocking.

        The size on disk of the records is at most ``max_bytes``, unless one record is larger. Empty when ``first`` is
        out of range.

        Raises ``CorruptionError`` when one of them is damaged, ``StorageError`` when the log is closed, ``OSError``.
        """
        return [record for block in self._read(first, max_count, max_bytes, as_records) for record in block]

    def read_encoded(self, first: int, max_count: int, max_bytes: int | None = None) -> tuple[int, list[bytes]]:
        """Like :meth:`read`: the number of records, and their encoding in a list on the wire, in pieces."""
        pieces: list[bytes] = []
        for block in self._read(first, max_count, max_bytes, as_wire_pieces):
            pieces += block
        return len(pieces) // WIRE_PIECES, pieces

    def read_stored(self, first: int, max_count: int, max_bytes: int | None = None) -> list[StoredRecords]:
        """Like :meth:`read`, but the checked bytes of the records as on disk, in consecutive blocks."""
        return self._read(first, max_count, max_bytes, as_stored)

    def read_headers(self, first: int, max_count: int, max_bytes: int | None = None) -> tuple[list[RecordHeader], int]:
        """Like :meth:`read`, without the payloads, which are checked, too; and the number of bytes that were read.

        ``max_bytes`` limits the bytes that are read, payloads included. At most one block is in memory at a time.
        """
        blocks = self._read(first, max_count, max_bytes, as_headers)
        return [header for headers, _ in blocks for header in headers], sum(size_bytes for _, size_bytes in blocks)

    def _read(self, first: int, max_count: int, max_bytes: int | None, convert: Converter[T]) -> list[T]:
        """Blocks of records from the present view. If a truncation has removed records meanwhile, the read is
        repeated."""
        for _ in range(_MAX_READ_ATTEMPTS):
            view = self._view
            try:
                blocks = list(self._blocks(view, first, max_count, max_bytes, convert))
            except (StorageError, OSError):
                if self._view.epoch == view.epoch:
                    raise
            else:
                if self._view.epoch == view.epoch:
                    return blocks
        raise StorageError("truncated many times during one read")

    def _blocks(
        self, view: LogView, first: int, max_count: int, max_bytes: int | None, convert: Converter[T]
    ) -> Iterator[T]:
        stop = min(first + max_count, view.end.next_transaction_id)
        position = bisect_right(view.segments, first, key=_first_id) - 1
        if position < 0:
            return
        limit = ReadLimit(max_bytes)
        for segment in view.segments[position:]:
            if first >= stop or limit.reached:
                return
            visible = view.visible(segment)
            segment_stop = min(stop, visible.next_transaction_id)
            with self._pinned(segment) as handles:
                try:
                    yield from segment.read_blocks(handles, first, segment_stop, visible, limit, convert)
                except (CorruptionError, OSError) as error:
                    if self._view.epoch == view.epoch:
                        self.damage.suspect(
                            segment, error.transaction_id if isinstance(error, CorruptionError) else None
                        )
                    raise
            first = segment_stop

    def _pinned(self, segment: Segment) -> AbstractContextManager[SegmentFiles]:
        return self._descriptors.pinned(segment, partial(segment.open_files, self._files))


def _end_of(segment: Segment) -> LogEnd:
    return LogEnd(segment.next_transaction_id, segment.first_transaction_id, segment.end_offset)


def _first_id(segment: Segment) -> int:
    return segment.first_transaction_id
