"""The directories of a storage node on several disks: where each partition is, and which disks are there.

The first directory holds control file and fence file. Each further directory is a *volume*: it has an id of its own in
``volume.json``. ``volumes.json`` in the first directory tells the volume of each partition that is not in the first
directory itself. A symbolic link ``<first>/<partition>`` leads there, so that all other code, and the original, find
the partition in the first directory. Each directory may have a journal; ``volumes.json`` tells which journals count.

Volumes are known by their ids, not by their paths: disks may be mounted elsewhere. A volume that is missing never looks
like empty partitions: its partitions are *absent*, and nothing is written for them.
"""

import logging
import random
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeAlias, TypeVar
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from waltz.common.storage_health import ABSENT_VOLUME, LOST_WITH_VOLUME
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory_copy import copy_rest, make_empty, remove_directory
from waltz.storage.disk.files.files import File, Files, replace_file
from waltz.storage.disk.journal.journal import DIRECTORY_NAME
from waltz.storage.disk.journal.replay import mark_lost
from waltz.storage.disk.journal.ring import leave_unused
from waltz.storage.errors import StorageError

logger = logging.getLogger(__name__)

VOLUME_NAME = "volume.json"
"""The file of a volume with its id."""

VOLUMES_NAME = "volumes.json"
"""The file of the first directory with the volume of each partition."""

EVEN_WITHIN_BYTES = 512 << 20
"""Directories whose free space differs by less than this from the best are equally good for a new partition."""

VolumeId: TypeAlias = UUID | None
"""One of the directories of a node; ``None``: the first one."""

_FORMAT = 1
_FIRST: Literal["first"] = "first"
_MAX_SIZE_BYTES = 16 << 20
_LOST_AND_FOUND = "lost+found"
_NO_PARTITIONS = (_LOST_AND_FOUND, VOLUME_NAME, VOLUME_NAME + ".new", DIRECTORY_NAME)
_LOCK_SIZE_BYTES = 1
_MOVING = ".moving"
"""Ending of the copy of a partition's directory, before it is the partition."""
_MOVED = ".moved"
"""Ending of a partition's directory while and after the copy becomes the partition."""


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")
    format: int


class _VolumeDocument(_Document):
    """``volume.json``."""

    id: UUID
    cluster_key: UUID


class _Place(BaseModel):
    model_config = ConfigDict(extra="forbid")
    volume: UUID
    lost: str | None = None
    """Why the partition lacks acknowledged records, to be told when the volume is back."""


class _VolumesDocument(_Document):
    """``volumes.json``."""

    volumes: dict[UUID, str] = {}
    """The directory where each volume was seen last."""
    partitions: dict[int, _Place] = {}
    journals: list[UUID | Literal["first"]] | None = None
    """The volumes with a journal that counts, if the control file is guarded; ``None``: the journal of the first
    directory, which is that of all partitions then."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for partition_id, place in self.partitions.items():
            if place.volume not in self.volumes:
                raise ValueError(f"partition {partition_id} is on volume {place.volume}, which is not listed")
        return self


class VolumeState(NamedTuple):
    """One directory of a storage node."""

    path: str
    """The directory, or where a missing volume was seen last."""
    volume_id: VolumeId
    present: bool
    partition_ids: tuple[int, ...]
    """The partitions that ``volumes.json`` has there. Those of the first directory are not listed."""


class Move(NamedTuple):
    """A move of a partition from one directory to another."""

    partition_id: int
    since: VolumeId
    to: VolumeId
    source: str
    """The directory with the files of the partition."""
    staged: str
    """The directory for the copy, until the copy is the partition."""


@dataclass(slots=True)
class Volumes:
    """The volumes of a storage directory. All methods block, and may be called from any thread."""

    _files: Files
    _first: str
    _cluster_key: UUID
    _known: _VolumesDocument
    _paths: dict[UUID, str] = field(default_factory=dict)
    """The volumes that are there, with their directories."""
    _troubles: dict[UUID, str] = field(default_factory=dict)
    """Volumes that are there and cannot be used, with the reason."""
    _locks: list[File] = field(default_factory=list)
    _random: random.Random = field(default_factory=random.Random)
    _changing: threading.Lock = field(default_factory=threading.Lock)
    _unsettled: set[int] = field(default_factory=set)
    """Partitions of which a move was begun and neither finished nor taken back."""

    @classmethod
    def open(cls, files: Files, directory: str, further: Sequence[str] | None, cluster_key: UUID) -> "Volumes":
        """Find and lock the volumes of a storage directory, make those that are new, and put links right.

        Without further directories, and without ``volumes.json``, nothing is written.

        Args:
            files: The file system.
            directory: The first directory; its control file is locked.
            further: The other configured directories; ``None``: the directories where the volumes were seen last.
            cluster_key: The key of the cluster.

        Raises:
            StorageError: A directory is missing, in use, of another cluster or another node, or holds other files.
            OSError: A file cannot be read or written.
        """
        known = _read(files, str(Path(directory) / VOLUMES_NAME), _VolumesDocument) or _VolumesDocument(format=_FORMAT)
        volumes = cls(files, directory, cluster_key, known)
        try:
            if further is None:
                volumes._find(list(known.volumes.values()), begin=False)
            else:
                volumes._find(further, begin=True)
        except BaseException:
            volumes.close()
            raise
        return volumes

    def close(self) -> None:
        """Let other processes have the volumes."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    # What is where

    def absence(self, partition_id: int) -> str | None:
        """Why a partition is absent: its volume is missing, or a move has failed half-way. ``None`` for all others."""
        if partition_id in self._unsettled:
            return "a move to another disk has failed half-way; check the disks, then restart the storage node"
        place = self._known.partitions.get(partition_id)
        if place is None or place.volume in self._paths:
            return None
        path, trouble = self._known.volumes[place.volume], self._troubles.get(place.volume)
        if trouble is not None:
            return f"{ABSENT_VOLUME}{place.volume} in {path} cannot be used: {trouble}"
        return f"{ABSENT_VOLUME}{place.volume} is missing; it was in {path}"

    def absent(self) -> frozenset[int]:
        """The partitions of missing volumes."""
        return frozenset(
            partition_id for partition_id, place in self._known.partitions.items() if place.volume not in self._paths
        )

    def lost(self) -> list[int]:
        """The absent partitions that lack what the journal had for them."""
        return sorted(partition_id for partition_id, place in self._known.partitions.items() if place.lost)

    def paths(self) -> list[str]:
        """The directories that are there, the first one first."""
        return [self._first, *self._paths.values()]

    def there(self) -> dict[VolumeId, str]:
        """The directories that are there, by volume, the first one first."""
        return dict[VolumeId, str]([(None, self._first), *self._paths.items()])

    def volume_of(self, partition_id: int) -> VolumeId:
        """The volume of a partition, whether the volume is there or not. A partition without a place has the first."""
        return self._known_volume(partition_id)

    @property
    def are_many(self) -> bool:
        """Whether there is, or was, more than one directory: then :attr:`journals` tells which journals count."""
        return bool(self._known.volumes) or self._known.journals is not None

    @property
    def journals(self) -> frozenset[VolumeId] | None:
        """The volumes with a journal that counts, if the control file is guarded; ``None``: that of the first directory
        for all partitions."""
        listed = self._known.journals
        return None if listed is None else frozenset(None if each == _FIRST else each for each in listed)

    def states(self) -> list[VolumeState]:
        """All directories, the first one first."""
        held: dict[UUID, list[int]] = {volume_id: [] for volume_id in self._known.volumes}
        for partition_id, place in sorted(self._known.partitions.items()):
            held[place.volume].append(partition_id)
        return [
            VolumeState(self._first, None, True, ()),
            *(
                VolumeState(
                    self._paths.get(volume_id, path), volume_id, volume_id in self._paths, tuple(held[volume_id])
                )
                for volume_id, path in self._known.volumes.items()
            ),
        ]

    # Changes

    def place(self, partition_id: int) -> None:
        """Choose the directory of a partition that has none yet; a partition of the first directory stays there.

        Of the directories with the most free space the one with the fewest partitions is taken. Raises ``OSError``.
        """
        link = str(Path(self._first) / str(partition_id))
        with self._changing:
            if not self._paths or self._files.exists(link) or partition_id in self.absent():
                return
            place = self._known.partitions.get(partition_id)
            volume_id = self._roomiest(partition_id) if place is None else place.volume
            if volume_id is None or self._files.linked_directory(link) is not None:
                return  # a link that leads nowhere is not mended: files are lost, and the partition is not empty
            target = self._target(volume_id, partition_id)
            if place is None:
                if not self._files.exists(target):
                    self._files.make_directory(target)
                self._files.sync_directory(self._paths[volume_id])
                self._change({partition_id: _Place(volume=volume_id)})
            self._files.link_directory(target, link)
            self._files.sync_directory(self._first)

    def note_lost(self, reasons: Mapping[int, str]) -> None:
        """Note that absent partitions lack records that the journal had for them; durable. Raises ``OSError``."""
        if reasons:
            with self._changing:
                known = self._known.partitions
                self._change({each: known[each].model_copy(update={"lost": text}) for each, text in reasons.items()})

    def note_journals(self, journals: Collection[VolumeId] | None) -> None:
        """Set :attr:`journals`, durably. Raises ``OSError``; then the journals are as before, or as they should be."""
        with self._changing:
            if journals != self.journals:
                ids = None if journals is None else sorted(journals, key=str)
                self._write(journals=None if ids is None else [_FIRST if each is None else each for each in ids])

    def give_up(self, volume_id: UUID, trouble: str) -> None:
        """Take a volume that cannot be used for missing, until the next start."""
        logger.critical(
            "%s cannot be used (%s): its partitions %s are not served",
            self._paths.pop(volume_id),
            trouble,
            ", ".join(map(str, self._held_by(volume_id))) or "(none)",
        )
        self._troubles[volume_id] = trouble

    def guard(self, control_file: ControlFile) -> None:
        """Keep nodes of the original from a directory in which something is lost, as a journal does.

        Raises ``StorageError`` and ``OSError``.
        """
        if control_file.guarded:
            return
        self.note_journals(None)
        leave_unused(self._files, str(Path(self._first) / DIRECTORY_NAME))
        control_file.guard()

    def forget(self, volume_id: UUID) -> tuple[int, ...]:
        """Forget a missing volume that will not come back; its partitions are marked as lost.

        The partitions are not empty: they lack what was acknowledged. They are not served until they are removed, and
        copied from their other replicas. The control file has to be :meth:`guarded <guard>` first: the original would
        take them for empty.

        Returns:
            The partitions.

        Raises:
            StorageError: There is no such volume, or it is not missing.
            OSError: A file cannot be written.
        """
        if volume_id not in self._known.volumes:
            known = ", ".join(map(str, self._known.volumes)) or "none"
            raise StorageError(f"{self._first} has no volume {volume_id}; its volumes: {known}")
        if volume_id in self._paths:
            raise StorageError(f"volume {volume_id} is not missing: it is in {self._paths[volume_id]}")
        gone = self._held_by(volume_id)
        with self._changing:
            for partition_id in gone:
                staged = self._staged(partition_id)
                if self._files.exists(staged):
                    remove_directory(self._files, staged)
                mark_lost(self._files, staged, f"volume {volume_id}{LOST_WITH_VOLUME}")
            self._drop([volume_id])
            for partition_id in gone:
                self._finish(partition_id, self._staged(partition_id))
        return tuple(gone)

    def move(self, partition_id: int, path: str) -> str | None:
        """Move the files of a partition whose log is closed to another of the directories.

        The files are copied and made durable first. Then ``volumes.json`` and the link change, and the old files are
        removed. A move that was interrupted may be repeated.

        Returns:
            The directory it was moved from; ``None``: it is there already.

        Raises:
            StorageError: The directory is not one of the node, or the partition is absent or has no files.
            OSError: A file cannot be read or written.
        """
        move = self.plan_move(partition_id, path)
        if move is None:
            return None
        make_empty(self._files, move.staged)
        for name in self._files.list_directory(move.source):
            copy_rest(self._files, str(Path(move.source) / name), str(Path(move.staged) / name))
        self.switch(move)
        self.end_move(move)
        return str(Path(move.source).parent)

    def plan_move(self, partition_id: int, path: str) -> Move | None:
        """The steps of a move of a partition to another of the directories; ``None``: it is there already.

        The caller copies all files to ``staged``, durably, then calls :meth:`switch`, and after that :meth:`end_move`
        or :meth:`take_back`. What was copied is removed by :meth:`end_move`, also without a switch. Nothing has changed
        yet.

        Raises:
            StorageError: The directory is not one of the node, or the partition is absent or has no files.
            OSError: A file cannot be read.
        """
        absence = self.absence(partition_id)
        if absence is not None:
            raise StorageError(f"partition {partition_id} cannot be moved: {absence}")
        wanted = _absolute(path)
        to = next((each for each, known in self._paths.items() if known == wanted), None)
        if to is None and wanted != _absolute(self._first):
            raise StorageError(f"{path} is none of the directories of the node; give one of {', '.join(self.paths())}")
        link = str(Path(self._first) / str(partition_id))
        if not self._files.exists(link):
            raise StorageError(f"partition {partition_id} has no files in {self._first}")
        since = self.volume_of(partition_id)
        if to == since:
            return None
        there = self.there()
        source, staged = Path(there[since]) / str(partition_id), Path(there[to]) / f"{partition_id}{_MOVING}"
        return Move(partition_id, since, to, str(source), str(staged))

    def switch(self, move: Move) -> None:
        """Let the copy of a partition's files be the partition; the log is closed.

        The old files get another name, and stay until :meth:`end_move`. ``volumes.json`` decides which of both are the
        partition, and so does a start after a crash.

        Raises ``OSError``; then :meth:`take_back` is called.
        """
        partition_id, parent = move.partition_id, str(Path(move.source).parent)
        with self._changing:
            self._unsettled.add(partition_id)
            self._files.sync_directory(move.staged)
            self._files.sync_directory(str(Path(move.staged).parent))
            if move.to is not None and self._files.exists(self._target(move.to, partition_id)):
                remove_directory(self._files, self._target(move.to, partition_id))  # left by an interrupted placement
            self._files.rename(move.source, move.source + _MOVED)
            self._files.sync_directory(parent)
            self._decide(partition_id, move.to)
            self._settle(move.to, Path(move.staged).name)
            self._link(partition_id)
            self._unsettled.discard(partition_id)

    def take_back(self, move: Move) -> None:
        """Let the old files be the partition again, after a failed or an unwanted :meth:`switch`; the log is closed.

        What a failing disk keeps of the copy stays there. Raises ``OSError``; then the partition is absent until a
        start has put it right.
        """
        partition_id = move.partition_id
        old, new = move.source + _MOVED, str(Path(move.staged).with_name(str(partition_id)))
        with self._changing:
            self._unsettled.add(partition_id)
            if self._known_volume(partition_id) == move.to and not self._files.exists(move.staged):
                try:
                    self._files.rename(new, move.staged)
                    self._files.sync_directory(str(Path(new).parent))
                except OSError as error:
                    logger.warning("a copy that is not used stays in %s, until another move there: %s", new, error)
            self._decide(partition_id, move.since)  # a write that has failed may be in the file nevertheless
            if self._files.exists(old):
                self._settle(move.since, Path(old).name)
            self._link(partition_id)
            self._unsettled.discard(partition_id)

    def end_move(self, move: Move) -> None:
        """Remove the files that are not the partition: the old ones after a switch, otherwise those that were copied.

        Raises ``OSError``; then the next start removes them.
        """
        with self._changing:
            for path in (move.source + _MOVED, move.staged):
                if self._files.exists(path):
                    remove_directory(self._files, path)

    # Internals

    def _decide(self, partition_id: int, to: VolumeId) -> None:
        """Write durably on which volume a partition is."""
        places = {each: place for each, place in self._known.partitions.items() if each != partition_id}
        if to is not None:
            places[partition_id] = _Place(volume=to)
        self._write(partitions=places)

    def _known_volume(self, partition_id: int) -> VolumeId:
        place = self._known.partitions.get(partition_id)
        return None if place is None else place.volume

    def _link(self, partition_id: int) -> None:
        """Have the link lead to the volume of a partition; a partition of the first directory has none."""
        volume_id, link = self._known_volume(partition_id), str(Path(self._first) / str(partition_id))
        if volume_id is not None:
            self._files.link_directory(self._target(volume_id, partition_id), link)
            self._files.sync_directory(self._first)

    def _staged(self, partition_id: int) -> str:
        return str(Path(self._first) / f"{partition_id}{_MOVING}")

    def _finish(self, partition_id: int, staged: str) -> None:
        self._unlink(partition_id)
        self._files.rename(staged, str(Path(self._first) / str(partition_id)))
        self._files.sync_directory(self._first)

    def _finish_moves(self) -> None:
        """Finish or undo moves that were interrupted: ``volumes.json`` decides."""
        for volume_id, directory in self.there().items():
            try:
                for name in self._files.list_directory(directory):
                    if Path(name).stem.isdecimal() and name.endswith((_MOVING, _MOVED)):
                        self._settle(volume_id, name)
            except OSError as error:
                if volume_id is None:
                    raise
                self.give_up(volume_id, str(error))

    def _settle(self, volume_id: VolumeId, name: str) -> None:
        """Have a directory with the name of a move be the partition, if the partition is on its volume; otherwise
        remove it."""
        parent = self._first if volume_id is None else self._paths[volume_id]
        path, partition_id = str(Path(parent) / name), int(Path(name).stem)
        plain = str(Path(parent) / str(partition_id))
        if self._known_volume(partition_id) != volume_id:
            remove_directory(self._files, path)
        elif volume_id is None:
            self._finish(partition_id, path)
        elif self._files.exists(plain):
            remove_directory(self._files, path)
        else:
            self._files.rename(path, plain)
            self._files.sync_directory(parent)

    def _find(self, further: Sequence[str], *, begin: bool) -> None:
        first = _absolute(self._first)
        unused: list[str] = []
        seen: set[str] = {first}
        for path in map(_absolute, further):
            if path in seen:
                raise StorageError(f"{path} is listed twice in storage.directories")
            seen.add(path)
            try:
                if not self._take(path):
                    unused.append(path)
            except OSError as error:
                if path not in self._known.volumes.values():
                    raise
                logger.critical("%s cannot be read: %s", path, error)
        missing = [each for each in self._known.volumes if each not in self._paths]
        unneeded = [each for each in missing if not self._held_by(each)]
        if unneeded:
            self._drop(unneeded)
        missing = [each for each in missing if each not in unneeded]
        for volume_id in missing:
            logger.critical(
                "volume %s is missing (it was in %s): its partitions %s are not served",
                volume_id,
                self._known.volumes[volume_id],
                ", ".join(map(str, self._held_by(volume_id))),
            )
        for path in unused if begin else ():
            self._begin(path, missing)
        for volume_id, path in self._paths.items():
            self._know(volume_id, path)
        self._finish_moves()
        self._put_right()

    def _held_by(self, volume_id: UUID) -> list[int]:
        return sorted(each for each, place in self._known.partitions.items() if place.volume == volume_id)

    def _take(self, path: str) -> bool:
        """Lock the volume of a directory; false if there is none."""
        if not self._files.exists(path):
            return False
        file_path = str(Path(path) / VOLUME_NAME)
        found = _read(self._files, file_path, _VolumeDocument)
        names = self._files.list_directory(path)
        if found is None:
            others = [name for name in names if name not in (_LOST_AND_FOUND, VOLUME_NAME + ".new")]
            if others:
                raise StorageError(
                    f"{path} is not empty and has no {VOLUME_NAME} ({others[0]}): a further directory has to be empty "
                    "at first"
                )
            return False
        others = [name for name in names if name not in _NO_PARTITIONS]
        if found.cluster_key != self._cluster_key:
            raise StorageError(
                f"{path} is a volume of another cluster (key {found.cluster_key}); correct storage.directories"
            )
        if found.id not in self._known.volumes and others:
            raise StorageError(
                f"{path} is volume {found.id}, which {Path(self._first) / VOLUMES_NAME} does not know: it belongs to "
                "another storage node, or is an old copy; correct storage.directories, or empty the directory"
            )
        self._lock(file_path)
        if found.id not in self._known.volumes:  # an empty volume that was forgotten
            self._know(found.id, path)
        self._paths[found.id] = path
        return True

    def _lock(self, file_path: str) -> None:
        try:
            file = self._files.open(file_path, create=False)
            self._locks.append(file)
            locked = file.try_lock(_LOCK_SIZE_BYTES)
        except BlockingIOError:
            locked = False
        if not locked:
            raise StorageError(f"{Path(file_path).parent} is in use by another storage node")

    def _begin(self, path: str, missing: Collection[UUID]) -> None:
        """Make an empty directory a volume. While volumes are missing, it may be where one of them was mounted."""
        if missing:
            logger.critical(
                "%s is left alone, since a volume is missing that may belong there: mount it, or forget it with waltz "
                "disk forget-volume",
                path,
            )
            return
        if not self._files.exists(path):
            raise StorageError(f"{path} does not exist; create it or correct storage.directories")
        volume_id = uuid4()
        # First the id is known, then used: a crash leaves a volume without partitions, which the next start forgets.
        self._know(volume_id, path)
        document = _VolumeDocument(format=_FORMAT, id=volume_id, cluster_key=self._cluster_key)
        file_path = str(Path(path) / VOLUME_NAME)
        replace_file(self._files, file_path, [document.model_dump_json().encode()]).close()
        self._files.sync_directory(path)
        self._lock(file_path)
        self._paths[volume_id] = path
        logger.info("%s is a new volume of the storage node: %s", path, volume_id)

    def _know(self, volume_id: UUID, path: str) -> None:
        if self._known.volumes.get(volume_id) != path:
            self._write(volumes={**self._known.volumes, volume_id: path})

    def _put_right(self) -> None:
        """Have the links lead to where the volumes are now, and mark partitions that have missed something."""
        changed, returned = False, {}
        for partition_id, place in self._known.partitions.items():
            if place.volume not in self._paths:
                continue
            link, target = str(Path(self._first) / str(partition_id)), self._target(place.volume, partition_id)
            if self._files.linked_directory(link) != target:
                if self._files.exists(link) and self._files.linked_directory(link) is None:
                    raise StorageError(
                        f"partition {partition_id} is in {link} and, by {VOLUMES_NAME}, in {target}: find out which of "
                        "them is right, and move the other one away"
                    )
                self._files.link_directory(target, link)
                changed = True
            if place.lost is not None:
                try:
                    mark_lost(self._files, target, place.lost)
                except OSError as error:
                    self.give_up(place.volume, str(error))
                else:
                    returned[partition_id] = place.model_copy(update={"lost": None})
        if changed:
            self._files.sync_directory(self._first)
        if returned:
            self._change(returned)

    def _is_used(self, volume_id: UUID, partition_id: int) -> bool:
        """Whether a volume has files of a partition that are not the partition's any more."""
        target = self._target(volume_id, partition_id)
        return self._files.exists(target) and bool(self._files.list_directory(target))

    def _roomiest(self, partition_id: int) -> UUID | None:
        """The volume for a new partition; ``None``: the first directory."""
        free: dict[VolumeId, int] = {None: self._files.free_bytes(self._first) or 0}
        for volume_id, path in self._paths.items():
            try:
                if not self._is_used(volume_id, partition_id):
                    free[volume_id] = self._files.free_bytes(path) or 0
            except OSError as error:
                logger.warning("%s gets no new partition: %s", path, error)
        good = [each for each, size_bytes in free.items() if size_bytes >= max(free.values()) - EVEN_WITHIN_BYTES]
        held = {each: self._count(each) for each in good}
        return self._random.choice([each for each in good if held[each] == min(held.values())])

    def _count(self, volume_id: UUID | None) -> int:
        if volume_id is not None:
            return len(self._held_by(volume_id))
        names = self._files.list_directory(self._first)
        return sum(name.isdecimal() and int(name) not in self._known.partitions for name in names)

    def _target(self, volume_id: UUID, partition_id: int) -> str:
        return str(Path(self._paths[volume_id]) / str(partition_id))

    def _unlink(self, partition_id: int) -> None:
        link = str(Path(self._first) / str(partition_id))
        if self._files.linked_directory(link) is not None:
            self._files.remove_directory(link)

    def _drop(self, volume_ids: Iterable[UUID]) -> None:
        gone = set(volume_ids)
        listed = self._known.journals
        self._write(
            volumes={each: path for each, path in self._known.volumes.items() if each not in gone},
            partitions={each: place for each, place in self._known.partitions.items() if place.volume not in gone},
            journals=None if listed is None else [each for each in listed if each not in gone],
        )

    def _change(self, places: Mapping[int, _Place]) -> None:
        self._write(partitions={**self._known.partitions, **places})

    def _write(self, **changes: object) -> None:
        """Replace ``volumes.json``; only a durable change is known: after a failure the next call writes again."""
        known = self._known.model_copy(update=changes)
        path = str(Path(self._first) / VOLUMES_NAME)
        text = known.model_dump_json(indent=1, exclude_none=True)
        replace_file(self._files, path, [text.encode()]).close()
        self._files.sync_directory(self._first)
        self._known = known


DocumentT = TypeVar("DocumentT", bound=_Document)


def _read(files: Files, path: str, model: type[DocumentT]) -> DocumentT | None:
    """The content of a file; ``None`` when there is no file."""
    if not files.exists(path):
        return None
    file = files.open(path, create=False)
    try:
        data = file.read(0, _MAX_SIZE_BYTES)
    finally:
        file.close()
    try:
        found = model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise StorageError(f"{path} is damaged: {at + ': ' if at else ''}{first['msg']}") from None
    if found.format != _FORMAT:
        raise StorageError(f"{path} has format {found.format}, which this version does not know: upgrade Waltz")
    return found


def _absolute(path: str) -> str:
    return str(Path(path).absolute())
