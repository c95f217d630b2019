"""Append requests on their way through the server, and the way they are read off the wire.

An append is one object from the read to the commit. Its *body* - header, size, data and checksum, which lie side by
side in the request and in the record of the storage protocol - is cut out of the request as one piece and goes to the
storages as it came. Reading appends is the hottest loop of a server, so the common shapes have code of their own here;
whatever is unusual goes through :mod:`waltz.common.wire.client_server`, which also says what is wrong with it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from waltz.common.checksum import crc32
from waltz.common.errors import ProtocolError
from waltz.common.ids import RUN_PART
from waltz.common.wire.client_server import AppendFailure, AppendRequest, decode_batch
from waltz.common.wire.frames import ABRIDGED_BYTES, Bounds
from waltz.common.wire.versions import FIRST_WITH_APPEND_LOCKS, FIRST_WITH_WRITE_SESSION
from waltz.server.link import ClientLink
from waltz.server.store.interface import Append

APPEND_REQUEST_TYPE = 2

LOCK_SIZE_BYTES = 40
"""Memory of one lock: a place in a tuple, and an integer."""

_NONE: tuple[int, ...] = ()
_SMALL_BYTES = 4096  # below that, copying data in order to checksum it is cheaper than not to copy it
_FIXED = struct.Struct(">x16sqiiiii")  # with no lock: request id, mark, three counts, header, size
_WITH_ONE_LOCK = struct.Struct(">x16sqiiiiii")  # with one write lock
_BODY_HEAD_BYTES = 8
_LOCKS_OFFSET = 25  # behind type, request id and mark
_COUNT = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")
_CHECKSUM_AND_SESSION = struct.Struct(">Iq")


class AcceptedRun(NamedTuple):
    """Appends of one connection that were accepted together, under ids without a gap."""

    link: ClientLink
    last_id: int
    size: int
    accepted_s: float
    lock_count: int
    """Locks of all these appends, apart from single write locks."""


class AppendCall(Append):
    """An append with what decides about its admission. Locks are signed 32-bit hashes.

    ``run`` is there once it has been accepted.
    """

    __slots__ = ("append_locks", "client_high_water_mark", "read_locks", "run", "write_locks")

    run: AcceptedRun

    @property
    def lock_count(self) -> int:
        """Locks of all kinds."""
        return len(self.write_locks) + len(self.read_locks) + len(self.append_locks)

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the parts that a client can make long."""
        return len(self.body) + LOCK_SIZE_BYTES * self.lock_count

    def __init__(
        self,
        req_id: bytes,
        client_high_water_mark: int,
        write_locks: tuple[int, ...],
        read_locks: tuple[int, ...],
        append_locks: tuple[int, ...],
        header: int,
        body: bytes,
    ) -> None:
        """``body`` is as in :class:`~waltz.server.store.interface.Append`; its checksum has been verified."""
        self.req_id = req_id
        self.client_high_water_mark = client_high_water_mark
        self.write_locks = write_locks
        self.read_locks = read_locks
        self.append_locks = append_locks
        self.header = header
        self.body = body
        self.transaction_id = -1

    @classmethod
    def from_request(cls, request: AppendRequest) -> "AppendCall":
        """The same, from a decoded message."""
        req_id, mark, write_locks, read_locks, append_locks, header, data, checksum = request
        body = cls.encode_body(header, data, checksum)
        return cls(req_id, mark, write_locks, read_locks, append_locks, header, body)


Runs = dict[bytes, list[AppendCall]]
"""Appends in their order, by the key of their request ids: the bytes of generation and partition."""


class AppendLimits:
    """What one append may have."""

    __slots__ = ("max_data_bytes", "max_locks", "unchecked_bytes")

    def __init__(self, max_data_bytes: int, max_locks: int) -> None:
        self.max_data_bytes = max_data_bytes
        self.max_locks = max_locks
        self.unchecked_bytes = min(max_data_bytes, 4 * max_locks)
        """A message of no more than this is within the limits."""


class Unacceptable(NamedTuple):
    """An append that is not handled although the connection goes on; nothing of it is kept."""

    req_id: bytes
    failure: AppendFailure | None
    """What its client is told, if it can be told anything; None: nothing."""
    text: str


def take_appends(
    buffer: bytes, frames: Iterator[tuple[int, int]], version: int, limits: AppendLimits, runs: Runs
) -> tuple[int, int] | Unacceptable | None:
    """Take append requests off ``frames`` and add them to ``runs``.

    Returns where that ended: the bounds of the first frame that is no append, an append that is not to be handled, or
    None at the end. Raises ``ProtocolError`` for whatever the protocol does not allow; the appends before it are in
    ``runs``.
    """
    if version < FIRST_WITH_APPEND_LOCKS:
        return _take_appends_slowly(buffer, frames, version, limits, runs)
    max_data_bytes = limits.max_data_bytes
    has_session = version >= FIRST_WITH_WRITE_SESSION
    tail_bytes = 8 if has_session else 0
    shortest_bytes = _FIXED.size + _CHECKSUM.size + tail_bytes
    unpack_head, unpack_no_lock = _WITH_ONE_LOCK.unpack_from, _FIXED.unpack_from
    unpack_checksum, unpack_checksum_and_session = _CHECKSUM.unpack_from, _CHECKSUM_AND_SESSION.unpack_from
    head_bytes = _WITH_ONE_LOCK.size
    key = b""
    add = None
    for start, end in frames:
        if buffer[start] != APPEND_REQUEST_TYPE:
            return start, end
        size = -1
        write_locks = _NONE
        data_start = start + head_bytes
        # The struct is longer than the shortest request by one lock; it must not read beyond the buffer.
        if end - start > shortest_bytes:
            req_id, mark, count, lock, reads, others, header, size = unpack_head(buffer, start)
            if count == 1:
                write_locks = (lock,)
            elif count == 0:
                req_id, mark, count, reads, others, header, size = unpack_no_lock(buffer, start)
                data_start -= 4
            else:
                reads = 1  # more locks than one
            data_end = data_start + size
            if reads or others or data_end + 4 + tail_bytes != end or size > max_data_bytes:
                size = -1
        if size < 0:
            call = _decode_slowly(buffer, start, end, version, limits)
            if type(call) is Unacceptable:
                return call
            assert isinstance(call, AppendCall)
            req_id = call.req_id
        else:
            if has_session:
                checksum, session = unpack_checksum_and_session(buffer, data_end)
            else:
                (checksum,) = unpack_checksum(buffer, data_end)
                session = -1
            data = buffer[data_start:data_end] if size < _SMALL_BYTES else memoryview(buffer)[data_start:data_end]
            if crc32(data) != checksum or session != -1:
                _decode_slowly(buffer, start, end, version, limits)
                raise ProtocolError("AppendRequest: damaged")  # not reached: decoding it says what is wrong
            body = buffer[data_start - _BODY_HEAD_BYTES : data_end + 4]
            call = AppendCall(req_id, mark, write_locks, _NONE, _NONE, header, body)
        found = req_id[RUN_PART]
        if add is None or found != key:
            key = found
            add = runs.setdefault(key, []).append
        add(call)
    return None


def _take_appends_slowly(
    buffer: bytes, frames: Iterator[tuple[int, int]], version: int, limits: AppendLimits, runs: Runs
) -> tuple[int, int] | Unacceptable | None:
    for start, end in frames:
        if buffer[start] != APPEND_REQUEST_TYPE:
            return start, end
        call = _decode_slowly(buffer, start, end, version, limits)
        if isinstance(call, Unacceptable):
            return call
        runs.setdefault(call.req_id[RUN_PART], []).append(call)
    return None


def _decode_slowly(
    buffer: bytes, start: int, end: int, version: int, limits: AppendLimits
) -> AppendCall | Unacceptable:
    if end - start > limits.unchecked_bytes:  # before millions of objects are made of it
        unacceptable = _check_sizes(buffer, start, end, version, limits)
        if unacceptable is not None:
            return unacceptable
    bounds: Bounds = [(start, end)]
    try:
        (request,) = decode_batch(buffer, bounds, version)
    except ProtocolError:
        unacceptable = _check_sizes(buffer, start, end, version, limits)
        if unacceptable is None:
            raise
        return unacceptable
    assert isinstance(request, AppendRequest)
    return AppendCall.from_request(request)


def _check_sizes(buffer: bytes, start: int, end: int, version: int, limits: AppendLimits) -> Unacceptable | None:
    """Look at the counts of an append before anything is made of it; None also for what decoding has to complain of.

    A null lock array is no error of the protocol, but nothing that could be handled: the original drops such an append.
    """
    req_id = buffer[start + 1 : start + ABRIDGED_BYTES]
    if end - start == ABRIDGED_BYTES:
        text = f"a transaction larger than its frame may be; server.maxTransactionSize is {limits.max_data_bytes}"
        return Unacceptable(req_id, AppendFailure.TOO_LARGE, text)
    position = start + _LOCKS_OFFSET
    locks, is_null = 0, False
    for _ in range(min(version, FIRST_WITH_APPEND_LOCKS) + 1):
        if position + 4 > end:
            return None
        (count,) = _COUNT.unpack_from(buffer, position)
        position += 4 + 4 * max(count, 0)
        locks += max(count, 0)
        is_null = is_null or count < 0
    tail_bytes = 8 if version >= FIRST_WITH_WRITE_SESSION else 0
    data_start = position + _BODY_HEAD_BYTES
    if data_start > end:
        return None
    (size,) = _COUNT.unpack_from(buffer, data_start - 4)
    data_end = data_start + size
    if size < 0 or data_end + _CHECKSUM.size + tail_bytes != end:
        return None
    if locks > limits.max_locks:
        text = f"a transaction with {locks} locks; server.maxLocksPerTransaction is {limits.max_locks}"
        return Unacceptable(req_id, AppendFailure.TOO_LARGE, text)
    if size > limits.max_data_bytes:
        text = f"a transaction of {size} bytes; server.maxTransactionSize is {limits.max_data_bytes}"
        return Unacceptable(req_id, AppendFailure.TOO_LARGE, text)
    if is_null and crc32(memoryview(buffer)[data_start:data_end]) == _CHECKSUM.unpack_from(buffer, data_end)[0]:
        return Unacceptable(req_id, None, "a lock array is null")
    return None
