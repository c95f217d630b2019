"""The entries of the journal: each is one change of the files of one partition. Pure.

An entry: kind (1), partition (4), size of the rest (4), then the fields of its kind. Everything big-endian.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

NO_PARTITION = -1
"""The partition id of entries that concern no partition."""


class Records(NamedTuple):
    """Records that were written to a segment, one after the other."""

    partition_id: int
    session_id: int
    segment_first_id: int
    """The first transaction id of the segment."""
    offset: int
    """The place of the first record in the data file."""
    first_transaction_id: int
    record_count: int
    pieces: Sequence[bytes]
    """The bytes of the records, as in the data file."""


class NewSegment(NamedTuple):
    """A segment was begun. The fields are those fields of the segment's header that do not follow from the storage
    directory."""

    partition_id: int
    first_transaction_id: int
    creation_time_ms: int


class Truncated(NamedTuple):
    """All records after ``transaction_id`` were removed: later segments, and the given segment from ``offset`` on."""

    partition_id: int
    session_id: int
    transaction_id: int
    segment_first_id: int
    offset: int


class Fenced(NamedTuple):
    """A session was let in; older sessions are kept out from here on."""

    partition_id: int
    session_id: int


class Marked(NamedTuple):
    """A session and its marks, as the control file has to record them."""

    partition_id: int
    session_id: int
    low_water_mark: int
    local_low_water_mark: int


class Settled(NamedTuple):
    """The segments of a partition are durable up to here: a replay leaves out earlier entries about the segments."""

    partition_id: int
    next_transaction_id: int
    segment_first_id: int
    offset: int


class Dropped(NamedTuple):
    """The partition was taken from the node: a replay leaves out all earlier entries of the partition."""

    partition_id: int


class Closed(NamedTuple):
    """The node was stopped in order: all changes before this entry are durable in the files where they belong."""


Entry: TypeAlias = Records | NewSegment | Truncated | Fenced | Marked | Settled | Dropped | Closed

PREFIX = struct.Struct(">BiI")
"""Kind, partition, size of the rest."""

RECORDS, NEW_SEGMENT, TRUNCATED, FENCED, MARKED, SETTLED, DROPPED, CLOSED = 1, 2, 3, 4, 5, 6, 7, 8
"""The kinds of entries. A reader chooses by the kind which entries it decodes."""

RECORDS_FIELDS = struct.Struct(">qqqqi")
"""Session, first id of the segment, offset, first id, number of records. The records follow."""
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
    """The bytes are no entries."""


class Encoded(NamedTuple):
    """Entries as bytes."""

    pieces: list[bytes]
    """The bytes, to be joined in this order."""
    partitions: set[int]
    """The partitions that the entries concern."""
    voids: bool
    """Whether an entry makes earlier entries void: *settled* or *dropped*."""


def encode_entries(entries: Sequence[Entry]) -> Encoded:
    """The bytes of entries. The hot path of the journal.

    Args:
        entries: The entries, in order.

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
    """Kind and partition of each entry, and the places where its fields begin and end.

    Args:
        data: Bytes that end with the last entry; zeros may follow.
        start: The place where the first entry begins.
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
        raise EntryError("there are bytes behind the last entry")


def decode_entry(data: bytes, kind: int, partition_id: int, start: int, end: int) -> Entry:
    """Decode one entry, at a place that :func:`walk_entries` has returned.

    Args:
        data: The bytes that were given to :func:`walk_entries`.
        kind: The kind of the entry.
        partition_id: The partition of the entry.
        start: The place where the fields begin.
        end: The place where the fields end.

    Raises:
        EntryError: The kind is unknown, or the size is wrong for the kind.
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
    """Decode all entries.

    Args:
        data: Bytes that end with the last entry; zeros may follow.
        start: The place where the first entry begins.
        count: The number of entries.

    Raises:
        EntryError: An entry is cut off or of an unknown kind, or something follows the last entry.
    """
    for kind, partition_id, begin, end in walk_entries(data, start, count):
        yield decode_entry(data, kind, partition_id, begin, end)
