"""What the replicated log of a partition and its user (the partition) say to each other."""

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.server.store.timings import StoreTimings


class LogClosedError(WaltzError):
    """The log is closed, or no store session is open; nothing was given to a storage."""


class SessionEndedError(WaltzError):
    """The store session ended, or could not be opened; the next one is tried."""


class SupersededError(SessionEndedError):
    """A newer session or generation of the partition exists: another server owns it, or soon will."""


class ReadFailedError(WaltzError):
    """No replica could deliver committed records within the deadline."""


_BODY_HEAD = struct.Struct(">ii")
_CHECKSUM = struct.Struct(">i")
_ID_AND_REQ_ID = struct.Struct(">q16s")


class Append:
    """One transaction on its way into the log.

    ``transaction_id`` is provisional until the append is committed, and void once its session has ended without that.
    ``body`` is what stands behind the request id in a record of the storage protocol: header, size of the data, data,
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
    """The records of appends that have their ids, one after the other, as the storage protocol has them."""
    pack = _ID_AND_REQ_ID.pack
    return b"".join([part for found in appends for part in (pack(found.transaction_id, found.req_id), found.body)])


class LogListener(Protocol):
    """What the log tells the partition; every call is made on the loop and must neither block nor raise.

    ``append`` may be called from within a callback. The order around a change of session is: ``session_ended``, then
    (new session recovered, its metadata written) ``batch_committed`` and ``failed`` for what was undecided (rule S5),
    then ``session_begun`` and ``session_opened``. A session that goes on where the last one ended is ``session_begun``
    only.
    """

    def session_begun(self, session_id: int, unbroken: bool, high_water_mark: int) -> None:
        """A quorum of the storages has this store session, which goes on behind the mark. ``unbroken``: it follows the
        one before it, which was ours, in the same generation; nobody else can have written between the two."""
        ...

    def session_opened(self, high_water_mark: int, changed: bool) -> None:
        """Appends may be given. ``changed``: the mark is not the one known before, or something was undecided (S3)."""
        ...

    def session_ended(self, unwritten: Sequence[Append]) -> None:
        """No appends until ``session_opened``; provisional ids that are not committed are void.

        ``unwritten``, in order, were never given to a replica. The log has forgotten them: they may be given again.
        """
        ...

    def batch_committed(self, appends: Sequence[Append], records: Sequence[bytes]) -> None:
        """These are committed at their transaction ids, which continue those committed before without a gap.

        ``records`` are the same, encoded as in the storage protocol, in pieces.
        """
        ...

    def failed(self, appends: Sequence[Append]) -> None:
        """These are known to be absent from the log for good (S5)."""
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
    """How long nothing may move for one question of a recovery or join, and how long connecting may take."""
    change_timeout_s: float = 60.0
    """The same for a truncation, low-water mark or copy. Giving one up leaves its storage out until another session is
    begun, so slow disks are waited for; a storage that is gone is noticed by its connection."""
    read_timeout_s: float = 2.0
    """How long nothing may move for one read request; the next replica is asked after it."""
    stall_timeout_s: float = 1.0
    """How long appends may stand still before the replicas for which nothing moves are dropped from the session."""
    replica_timeout_s: float = 30.0
    """How long nothing may move for a replica that no quorum depends on before it is dropped."""
    confirm_interval_s: float = 10.0
    """When nothing was committed for so long, a quorum of the replicas may be asked to confirm the session: one small
    request to each, at most this often."""
    commit_limit_s: float = 30.0
    """A partition in which appends have stood still for longer is not healthy, whatever moves."""
    readmission_interval_s: float = 10.0
    """Shortest time between two sessions for the sake of one barred replica; doubles while that does not last."""
    window_size_bytes: int = 2 << 20
    """Bytes in flight to one replica of a partition (rule S8)."""
    ring_size_bytes: int = 8 << 20
    """Committed batches kept for replicas that lag, and the bound of what may be undecided at a time."""
    batches_in_flight: int = 2
    """Undecided batches beside which appends gather until a batch is full. With one the storages would wait while the
    next is on its way; with more the batches are smaller, each costs as much, and slow storages fall behind."""
    copy_size_bytes: int = 1 << 20
    """Aim for one step of copying from replica to replica."""
    random_source: random.Random = field(default_factory=random.Random)
    """Source of jitter; injected so that a simulation can be replayed."""
    timings: StoreTimings = field(default_factory=StoreTimings)
    """Where it is noted how long storages take."""
