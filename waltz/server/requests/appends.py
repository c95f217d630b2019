"""Append requests on their way through the server.

An append is one object from the read to the commit. Its *body* - header, size, data and checksum, which are adjacent in
the request and in the record of the storage protocol - is cut out of the request as one piece and goes to the storages
unchanged. The hottest loop of a server reads appends, in :mod:`waltz.common.wire.append_request`; this module handles
the appends that the loop does not take.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waltz.common.ids import NO_TRANSACTION
from waltz.common.wire.append_request import APPEND_REQUEST_TYPE, collect_appends, has_valid_checksum, measure_append
from waltz.common.wire.client_server import decode
from waltz.common.wire.frames import ABRIDGED_BYTES
from waltz.common.wire.version5 import AppendFailure
from waltz.common.wire.write_sessions import NO_WRITE_SESSION
from waltz.server.requests.link import ClientLink
from waltz.server.store.interface import Append

LOCK_SIZE_BYTES = 40
"""Memory of one lock: a place in a tuple, and an integer."""

_BESIDE_DATA_BYTES = 12
"""Bytes of a body beside its data: header, size and checksum."""


class AcceptedRun(NamedTuple):
    """Appends of one connection that were accepted together, under ids without a gap."""

    link: ClientLink
    last_id: int
    size: int
    accepted_s: float
    lock_count: int
    """Locks of all these appends, apart from single write locks."""
    write_session: int = NO_WRITE_SESSION


class AppendCall(Append):
    """An append with the facts for its admission; made by :func:`append_call`. Locks are signed 32-bit hashes.

    ``run`` is set when it is accepted.
    """

    __slots__ = ("append_locks", "client_high_water_mark", "read_locks", "run", "write_locks")

    client_high_water_mark: int
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    run: AcceptedRun

    @property
    def lock_count(self) -> int:
        """Locks of all kinds."""
        return len(self.write_locks) + len(self.read_locks) + len(self.append_locks)

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the parts whose length a client decides."""
        return len(self.body) + LOCK_SIZE_BYTES * self.lock_count


def data_sizes(appends: Sequence[AppendCall]) -> list[int]:
    """The size of the data of each transaction, without a call for each."""
    return [len(each.body) - _BESIDE_DATA_BYTES for each in appends]


_new = object.__new__


def append_call(
    req_id: bytes,
    client_high_water_mark: int,
    write_locks: tuple[int, ...],
    read_locks: tuple[int, ...],
    append_locks: tuple[int, ...],
    header: int,
    body: bytes,
) -> AppendCall:
    """Make an append. ``body`` is as in :class:`~waltz.server.store.interface.Append`; its checksum has been verified.

    Not a constructor of the class: the interpreter calls a function in two thirds of the time.
    """
    call = _new(AppendCall)
    call.req_id = req_id
    call.client_high_water_mark = client_high_water_mark
    call.write_locks = write_locks
    call.read_locks = read_locks
    call.append_locks = append_locks
    call.header = header
    call.body = body
    call.transaction_id = NO_TRANSACTION
    return call


Runs = dict[bytes, list[AppendCall]]
"""Appends in their order, by generation, partition and write session."""


class AppendLimits:
    """Limits of one append."""

    __slots__ = ("max_data_bytes", "max_locks")

    def __init__(self, max_data_bytes: int, max_locks: int) -> None:
        self.max_data_bytes = max_data_bytes
        self.max_locks = max_locks


class Unacceptable(NamedTuple):
    """An append that is refused without closing the connection; nothing of it is kept."""

    req_id: bytes
    failure: AppendFailure | None
    """The answer to the client; None without an answer."""
    text: str


def take_appends(
    buffer: bytes, frames: Iterator[tuple[int, int]], version: int, limits: AppendLimits, runs: Runs
) -> tuple[int, int] | Unacceptable | None:
    """Take append requests off ``frames`` and add them to ``runs``.

    Returns the reason of its end: the bounds of the first frame that is no append, an append to be refused, or None at
    the end of the frames. Raises ``ProtocolError`` for protocol errors; the appends before are in ``runs``.
    """
    ended_by = collect_appends(
        buffer, frames, version, append_call, runs, max_data_bytes=limits.max_data_bytes, max_locks=limits.max_locks
    )
    if ended_by is None or buffer[ended_by[0]] != APPEND_REQUEST_TYPE:
        return ended_by
    start, end = ended_by
    unacceptable = _check_limits(buffer, start, end, version, limits)
    if unacceptable is not None:
        return unacceptable
    decode(buffer, start, end, version)  # raises the error
    raise AssertionError("an append was refused although it is in order")


def _check_limits(buffer: bytes, start: int, end: int, version: int, limits: AppendLimits) -> Unacceptable | None:
    """The refusal of an append that the protocol allows; None also for errors that decoding reports.

    A null lock array is no protocol error, but cannot be handled: the original drops such an append.
    """
    req_id = buffer[start + 1 : start + ABRIDGED_BYTES]
    if end - start == ABRIDGED_BYTES:
        text = f"a transaction larger than its frame may be; server.maxTransactionSize is {limits.max_data_bytes}"
        return Unacceptable(req_id, AppendFailure.TOO_LARGE, text)
    sizes = measure_append(buffer, start, end, version)
    if sizes is None:
        return None
    lock_count = sum(count for count in sizes.lock_counts if count > 0)
    if lock_count > limits.max_locks:
        text = f"a transaction with {lock_count} locks; server.maxLocksPerTransaction is {limits.max_locks}"
        return Unacceptable(req_id, AppendFailure.TOO_LARGE, text)
    size_bytes = sizes.data_end - sizes.data_start
    if size_bytes > limits.max_data_bytes:
        text = f"a transaction of {size_bytes} bytes; server.maxTransactionSize is {limits.max_data_bytes}"
        return Unacceptable(req_id, AppendFailure.TOO_LARGE, text)
    if min(sizes.lock_counts) < 0 and has_valid_checksum(buffer, sizes):
        return Unacceptable(req_id, None, "a lock array is null")
    return None
