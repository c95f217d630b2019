"""The entries of the journal: what was changed in the files of which partition. Pure.

An entry: kind (1), partition (4), size of the rest (4), then the fields of its kind. Everything big-endian.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

NO_PARTITION = -1
"""In the place of a partition where an entry concerns none."""


class Records(NamedTuple):
    """Records that were written to a segment, one behind the other."""

    partition_id: int
    session_id: int
    segment_first_id: int
    """The first transaction id of the segment."""
    offset: int
    """Where they begin in its data file."""
    first_transaction_id: int
    record_count: int
    pieces: Sequence[bytes]
    """Their bytes as they are in the data file."""


class NewSegment(NamedTuple):
    """A segment was begun; the fields of its header that the directory does not tell."""

    partition_id: int
    first_transaction_id: int
    creation_time_ms: int


class Truncated(NamedTuple):
    """All records behind ``transaction_id`` were removed: later segments, and of this one all from ``offset`` on."""

    partition_id: int
    session_id: int
    transaction_id: int
    segment_first_id: int
    offset: int


class Fenced(NamedTuple):
    """A session was let in; older ones are kept out from here on."""

    partition_id: int
    session_id: int


class Marked(NamedTuple):
    """A session and its marks, as they belong into the control file."""

    partition_id: int
    session_id: int
    low_water_mark: int
    local_low_water_mark: int


class Settled(NamedTuple):
    """The segments of a partition are durable up to here: earlier entries about them are not needed any more."""

    partition_id: int
    next_transaction_id: int
    segment_first_id: int
    offset: int


class Dropped(NamedTuple):
    """The partition was given up: no earlier entry of it counts any more."""

    partition_id: int


class Closed(NamedTuple):
    """Everything before is durable in the files where it belongs."""


Entry: TypeAlias = Records | NewSegment | Truncated | Fenced | Marked | Settled | Dropped | Closed

PREFIX = struct.Struct(">BiI")
"""Kind, partition, size of the rest."""

RECORDS, NEW_SEGMENT, TRUNCATED, FENCED, MARKED, SETTLED, DROPPED, CLOSED = 1, 2, 3, 4, 5, 6, 7, 8
"""The kinds that a reader wants to know before it decodes the rest."""

RECORDS_FIELDS = struct.Struct(">qqqqi")
"""Session, first id of the segment, offset, first id, number of records; then come the records."""
_RECORDS_WITH_PREFIX = struct.Struct(">BiIqqqqi")

_FIXED: tuple[tuple[int, type, struct.Struct], ...] = (
    (NEW_SEGMENT, NewSegment, struct.Struct(">qq")),
    (TRUNCATED, Truncated, struct.Struct(">qqqq")),
    (FENCED, Fenced, struct.Struct(">q")),
    (MARKED, Marked, struct.Struct(">qqq")),
    (SETTLED, Settled, struct.Struct(">qqq")),
    (DROPPED, Dropped, struct.Struct(">")),
)
_BY_TYPE = {kind_type: (kind, fields) for kind, kind_type, fields in _FIXED}
_BY_KIND = {kind: (kind_type, fields) for kind, kind_type, fields in _FIXED}


class EntryError(ValueError):
    """Bytes that are no entries."""


class Encoded(NamedTuple):
    """Entries as bytes."""

    pieces: list[bytes]
    """To be put one behind the other."""
    partitions: set[int]
    """Those that the entries concern."""
    voids: bool
    """Whether one of them makes earlier entries void: *settled*, *dropped*."""


def encode_entries(entries: Sequence[Entry]) -> Encoded:
    """The bytes of entries. The hot path of the journal.

    Args:
        entries: Any number of them.

    Raises:
        struct.error: A number does not fit.
    """
    pieces: list[bytes] = []
    partitions: set[int] = set()
    voids = False
    pack_records = _RECORDS_WITH_PREFIX.pack
    fields_bytes = RECORDS_FIELDS.size
    for entry in entries:
        if type(entry) is Records:
            partition_id, session_id, segment_first_id, offset, first_id, count, chunks = entry
            data = b"".join(chunks)
            size = fields_bytes + len(data)
            pieces.append(
                pack_records(RECORDS, partition_id, size, session_id, segment_first_id, offset, first_id, count)
            )
            pieces.append(data)
            partitions.add(partition_id)
        elif type(entry) is Closed:
            pieces.append(PREFIX.pack(CLOSED, NO_PARTITION, 0))
        else:
            kind, fields = _BY_TYPE[type(entry)]
            voids = voids or kind in (SETTLED, DROPPED)
            partition_id, *rest = entry  # type: ignore[misc]  # all that are left begin with it
            pieces.append(PREFIX.pack(kind, partition_id, fields.size) + fields.pack(*rest))
            partitions.add(partition_id)
    return Encoded(pieces, partitions, voids)


def walk_entries(data: bytes, start: int, count: int) -> Iterator[tuple[int, int, int, int]]:
    """Kind and partition of each of ``count`` entries from ``start`` on, and where its fields begin and end.

    Args:
        data: Bytes that end with the last entry, or behind it with zeros only.
        start: Where the first entry begins.
        count: The number of entries.

    Raises:
        EntryError: The data ends before the last entry, or something follows it.
    """
    unpack, prefix_bytes, limit = PREFIX.unpack_from, PREFIX.size, len(data)
    at = start
    for _ in range(count):
        if at + prefix_bytes > limit:
            raise EntryError("an entry is cut off")
        kind, partition_id, size = unpack(data, at)
        at += prefix_bytes
        end = at + size
        if end > limit:
            raise EntryError("an entry is cut off")
        yield kind, partition_id, at, end
        at = end
    if data.count(0, at) != limit - at:
        raise EntryError("there is something behind the last entry")


def decode_entry(data: bytes, kind: int, partition_id: int, start: int, end: int) -> Entry:
    """The entry of which :func:`walk_entries` tells the place.

    Args:
        data: The bytes that were walked through.
        kind: Its kind.
        partition_id: Its partition.
        start: Where its fields begin.
        end: Where they end.

    Raises:
        EntryError: The kind is unknown, or the size is not that of the kind.
    """
    if kind == RECORDS:
        if end - start < RECORDS_FIELDS.size:
            raise EntryError("an entry of records is too short")
        session_id, first_id, offset, transaction_id, count = RECORDS_FIELDS.unpack_from(data, start)
        pieces = (data[start + RECORDS_FIELDS.size : end],)
        return Records(partition_id, session_id, first_id, offset, transaction_id, count, pieces)
    if kind == CLOSED:
        if end > start:
            raise EntryError("an entry of kind 8 is too long")
        return Closed()
    found = _BY_KIND.get(kind)
    if found is None:
        raise EntryError(f"there is no entry of kind {kind}")
    kind_type, layout = found
    if end - start != layout.size:
        raise EntryError(f"an entry of kind {kind} has a wrong size")
    entry: Entry = kind_type(partition_id, *layout.unpack_from(data, start))
    return entry


def decode_entries(data: bytes, start: int, count: int) -> Iterator[Entry]:
    """All entries; see :func:`walk_entries`.

    Args:
        data: Bytes that end with the last entry, or behind it with zeros only.
        start: Where the first entry begins.
        count: The number of entries.

    Raises:
        EntryError: It is not that number of known entries.
    """
    for kind, partition_id, begin, end in walk_entries(data, start, count):
        yield decode_entry(data, kind, partition_id, begin, end)
