"""Reading the journal after a stop of any kind: the groups in order, and whether the end is torn or damaged.

The numbers of groups are dense, and each group is durable before the next group is written. So all groups before the
last head that is found were durable, and so were all groups before the first group of a file that was begun. A missing
group among these is damage. The last group may be torn: then some of its sectors were not written in this life of the
file, and carry the mark of an earlier life, or none. A last group of which all sectors were written and which is not
whole has changed since the write: that group may have been acknowledged, so it is damaged, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waltz.storage.disk.files.files import File, Files, see_the_medium
from waltz.storage.disk.journal.groups import (
    BLOCK_BYTES,
    HEAD_BYTES,
    SECTOR_BYTES,
    GroupHead,
    decode_body,
    decode_head,
    gather,
    life_of,
    partitions_of,
)
from waltz.storage.disk.journal.ring import SUFFIX, FileHeader, decode_header
from waltz.storage.errors import StorageError

_SEARCH_BYTES = 1 << 20
_UNREADABLE = b"\xff"
_FIRST_NUMBER = 1


class Place(NamedTuple):
    """The place of a whole group."""

    path: str
    offset: int
    head: GroupHead


class Lost(NamedTuple):
    """A group that is not whole, although it was durable once or may have been."""

    number: int
    partitions: Sequence[int] | None
    """The partitions that the group concerned; ``None``: it may have concerned any partition."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a journal."""

    places: Sequence[Place]
    """The groups that a replay needs, in order."""
    torn: bool
    """Whether a group was being written when the node stopped. That group was not acknowledged."""
    lost: Sequence[Lost]
    """The groups that are damaged."""
    volume_id: bytes | None
    """The id of the volume; ``None`` when there is no journal yet, or no header is whole."""
    next_number: int
    next_sequence: int
    last_check: int
    """The check of the last group."""
    distrusted: bool = False
    """Whether the files of the journal must not be written to any more."""

    @property
    def size_bytes(self) -> int:
        """The size of the groups in the files."""
        return sum(place.head.size_bytes for place in self.places)


@dataclass(slots=True)
class _Hole:
    """A place where a group should be and no whole group is."""

    sequence: int
    offset: int
    torn: bool
    """Whether sectors that were not written explain the hole."""
    head: GroupHead | None = None
    partitions: Sequence[int] | None = None


@dataclass(slots=True)
class _Found:
    """The groups and holes that were found in the files so far."""

    places: list[tuple[int, Place]]
    holes: list[_Hole]

    def heads(self) -> Iterator[GroupHead]:
        """All whole heads, including those of groups that are not whole."""
        yield from (place.head for _, place in self.places)
        yield from (hole.head for hole in self.holes if hole.head is not None)


def read_journal(files: Files, directory: str, cluster_key: UUID) -> Contents:
    """Read a journal without changing anything. Blocking.

    Args:
        files: The file system.
        directory: The directory of the journal; need not exist.
        cluster_key: The key of the cluster to which the journal should belong.

    Raises:
        StorageError: A file belongs to another cluster, another journal or a later version.
        OSError: A file cannot be read.
    """
    paths = _paths(files, directory)
    headers = {sequence: _read_header(files, path, cluster_key) for sequence, path in paths.items()}
    known = [header for header in headers.values() if header is not None]
    volumes = {header.volume_id for header in known}
    if len(volumes) > 1:
        raise StorageError(f"{directory} holds files of several journals; move the files of the other journals away")
    if not volumes:
        lost = [Lost(_FIRST_NUMBER, None)] if paths else []
        return Contents((), False, lost, None, _FIRST_NUMBER, max(paths, default=0) + 1, 0)
    (volume_id,) = volumes
    base = max(header.base for header in known)
    found = _Found([], [])
    for sequence in sorted(paths, reverse=True):
        _scan_file(files, paths[sequence], sequence, volume_id, found)
        base = max([base, *(head.base for head in found.heads())])
        header = headers[sequence]
        if header is not None and header.sequence == sequence and header.first_number <= base:
            break
    next_sequence = max(*paths, *(header.sequence for header in known), 0) + 1
    # A life may have begun under the old name of its file. Such a life has no groups, and all earlier groups are
    # durable.
    first_number = max(header.first_number for header in known)
    return _judge(found, base, first_number, volume_id, next_sequence)


def journal_keys(files: Files, directory: str) -> Iterator[UUID]:
    """The cluster key in each file of a journal of which the header is whole, the newest file first. Blocking.

    Args:
        files: The file system.
        directory: The directory of the journal; need not exist.

    Raises:
        StorageError: A later version has written a header.
        OSError: A file cannot be opened.
    """
    for _sequence, path in sorted(_paths(files, directory).items(), reverse=True):
        header = _decode_header(files, path)
        if header is not None:
            yield header.cluster_key


def read_bodies(files: Files, places: Sequence[Place]) -> Iterator[tuple[GroupHead, bytes]]:
    """Read the heads and bodies of groups. Blocking.

    Args:
        files: The file system.
        places: The places of the groups, in order.

    Raises:
        OSError: A file cannot be read.
    """
    file, path = None, ""
    try:
        for place in places:
            if file is None or place.path != path:
                if file is not None:
                    file.close()
                file, path = files.open(place.path, create=False), place.path
            content = gather(file.read(place.offset, place.head.size_bytes))
            yield place.head, content[HEAD_BYTES : HEAD_BYTES + place.head.body_bytes]
    finally:
        if file is not None:
            file.close()


def read_groups(files: Files, paths: Sequence[str], volume_id: bytes, first: int, last: int) -> list[Place]:
    """The places of groups of a journal in use, in order. Blocking.

    Args:
        files: The file system.
        paths: The files with these groups.
        volume_id: The id of the volume.
        first: The number of the first group.
        last: The number of the last group; the next group may be being written.

    Raises:
        OSError: A file cannot be read.
        StorageError: A group is damaged.
    """
    found = _Found([], [])
    for path in paths:
        _scan_file(files, path, int(Path(path).stem), volume_id, found)
    places = {place.head.number: place for _, place in found.places}
    for number in range(first, last + 1):
        if number not in places:
            raise StorageError(f"group {number} of the journal is damaged")
    return [places[number] for number in range(first, last + 1)]


def _judge(found: _Found, base: int, first_number: int, volume_id: bytes, next_sequence: int) -> Contents:
    whole = {place.head.number: place for _, place in found.places}
    broken = {hole.head.number: hole for hole in found.holes if hole.head is not None and hole.head.number not in whole}
    last = max([first_number - 1, *whole, *broken])
    lost = [
        Lost(number, broken[number].partitions if number in broken else None)
        for number in range(base, last)
        if number not in whole
    ]
    torn = False
    if last in broken:
        torn = broken[last].torn
        if not torn:
            lost.append(Lost(last, broken[last].partitions))
    elif last not in whole and last >= base:
        lost.append(Lost(last, None))
    ends = _ends(found, last)
    if any(not hole.torn for hole in ends):
        lost.append(Lost(last + 1, None))
    if any(number not in whole for number in range(base, last)):
        torn = False
    places = [whole[number] for number in sorted(whole) if number >= base]
    for before, after in pairwise(places):
        if after.head.number == before.head.number + 1 and after.head.previous_check != before.head.check:
            lost.append(Lost(after.head.number, None))
    lost.sort(key=lambda each: each.number)
    next_number = max([base, last + 1, *(each.number + 1 for each in lost)])
    last_check = whole[last].head.check if last in whole else 0
    return Contents(places, torn, lost, volume_id, next_number, next_sequence, last_check)


def _ends(found: _Found, last: int) -> list[_Hole]:
    """The holes without a head after the last group."""
    where = [(sequence, place.offset) for sequence, place in found.places if place.head.number == last]
    where += [
        (hole.sequence, hole.offset) for hole in found.holes if hole.head is not None and hole.head.number == last
    ]
    behind = max(where) if where else (max((hole.sequence for hole in found.holes), default=0), 0)
    return [hole for hole in found.holes if hole.head is None and (hole.sequence, hole.offset) > behind]


def _paths(files: Files, directory: str) -> dict[int, str]:
    """The paths of the files, by the sequence in the name."""
    if not files.exists(directory):
        return {}
    names = [name for name in files.list_directory(directory) if name.endswith(SUFFIX)]
    return {int(Path(name).stem): str(Path(directory) / name) for name in names if Path(name).stem.isdecimal()}


def _read_header(files: Files, path: str, cluster_key: UUID) -> FileHeader | None:
    header = _decode_header(files, path)
    if header is not None and header.cluster_key != cluster_key:
        raise StorageError(f"the cluster key does not match: {path}")
    return header


def _decode_header(files: Files, path: str) -> FileHeader | None:
    file = files.open(path, create=False)
    try:
        see_the_medium(file)
        return decode_header(_read(file, 0, BLOCK_BYTES))
    finally:
        file.close()


def _scan_file(files: Files, path: str, sequence: int, volume_id: bytes, found: _Found) -> None:
    file = files.open(path, create=False)
    try:
        size, offset = file.size(), BLOCK_BYTES
        while offset + BLOCK_BYTES <= size:
            block = _read(file, offset, BLOCK_BYTES)
            head = _head(block, sequence, volume_id)
            if head is None or offset + head.size_bytes > size:
                found.holes.append(_Hole(sequence, offset, life_of(block) not in (sequence, None)))
                next_offset = _next_head(file, offset + BLOCK_BYTES, size, sequence, volume_id)
                if next_offset is None:
                    return
                offset = next_offset
                continue
            data = block if head.size_bytes == BLOCK_BYTES else _read(file, offset, head.size_bytes)
            if decode_body(head, data) is not None:
                found.places.append((sequence, Place(path, offset, head)))
            else:
                torn = _is_torn(data, sequence)
                found.holes.append(_Hole(sequence, offset, torn, head, partitions_of(head, data)))
            offset += head.size_bytes
    finally:
        file.close()


def _head(block: bytes, sequence: int, volume_id: bytes) -> GroupHead | None:
    head = decode_head(block, volume_id)
    return head if head is not None and head.sequence == sequence else None


def _is_torn(data: bytes, sequence: int) -> bool:
    """Whether sectors that were not written explain a group with a head that is not whole."""
    lives = [life_of(data[at : at + SECTOR_BYTES]) for at in range(0, len(data), SECTOR_BYTES)]
    return None not in lives and any(life != sequence for life in lives)


def _next_head(file: File, offset: int, size: int, sequence: int, volume_id: bytes) -> int | None:
    """The place of the next head of this life; ``None`` when there is none."""
    for start in range(offset, size, _SEARCH_BYTES):
        data = _read(file, start, min(_SEARCH_BYTES, size - start))
        for at in range(0, len(data), BLOCK_BYTES):
            if _head(data[at : at + SECTOR_BYTES], sequence, volume_id) is not None:
                return start + at
    return None


def _read(file: File, offset: int, size: int) -> bytes:
    """As :meth:`File.read`, but with bytes that are the mark of no life in place of unreadable sectors."""
    try:
        return file.read(offset, size)
    except OSError:
        pieces = []
        for start in range(offset, offset + size, SECTOR_BYTES):
            try:
                pieces.append(file.read(start, SECTOR_BYTES))
            except OSError:
                pieces.append(_UNREADABLE * SECTOR_BYTES)
        return b"".join(pieces)
