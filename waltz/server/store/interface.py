"""The interface between the replicated log of a partition and its user, the partition."""

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, Protocol

from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.records import RECORD_ID_BYTES
from waltz.server.store.timings import StoreTimings


class LogClosedError(WaltzError):
    """The log is closed, or no store session is open; nothing was given to a storage."""


class SessionEndedError(WaltzError):
    """The store session ended, or could not be opened; the next one is tried."""


class SupersededError(SessionEndedError):
    """A newer session or generation of the partition exists: another server owns it, or soon will."""


class ReadFailedError(WaltzError):
    """No replica could deliver committed records within the deadline."""


class TimesNotKeptError(WaltzError):
    """None of the storages that answered keeps the times of commits."""


class TimeEntry(NamedTuple):
    """Everything up to the transaction was committed by that time, by the clock of the partition's owner."""

    transaction_id: int
    time_ms: int


_BODY_HEAD = struct.Struct(">ii")
_CHECKSUM = struct.Struct(">i")
_ID_AND_REQ_ID = struct.Struct(">q16s")
_body_of = attrgetter("body")


class Append:
    """One transaction on its way into the log.

    ``transaction_id`` is provisional until the append is committed, and void once its session has ended without that.
    ``body`` is the part of a record in the storage protocol after the request id: header, size of the data, data, and
    the signed CRC-32 of the data.
    """

    __slots__ = ("body", "header", "req_id", "transaction_id")

    def __init__(self, req_id: bytes, header: int, body: bytes) -> None:
        self.req_id = req_id
        self.header = header
        self.body = body
        self.transaction_id = NO_TRANSACTION

    @staticmethod
    def encode_body(header: int, data: bytes, checksum: int) -> bytes:
        """The body of an append with these parts."""
        return b"".join((_BODY_HEAD.pack(header, len(data)), data, _CHECKSUM.pack(checksum)))

    @property
    def data(self) -> bytes:
        """The data of the application."""
        return self.body[_BODY_HEAD.size : -_CHECKSUM.size]

    @property
    def checksum(self) -> int:
        """The signed CRC-32 of :attr:`data`, as the client computed it."""
        (value,) = _CHECKSUM.unpack_from(self.body, len(self.body) - _CHECKSUM.size)
        return int(value)

    def __repr__(self) -> str:
        return f"Append({self.req_id.hex()}, id {self.transaction_id})"


def encode_appends(appends: Iterable[Append]) -> bytes:
    """The records of appends with their ids, one after the other, in the form of the storage protocol."""
    pack = _ID_AND_REQ_ID.pack
    return b"".join([part for found in appends for part in (pack(found.transaction_id, found.req_id), found.body)])


def record_bytes_of(appends: Sequence[Append]) -> int:
    """The size of these records, in bytes."""
    return RECORD_ID_BYTES * len(appends) + sum(map(len, map(_body_of, appends)))


class LogListener(Protocol):
    """The log's calls to the partition; every call is made on the loop and must neither block nor raise.

    ``append`` may be called from within a callback. The order around a change of session is: ``session_ended``, then
    (new session recovered, its metadata written) ``batch_committed`` and ``failed`` for undecided appends (rule S5),
    then ``session_begun`` and ``session_opened``. A session that continues at the end of the last one is only
    ``session_begun``.
    """

    def session_begun(self, session_id: int, unbroken: bool, high_water_mark: int) -> None:
        """A quorum of the storages has this store session, which continues after the mark. ``unbroken``: it follows our
        own former session in the same generation, so no other server can have written between the two."""
        ...

    def session_opened(self, high_water_mark: int, changed: bool) -> None:
        """Appends may be given. ``changed``: the mark differs from the one known before, or appends were undecided
        (S3)."""
        ...

    def session_ended(self, unwritten: Sequence[Append]) -> None:
        """No appends until ``session_opened``; provisional ids that are not committed are void.

        The ``unwritten`` appends, in order, were never given to a replica. The log has dropped them: they may be given
        again.
        """
        ...

    def batch_committed(self, appends: Sequence[Append], records: Sequence[bytes]) -> None:
        """These appends are committed at their transaction ids, which continue the committed ones without a gap.

        ``records`` are the same appends in pieces of the storage protocol's encoding.
        """
        ...

    def failed(self, appends: Sequence[Append]) -> None:
        """These appends are absent from the log for good (S5)."""
        ...

    def stored_by_all(self, transaction_id: int, storage_count: int) -> None:
        """Every assigned storage, of which there are so many, has everything up to a committed transaction on disk.

        Called within ``await_all``, and afterwards until that transaction is reached.
        """
        ...

    def drained(self) -> None:
        """The log is not congested any more."""
        ...


@dataclass(slots=True, frozen=True)
class StoreOptions:
    """Limits and deadlines of a replicated log."""

    max_batch_size: int = 1000
    """Records in one append request to a storage (``storage.maxBatchSize``)."""
    initial_retry_interval_s: float = 0.1
    """First pause before another attempt to reach a storage or to open a session."""
    max_retry_interval_s: float = 20.0
    """Longest pause before such an attempt."""
    opening_retry_interval_s: float = 1.0
    """Longest pause before another attempt to reach a storage while no session is open."""
    checkpoint_interval: int = 250_000
    """Transactions after which a session is renewed, which moves the low-water marks."""
    rpc_timeout_s: float = 10.0
    """Time without progress after which a question of a recovery or join fails; also the limit of connecting."""
    change_timeout_s: float = 60.0
    """The same for a truncation, low-water mark or copy. After such a failure the storage is left out until another
    session begins, so slow disks get time; a storage that is gone is noticed by its connection."""
    read_timeout_s: float = 2.0
    """Time without progress of a read request after which the next replica is asked."""
    stall_timeout_s: float = 1.0
    """Time of a standstill of appends after which replicas without progress are dropped from the session."""
    replica_timeout_s: float = 30.0
    """Time without progress after which a replica is dropped that no quorum depends on."""
    confirm_interval_s: float = 10.0
    """After this time without a commit a quorum of the replicas may be asked to confirm the session: one small request
    to each, at most once in this time."""
    commit_limit_s: float = 30.0
    """A partition whose appends have stood still for longer is not healthy, even with progress."""
    readmission_interval_s: float = 10.0
    """Least time between two sessions for one barred replica; doubles while the replica does not stay."""
    window_size_bytes: int = 2 << 20
    """Bytes in flight to one replica of a partition (rule S8)."""
    ring_size_bytes: int = 8 << 20
    """Limit of committed batches kept for replicas that lag, and of undecided batches."""
    batches_in_flight: int = 2
    """Number of undecided batches above which appends gather until a batch is full. With one the storages would wait
    for the next batch on its way; with more the batches are smaller at the same cost each, and slow storages fall
    behind."""
    copy_size_bytes: int = 1 << 20
    """Target size of one step of a copy from replica to replica."""
    random_source: random.Random = field(default_factory=random.Random)
    """Source of jitter; injected so that a simulation can be replayed."""
    timings: StoreTimings = field(default_factory=StoreTimings)
    """Records the latencies of storages."""
