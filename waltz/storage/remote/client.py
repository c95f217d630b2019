"""Client of a storage node's data port, by which servers and tools write and read replicas.

One :class:`StorageClient` multiplexes the requests of all partitions and sessions over one connection. It never
reconnects: a new connection needs a new client.
"""

import logging
import ssl
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from waltz.common.errors import (
    ConnectionClosedError,
    DeadlineExceededError,
    ProtocolError,
    WaltzError,
)
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.net.channel import Channel
from waltz.common.net.outbox import Outbox
from waltz.common.progress_timer import ProgressTimer
from waltz.common.records import Record, RecordHeader
from waltz.common.wire import storage as wire
from waltz.common.wire import storage_version1 as our_wire
from waltz.common.wire.frames import STORAGE, Bounds
from waltz.common.wire.storage_times import (
    CommittedNotice,
    CommitTime,
    EnterTimesRequest,
    PartitionCommitted,
    TimeEntryRequest,
    TimeEntryResponse,
    TimeListRequest,
    TimeListResponse,
    TimeQuestion,
)
from waltz.common.wire.storage_trim import BeginRequest, SizeRequest, TrimRequest, TrimResponse
from waltz.common.wire.structures import SessionInfo
from waltz.storage.remote.connection import StorageConnection, verify_payloads
from waltz.storage.remote.errors import RemoteStorageError
from waltz.storage.remote.owed_answers import OwedAnswers, Transfer
from waltz.storage.remote.pending_calls import OPEN_SEQ_NUM

logger = logging.getLogger(__name__)

HELLO_TEXT = "Waltz Storage Client"
NO_PARTITION = -1
APPEND_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0

SILENT_AFTER_S = 5.0
"""A connection with an unanswered request is closed after this time without progress (rule L3)."""

LOOK_INTERVAL_S = 0.25
"""Interval of the checks of a connection with an unanswered request."""

_SHORTEST_LOOK_S = 0.001
"""The shortest time between two checks: a rounding error must not cause endless checks at one moment."""

AppendDone = Callable[[Exception | None], None]
"""Called exactly once with the outcome of an append: ``None`` when the append is durable at the storage, otherwise
:class:`RemoteStorageError` (refused), ``ConnectionClosedError`` or ``DeadlineExceededError`` (both: outcome
unknown)."""

CloseListener = Callable[[Exception | None], None]

Response = TypeVar("Response")

_FAMILY = STORAGE._replace(run=wire.SUCCESS_RUN)


class StorageClient(StorageConnection[our_wire.Message]):
    """One open connection to the data port of a storage node. All methods belong to the event loop's thread.

    Every ``timeout_s`` is a time without progress of the request (:mod:`waltz.storage.remote.owed_answers`), not a
    limit of the whole request: 32 MiB over a slow line may take long. A silent connection closes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        append_timeout_s: float = APPEND_TIMEOUT_S,
        silent_after_s: float = SILENT_AFTER_S,
    ) -> None:
        """Use :meth:`connect`."""
        super().__init__(endpoint, f"storage {endpoint}")
        self._append_timeout_s = append_timeout_s
        self._silent_after_s = silent_after_s
        self._owed: OwedAnswers[AppendDone] = OwedAnswers(silent_after_s)
        self._look_interval_s = min(LOOK_INTERVAL_S, silent_after_s / 4)
        self._look_timer = ProgressTimer(self._look)
        self._stood_still_s = 0.0
        self._close_listeners: list[CloseListener] = []
        self._gathered: list[our_wire.EncodedAppend] = []
        """The appends of the next frame."""
        self._gathered_bytes = 0
        self._gathered_from = 0
        """The sequence number of the first of them."""
        self._gathered_s = 0.0
        """The time of the first of them. The others follow in the same turn of the loop."""
        self._noted: dict[int, list[PartitionCommitted]] = {}
        """Commits that have to be reported, by time."""
        self.outbox: Outbox | None = None
        """Writes appends at the end of the turn, together with the appends of other connections and other partitions.
        ``None``: each append is written on its own."""

    @classmethod
    async def connect(
        cls,
        endpoint: Endpoint,
        *,
        cluster_key: UUID,
        partition_count: int,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        append_timeout_s: float = APPEND_TIMEOUT_S,
        silent_after_s: float = SILENT_AFTER_S,
    ) -> "StorageClient":
        """Connect, and open the connection with the identity of the cluster.

        ``tls`` is ``None`` for plaintext. ``append_timeout_s`` is the limit of every :meth:`append_encoded`,
        ``silent_after_s`` that of the connection. Raises ``ConnectFailedError`` (unreachable, or no answer to the open
        request in ``timeout_s``), ``RemoteStorageError`` (foreign cluster key or partition count, node closing).
        """
        client = cls(endpoint, append_timeout_s, silent_after_s)
        request = wire.OpenRequest(-1, OPEN_SEQ_NUM, -1, cluster_key, partition_count)

        async def open_store(remaining_s: float) -> None:
            frame = our_wire.encode(request, client._version)
            await client._call(OPEN_SEQ_NUM, frame, wire.SuccessResponse, "the open request", remaining_s)

        await client._open(_FAMILY, HELLO_TEXT, open_store, tls=tls, timeout_s=timeout_s)
        return client

    @property
    def writable(self) -> bool:
        """Whether the connection has few unsent bytes. Otherwise callers should send elsewhere or later."""
        return self._channel is not None and self._channel.writable

    def add_close_listener(self, listener: CloseListener) -> None:
        """Have ``listener`` called once, in the event loop, when the connection closes; soon, if it has closed
        already."""
        if self._closed is not None:
            self._loop.call_soon(listener, self._closed)
        else:
            self._close_listeners.append(listener)

    # Requests

    def append_encoded(self, session_id: int, partition_id: int, records: bytes, count: int, done: AppendDone) -> int:
        """Append ``count`` encoded records. ``done`` gets the outcome, always after this call.

        The storage gets appends in the order of the calls. Returns the position of the append for :meth:`transfer`. The
        hot path: no task, no future.
        """
        channel = self._channel
        if self._closed is not None or channel is None:
            self._loop.call_soon(done, ConnectionClosedError(str(self._closed)))
            return 0
        seq_num = self._calls.next_seq_num()
        size_bytes = wire.APPEND_OVERHEAD_BYTES + len(records)
        outbox = self.outbox
        if channel.version >= our_wire.OUR_VERSION and size_bytes < our_wire.MAX_ENTRY_BYTES:
            gathered = self._gathered
            if gathered and (
                self._gathered_bytes + size_bytes > our_wire.MAX_MANY_BYTES
                or seq_num != self._gathered_from + len(gathered)
            ):
                self._write_gathered(channel)
                gathered = self._gathered
            if not gathered:
                self._gathered_from = seq_num
                self._gathered_s = self._loop.time() - self._stood_still_s
                if outbox is None:
                    self._loop.call_soon(self.flush)
                else:
                    outbox.add(self)
            gathered.append((session_id, partition_id, count, records))
            self._gathered_bytes += our_wire.ENTRY_OVERHEAD_BYTES + len(records)
            position = channel.taken_bytes + our_wire.MANY_OVERHEAD_BYTES + self._gathered_bytes
        else:
            self._write_gathered(channel)
            self._gathered_s = self._loop.time() - self._stood_still_s
            position = channel.taken_bytes + size_bytes
            for piece in wire.encode_append(session_id, seq_num, partition_id, records, count, version=channel.version):
                channel.send(piece, flush_soon=outbox is None)
            if outbox is not None:
                outbox.add(self)
        self._owed.sent(seq_num, size_bytes, position, self._append_timeout_s, self._gathered_s, done)
        if not self._look_timer.running:
            self._look_timer.start(self._look_interval_s)
        return position

    def _write_gathered(self, channel: Channel) -> None:
        if self._gathered:
            frame = our_wire.encode_many(self._gathered_from, self._gathered, self._gathered_bytes)
            self._gathered = []
            self._gathered_bytes = 0
            channel.send(frame, flush_soon=False)

    def flush(self) -> None:
        """Write the appends of this turn."""
        channel, gathered = self._channel, self._gathered
        if channel is None:
            return
        if len(gathered) == 1:
            session_id, partition_id, count, records = gathered.pop()
            self._gathered_bytes = 0
            pieces = wire.encode_append(
                session_id, self._gathered_from, partition_id, records, count, version=channel.version
            )
            channel.send(pieces[0], flush_soon=False)
        elif gathered:
            self._write_gathered(channel)
        channel.flush()

    def transfer(self, position: int) -> Transfer:
        """The progress of the connection up to ``position``. Costs a system call."""
        return self._owed.transfer(position, 0 if self._channel is None else self._channel.left_bytes())

    @property
    def keeps_times(self) -> bool:
        """Whether the storage has a time index. A storage of the original has none."""
        return self._version >= our_wire.OUR_VERSION

    def note_committed(self, session_id: int, partition_id: int, transaction_id: int, time_ms: int) -> None:
        """Report to the storage, if it keeps times, that all transactions up to this one are committed. There is no
        answer.

        All reports in one turn of the loop with one time are one frame.
        """
        if not self.keeps_times or self._closed is not None:
            return
        if not self._noted:
            self._loop.call_soon(self._send_noted)
        self._noted.setdefault(time_ms, []).append(PartitionCommitted(session_id, partition_id, transaction_id))

    def _send_noted(self) -> None:
        noted, self._noted = self._noted, {}
        channel = self._channel
        if channel is None or self._closed is not None:
            return
        self._write_gathered(channel)
        for time_ms, entries in noted.items():
            channel.send(our_wire.encode(CommittedNotice(-1, -1, -1, time_ms, entries), channel.version))

    async def append(
        self, session_id: int, partition_id: int, records: Sequence[Record], *, offline: bool = False, timeout_s: float
    ) -> None:
        """Append records that continue the partition's ids. Returns when they are durable at the node."""
        seq_num = self._calls.next_seq_num()
        request = wire.AppendRequest(session_id, seq_num, partition_id, list(records), offline)
        await self._partition_call(request, wire.SuccessResponse, timeout_s)

    async def last_session_info(
        self, session_id: int, partition_id: int, *, offline: bool = False, timeout_s: float
    ) -> SessionInfo:
        """The persisted session and marks. Fences off every session older than ``session_id``."""
        request = wire.LastSessionInfoRequest(session_id, self._calls.next_seq_num(), partition_id, offline)
        return (await self._partition_call(request, wire.LastSessionInfoResponse, timeout_s)).info

    async def set_low_water_mark(
        self, session_id: int, partition_id: int, mark: int, *, offline: bool = False, timeout_s: float
    ) -> None:
        """Persist the session with ``mark`` as low-water mark and the node's maximum as local low-water mark."""
        request = wire.SetLowWaterMarkRequest(session_id, self._calls.next_seq_num(), partition_id, mark, offline)
        await self._partition_call(request, wire.SuccessResponse, timeout_s)

    async def truncate(
        self, session_id: int, partition_id: int, transaction_id: int, *, offline: bool = False, timeout_s: float
    ) -> int:
        """Remove all records above ``transaction_id``. Returns the new maximum."""
        request = wire.TruncateRequest(session_id, self._calls.next_seq_num(), partition_id, transaction_id, offline)
        return (await self._partition_call(request, wire.MaxTransactionIdResponse, timeout_s)).transaction_id

    async def max_transaction_id(
        self, session_id: int, partition_id: int, *, offline: bool = False, timeout_s: float
    ) -> int:
        """The highest id stored, committed or not; -1 when the partition is empty."""
        request = wire.MaxTransactionIdRequest(session_id, self._calls.next_seq_num(), partition_id, offline)
        return (await self._partition_call(request, wire.MaxTransactionIdResponse, timeout_s)).transaction_id

    async def record_headers(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[RecordHeader]:
        """Headers of ``first``, ``first + 1``, .... There may be more records even after fewer than ``max_count``
        headers."""
        request = wire.RecordHeaderListRequest(session_id, self._calls.next_seq_num(), partition_id, first, max_count)
        headers = (await self._partition_call(request, wire.RecordHeaderListResponse, timeout_s)).record_headers
        self._check_ids(headers, first, max_count)
        return headers

    async def records(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[Record]:
        """Records ``first``, ``first + 1``, ...; empty only when the node does not have ``first``.

        The node may have more records even after fewer than ``max_count``: answers are limited in bytes. Raises
        ``DataCorruptionError`` when a payload does not match its checksum.
        """
        request = wire.RecordListRequest(session_id, self._calls.next_seq_num(), partition_id, first, max_count)
        records = (await self._partition_call(request, wire.RecordListResponse, timeout_s)).records
        self._check_ids(records, first, max_count)
        verify_payloads(records, partition_id, self.endpoint)
        return records

    async def time_entry(
        self, session_id: int, partition_id: int, question: TimeQuestion, value: int, *, timeout_s: float
    ) -> tuple[int, int] | None:
        """A transaction and the time at which it was committed; ``None`` if the storage has no such entry.

        Only for connections with :attr:`keeps_times`.
        """
        request = TimeEntryRequest(session_id, self._calls.next_seq_num(), partition_id, question, value)
        found = await self._partition_call(request, TimeEntryResponse, timeout_s)
        return None if found.transaction_id == NO_TRANSACTION else (found.transaction_id, found.time_ms)

    async def times(
        self, session_id: int, partition_id: int, first: int, max_count: int, *, timeout_s: float
    ) -> list[CommitTime]:
        """Entries of the time index from the transaction ``first`` on, at most ``MAX_TIMES``; fewer than ``max_count``
        and than that: there are no more. For connections that :attr:`keeps_times` only."""
        request = TimeListRequest(session_id, self._calls.next_seq_num(), partition_id, first, max_count)
        return (await self._partition_call(request, TimeListResponse, timeout_s)).times

    async def enter_times(
        self,
        session_id: int,
        partition_id: int,
        times: Sequence[CommitTime],
        *,
        offline: bool = False,
        timeout_s: float,
    ) -> CommitTime | None:
        """Enter times of committed transactions, at most ``MAX_TIMES``; the last entry of the index after that. For
        connections that :attr:`keeps_times` only."""
        request = EnterTimesRequest(session_id, self._calls.next_seq_num(), partition_id, offline, list(times))
        found = await self._partition_call(request, TimeEntryResponse, timeout_s)
        return None if found.transaction_id == NO_TRANSACTION else CommitTime(found.transaction_id, found.time_ms)

    @property
    def trims(self) -> bool:
        """Whether the storage can do without the oldest transactions. A storage of the original cannot."""
        return self._version >= our_wire.OUR_VERSION

    async def trim(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> int:
        """Trim everything before a transaction, at most one segment; the first transaction that the storage still has.
        Only for connections with :attr:`trims`."""
        request = TrimRequest(session_id, self._calls.next_seq_num(), partition_id, transaction_id)
        return (await self._partition_call(request, TrimResponse, timeout_s)).transaction_id

    async def first_within(self, session_id: int, partition_id: int, size_bytes: int, *, timeout_s: float) -> int:
        """The first transaction of the newest segments that have ``size_bytes`` or more together; the first of the log
        if it is smaller. Only for connections with :attr:`trims`."""
        request = SizeRequest(session_id, self._calls.next_seq_num(), partition_id, size_bytes)
        return (await self._partition_call(request, TrimResponse, timeout_s)).transaction_id

    async def begin(
        self, session_id: int, partition_id: int, transaction_id: int, *, offline: bool = False, timeout_s: float
    ) -> None:
        """Begin the log of the storage at a transaction, without records. Only for connections with :attr:`trims`."""
        request = BeginRequest(session_id, self._calls.next_seq_num(), partition_id, transaction_id, offline)
        await self._partition_call(request, TrimResponse, timeout_s)

    # The channel's callbacks

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        owed = self._owed
        now_s = self._loop.time() - self._stood_still_s
        for start, end in bounds:
            succeeded = False
            for (seq_num,) in wire.success_seq_nums(buffer, start, end):
                succeeded = True
                done = owed.answered(seq_num, now_s)
                if done is None:
                    self._calls.resolve(seq_num, wire.SuccessResponse(-1, seq_num, -1))
                    continue
                try:
                    done(None)
                except Exception:
                    self._log_defect()
            if succeeded:
                continue
            message = our_wire.decode(buffer, start, end, channel.version)
            done = owed.answered(message.seq_num, now_s)
            if done is None:
                self._calls.resolve(message.seq_num, message)
            else:
                self._finish(done, self._append_error(message))

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        super().channel_closed(channel, error)
        self._look_timer.stop()
        for done in self._owed.take_waiters():
            self._finish(done, self._closed)
        listeners, self._close_listeners = self._close_listeners, []
        for listener in listeners:
            self._finish(listener, self._closed)

    # Internals

    @staticmethod
    def _finish(callback: Callable[[Exception | None], None], error: Exception | None) -> None:
        try:
            callback(error)
        except Exception:
            StorageClient._log_defect()

    @staticmethod
    def _log_defect() -> None:
        """Log an error of a callback, which must not affect other answers."""
        logger.exception("a callback of the storage client failed")

    def _send(self, channel: Channel, seq_num: int, frame: bytes, limit_s: float) -> None:
        self._write_gathered(channel)
        now_s = self._loop.time() - self._stood_still_s
        self._owed.sent(seq_num, len(frame), channel.taken_bytes + len(frame), limit_s, now_s)
        channel.send(frame)
        self._look_timer.start(min(limit_s, self._look_interval_s))

    def _look(self, stood_still_s: float) -> None:
        """Fail late requests; close a silent connection."""
        channel = self._channel
        if channel is None or channel.closed:
            return
        if stood_still_s:
            # This process stood still, and the answers may have arrived long ago: read them before any judgement.
            # Requests sent in this turn of the loop, before this check, have times of the clock that has gone too far.
            self._stood_still_s += stood_still_s
            set_back_s = self._loop.time() - self._stood_still_s
            self._owed.set_back(set_back_s)
            self._gathered_s = min(self._gathered_s, set_back_s)
            self._look_timer.start(self._look_interval_s)
            return
        now_s = self._loop.time() - self._stood_still_s
        verdict = self._owed.look(
            now_s,
            channel.left_bytes(),
            channel.received_bytes,
            receiving=channel.receiving,
            arriving=wire.seq_num_of(channel.receiving_head(wire.HEAD_BYTES)),
        )
        for seq_num in verdict.late:
            self._fail_late(seq_num)
        if verdict.silent:
            text = f"storage {self.endpoint} was silent for {self._silent_after_s:g} s although it owed answers"
            channel.give_up(DeadlineExceededError(text))
            return
        if verdict.probe:
            self._probe(channel)
        if self._owed and not channel.closed:
            self._look_timer.start(min(max(verdict.next_look_s - now_s, _SHORTEST_LOOK_S), self._look_interval_s))

    def _probe(self, channel: Channel) -> None:
        """Send a question that every storage refuses immediately, even with busy partitions and disks."""
        seq_num = self._calls.next_seq_num()
        self._calls.abandon(seq_num)
        request = wire.MaxTransactionIdRequest(-1, seq_num, NO_PARTITION, False)
        self._write_gathered(channel)
        channel.send(our_wire.encode(request, channel.version))

    def _fail_late(self, seq_num: int) -> None:
        done = self._owed.give_up(seq_num)
        if done is None:
            self._calls.fail(seq_num, DeadlineExceededError(f"storage {self.endpoint} did not answer in time"))
            return
        self._abandon(seq_num)
        text = f"storage {self.endpoint} did not answer an append within {self._append_timeout_s:g} s"
        self._finish(done, DeadlineExceededError(text))

    def _abandon(self, seq_num: int) -> None:
        self._calls.abandon(seq_num)
        if self._calls.owes_too_much and self._channel is not None:
            self._channel.abort(ProtocolError(f"storage {self.endpoint} leaves requests unanswered"))

    async def _partition_call(
        self, request: our_wire.Message, response_type: type[Response], timeout_s: float
    ) -> Response:
        what = f"{type(request).__name__} for partition {request.partition_id}"
        frame = our_wire.encode(request, self._open_channel().version)
        return await self._call(request.seq_num, frame, response_type, what, timeout_s)

    async def _ask(self, seq_num: int, frame: bytes, what: str, timeout_s: float) -> our_wire.Message:
        """Send a request; its deadline is checked together with those of the appends."""
        channel = self._open_channel()
        future = self._calls.expect(seq_num)
        self._send(channel, seq_num, frame, timeout_s)
        try:
            return await self._calls.wait(seq_num, future)
        except DeadlineExceededError:
            text = f"storage {self.endpoint} did not answer {what}: nothing moved for {timeout_s:g} s"
            raise DeadlineExceededError(text) from None
        finally:
            if self._calls.owes_too_much:
                channel.abort(ProtocolError(f"storage {self.endpoint} leaves requests unanswered"))

    def _append_error(self, message: our_wire.Message) -> WaltzError:
        if isinstance(message, wire.FailureResponse):
            return RemoteStorageError(message.error.message or "")
        return self._protocol_error(f"answered an append with {type(message).__name__}")

    def _check_ids(self, items: Sequence[Record | RecordHeader], first: int, max_count: int) -> None:
        """Check the ids of an answer. The answer may have fewer records than requested, but no others."""
        if len(items) > max(max_count, 0):
            raise self._protocol_error(f"sent {len(items)} records where {max_count} were asked for")
        for expected_id, item in enumerate(items, first):
            if item.transaction_id != expected_id:
                raise self._protocol_error(f"sent transaction {item.transaction_id} in the place of {expected_id}")
