"""The request to append a transaction, the most frequent message of clients.

There are two codecs. :func:`append_layout` is the definition, field by field, as for any other message; it finds the
error in a wrong request. :func:`encode_append` and :func:`collect_appends` do the same in one step, for any number of
locks. They leave unusual requests to the definition.
"""

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from waltz.common.checksum import checksum, crc32
from waltz.common.errors import ProtocolError
from waltz.common.ids import RUN_PART, ReqId
from waltz.common.wire.catalogue import Catalogue, Layout
from waltz.common.wire.fields import INT, LONG, NULLABLE_BYTES, NULLABLE_INTS, REQ_ID, Field, not_null, structure
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER
from waltz.common.wire.structures import verify_checksum
from waltz.common.wire.versions import FIRST_WITH_APPEND_LOCKS, FIRST_WITH_READ_LOCKS, FIRST_WITH_WRITE_SESSION
from waltz.common.wire.write_sessions import NO_WRITE_SESSION

APPEND_REQUEST_TYPE = 2

T = TypeVar("T")

_NO_LOCKS: tuple[int, ...] = ()
_COUNT = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")
_CHECKSUM_BYTES = _CHECKSUM.size
_CHECKSUM_AND_SESSION = struct.Struct(">Iq")
_RUN_PART_BYTES = RUN_PART.stop - RUN_PART.start
_BODY_HEAD_BYTES = 8  # header and size of the data
_LOCKS_OFFSET = 25  # after type, request id and mark
_WRITE_PLACE = 2  # index of the count of write locks among the fields, after request id and mark
_ALL_LOCK_KINDS = 3
_SMALL_BYTES = 4096  # up to this size, a checksum over a copy of the data is cheaper than one without a copy


class AppendRequest(NamedTuple):
    """Asks to append a transaction. Locks are signed 32-bit hashes; ``checksum`` is the signed CRC-32 of ``data``.

    With a ``write_session`` (version 5), the append is refused unless that session is the present one.
    """

    req_id: bytes
    client_high_water_mark: int
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    header: int
    data: bytes
    checksum: int
    write_session: int = NO_WRITE_SESSION


def _locks(kind: str, version: int, first_version: int) -> Field[tuple[int, ...]]:
    """The field of a lock array. Before its first version, the field takes no bytes, and the array must be empty."""
    if version >= first_version:
        return not_null(NULLABLE_INTS, f"{kind} locks")

    def encode_none(locks: tuple[int, ...]) -> bytes:
        if locks:
            raise ProtocolError(f"{kind} locks not supported in version {version}, upgrade servers")
        return b""

    def decode_none(_buffer: bytes, position: int, _end: int) -> tuple[tuple[int, ...], int]:
        return (), position

    return Field(encode_none, decode_none)


def _write_session(version: int) -> Field[int]:
    """The field of the write session. Before its first version, the field takes no bytes; the value must be "none"."""
    if version >= FIRST_WITH_WRITE_SESSION:
        return LONG

    def encode_none(write_session: int) -> bytes:
        if write_session != NO_WRITE_SESSION:
            raise ProtocolError(f"write sessions not supported in version {version}, upgrade servers")
        return b""

    def decode_none(_buffer: bytes, position: int, _end: int) -> tuple[int, int]:
        return NO_WRITE_SESSION, position

    return Field(encode_none, decode_none)


def append_layout(version: int) -> Layout[AppendRequest]:
    """The definition of the request, field by field."""
    body = structure(
        AppendRequest,
        REQ_ID,
        LONG,
        _locks("write", version, 0),
        _locks("read", version, FIRST_WITH_READ_LOCKS),
        _locks("append", version, FIRST_WITH_APPEND_LOCKS),
        INT,
        not_null(NULLABLE_BYTES, "data"),
        INT,
        _write_session(version),
    )

    def decode_body(buffer: bytes, position: int, end: int) -> tuple[AppendRequest, int]:
        message, behind = body.decode(buffer, position, end)
        verify_checksum(message.data, message.checksum)
        return message, behind

    return Layout(AppendRequest, Field(body.encode, decode_body))


_DEFINITIONS: dict[int, Catalogue[AppendRequest]] = {
    version: Catalogue(CLIENT_SERVER.magic, version, {APPEND_REQUEST_TYPE: append_layout(version)})
    for version in CLIENT_SERVER.versions
}


# Writing


_pack_start = struct.Struct(">3sib16sq").pack
"""Frame header, type, request id and mark."""

_pack_middle = struct.Struct(">ii").pack
"""Header and size of the data."""

_OTHER_BYTES = _LOCKS_OFFSET + _BODY_HEAD_BYTES
"""Bytes of a payload before the data, without locks."""

_PREFIXES = {version: FRAME_HEADER.pack(CLIENT_SERVER.magic, version, 0)[:3] for version in CLIENT_SERVER.versions}
"""Beginning of a frame: magic and version."""


def encode_append(
    version: int,
    req_id: bytes,
    client_high_water_mark: int,
    write_locks: bytes,
    read_locks: bytes,
    append_locks: bytes,
    header: int,
    data: bytes,
    write_session: int = NO_WRITE_SESSION,
) -> bytes:
    """Encode an :class:`AppendRequest` with these fields and the checksum of ``data`` as a frame.

    Locks have the form of the wire: a count and the hashes.

    Raises:
        ProtocolError: ``version`` cannot express the locks or the write session, or a value does not fit into its
            field.
    """
    has_session = version >= FIRST_WITH_WRITE_SESSION
    if len(req_id) == ReqId.SIZE_BYTES and (
        has_session or (version >= FIRST_WITH_APPEND_LOCKS and write_session == NO_WRITE_SESSION)
    ):
        try:
            size_bytes = len(data)
            if has_session:
                tail = _CHECKSUM_AND_SESSION.pack(crc32(data), write_session)
            else:
                tail = _CHECKSUM.pack(crc32(data))
            payload_bytes = (
                _OTHER_BYTES + len(write_locks) + len(read_locks) + len(append_locks) + size_bytes + len(tail)
            )
            return b"".join(
                (
                    _pack_start(_PREFIXES[version], payload_bytes, APPEND_REQUEST_TYPE, req_id, client_high_water_mark),
                    write_locks,
                    read_locks,
                    append_locks,
                    _pack_middle(header, size_bytes),
                    data,
                    tail,
                )
            )
        except (TypeError, struct.error):
            pass  # the definition raises the error
    return _DEFINITIONS[version].encode(
        AppendRequest(
            req_id,
            client_high_water_mark,
            _hashes(write_locks),
            _hashes(read_locks),
            _hashes(append_locks),
            header,
            data,
            checksum(data),
            write_session,
        )
    )


def _hashes(locks: bytes) -> tuple[int, ...]:
    return not_null(NULLABLE_INTS, "locks").decode(locks, 0, len(locks))[0]


# Reading


class AppendSizes(NamedTuple):
    """The sizes in a request."""

    lock_counts: tuple[int, ...]
    """Counts of write, read and append locks, as far as the version has them; a null array has a negative count."""
    data_start: int
    data_end: int


def measure_append(buffer: bytes, start: int, end: int, version: int) -> AppendSizes | None:
    """Read the sizes in a request; ``None`` when they do not fit its frame."""
    position = start + _LOCKS_OFFSET
    lock_counts: list[int] = []
    for _ in range(_lock_kinds(version)):
        if position + _COUNT.size > end:
            return None
        (count,) = _COUNT.unpack_from(buffer, position)
        lock_counts.append(count)
        position += _COUNT.size + 4 * max(count, 0)
    data_start = position + _BODY_HEAD_BYTES
    if data_start > end:
        return None
    (size_bytes,) = _COUNT.unpack_from(buffer, data_start - _COUNT.size)
    data_end = data_start + size_bytes
    if size_bytes < 0 or data_end + _tail_bytes(version) != end:
        return None
    return AppendSizes(tuple(lock_counts), data_start, data_end)


def has_valid_checksum(buffer: bytes, sizes: AppendSizes) -> bool:
    """Whether the data of a request of these sizes matches its checksum."""
    data = memoryview(buffer)[sizes.data_start : sizes.data_end]
    return bool(crc32(data) == _CHECKSUM.unpack_from(buffer, sizes.data_end)[0])


def _lock_kinds(version: int) -> int:
    return 1 + (version >= FIRST_WITH_READ_LOCKS) + (version >= FIRST_WITH_APPEND_LOCKS)


def _tail_bytes(version: int) -> int:
    return (_CHECKSUM_AND_SESSION if version >= FIRST_WITH_WRITE_SESSION else _CHECKSUM).size


class _Shape(NamedTuple):
    """The layout of requests with given numbers of locks: indexes in the result of ``unpack``.

    If the version lacks a kind of locks, its count is that of the kind before, and its slice is empty.
    """

    unpack: Callable[[bytes, int], tuple[Any, ...]]
    """Reads everything before the data: request id, mark, each count and its locks, header, size of the data."""
    head_bytes: int
    """Bytes that ``unpack`` reads."""
    counts: tuple[int, int, int]
    """Write, read and append locks."""
    places: tuple[int, int, int]
    """Offsets of the counts of read and append locks, and of the header, which the size follows."""
    slices: tuple[slice, slice, slice]
    """Write, read and append locks."""


class _Start(NamedTuple):
    """Constants of a version for reading requests."""

    has_session: bool
    tail_bytes: int
    shape: _Shape
    """The shape with a single write lock, the most common one."""


@lru_cache(maxsize=16)
def _start(version: int, max_write_locks: int) -> _Start:
    first = _shape(max_write_locks, *[0] * (_lock_kinds(version) - 1))
    return _Start(version >= FIRST_WITH_WRITE_SESSION, _tail_bytes(version), first)


@lru_cache(maxsize=256)
def _shape(*lock_counts: int) -> _Shape:
    """The shape of requests with these numbers of locks, one for each kind that the version has."""
    head = struct.Struct(f">x16sq{''.join(f'i{count}i' for count in lock_counts)}ii")
    counts, places, slices = [], [], []
    place = _WRITE_PLACE
    for count in lock_counts:
        counts.append(count)
        places.append(place)
        slices.append(slice(place + 1, place + 1 + count))
        place += 1 + count
    for _ in range(_ALL_LOCK_KINDS - len(lock_counts)):
        counts.append(counts[-1])
        places.append(places[-1])
        slices.append(slice(0))
    write, read, append = zip(counts, places, slices, strict=True)
    return _Shape(
        head.unpack_from,
        head.size,
        (write[0], read[0], append[0]),
        (read[1], append[1], place),
        (write[2], read[2], append[2]),
    )


def collect_appends(
    buffer: bytes,
    frames: Iterator[tuple[int, int]],
    version: int,
    make: Callable[[bytes, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], int, bytes], T],
    runs: dict[bytes, list[T]],
    *,
    max_data_bytes: int,
    max_locks: int,
) -> tuple[int, int] | None:
    """Take append requests off ``frames``, and collect them in runs.

    The requests of a run have the same generation, partition and write session; :func:`session_of_run` reads the
    session from the key of the run. A request's *body* is one piece: header, size of the data, data and checksum are
    adjacent in the request as in a record.

    Args:
        buffer: The bytes of one read.
        frames: The bounds of payloads.
        version: The version of the connection.
        make: Makes an item of a run from request id, mark, write, read and append locks, header and body.
        runs: The runs, to which items are added.
        max_data_bytes: Limit of the data of a request.
        max_locks: Limit of the locks of a request.

    Returns:
        The bounds of the first frame with another message, or with an append that is damaged or beyond the limits;
        ``None`` at the end of ``frames``.
    """
    has_session, tail_bytes, shape = _start(version, 1 if max_locks else 0)
    unpack_checksum, unpack_checksum_and_session = _CHECKSUM.unpack_from, _CHECKSUM_AND_SESSION.unpack_from
    # Most requests have as many locks as the request before. So a request is first read with the shape of the one
    # before. The shape is right if the counts are as expected: the place of the first count is fixed, and each count
    # gives the place of the next one.
    unpack, head_bytes, (write_count, read_count, append_count), places, slices = shape
    (read_place, append_place, header_place), (write_locks, read_locks, append_locks) = places, slices
    least_bytes = head_bytes + tail_bytes
    key = b""
    run: list[T] = []
    add = run.append
    session = NO_WRITE_SESSION
    session_bytes = b""
    for start, end in frames:
        if buffer[start] != APPEND_REQUEST_TYPE:
            return start, end
        if (
            end - start < least_bytes  # must not read beyond the buffer
            or (head := unpack(buffer, start))[_WRITE_PLACE] != write_count
            or head[read_place] != read_count
            or head[append_place] != append_count
        ):
            found_shape = _find_shape(buffer, start, end, version, max_locks)
            if found_shape is None:
                return start, end
            unpack, head_bytes, (write_count, read_count, append_count), places, slices = found_shape
            (read_place, append_place, header_place), (write_locks, read_locks, append_locks) = places, slices
            least_bytes = head_bytes + tail_bytes
            head = unpack(buffer, start)
        data_start = start + head_bytes
        size_bytes = head[header_place + 1]
        data_end = data_start + size_bytes
        if data_end + tail_bytes != end or size_bytes > max_data_bytes:  # a negative size ends before the frame
            return start, end
        if has_session:
            checksum, found_session = unpack_checksum_and_session(buffer, data_end)
            if found_session != session:
                session = found_session
                session_bytes = b"" if session == NO_WRITE_SESSION else LONG.encode(session)
        else:
            (checksum,) = unpack_checksum(buffer, data_end)
        data = buffer[data_start:data_end] if size_bytes < _SMALL_BYTES else memoryview(buffer)[data_start:data_end]
        if crc32(data) != checksum:
            return start, end
        req_id = head[0]
        found = req_id[RUN_PART] + session_bytes
        if found != key:
            key = found
            add = runs.setdefault(key, []).append
        add(
            make(
                req_id,
                head[1],
                head[write_locks] if write_count else _NO_LOCKS,
                head[read_locks] if read_count else _NO_LOCKS,
                head[append_locks] if append_count else _NO_LOCKS,
                head[header_place],
                buffer[data_start - _BODY_HEAD_BYTES : data_end + _CHECKSUM_BYTES],
            )
        )
    return None


def session_of_run(key: bytes) -> int:
    """The write session of a run of :func:`collect_appends`, by its key."""
    session_bytes = key[_RUN_PART_BYTES:]
    return LONG.decode(session_bytes, 0, len(session_bytes))[0] if session_bytes else NO_WRITE_SESSION


def _find_shape(buffer: bytes, start: int, end: int, version: int, max_locks: int) -> _Shape | None:
    """The shape of one request; ``None`` if it is damaged or beyond the limit."""
    sizes = measure_append(buffer, start, end, version)
    if sizes is None or min(sizes.lock_counts) < 0 or sum(sizes.lock_counts) > max_locks:
        return None
    return _shape(*sizes.lock_counts)
