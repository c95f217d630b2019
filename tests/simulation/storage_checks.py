"""What must hold for each storage alone: what it has acknowledged is on its own disk, and it can read its own disk.

That a quorum has it all in the end says little of a single storage: servers copy to it again whatever it has lost.
"""

import contextlib
import functools
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any
from unittest import mock

from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import running_process
from tests.simulation.recovered import Recovered, newest_groups
from waltz.common.errors import WaltzError
from waltz.common.records import Record
from waltz.common.wire import storage as wire
from waltz.storage.disk.control_file import FILE_NAME as CONTROL_FILE_NAME
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.segment.segment import Segment
from waltz.storage.disk.segment.segment_format import encode_record, index_offset
from waltz.storage.disk.segment.segment_recovery import CHECKPOINT_INTERVAL
from waltz.storage.errors import CorruptionError
from waltz.storage.node import session_rule
from waltz.storage.node.journaled import Journaled
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.partition import StoragePartition

COMPARED_RECORDS = 100
"""Number of last records that are compared whenever a log is opened; in the end all are."""
COPIED_AT_FIRST = 8
"""Number of first fences and marks of a storage with a journal that are looked for in a drained copy of its disk."""
ACKNOWLEDGEMENTS_PER_COPY = 32
"""Number of acknowledgements of a storage with a journal after which a copy of its disk is drained and compared."""
NOTES_PER_COPY = 4
"""The same number of fences and marks: a copy of the disk for each took a third of the processor time."""
FILES_OF_A_COPY = 100
"""A disk with more files than this is copied as much less often: with tiny segments, nothing else took any time."""

Key = tuple[str, int]
"""Name of a storage, and a partition."""


class StorageChecks:
    """Follows the acknowledgements of storages, and calls ``fail`` when a storage lacks an acknowledged record."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.disks: dict[str, SimulatedDisk] = {}
        """The disks of storages, by name."""
        self.fences_survive = True
        """Whether storages keep fences when they restart."""
        self._acknowledged: dict[Key, dict[int, Record]] = defaultdict(dict)
        self._damaged: set[Key] = set()
        self._notes_decayed: set[str] = set()
        self.replaced: set[str] = set()
        """Storages that have ever got another disk: owners may not know yet what is not on it."""
        self._noted: dict[str, int] = defaultdict(int)
        self._copies_due: dict[str, float] = defaultdict(float)
        self._since_opened: dict[Key, int] = {}
        """The highest transaction that each has acknowledged since it was opened."""
        self._on_deleted: Callable[[str, int], None] | None = None

    # What faults say

    def acknowledged_by(self, storage: str, partition_id: int) -> Mapping[int, Record]:
        """The records that a storage has acknowledged, by their ids."""
        return self._acknowledged[storage, partition_id]

    @property
    def to_be_repaired(self) -> AbstractSet[Key]:
        """The replicas that faults have damaged and nobody has repaired."""
        return self._damaged

    def damaged(self, storage: str, partition_id: int) -> None:
        """A fault has damaged what is durable: from now on the partition may be refused, until :meth:`repaired`."""
        self._damaged.add((storage, partition_id))

    def notes_decayed(self, storage: str) -> None:
        """A medium has damaged one of two copies of a fence or of marks; nothing repairs what has become older so."""
        self._notes_decayed.add(storage)

    def repaired(self, storage: str, partition_id: int) -> None:
        """An operator has repaired it: all that was acknowledged must be there again."""
        self._damaged.discard((storage, partition_id))

    def forget(self, storage: str, partition_id: int) -> None:
        """The partition is no longer kept there."""
        self.deleted(storage, partition_id)
        self._damaged.discard((storage, partition_id))

    def disk_replaced(self, storage: str) -> None:
        """The disk is another one: nothing is known of what is on it."""
        self.replaced.add(storage)
        for key in [key for key in self._acknowledged if key[0] == storage]:
            del self._acknowledged[key]

    def disks_exchanged(self, one: str, other: str) -> None:
        """What one storage has acknowledged is on the disk that the other has from now on."""
        self.replaced |= {one, other}
        names = {one: other, other: one}
        exchanged = {(names.get(name, name), number): value for (name, number), value in self._acknowledged.items()}
        self._acknowledged.clear()
        self._acknowledged.update(exchanged)

    # What storages do

    def acknowledged(self, storage: str, partition_id: int, records: Sequence[Record]) -> None:
        """A storage tells a server that it has these."""
        self._acknowledged[storage, partition_id].update({record.transaction_id: record for record in records})
        self._since_opened[storage, partition_id] = records[-1].transaction_id

    def durable(self, storage: str, partition: StoragePartition, records: Sequence[Record]) -> None:
        """A storage is about to acknowledge these: no loss of power may take away what it has written for them."""
        disk, segments = self.disks[storage], partition.log._view.segments
        what = f"{storage} acknowledges transaction {records[-1].transaction_id} of partition {partition.partition_id}"
        missing: set[str | None] = set()
        for segment in segments[-2:]:
            full = segment is not segments[-1]
            missing |= {disk.not_durable(path, content=full) for path in (segment.path, segment.index_path)}
        for record in records:
            encoded = encode_record(record)
            if not any(disk.holds_for_certain(segment.path, encoded) for segment in reversed(segments)):
                missing.add(f"transaction {record.transaction_id} is not synced")
            if (record.transaction_id + 1) % CHECKPOINT_INTERVAL == 0:
                missing.add(self._index_entry_missing(disk, segments, record.transaction_id))
        for reason in missing - {None}:
            self._fail(f"{what}, and {reason}")

    def journaled(self, storage: str, partition: StoragePartition, records: Sequence[Record]) -> None:
        """A storage with a journal is about to acknowledge these: its segments hold them for certain, or its journal.

        Now and then, and where neither is seen at once, a copy of the disk is drained: everything must be there.
        """
        disk, encoded = self.disks[storage], encode_record(records[-1])
        journaled = partition._durability
        assert isinstance(journaled, Journaled)
        held = any(disk.holds_for_certain(each.path, encoded) for each in reversed(partition.log._view.segments)) or (
            encoded in newest_groups(disk, partition.log.directory, journaled.state.journal)
        )
        if self._copy_is_due(storage, 1 / ACKNOWLEDGEMENTS_PER_COPY) or not held:
            self.recovered(storage, partition, records)

    def noted(self, storage: str, partition: StoragePartition, mark: tuple[int, int] | None = None) -> None:
        """A storage with a journal has taken a fence, or a mark: now and then a copy of the disk is drained for it."""
        self._noted[storage] += 1
        if self._copy_is_due(storage, 1 / NOTES_PER_COPY) or self._noted[storage] <= COPIED_AT_FIRST:
            self.recovered(storage, partition, mark=mark)

    def truncated(self, storage: str, partition: StoragePartition) -> None:
        """A storage with a journal has cut a partition: a copy of its disk, unless it is large, must end there, too."""
        if self._copy_is_due(storage, 1):
            self.recovered(storage, partition, last=partition.max_transaction_id)

    def _copy_is_due(self, storage: str, share: float) -> bool:
        """Whether to copy the disk now. ``share``: what the event adds to what is due of a copy of a small disk."""
        cost = max(1.0, self.disks[storage].file_count / FILES_OF_A_COPY)
        self._copies_due[storage] += share
        if self._copies_due[storage] < cost:
            return False
        self._copies_due[storage] -= cost
        return True

    def recovered(
        self,
        storage: str,
        partition: StoragePartition,
        records: Sequence[Record] = (),
        *,
        mark: tuple[int, int] | None = None,
        last: int | None = None,
    ) -> None:
        """What a loss of power would leave of a partition: these records, all that was acknowledged, fence and mark.

        ``last``: the partition was truncated behind this transaction, and nothing was appended since.
        """
        partition_id = partition.partition_id
        key, what = (storage, partition_id), f"of partition {partition_id} of {storage}, replayed now,"
        if key in self._damaged:
            return
        try:
            found = Recovered.of(self.disks[storage], partition.log.directory, partition_id)
            acknowledged = self._acknowledged[key] | {record.transaction_id: record for record in records}
            highest = max(acknowledged, default=-1)
            first = max(highest - COMPARED_RECORDS + 1, found.log.first_transaction_id)
            there = {record.transaction_id: record for record in found.last(first)}
            found.disk.clear()
        except OSError:
            return  # a disk that does not give back anything at the moment
        except WaltzError as error:
            self._fail(f"the disk {what} cannot be recovered: {error}")
            return
        for number in range(first, highest + 1):
            if number in acknowledged and there.get(number) != acknowledged[number]:
                self._fail(f"the disk {what} lacks transaction {number}, which is acknowledged")
                return
        if last is not None and found.log.max_transaction_id > last:
            self._fail(f"the disk {what} has transactions behind {last} that were truncated")
            return
        if storage in self._notes_decayed:
            return
        if self.fences_survive and found.fence < partition._fenced_session_id:
            text = f"the disk {what} has fence {found.fence}, and session {partition._fenced_session_id} was let in"
            self._fail(text)
        if mark is not None and mark > (found.info.session_id, found.info.low_water_mark):
            self._fail(f"the disk {what} has not got mark {mark}: {found.info}")

    @staticmethod
    def _index_entry_missing(disk: SimulatedDisk, segments: Sequence[Segment], transaction_id: int) -> str | None:
        segment = next(each for each in reversed(segments) if each.first_transaction_id <= transaction_id)
        end = index_offset(segment.first_transaction_id, transaction_id + 1)
        if disk.durable_size(segment.index_path) >= end:
            return None
        return f"the index entry of transaction {transaction_id}, before a checkpoint, is not synced"

    def marked(self, storage: str, partition: StoragePartition) -> None:
        """A storage has a new low-water mark: that, and all that lies below it, is durable."""
        disk, segment = self.disks[storage], partition.log._view.segments[-1]
        control_file = posixpath.join(posixpath.dirname(partition.log.directory), CONTROL_FILE_NAME)
        for path in (segment.path, segment.index_path, control_file):
            reason = disk.not_durable(path)
            if reason is not None:
                self._fail(f"{storage} takes a low-water mark of partition {partition.partition_id}, and {reason}")

    def cut(self, storage: str, partition_id: int, transaction_id: int) -> None:
        """A storage is told to cut what comes after this transaction."""
        acknowledged = self._acknowledged[storage, partition_id]
        for number in range(max(acknowledged, default=-1), transaction_id, -1):
            acknowledged.pop(number, None)
        last = self._since_opened.get((storage, partition_id), -1)
        self._since_opened[storage, partition_id] = min(last, transaction_id)

    @contextlib.contextmanager
    def deletions_seen_by(self, seen: Callable[[str, int], None]) -> Iterator[None]:
        """Call ``seen`` whenever a storage is told to delete all files of a partition."""
        self._on_deleted = seen
        try:
            yield
        finally:
            self._on_deleted = None

    def deleted(self, storage: str, partition_id: int) -> None:
        """A storage is told to delete all files of a partition."""
        if self._on_deleted is not None:
            self._on_deleted(storage, partition_id)
        self._acknowledged.pop((storage, partition_id), None)

    def opened(self, storage: str, partition: StoragePartition) -> None:
        """A storage has opened a partition, after a restart or while it runs."""
        partition_id, log = partition.partition_id, partition.log
        self._since_opened.pop((storage, partition_id), None)
        acknowledged = self._acknowledged[storage, partition_id]
        highest = max(acknowledged, default=-1)
        if log.max_transaction_id < highest:
            self._fail(
                f"{storage} has acknowledged transaction {highest} of partition {partition_id}; "
                f"opened again it has transactions up to {log.max_transaction_id}"
            )
            return
        if (storage, partition_id) in self._damaged:
            return  # it need not be able to read all of it, but it has cut nothing off
        first = max(highest - COMPARED_RECORDS + 1, log.first_transaction_id)
        try:
            while first <= highest:
                records = log.read(first, highest - first + 1)
                self._compare(storage, partition_id, records)
                first += len(records)
        except CorruptionError as error:
            self._fail(f"{storage} cannot read what it has acknowledged, and nothing has damaged it: {error}")
        except OSError:
            pass  # a disk that does not give back anything at the moment

    def refused(self, storage: str, partition_id: int, error: BaseException) -> None:
        """A storage does not open a partition."""
        if isinstance(error, CorruptionError) and (storage, partition_id) not in self._damaged:
            self._fail(f"{storage} refuses partition {partition_id}, and nothing has damaged its disk: {error}")

    # At the end

    def left(self, storage: str, partition_id: int, records: Sequence[Record]) -> None:
        """What is on the disk of a storage after everything; all of a partition, from its first transaction."""
        acknowledged = self._acknowledged[storage, partition_id]
        highest = max(acknowledged, default=-1)
        if len(records) <= highest:
            self._fail(
                f"{storage} has acknowledged transaction {highest} of partition {partition_id}, and its disk holds "
                f"transactions up to {len(records) - 1} in the end"
            )
        self._compare(storage, partition_id, records)

    def unreadable(self, storage: str, partition_id: int, error: Exception) -> None:
        """The disk of a storage cannot be read in the end, although every damage was repaired."""
        self._fail(f"{storage} cannot read partition {partition_id} in the end: {error}")

    def _compare(self, storage: str, partition_id: int, records: Sequence[Record]) -> None:
        acknowledged = self._acknowledged[storage, partition_id]
        for record in records:
            known = acknowledged.get(record.transaction_id)
            if known is not None and known != record:
                self._fail(
                    f"{storage} holds something else at {record.transaction_id} of partition {partition_id} than it "
                    "has acknowledged"
                )

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """See what storages acknowledge, cut, open and refuse."""
        acknowledge, perform, start = StoragePartition._acknowledge, StoragePartition._perform, StoragePartition.start
        forget, set_mark = StorageDirectory.forget, StoragePartition._set_low_water_mark
        settle_fence = StoragePartition._settle_fence
        report_broken, repair = StorageManager._report_broken, StorageManager.repair

        def forgotten(directory: StorageDirectory, partition_id: int, delete_files: bool) -> None:
            if delete_files:
                self.deleted(_host(), partition_id)
            forget(directory, partition_id, delete_files)

        async def repaired(manager: StorageManager, partition_id: int, certain_up_to: int) -> None:
            # What is not certain may be cut, but not behind what was acknowledged since the partition was opened.
            kept = self._since_opened.pop((_host(), partition_id), -1)
            self.cut(_host(), partition_id, max(certain_up_to, kept))
            await repair(manager, partition_id, certain_up_to)

        def acknowledged(partition: StoragePartition, requests: Sequence[Any], frames: Sequence[bytes]) -> None:
            acknowledge(partition, requests, frames)
            for request, frame in zip(requests, frames, strict=True):
                message = request.message
                if not isinstance(message, wire.AppendRequest):
                    continue
                if frame != _success(message.session_id, message.seq_num, message.partition_id):
                    continue
                if session_rule.fence(message, partition._session_id) is None:
                    check = self.journaled if isinstance(partition._durability, Journaled) else self.durable
                    check(_host(), partition, message.records)
                    self.acknowledged(_host(), partition.partition_id, message.records)

        async def performed(partition: StoragePartition, request: Any) -> bytes:
            if isinstance(request.message, wire.TruncateRequest):
                self.cut(_host(), partition.partition_id, request.message.transaction_id)
            frame = await perform(partition, request)
            message = request.message
            if isinstance(partition._durability, Journaled):
                if isinstance(message, wire.SetLowWaterMarkRequest):
                    self.noted(_host(), partition, mark=(message.session_id, message.low_water_mark))
                elif isinstance(message, wire.TruncateRequest):
                    self.truncated(_host(), partition)
            return frame

        async def fenced(partition: StoragePartition) -> None:
            before = partition._fenced_session_id
            await settle_fence(partition)
            if partition._fenced_session_id > before and isinstance(partition._durability, Journaled):
                self.noted(_host(), partition)

        def marked(partition: StoragePartition, session_id: int, mark: int) -> None:
            set_mark(partition, session_id, mark)
            self.marked(_host(), partition)

        def started(partition: StoragePartition) -> None:
            self.opened(_host(), partition)
            start(partition)

        def refused(manager: StorageManager, partition_id: int, error: BaseException) -> None:
            self.refused(_host(), partition_id, error)
            report_broken(manager, partition_id, error)

        with (
            mock.patch.object(StoragePartition, "_acknowledge", acknowledged),
            mock.patch.object(StoragePartition, "_perform", performed),
            mock.patch.object(StoragePartition, "_settle_fence", fenced),
            mock.patch.object(StoragePartition, "start", started),
            mock.patch.object(StoragePartition, "_set_low_water_mark", marked),
            mock.patch.object(StorageManager, "_report_broken", refused),
            mock.patch.object(StorageManager, "repair", repaired),
            mock.patch.object(StorageDirectory, "forget", forgotten),
        ):
            yield


@functools.lru_cache(maxsize=1000)
def _success(session_id: int, seq_num: int, partition_id: int) -> bytes:
    """The bytes with which each storage confirms a request."""
    return wire.encode(wire.SuccessResponse(session_id, seq_num, partition_id))


def _host() -> str:
    process = running_process()
    return "-" if process is None else process.host
