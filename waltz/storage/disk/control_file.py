"""The control file of a storage directory: session, marks and flags of every partition, and the directory's lock.

A file of two slots for each partition (:mod:`waltz.storage.disk.files.slot_file`): 76 bytes, the partition's id and two
structs of 36 bytes.

While the journal may hold the only copy of some data, the file is *guarded*: every bit of the cluster key in the header
is inverted, so that the original refuses to start, because the original does not know the journal. The bytes after the
fields of the header, otherwise zeros, tell the reason.
"""

import logging
import struct
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waltz.common.checksum import crc32
from waltz.storage.disk.files.files import File, Files, replace_file, see_the_medium
from waltz.storage.disk.files.slot_file import (
    HEADER_SIZE_BYTES,
    Entry,
    SlotFile,
    SlotUpdate,
    encode_header,
    read_entry,
    read_header,
    with_key,
)
from waltz.storage.errors import ConcurrentUpdateError, CorruptionError, StorageError

logger = logging.getLogger(__name__)

FILE_NAME = "waltz-storage.ctl"
_NAME = "control file"

AVAILABLE = 1
"""Flag: online; clients' requests are served."""
ASSIGNED = 4
"""Flag: this node keeps the partition."""

_GUARD = b"see the journal!"
_GUARD_AT = 32

_FIELDS = struct.Struct(">qqqii")
_PARTITION_ID = struct.Struct(">i")
_CRC = struct.Struct(">I")
_STRUCT_SIZE_BYTES = _FIELDS.size + _CRC.size
_ENTRY_SIZE_BYTES = _PARTITION_ID.size + 2 * _STRUCT_SIZE_BYTES
_LAST_SEQUENCE_NUMBER = (1 << 31) - 1


class PartitionInfo(NamedTuple):
    """The record of one partition.

    ``low_water_mark`` is the cluster's committed high-water mark when the recorded session began,
    ``local_low_water_mark`` the highest transaction id on this node at that time.
    """

    session_id: int
    low_water_mark: int
    local_low_water_mark: int
    flags: int
    sequence_number: int

    @property
    def assigned(self) -> bool:
        """Whether this node keeps the partition."""
        return bool(self.flags & ASSIGNED)

    @property
    def available(self) -> bool:
        """Whether the partition serves clients' requests."""
        return bool(self.flags & AVAILABLE)


class Marks(NamedTuple):
    """A session and its marks."""

    session_id: int
    low_water_mark: int
    local_low_water_mark: int


_FRESH_OLDER = PartitionInfo(-1, -1, -1, AVAILABLE, -1)
_FRESH = PartitionInfo(-1, -1, -1, AVAILABLE, 0)


def encode_info(info: PartitionInfo) -> bytes:
    """The 36 bytes of a struct, checksum included."""
    fields = _FIELDS.pack(*info)
    return fields + _CRC.pack(crc32(fields))


def decode_info(data: bytes) -> PartitionInfo | None:
    """The struct in 36 bytes, ``None`` if its checksum is wrong or no other struct can follow it."""
    fields = data[: _FIELDS.size]
    if len(data) < _STRUCT_SIZE_BYTES or _CRC.unpack_from(data, _FIELDS.size)[0] != crc32(fields):
        return None
    info = PartitionInfo(*_FIELDS.unpack(fields))
    return info if info.sequence_number < _LAST_SEQUENCE_NUMBER else None


class ControlFile:
    """The open, locked control file. Methods that write block until the update is durable."""

    def __init__(self, slots: SlotFile[PartitionInfo], cluster_key: UUID) -> None:
        """Use :meth:`open`."""
        self.cluster_key = cluster_key
        self._slots = slots
        self._kept: dict[int, tuple[Marks, ...]] = {}

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        cluster_key: UUID | None = None,
        partition_count: int | None = None,
        *,
        known_keys: Iterable[UUID] = (),
    ) -> "ControlFile":
        """Lock and load the control file of a directory.

        With a key and a count, a missing file is created. With a key, a key in the file of which a failed write has
        inverted some bytes only is written anew, as the key of a guarded file. A damaged entry of a partition does not
        fail here, but in :meth:`partition`.

        Args:
            files: The file system.
            directory: The storage directory.
            cluster_key: The key of the cluster; ``None``: the key is in the file.
            partition_count: The number of partitions; ``None``: the number is in the file.
            known_keys: Without ``cluster_key``: the keys in the other files of the directory. The first key that
                differs from the key in the file by inverted bytes only is the key of the cluster. The keys are read
                when the lock is held.

        Raises:
            StorageError: The directory is missing, is in use or belongs to another cluster; or the file is guarded, and
                none of ``known_keys`` fits.
            OSError: The file cannot be read, or is missing and may not be created.
        """
        path = str(Path(directory) / FILE_NAME)
        file = _open_and_lock(files, directory, path, create=cluster_key is not None and partition_count is not None)
        given_up: list[File] = []
        try:
            see_the_medium(file)
            if cluster_key is not None and partition_count is not None and _is_unfinished(file):
                given_up.append(file)
                file = _create(files, path, cluster_key, partition_count)
            header, written_key, found_count = read_header(_NAME, path, file)
            found_key = _true_key(written_key, known_keys if cluster_key is None else [cluster_key])
            if found_key is None:
                if cluster_key is not None:
                    raise StorageError("the cluster key does not match")
                found_key = _plain_key(path, header, written_key)
            _check_count(path, file, found_count, partition_count)
            entries = [_load_entry(path, file, partition_id) for partition_id in range(found_count)]
            files.sync_directory(directory)
            slots = SlotFile(
                files,
                path,
                file,
                name=_NAME,
                header=header,
                entries=entries,
                lock_size=HEADER_SIZE_BYTES,
                given_up=given_up,
            )
            control_file = cls(slots, found_key)
            if cluster_key is not None and written_key not in (found_key, _inverted(found_key)):
                control_file.guard()
            return control_file
        except BaseException:
            for each in (file, *given_up):
                each.close()
            raise

    @property
    def guarded(self) -> bool:
        """Whether the journal may hold the only copy of some data; otherwise the journal does not count."""
        return with_key(self._slots.header, self.cluster_key) != self._slots.header

    def guard(self) -> None:
        """Make the journal count from now on, durably. Blocking; raises ``OSError``, ``ReadOnlyError``."""
        header = with_key(self._slots.header, _inverted(self.cluster_key))
        self._slots.write_header(header[:_GUARD_AT] + _GUARD + header[_GUARD_AT + len(_GUARD) :])

    def unguard(self) -> None:
        """Make the journal not count from now on, durably: the changes in the journal are durable in their files.
        Blocking.

        Raises ``OSError``, ``ReadOnlyError``.
        """
        header = with_key(self._slots.header, self.cluster_key)
        self._slots.write_header(header[:_GUARD_AT] + bytes(len(_GUARD)) + header[_GUARD_AT + len(_GUARD) :])

    @property
    def partition_count(self) -> int:
        """Number of partitions of the cluster."""
        return len(self._slots.entries)

    @property
    def failure(self) -> str | None:
        """The failed write or sync, while the file could not be replaced after the failure; ``None`` otherwise."""
        return self._slots.failure

    @property
    def half_damaged(self) -> list[int]:
        """Partitions with one struct that was damaged at opening and has not been written since."""
        return self._slots.half_damaged

    def partition(self, partition_id: int) -> PartitionInfo:
        """The durable state of a partition.

        Raises ``StorageError`` when there is no such partition, ``CorruptionError`` when its entry is damaged
        (:meth:`reset` makes it usable again).
        """
        info = self._slots.get(partition_id)
        kept = self._kept.get(partition_id)
        return info if kept is None else info._replace(**kept[-1]._asdict())

    def restore(self, partition_id: int, info: PartitionInfo) -> None:
        """Write the state at the last orderly stop of a partition whose newest struct is damaged. Blocking; raises
        ``OSError``.

        No effect if the entry is not damaged, or is newer.
        """
        entry = self._slots.entry(partition_id)
        with entry.lock:
            lost = entry.damage is not None or (entry.half_damaged and entry.sequence_number < info.sequence_number)
            if not lost:
                return
            slot = 0 if entry.damage is not None else 1 - entry.current
            self._slots.write(partition_id, slot, encode_info(info))
            entry.take_over(info, slot, info.sequence_number)
            text = "control file %s, partition %d was damaged; it is as at the last stop again"
            logger.error(text, self._slots.path, partition_id)

    def set_low_water_mark(
        self, partition_id: int, session_id: int, low_water_mark: int, local_low_water_mark: int
    ) -> None:
        """Record a session and its marks; none of the three may go back.

        Raises ``ConcurrentUpdateError``, ``StorageError``, ``OSError``; the state is then as before.
        """
        marks = Marks(session_id, low_water_mark, local_low_water_mark)
        with self._slots.entry(partition_id).lock:
            self._check_marks(partition_id, marks)
            self._update({partition_id: self._slots.get(partition_id)._replace(**marks._asdict())})

    def check_low_water_mark(self, partition_id: int, marks: Marks) -> None:
        """Check that marks may be recorded. Raises like :meth:`set_low_water_mark`, and ``CorruptionError``."""
        with self._slots.entry(partition_id).lock:
            self._check_marks(partition_id, marks)

    def keep_low_water_mark(self, partition_id: int, marks: Marks) -> None:
        """Let marks count that were checked and are durable elsewhere; :meth:`write_kept` records them in the file."""
        with self._slots.entry(partition_id).lock:
            self._kept[partition_id] = (*self._kept.get(partition_id, ()), marks)

    def write_kept(self, partition_ids: Collection[int]) -> None:
        """Record the kept marks durably, in order, with the same bytes as by single updates. Blocking.

        One sync for all partitions, and one more for each further update of the same partition. Raises ``OSError``,
        ``ReadOnlyError``, ``CorruptionError``; marks that are not recorded stay kept.
        """
        with self._slots.locked(partition_ids):
            while due := [each for each in partition_ids if each in self._kept]:
                firsts = {each: self._kept[each][0]._asdict() for each in due}
                self._update({each: self._slots.get(each)._replace(**firsts[each]) for each in due})
                for partition_id in due:
                    self._kept[partition_id] = self._kept[partition_id][1:]
                    if not self._kept[partition_id]:
                        del self._kept[partition_id]

    def _check_marks(self, partition_id: int, marks: Marks) -> None:
        info = self.partition(partition_id)
        if info.session_id > marks.session_id:
            raise ConcurrentUpdateError(
                f"session id has changed to {info.session_id}, "
                f"but low watermark request contains session id {marks.session_id}"
            )
        if marks.low_water_mark < info.low_water_mark:
            raise StorageError(
                f"unable to set low watermark to value {marks.low_water_mark} "
                f"because it's less than current low watermark {info.low_water_mark}"
            )
        if marks.local_low_water_mark < info.local_low_water_mark:
            raise StorageError(
                f"unable to set local low watermark to value {marks.local_low_water_mark} "
                f"because it's less than current local low watermark {info.local_low_water_mark}"
            )

    def set_available(self, partition_id: int, available: bool) -> None:
        """Set or clear the available flag; written even when unchanged."""
        self._set_flag(partition_id, AVAILABLE, available)

    def set_assigned(self, partition_id: int, assigned: bool) -> None:
        """Set or clear the assigned flag; written even when unchanged."""
        self._set_flag(partition_id, ASSIGNED, assigned)

    def reset(self, partition_id: int) -> None:
        """Give a partition the state of a new one: available, not assigned, no session, no marks.

        The final bytes are the original's: sequence number -1 in the slot that was current, 0 in the other slot. At
        every moment one slot is valid; after the first step the valid slot is a reset one.
        """
        entry = self._slots.entry(partition_id)
        with entry.lock:
            self._kept.pop(partition_id, None)
            other = 1 - entry.current
            if entry.damage is None:
                on_the_way = _FRESH._replace(sequence_number=entry.sequence_number + 1)
                self._slots.write(partition_id, other, encode_info(on_the_way))
            self._slots.write(partition_id, entry.current, encode_info(_FRESH_OLDER))
            self._slots.write(partition_id, other, encode_info(_FRESH))
            entry.take_over(_FRESH_OLDER, entry.current, 0)

    def close(self) -> None:
        """Sync (unless a sync failed before), unlock and close. Closing again does nothing."""
        self._slots.close()

    def _set_flag(self, partition_id: int, flag: int, value: bool) -> None:
        with self._slots.entry(partition_id).lock:
            info = self._slots.get(partition_id)
            self._update({partition_id: info._replace(flags=info.flags | flag if value else info.flags & ~flag)})

    def _update(self, infos: Mapping[int, PartitionInfo]) -> None:
        """Write into the other slots; only durable updates become the state."""
        entries = {each: self._slots.entry(each) for each in infos}
        new = {each: infos[each]._replace(sequence_number=entry.sequence_number + 1) for each, entry in entries.items()}
        self._slots.write_all(
            [SlotUpdate(each, 1 - entry.current, encode_info(new[each])) for each, entry in entries.items()]
        )
        for each, entry in entries.items():
            entry.take_over(new[each], 1 - entry.current, new[each].sequence_number)


def _open_and_lock(files: Files, directory: str, path: str, *, create: bool) -> File:
    if not files.exists(directory):
        raise StorageError(f"storage directory {directory} does not exist; create it or correct storage.directory")
    try:
        file = files.open(path, create=create)
    except BlockingIOError:
        raise StorageError(_lock_text(path)) from None
    try:
        locked = file.try_lock(HEADER_SIZE_BYTES)
    except BaseException:
        file.close()
        raise
    if not locked:
        file.close()
        raise StorageError(_lock_text(path))
    return file


def _lock_text(path: str) -> str:
    return f"failed to acquire the lock: {path} is used by another storage node or tool"


def _is_unfinished(file: File) -> bool:
    """Whether the file is new, or its creation was interrupted: the header is written last."""
    if file.size() < HEADER_SIZE_BYTES:
        return True
    if any(file.read(0, HEADER_SIZE_BYTES)):
        return False
    # A zeroed header over real state is damage, not an unfinished creation.
    body = file.read(HEADER_SIZE_BYTES, file.size() - HEADER_SIZE_BYTES)
    starts = (
        start + _PARTITION_ID.size + slot * _STRUCT_SIZE_BYTES
        for start in range(0, len(body), _ENTRY_SIZE_BYTES)
        for slot in (0, 1)
    )
    infos = (decode_info(body[start : start + _STRUCT_SIZE_BYTES]) for start in starts)
    return all(info in (None, _FRESH_OLDER, _FRESH) for info in infos)


def _create(files: Files, path: str, cluster_key: UUID, partition_count: int) -> File:
    """Create the file in place of an empty one, complete under another name first."""
    body = [
        _PARTITION_ID.pack(partition_id) + encode_info(_FRESH_OLDER) + encode_info(_FRESH)
        for partition_id in range(partition_count)
    ]
    header = encode_header(files.time_ms(), cluster_key, partition_count)
    return replace_file(files, path, [header, *body], lock_size=HEADER_SIZE_BYTES)


def _inverted(key: UUID) -> UUID:
    return UUID(int=key.int ^ ((1 << 128) - 1))


def _true_key(written_key: UUID, possible_keys: Iterable[UUID]) -> UUID | None:
    """The first possible key that differs from the written key by inverted bytes only, if there is one.

    In a guarded file all bytes are inverted. A file in which a failed write has inverted some bytes is guarded, too.
    """
    for key in possible_keys:
        differences = (written ^ byte for written, byte in zip(written_key.bytes, key.bytes, strict=True))
        if all(difference in (0x00, 0xFF) for difference in differences):
            return key
    return None


def _plain_key(path: str, header: bytes, written_key: UUID) -> UUID:
    """The key in a file that is not guarded, for example in a file of the original.

    In a guarded file some bytes of the key may be inverted and others not, and the file does not tell which.
    """
    if any(header[_GUARD_AT : _GUARD_AT + len(_GUARD)]):
        raise StorageError(
            f"the cluster key in {path} is not certain: some of its bytes may be inverted, and neither the fence file "
            "(waltz-storage.fence) nor the journal (journal/*.jnl) beside it has the key; put these files back, then "
            "repeat"
        )
    return written_key


def _check_count(path: str, file: File, found_count: int, partition_count: int | None) -> None:
    if partition_count not in (None, found_count) or found_count < 0:
        raise StorageError("the number of partitions does not match")
    if partition_count is None and found_count > -(-(file.size() - HEADER_SIZE_BYTES) // _ENTRY_SIZE_BYTES):
        # The number comes from the file alone, and decides how much memory is taken.
        raise StorageError(f"{path} is too short for {found_count} partitions, the number in its header")


def _load_entry(path: str, file: File, partition_id: int) -> Entry[PartitionInfo]:
    head, written = read_entry(file, partition_id, _PARTITION_ID.size, _STRUCT_SIZE_BYTES)
    first, second = map(decode_info, written)
    damage: StorageError | None = None
    current, info = 1, second or _FRESH
    if first is not None and second is not None:
        if first.sequence_number == second.sequence_number:
            damage = StorageError("Cannot determine max PartitionInfoStruct: same sequence number found")
        elif first.sequence_number > second.sequence_number:
            current, info = 0, first
    elif first is not None:
        current, info = 0, first
    elif second is None:
        damage = CorruptionError(partition_id, None, path, "partition info corrupted")
    if damage is not None:
        logger.error("control file %s, partition %d is unusable: %s", path, partition_id, damage)
    half_damaged = (first is None) != (second is None)
    if half_damaged:
        text = "control file %s, partition %d: one of two structs is damaged; the other, number %d, counts"
        logger.error(text, path, partition_id, info.sequence_number)
    if head != _PARTITION_ID.pack(partition_id):
        logger.error("control file %s, partition %d: the id in its entry is damaged", path, partition_id)
        head = _PARTITION_ID.pack(partition_id)
    return Entry(head, written, info, current, info.sequence_number, damage, half_damaged)
