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
    """The log is closed, or no store session is open. Nothing was sent to a storage."""


class SessionEndedError(WaltzError):
    """The store session has ended, or could not be opened. The log tries the next session."""


class SupersededError(SessionEndedError):
    """A newer session or generation of the partition exists: another server owns the partition, or soon will."""


class ReadFailedError(WaltzError):
    """No replica could deliver committed records within the deadline."""


class TrimmedReadError(WaltzError):
    """The records are trimmed, and not available any more."""


class TimesNotKeptError(WaltzError):
    """No storage that answered keeps the times of commits."""


class TimeEntry(NamedTuple):
    """All transactions up to this one were committed by that time, by the clock of the partition's owner."""

    transaction_id: int
    time_ms: int


_BODY_HEAD = struct.Struct(">ii")
_CHECKSUM = struct.Struct(">i")
_ID_AND_REQ_ID = struct.Struct(">q16s")
_body_of = attrgetter("body")


class Append:
    """One transaction on its way into the log.

    ``transaction_id`` is provisional until the append is committed. If the session ends before the commit, the id is
    void. ``body`` is the part of a record in the storage protocol after the request id: header, size of the data, data,
    and the signed CRC-32 of the data.
    """

    __slots__ = ("body", "header", "req_id", "transaction_id")

    def __init__(self, req_id: bytes, header: int, body: bytes) -> None:
        self.req_id = req_id
        self.header = header
        self.body = body
        self.transaction_id = NO_TRANSACTION

    @staticmethod
    def encode_body(header: int, data: bytes, checksum: int) -> bytes:
        """The body of an append, made of these parts."""
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
    """The records of appends with their ids, one behind the other, in the encoding of the storage protocol."""
    pack = _ID_AND_REQ_ID.pack
    return b"".join([part for found in appends for part in (pack(found.transaction_id, found.req_id), found.body)])


def record_bytes_of(appends: Sequence[Append]) -> int:
    """The size of these records, in bytes."""
    return RECORD_ID_BYTES * len(appends) + sum(map(len, map(_body_of, appends)))


class LogListener(Protocol):
    """The calls of the log to the partition. Every call is made in the event loop, and must neither block nor raise.

    ``append`` may be called within a callback. The order of calls at a change of session is: ``session_ended``; after
    the recovery of the new session and the write of its metadata, ``batch_committed`` and ``failed`` for undecided
    appends (rule S5); then ``session_begun`` and ``session_opened``. A session that continues at the end of the last
    session causes ``session_begun`` only.
    """

    def session_begun(self, session_id: int, unbroken: bool, high_water_mark: int) -> None:
        """A quorum of the storages has this store session, which continues after the mark. ``unbroken``: the session
        follows the former session of this server in the same generation, so no other server can have written in
        between."""
        ...

    def session_opened(self, high_water_mark: int, changed: bool) -> None:
        """Appends are accepted from now on. ``changed``: the mark differs from the last known mark, or appends were
        undecided (S3)."""
        ...

    def session_ended(self, unwritten: Sequence[Append]) -> None:
        """No appends are accepted until ``session_opened``. Provisional ids without a commit are void.

        The ``unwritten`` appends, in order, were never sent to a replica. The log has dropped them: they may be
        appended again.
        """
        ...

    def batch_committed(self, appends: Sequence[Append], records: Sequence[bytes]) -> None:
        """These appends are committed at their transaction ids, which continue the committed ids without a gap.

        ``records`` are the same appends, as pieces in the encoding of the storage protocol.
        """
        ...

    def failed(self, appends: Sequence[Append]) -> None:
        """These appends are not in the log, and never will be (S5)."""
        ...

    def stored_by_all(self, transaction_id: int, storage_count: int) -> None:
        """Every assigned storage, of which there are so many, has everything up to a committed transaction on disk.

        Called within ``await_all``, and afterwards until that transaction is reached.
        """
        ...

    def stored_by_some(self, marks: Sequence[int]) -> None:
        """What each assigned storage has acknowledged in the present store session, committed or not: the last id, with
        all before it, descending. Called at each acknowledgement, from ``await_some(True)`` to ``await_some(False)``.
        """
        ...

    def drained(self) -> None:
        """The log is not congested any more."""
        ...


@dataclass(slots=True, frozen=True)
class StoreOptions:
    """Limits and deadlines of a replicated log."""

    max_batch_size: int = 1000
    """The largest number of records in one append request to a storage (``storage.maxBatchSize``)."""
    initial_retry_interval_s: float = 0.1
    """First pause before another attempt to reach a storage or to open a session."""
    max_retry_interval_s: float = 20.0
    """Longest pause before such an attempt."""
    opening_retry_interval_s: float = 1.0
    """Longest pause before another attempt to reach a storage while no session is open."""
    checkpoint_interval: int = 250_000
    """The number of transactions after which a session is renewed. The renewal raises the low-water marks."""
    rpc_timeout_s: float = 10.0
    """Time without progress after which a question of a recovery or join fails; also the time limit of a connection
    attempt."""
    change_timeout_s: float = 60.0
    """The same for a truncation, low-water mark or copy. After such a failure the storage is left out until another
    session begins. So the time is long enough for slow disks; a dead storage is noticed by its connection."""
    read_timeout_s: float = 2.0
    """Time without progress of a read request after which the next replica is asked."""
    stall_timeout_s: float = 1.0
    """Time without commits after which replicas without progress are dropped from the session."""
    replica_timeout_s: float = 30.0
    """Time without progress after which a replica is dropped that is not needed for a quorum."""
    confirm_interval_s: float = 10.0
    """After this time without a commit, a quorum of the replicas may be asked to confirm the session: one small request
    to each, at most once in this time."""
    commit_limit_s: float = 30.0
    """A partition without a commit of waiting appends for this time is not healthy, even with progress."""
    readmission_interval_s: float = 10.0
    """The shortest time between two sessions for the sake of one barred replica. Doubles while the replica does not
    stay."""
    window_size_bytes: int = 2 << 20
    """The largest number of bytes in flight to one replica of a partition (rule S8)."""
    ring_size_bytes: int = 8 << 20
    """The largest size of the committed batches that are kept for lagging replicas, and of the undecided batches."""
    batches_in_flight: int = 2
    """The number of undecided batches from which on appends are gathered until a batch is full. With one, the storages
    would wait while the next batch is on its way. With more, the batches are smaller at the same cost each, and slow
    storages fall behind."""
    copy_size_bytes: int = 1 << 20
    """Target size of one step of a copy from replica to replica."""
    random_source: random.Random = field(default_factory=random.Random)
    """The source of jitter. A parameter, so that a simulation can be replayed."""
    timings: StoreTimings = field(default_factory=StoreTimings)
    """Records the latencies of storages."""
