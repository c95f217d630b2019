"""One partition of a storage node: its queue of requests, its session fence, and group commit to its log.

With a journal, common turns of all partitions take up small groups of appends (:meth:`Durability.enlist`). All other
requests are served by two tasks of the partition. The *writer* takes requests in the order of arrival. All consecutive
appends at the head of the queue are one group: one gathered write, one sync, then all acknowledgements. Appends that
arrive meanwhile are the next group, so there is no timer. A large group is written during the sync of the group before,
so that the disk does not wait for encoding and copying. The *reader* answers reads whose result cannot depend on
requests before them in the queue; such reads wait for no sync. All other reads keep their place in the writer's queue.
Every requester gets the same answers as by strict order of arrival.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from waltz.common.records import Record
from waltz.common.tasks import owned
from waltz.common.wire import storage as wire
from waltz.common.wire import storage_version1 as our_wire
from waltz.common.wire.storage_trim import BeginRequest, SizeRequest, TrimRequest, TrimResponse
from waltz.common.wire.structures import SessionInfo
from waltz.storage.disk.control_file import ControlFile, PartitionInfo
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.log import PartitionLog, Prepared
from waltz.storage.disk.segment.scan import SegmentScan
from waltz.storage.errors import (
    ConcurrentUpdateError,
    OverCapacityError,
    PartitionNotAssignedError,
    ReadOnlyError,
    StorageError,
    UnknownRequestError,
    wire_text,
)
from waltz.storage.node import session_rule
from waltz.storage.node.durability import Durability, local_low_water_mark
from waltz.storage.node.partition_metrics import PartitionMetrics
from waltz.storage.node.replies import answer_read, failure_frame, last_requested_id
from waltz.storage.node.request_queue import PartitionRequest, QueueLimits, RequestQueue
from waltz.storage.node.session_rule import ReadRequest

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost

MAX_READ_BYTES_AT_ONCE = 8 << 20
"""The reader ends its turn when one answer, or the records that were read for the answer, reach this size."""

MAX_UNSYNCED_GROUPS = 2
"""The largest number of groups that are written, or being written, and not yet durable."""


class _Group(NamedTuple):
    """Appends that become durable together."""

    requests: list[PartitionRequest]
    prepared: Prepared
    started_s: float


class _Taken(NamedTuple):
    """Appends that a turn of the journal has taken up."""

    requests: list[PartitionRequest]
    started_s: float


class Sleeper:
    """The sleep of a task without work. The supplier of work wakes the task; several wake-ups count as one."""

    __slots__ = ("_loop", "_sleeping")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # a question for the running loop costs a system call each time
        self._sleeping: asyncio.Future[None] | None = None

    async def sleep(self) -> None:
        """Return after the next :meth:`wake`. Called immediately after a task has found no work, without an ``await``
        in between."""
        self._sleeping = self._loop.create_future()
        await self._sleeping

    def wake(self) -> None:
        """Wake the task, if it sleeps. A task that does not sleep looks for work before it falls asleep."""
        if self._sleeping is not None and not self._sleeping.done():
            self._sleeping.set_result(None)


class StoragePartition:
    """Serves one assigned partition until it is closed. All methods belong to the event loop's thread."""

    def __init__(
        self,
        partition_id: int,
        log: PartitionLog,
        control_file: ControlFile,
        fence_file: FenceFile,
        files: Files,
        durability: Durability,
        metrics: PartitionMetrics,
        *,
        busy: set[int],
        reading: asyncio.Semaphore,
        on_suspicion: Callable[[], None],
        limits: QueueLimits,
    ) -> None:
        """Take over an open log; the partition closes it. Serves nothing before :meth:`start`.

        ``busy`` has the partitions of the node with waiting requests; this partition adds and removes itself.
        ``reading`` limits the number of partitions of the node that read at the same time. ``on_suspicion`` is called
        when a read has met damage of unknown extent, which a scan has to find.
        """
        self.partition_id = partition_id
        self._log = log
        self._control_file = control_file
        self._fence_file = fence_file
        self._files = files
        self._durability = durability
        self._metrics = metrics
        self._fenced_session_id = max(control_file.partition(partition_id).session_id, fence_file.get(partition_id))
        self._session_id = self._fenced_session_id
        self._failure: str | None = None
        self._dead: str | None = None
        self.queue = RequestQueue(limits)
        """The requests that wait."""
        self._overrun = False
        self._unfinished_truncates = 0
        self._not_appended_here = log.max_transaction_id
        self._writing = False
        """Whether requests are being carried out, or a turn of the journal will take up the waiting requests."""
        self._gathered: _Taken | None = None
        self._max_gathered_bytes = durability.max_gathered_bytes
        self._apart = False
        self._unsynced: deque[_Group] = deque()
        self._syncer: asyncio.Task[None] | None = None
        self._maintenance: deque[tuple[Callable[[], object], asyncio.Future[object]]] = deque()
        self._busy = busy
        self._reading = reading
        self._on_suspicion = on_suspicion
        self._writer = Sleeper()
        self._reader = Sleeper()
        self._calls_begun_s: dict[object, float] = {}
        self._closing = False
        self.suspended = False
        """Whether requests are kept for a successor; see :meth:`suspend`."""
        self._noted: tuple[int, int, int] | None = None
        """The last report of the owner since the partition was suspended."""
        self._tasks: list[asyncio.Task[None]] = []
        metrics.watch_partition(lambda: len(self.queue), lambda: self.max_transaction_id)
        metrics.watch_log(log)

    def start(self) -> None:
        """Begin to serve."""
        self._tasks = [
            owned(self._run_writer(), f"the writer of partition {self.partition_id}", self._died),
            owned(self._run_reader(), f"the reader of partition {self.partition_id}", self._died),
        ]

    # State

    @property
    def failure(self) -> str | None:
        """The reason why the partition is out of service (a failed write or sync, or a defect), or ``None``.

        Lasts until the partition is opened again.
        """
        return self._failure or self._log.read_only_reason

    @property
    def waiting_for_disk_s(self) -> float:
        """The duration so far of the oldest unfinished read or write of files."""
        begun_s = next(iter(self._calls_begun_s.values()), None)
        return 0.0 if begun_s is None else self._metrics.clock() - begun_s

    @property
    def info(self) -> PartitionInfo:
        """The persisted session, marks and flags."""
        return self._control_file.partition(self.partition_id)

    @property
    def max_transaction_id(self) -> int:
        """The highest id that is stored and synced; -1 when empty."""
        return self._log.max_transaction_id

    @property
    def has_grown(self) -> bool:
        """Whether the log ends with records that were appended since the partition was opened."""
        return self._log.max_transaction_id > self._not_appended_here

    @property
    def log(self) -> PartitionLog:
        """The log. Only the partition changes it."""
        return self._log

    @property
    def damaged_ranges(self) -> tuple[tuple[int, int], ...]:
        """First and last ids of records known to be damaged."""
        return self._log.damage.ranges

    # Requests

    def receive(self, request: PartitionRequest) -> None:
        """Queue a request. Exactly one answer or ``hold_back`` follows. The fence rises immediately (session rule).

        A request without room in the queue is refused.
        """
        message = request.message
        if self._closing and not self.suspended:
            request.requester.answer(failure_frame(message, wire_text(PartitionNotAssignedError(self.partition_id))))
            return
        if self._dead is not None:
            request.requester.answer(failure_frame(message, self._dead))
            return
        if message.session_id > self._session_id:
            self._session_id = message.session_id
        is_append = type(message) is wire.AppendRequest  # most are: a look into the union of reads costs more
        overtakes = not is_append and isinstance(message, ReadRequest) and self._may_overtake(message)
        if not self.queue.offer(request, self.queue.reads if overtakes else self.queue.ordered):
            self._turn_away(request)
            return
        if isinstance(message, wire.TruncateRequest):
            self._unfinished_truncates += 1
        if self._closing:
            return  # kept for the successor
        self._busy.add(self.partition_id)
        if overtakes:
            self._reader.wake()
        elif not self._writing and not (self._max_gathered_bytes and self._enlist()):
            self._writer.wake()

    def note_committed(self, session_id: int, transaction_id: int, time_ms: int) -> None:
        """Add to the time index that all transactions up to this one were committed at a time, as reported by the owner
        of a session."""
        if self.suspended:
            self._noted = session_id, transaction_id, time_ms
        if session_id == self._session_id and transaction_id <= self._log.max_transaction_id:
            self._log.times.add(transaction_id, time_ms)

    async def set_available(self, available: bool) -> None:
        """Persist whether servers may use the partition. Raises ``OSError``."""
        await self._change(partial(self._control_file.set_available, self.partition_id, available))

    async def set_assigned(self) -> None:
        """Persist that the partition belongs to this node. Raises ``OSError``."""
        await self._change(partial(self._control_file.set_assigned, self.partition_id, True))

    async def read_log(self, read: Callable[[PartitionLog], Result]) -> Result:
        """The result of ``read``, which may block, for the log; without queue, session and availability. For the admin
        port.

        Raises ``StorageError`` (corruption), ``OSError``, ``PartitionNotAssignedError``.
        """
        if self._closing:
            raise PartitionNotAssignedError(self.partition_id)
        try:
            return await self._look(partial(read, self._log))
        finally:
            self._report_suspicion()

    async def scan_step(self, scan: SegmentScan) -> bool:
        """Check the next piece of a segment; return whether it was the last one. Raises ``StorageError`` (closed),
        ``OSError``."""
        return await self._look(partial(self._log.damage.scan_step, scan))

    async def finish_scan(self, scan: SegmentScan) -> bool:
        """Take over the findings of a scan, in the writer's turn. Returns false when a truncation made the findings
        worthless.

        Raises ``StorageError`` when the partition is closed or read-only, ``OSError``.
        """
        if self._closing or self._dead is not None or not self._tasks:
            raise PartitionNotAssignedError(self.partition_id)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._maintenance.append((partial(self._log.damage.finish_scan, scan), future))
        self._writer.wake()
        return bool(await future)

    async def close(self) -> None:
        """End after the write in flight, answer queued requests as not assigned, close the log.

        Raises ``OSError`` when the last sync of the log fails.
        """
        await self._end()
        self._dismiss()
        await self._durability.close(self._log)

    async def suspend(self) -> None:
        """End after the write in flight, and close the log, but keep all requests, also new ones, for
        :meth:`hand_over`, which has to follow.

        Raises ``OSError`` when the last sync of the log fails.
        """
        self.suspended = True
        self._calls_begun_s["suspended"] = self._metrics.clock()  # a disk that hangs is told
        await self._end()
        await self._durability.close(self._log)

    def hand_over(self, successor: "StoragePartition | None") -> None:
        """Give the kept requests to the partition that serves the log from now on; ``None``: answer them as not
        assigned.

        Reads that may be served at once come first, as they would have here.
        """
        self.suspended = False
        del self._calls_begun_s["suspended"]
        if successor is None:
            self._dismiss()
            return
        reads = list(self.queue.reads)
        for request in [*reads, *self.queue.take_all()[: -len(reads) or None]]:
            successor.receive(request)
        if self._noted is not None:
            successor.note_committed(*self._noted)

    async def _end(self) -> None:
        self._closing = True
        self._writer.wake()
        self._reader.wake()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._syncer is not None:
            await asyncio.wait((self._syncer,))
        self._busy.discard(self.partition_id)
        for _function, future in self._maintenance:
            if not future.done():
                future.set_exception(PartitionNotAssignedError(self.partition_id))

    def _dismiss(self) -> None:
        not_assigned = wire_text(PartitionNotAssignedError(self.partition_id))
        for request in self.queue.take_all():
            request.requester.answer(failure_frame(request.message, not_assigned))

    def _turn_away(self, request: PartitionRequest) -> None:
        """Refuse a request immediately when the queue is full: other partitions share the connection and continue
        (L4)."""
        if not self._overrun:
            self._overrun = True
            logger.warning(
                "partition %d: requests are refused, because %d are waiting already; a client sends without waiting for"
                " answers, or the disk is much too slow",
                self.partition_id,
                len(self.queue),
            )
        request.requester.answer(failure_frame(request.message, session_rule.overrun(self.partition_id).wire_text()))

    def _may_overtake(self, message: ReadRequest) -> bool:
        """Whether the published log already has the answer that this read would get in its place in the queue.

        The session of the read must be settled: the writer first syncs the fence of a newer session. In addition,
        either no request is before the read, or all requested records are published and no request before the read
        removes records.
        """
        if message.session_id != self._session_id or self._session_id != self._fenced_session_id:
            return False
        if not self.queue.ordered and not self._writing and not self._unsynced:
            return True
        return self._unfinished_truncates == 0 and last_requested_id(message) <= self._log.max_transaction_id

    # Turns for many partitions

    def _enlist(self) -> bool:
        """Whether the next turn of the journal takes up the waiting appends."""
        if self._maintenance or not self._may_be_gathered() or not self._durability.enlist(self):
            return False
        self._writing = True
        return True

    def _may_be_gathered(self) -> bool:
        """Whether small appends come next, and no other work has to be done before them."""
        return (
            self.queue.has_small_group(self._max_gathered_bytes)
            and self._fenced_session_id == self._session_id
            and not self._apart
            and not self._unsynced
            and not self._closing
            and self._dead is None
        )

    def take_up(self) -> tuple[list[list[Record]], int] | None:
        try:
            requests = self._accepted(self.queue.take_group()) if self._may_be_gathered() else []
        except Exception as error:
            self._died(error)
            requests = []
        if not requests:
            self.release()
            return None
        started_s = self._metrics.clock()
        self._gathered = _new_tuple(_Taken, (requests, started_s))
        self._calls_begun_s["append"] = started_s
        return _batches(requests), sum([request.size_bytes for request in requests])

    def ended(self, prepared: Prepared | None, error: Exception | None) -> None:
        taken, self._gathered = self._gathered, None
        assert taken is not None, "it was taken up"
        del self._calls_begun_s["append"]
        try:
            if error is not None:
                self._not_written(taken.requests, error)
            elif prepared is None:
                self.queue.put_back(taken.requests)
                self._apart = True
            else:
                self._publish(_new_tuple(_Group, (taken.requests, prepared, taken.started_s)))
        except Exception as defect:
            self._died(defect)
        self.release()

    def release(self) -> None:
        self._writing = False
        if self.queue.ordered or self._maintenance or self._closing:
            if not self._enlist():
                self._writer.wake()
        else:
            self._overrun = False
            if not self.queue.reads:
                self._busy.discard(self.partition_id)

    # The writer

    async def _run_writer(self) -> None:
        while not self._closing:
            if self._writing or (self._max_gathered_bytes and self._enlist()):
                await self._writer.sleep()  # a turn for many partitions does the work
                continue
            if self._unsynced and not self._may_write_ahead():
                await self._writer.sleep()
                continue
            if self._maintenance:
                await self._maintain()
                continue
            if not self.queue.ordered:
                self._overrun = False
                if not self.queue.reads and not self._unsynced:
                    self._busy.discard(self.partition_id)
                await self._writer.sleep()
                continue
            self._writing = True
            if self._fenced_session_id < self._session_id:
                await self._settle_fence()
            ahead = self.queue.has_large_group
            group = self.queue.take_group()
            self._apart = False
            first = group[0]
            if isinstance(first.message, wire.AppendRequest):
                await self._append(group, ahead=ahead)
            else:
                await self._execute(first)
                if isinstance(first.message, wire.TruncateRequest):
                    self._unfinished_truncates -= 1
            self._writing = False
            if self.queue.ordered:
                await asyncio.sleep(0)  # the event loop may have waited for the disk: let other tasks run
        await self._all_synced()

    def _may_write_ahead(self) -> bool:
        """Whether a large group of appends comes next, which need not wait for the sync of the group before.

        No group is written behind a group that begins another segment, because such a group is not written ahead.
        """
        return (
            len(self._unsynced) < MAX_UNSYNCED_GROUPS
            and self._unsynced[-1].prepared.view is not None
            and not self._maintenance
            and self.queue.has_large_group
        )

    async def _maintain(self) -> None:
        function, future = self._maintenance.popleft()
        self._writing = True
        try:
            result = await self._change(function)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
        self._writing = False

    async def _settle_fence(self) -> None:
        """Make the fence durable before the first answer to the session that raised it (rule S1)."""
        while self._fenced_session_id < self._session_id and self.failure is None:
            session_id = self._session_id
            try:
                raise_fence = partial(self._durability.raise_fence, self._fence_file, self.partition_id, session_id)
                await self._timed(raise_fence)
            except Exception as error:
                self._fail(error)
                return
            self._fenced_session_id = session_id

    async def _execute(self, request: PartitionRequest) -> None:
        """Carry out a request that is no append, and answer it in any case."""
        accepted = self._accepted([request])
        if not accepted:
            return
        if isinstance(request.message, ReadRequest):
            await self._read(accepted)
            return
        try:
            frames = [await self._perform(request)]
        except Exception as error:
            frames = self._failure_frames(accepted, error)
        self._acknowledge(accepted, frames)

    def _accepted(self, requests: Sequence[PartitionRequest]) -> list[PartitionRequest]:
        """Check requests that are taken up together: answer refused requests, and return the others."""
        info, session_id = self._control_file.partition(self.partition_id), self._session_id
        in_service = self._failure is None and self._log.read_only_reason is None
        accepted = []
        for request in requests:
            error = session_rule.refusal(request.message, info, session_id, in_service=in_service)
            if error is None:
                accepted.append(request)
            else:
                request.requester.answer(failure_frame(request.message, error.wire_text()))
        return accepted

    def _failure_frames(self, requests: Sequence[PartitionRequest], error: Exception) -> list[bytes]:
        if not isinstance(error, StorageError | ConcurrentUpdateError | UnknownRequestError | OSError):
            logger.error("partition %d: a request failed for an unforeseen reason", self.partition_id, exc_info=error)
        return [failure_frame(request.message, wire_text(error)) for request in requests]

    def _acknowledge(self, requests: Sequence[PartitionRequest], frames: Sequence[bytes]) -> None:
        """Answer executed requests, unless a newer session has sent a request meanwhile (rule S1)."""
        session_id = self._session_id
        for request, frame in zip(requests, frames, strict=True):
            answer, message = frame, request.message
            if message.session_id != session_id:
                error = session_rule.fence(message, session_id)
                if error is not None:
                    answer = failure_frame(message, error.wire_text())
            request.requester.answer(answer)

    async def _append(self, group: list[PartitionRequest], *, ahead: bool) -> None:
        """Make a group of appends durable and answer each append in any case, or leave both to the syncer."""
        requests = self._accepted(group)
        if not requests:
            return
        started_s = self._metrics.clock()
        size_bytes = sum([request.size_bytes for request in requests])
        after = self._unsynced[-1].prepared if self._unsynced else None
        self._calls_begun_s["append"] = started_s  # the same as _timed, without its cost for each append
        try:
            prepared = await self._durability.write(self._log, _batches(requests), size_bytes, ahead=ahead, after=after)
        except Exception as error:
            self._not_written(requests, error)
            return
        finally:
            del self._calls_begun_s["append"]
        written = _new_tuple(_Group, (requests, prepared, started_s))
        if not ahead:
            self._publish(written)
            return
        self._unsynced.append(written)
        if self._syncer is None:
            self._syncer = owned(self._run_syncer(), f"the syncer of partition {self.partition_id}", self._syncer_died)

    def _publish(self, durable: _Group) -> None:
        """Show a durable group to readers, and answer the appends of the group."""
        self._log.publish(durable.prepared)
        frames = []
        for request, refused in zip(durable.requests, durable.prepared.errors, strict=True):
            message = request.message
            if refused is None:
                frames.append(wire.encode_success(message.session_id, message.seq_num, message.partition_id))
            else:
                frames.append(failure_frame(message, refused.wire_text()))
        self._metrics.appended(len(frames), durable.started_s, durable.prepared.sync_s)
        self._acknowledge(durable.requests, frames)

    async def _run_syncer(self) -> None:
        """Sync the groups that were written ahead, one after the other, until none is left."""
        while self._unsynced:
            written = self._unsynced[0]
            try:
                await self._timed(partial(self._durability.sync, self._log, written.prepared))
            except Exception as error:
                self._not_written(written.requests, error)
            else:
                self._publish(written)
            self._unsynced.popleft()
            self._writer.wake()
        self._syncer = None

    def _not_written(self, requests: Sequence[PartitionRequest], error: Exception) -> None:
        """Answer appends whose write or sync has failed. Appends that failed because of an earlier group are
        refused."""
        if not isinstance(error, OverCapacityError):
            self._fail(error)
        if isinstance(error, ReadOnlyError):
            requests = self._accepted(requests)
        self._acknowledge(requests, self._failure_frames(requests, error))

    async def _all_synced(self) -> None:
        while self._unsynced or self._writing:
            await self._writer.sleep()

    async def _perform(self, request: PartitionRequest) -> bytes:
        """Carry out a request that is neither an append nor a read; return the answer."""
        message = request.message
        self._metrics.count(message)
        ids = message[:3]
        answer: wire.Message
        match message:
            case wire.LastSessionInfoRequest():
                info = self.info
                session_info = SessionInfo(info.session_id, info.low_water_mark, info.local_low_water_mark)
                answer = wire.LastSessionInfoResponse(*ids, session_info)
            case wire.MaxTransactionIdRequest():
                answer = wire.MaxTransactionIdResponse(*ids, self._log.max_transaction_id)
            case wire.TruncateRequest(transaction_id=last):
                maximum = await self._timed_change(partial(self._durability.truncate, self._log, last))
                self._not_appended_here = min(self._not_appended_here, maximum)
                answer = wire.MaxTransactionIdResponse(*ids, maximum)
            case wire.SetLowWaterMarkRequest(low_water_mark=mark):
                directly = partial(self._set_low_water_mark, message.session_id, mark)
                set_mark = partial(self._durability.set_low_water_mark, self._control_file, self._log)
                await self._timed_change(partial(set_mark, message.session_id, mark, directly))
                answer = wire.SuccessResponse(*ids)
            case TrimRequest(transaction_id=first):
                self._check_trim(first)
                change = partial(self._log.trim, first)
                first = await self._timed_change(partial(self._durability.trim, self._log, change))
                return our_wire.encode(TrimResponse(*ids, first), our_wire.OUR_VERSION)
            case SizeRequest(size_bytes=size_bytes):
                found = self._log.first_within(size_bytes)
                return our_wire.encode(TrimResponse(*ids, found), our_wire.OUR_VERSION)
            case BeginRequest(transaction_id=first):
                begin = partial(self._log.begin, first)
                await self._timed_change(partial(self._durability.trim, self._log, begin))
                return our_wire.encode(TrimResponse(*ids, first), our_wire.OUR_VERSION)
            case _:
                raise UnknownRequestError(request.kind)
        return wire.encode(answer)

    def _check_trim(self, first: int) -> None:
        """Refuse to trim transactions that may not be committed. Raises ``StorageError``."""
        mark = self.info.low_water_mark
        if first > mark + 1:
            raise StorageError(f"the low-water mark is {mark}: transactions up to {first - 1} may not be trimmed")

    def _set_low_water_mark(self, session_id: int, low_water_mark: int) -> None:
        """Make the log durable, then the marks; blocking."""
        maximum = local_low_water_mark(self._log, low_water_mark)
        self._log.flush()
        self._control_file.set_low_water_mark(self.partition_id, session_id, low_water_mark, maximum)

    # The reader

    async def _run_reader(self) -> None:
        while not self._closing:
            if not self.queue.reads:
                if not self.queue.ordered and not self._writing and not self._unsynced:
                    self._busy.discard(self.partition_id)
                await self._reader.sleep()
                continue
            batch = self._accepted(self.queue.take_reads())
            while batch:
                batch = await self._read(batch)

    async def _read(self, batch: list[PartitionRequest]) -> list[PartitionRequest]:
        """Answer reads that were taken up. Returns the reads that did not fit into the bytes of one turn.

        The check whether a peer reads its answers comes after a thread is free. Otherwise all partitions of the node
        would find the peer ready at the same moment, and each would read a whole turn for a peer that soon stops
        reading.
        """
        async with self._reading:
            ready = []
            for request in batch:
                if request.requester.writable:
                    ready.append(request)
                else:
                    request.requester.hold_back(request)
            if not ready:
                return []
            try:
                frames = await self._look(partial(self._read_frames, ready))
            except Exception as error:
                frames = self._failure_frames(ready, error)
            self._report_suspicion()
            answered = ready[: len(frames)]
            for request in answered:
                self._metrics.count(request.message)
            self._acknowledge(answered, frames)  # the next partition sees the unsent bytes then
        return ready[len(frames) :]

    def _read_frames(self, requests: list[PartitionRequest]) -> list[bytes]:
        """Make at least one answer, and as many as the bytes of one turn allow. Blocking."""
        frames: list[bytes] = []
        size_bytes = 0
        for request in requests:
            assert isinstance(request.message, ReadRequest)
            answer = answer_read(self._log, request.message)
            frames.append(answer.frame)
            size_bytes += answer.size_bytes
            if size_bytes >= MAX_READ_BYTES_AT_ONCE:
                break
        return frames

    def _report_suspicion(self) -> None:
        if self._log.damage.has_suspects:
            self._on_suspicion()

    # Changes and their failure

    async def _change(self, function: Callable[[], Result]) -> Result:
        """Run a blocking change to the log or the control file. A failure of the disk puts the partition out of
        service."""
        return await self._timed_change(partial(self._durability.change, self.partition_id, function))

    async def _timed_change(self, begin: Callable[[], Awaitable[Result]]) -> Result:
        """Wait for a change of files. A failure of the disk puts the partition out of service."""
        try:
            return await self._timed(begin)
        except (OSError, ReadOnlyError) as error:
            self._fail(error)
            raise

    async def _look(self, function: Callable[[], Result]) -> Result:
        """Run a blocking function that reads files."""
        return await self._timed(partial(self._files.run_read, function))

    async def _timed(self, begin: Callable[[], Awaitable[Result]]) -> Result:
        """Wait for the disk, and count the time for :attr:`waiting_for_disk_s`."""
        call = object()
        self._calls_begun_s[call] = self._metrics.clock()
        try:
            return await begin()
        finally:
            del self._calls_begun_s[call]

    def _fail(self, error: Exception) -> None:
        """Stop serving. After a failed write or sync the state of the files is unknown, and no sync is tried again."""
        if self._failure is None:
            self._failure = str(error)
            logger.critical(
                "partition %d is out of service, because a write or sync of its files failed (%s): check the disk, and"
                " make room if it is full; then run waltz storage sync-partitions; other replicas serve it meanwhile",
                self.partition_id,
                error,
            )

    def _syncer_died(self, error: Exception) -> None:
        self._unsynced.clear()
        self._syncer = None
        self._died(error)

    def _died(self, error: Exception) -> None:
        """A task has ended by a defect. Waiting requests are answered, and so are all further requests until the
        partition is closed.

        Requests in execution get no answer, because they may have got one; their requesters have a deadline.
        """
        self._dead = f"partition {self.partition_id} is out of service because of a defect: {error!r}"
        if self._failure is None:
            self._failure = self._dead
            logger.critical(
                "%s; run waltz storage sync-partitions to open it anew; its other replicas serve it meanwhile",
                self._dead,
            )
        for _function, future in self._maintenance:
            if not future.done():
                future.set_exception(StorageError(self._dead))
        self._maintenance.clear()
        for request in self.queue.take_all():
            request.requester.answer(failure_frame(request.message, self._dead))
        self._busy.discard(self.partition_id)
        self._writer.wake()


def _batches(requests: Sequence[PartitionRequest]) -> list[list[Record]]:
    return [request.message.records for request in requests if isinstance(request.message, wire.AppendRequest)]
