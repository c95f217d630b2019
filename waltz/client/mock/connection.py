"""The server's end of a connection to a mock driver."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from waltz.client.mock.partition import MockServerPartition, Uncommitted
from waltz.common.consistency import Consistency, consistency_named, storages_before_commit
from waltz.common.ids import NO_TRANSACTION, ReqId
from waltz.common.net.channel import Channel
from waltz.common.records import Record
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    FeedRequest,
    FlushRequest,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    Message,
    MountRequest,
    MountResponse,
    PartitionState,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    TransactionDataRequest,
    TransactionDataResponse,
    decode_batch,
    encode,
    encode_feed_data,
)
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest, ConfirmedMarkResponse, ConfirmedMarkStatus
from waltz.common.wire.consistency import (
    AppendAck,
    AppendAckRequest,
    AppendLevelRequest,
    ConsistencyRefused,
    PartitionConsistency,
)
from waltz.common.wire.frames import Bounds
from waltz.common.wire.lags import LagsRequest, LagsResponse, PartitionLags
from waltz.common.wire.mark_feed import MarkAdvanced, MarkFeedRequest
from waltz.common.wire.version5 import (
    AppendFailed,
    AppendFailure,
    DataListStatus,
    TransactionDataListRequest,
    TransactionDataListResponse,
)
from waltz.common.wire.versions import FIRST_WITH_APPEND_FAILED, FIRST_WITH_CONSISTENCY, FIRST_WITH_WRITE_SESSION
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    HeartbeatOption,
    HeartbeatRequest,
    HeartbeatResponse,
    HeartbeatState,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
    SessionFlag,
)

_MAX_LIST_COUNT = 10_000
_STORAGE_COUNT = 3


class Faults(Protocol):
    """The faults that a driver has prepared for appends."""

    silent_faults: bool

    @property
    def suspended(self) -> bool:
        """Whether the feed is suspended."""
        ...

    def next_delay_s(self) -> float:
        """Delay of the next append."""
        ...

    def next_append_fails(self) -> bool:
        """Whether the next append gets lost."""
        ...

    def next_lock_fails(self) -> bool:
        """Whether the next append conflicts, independent of its locks."""
        ...


class MockConnection:
    """A ChannelHandler that answers requests in order. A feed, once requested, never ends."""

    def __init__(self, partitions: Sequence[MockServerPartition], faults: Faults) -> None:
        self._partitions = partitions
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._waiting: deque[Message] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._fed: dict[int, int] = {}
        self._told_marks: set[int] = set()
        self._held: list[Message] = []
        self._levels: dict[int, Consistency] = {}
        self._mounts: dict[int, bytes] = {}
        self._told_properties: dict[int, str] = {}
        self._awaited: dict[int, AppendAckRequest] = {}
        self._handlers: Mapping[type[Message], Callable[[Any], None]] = {
            AppendRequest: self._append,
            AppendLevelRequest: self._set_level,
            AppendAckRequest: self._await_all,
            MountRequest: self._mount,
            FeedRequest: self._begin_feed,
            MarkFeedRequest: self._begin_feed,
            FlushRequest: self._flush,
            HighWaterMarkRequest: self._tell_mark,
            ConfirmedMarkRequest: self._tell_confirmed_mark,
            TimeRequest: self._tell_time,
            TransactionDataRequest: self._send_data,
            TransactionDataListRequest: self._send_data_list,
            CheckStorageConnectivityRequest: self._tell_connectivity,
            ServerPartitionsAssignmentRequest: self._tell_assignment,
            ServerPartitionsHealthStatRequest: self._tell_health,
            LagsRequest: self._tell_lags,
            AddPreferredPartitionRequest: self._add_preference,
            RemovePreferredPartitionRequest: self._remove_preference,
            HeartbeatRequest: self._tell_session,
            LastTransactionIdRequest: self._tell_last,
        }

    def channel_ready(self, channel: Channel) -> None:
        self._channel = channel

    def channel_writable(self, channel: Channel) -> None:
        """Memory is always writable."""

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        self._channel = None
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        for partition_id in self._fed:
            self._partitions[partition_id].forget(self._committed)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        self._waiting.extend(decode_batch(buffer, bounds, channel.version))
        if self._timer is None:
            self._go_on()

    def resume_soon(self) -> None:
        """Resume the feed; called on any thread."""
        self._on_loop(self._resume)

    def break_soon(self) -> None:
        """End the connection; called on any thread."""
        self._on_loop(self._break)

    def _on_loop(self, call: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def _break(self) -> None:
        if self._channel is not None:
            self._channel.abort()

    def _resume(self) -> None:
        for partition_id in list(self._fed):
            self._feed(partition_id)
        held, self._held = self._held, []
        for message in held:
            self._stream(message)

    def _go_on(self) -> None:
        self._timer = None
        while self._waiting:
            if isinstance(self._waiting[0], AppendRequest):
                delay_s = self._faults.next_delay_s()
                if delay_s > 0:
                    self._timer = self._loop.call_later(delay_s, self._append_and_go_on)
                    return
            self._handle(self._waiting.popleft())

    def _append_and_go_on(self) -> None:
        self._handle(self._waiting.popleft())
        self._go_on()

    def _send(self, message: Message) -> None:
        if self._channel is not None:
            self._channel.send(encode(message, self._channel.version))

    def _stream(self, message: Message) -> None:
        """Send in the order of the feed."""
        if self._faults.suspended:
            self._held.append(message)
        else:
            self._send(message)

    def _handle(self, message: Message) -> None:
        handle = self._handlers.get(type(message))
        if handle is not None:
            handle(message)

    def _partition_of(self, message: Message) -> MockServerPartition:
        return self._partitions[ReqId(message.req_id).partition_id]

    def _set_level(self, request: AppendLevelRequest) -> None:
        self._levels[ReqId(request.req_id).partition_id] = request.level

    def _await_all(self, request: AppendAckRequest) -> None:
        partition_id = ReqId(request.req_id).partition_id
        self._awaited[partition_id] = request
        self._acknowledge(partition_id)

    def _acknowledge(self, partition_id: int) -> None:
        """Tell what all storages have, when all that was asked for is reached."""
        request = self._awaited.get(partition_id)
        mark = self._partitions[partition_id].mark_of_all
        if request is not None and mark >= request.transaction_id:
            del self._awaited[partition_id]
            self._stream(AppendAck(request.req_id, mark, _STORAGE_COUNT))

    def _tell_property(self, partition: MockServerPartition) -> None:
        """Tell what the partition demands, if the client does not know it."""
        partition_id = partition.partition_id
        if self._knows_levels and self._told_properties.get(partition_id, "leader_quorum") != partition.consistency:
            self._told_properties[partition_id] = partition.consistency
            self._send(PartitionConsistency(self._mounts[partition_id], consistency_named(partition.consistency)))

    @property
    def _knows_levels(self) -> bool:
        return self._channel is not None and self._channel.version >= FIRST_WITH_CONSISTENCY

    def _refusal(self, partition: MockServerPartition, request: AppendRequest) -> ConsistencyRefused | None:
        if not self._knows_levels:
            return None
        self._tell_property(partition)
        return partition.refusal(request, self._level_of(partition))

    def _append(self, request: AppendRequest) -> None:
        partition = self._partition_of(request)
        if (refused := self._refusal(partition, request)) is not None:
            self._stream(refused)
        elif self._faults.next_append_fails():
            if (
                not self._faults.silent_faults
                and self._channel is not None
                and self._channel.version >= FIRST_WITH_APPEND_FAILED
            ):
                mark = partition.high_water_mark
                self._stream(AppendFailed(request.req_id, AppendFailure.NOT_STORED, mark, "by order of the test"))
        elif self._faults.next_lock_fails():
            self._stream(LockFailure(request.req_id, NO_TRANSACTION))
        elif (transaction_id := partition.hold(self._uncommitted(partition, request))) is None:
            self._commit(partition, request)
        elif (needed := storages_before_commit(self._level_of(partition))) is not None:
            self._stream(AppendAck(request.req_id, transaction_id, needed))

    def _commit(self, partition: MockServerPartition, request: AppendRequest) -> None:
        refusal = partition.append(request)
        if refusal is not None and (type(refusal) is LockFailure or self._knows_sessions):
            self._stream(refusal)

    def _uncommitted(self, partition: MockServerPartition, request: AppendRequest) -> Uncommitted:
        """What becomes of an append that is held; called on any thread."""

        def lose() -> None:
            text = "the storage that had it is gone, by order of the test"
            self._stream(AppendFailed(request.req_id, AppendFailure.NOT_STORED, partition.high_water_mark, text))

        return Uncommitted(lambda: self._on_loop(lambda: self._commit(partition, request)), lambda: self._on_loop(lose))

    def _level_of(self, partition: MockServerPartition) -> Consistency:
        return self._levels.get(partition.partition_id, Consistency.LEADER_QUORUM)

    @property
    def _knows_sessions(self) -> bool:
        return self._channel is not None and self._channel.version >= FIRST_WITH_WRITE_SESSION

    def _tell_session(self, request: HeartbeatRequest) -> None:
        partition = self._partition_of(request)
        client_id = ReqId(request.req_id).client_id
        if HeartbeatOption.EXCLUSIVE in request.heartbeat and partition.session_holder != client_id:
            partition.fence(client_id)
        state, number, flags = HeartbeatState.OK, partition.write_session, SessionFlag(0)
        if partition.session_holder is not None:
            flags = SessionFlag.EXCLUSIVE
            if partition.session_holder == client_id:
                flags |= SessionFlag.HELD_BY_YOU
            else:
                state, number = HeartbeatState.HELD_BY_ANOTHER, NO_WRITE_SESSION
        self._stream(HeartbeatResponse(request.req_id, state, partition.high_water_mark, number, flags))

    def _tell_last(self, request: LastTransactionIdRequest) -> None:
        partition = self._partition_of(request)
        status = LastTransactionStatus.OK
        if FenceOption.FENCE in request.fence:
            holder = ReqId(request.req_id).client_id if FenceOption.EXCLUSIVE in request.fence else None
            if partition.fence(holder, request.expected_session) is None:
                status = LastTransactionStatus.UNEXPECTED_SESSION
        mark, number = partition.high_water_mark, partition.write_session
        self._send(LastTransactionIdResponse(request.req_id, status, mark, number))

    def _mount(self, request: MountRequest) -> None:
        partition = self._partition_of(request)
        mark = partition.high_water_mark
        if request.client_high_water_mark > mark:
            self._send(MountResponse(request.req_id, PartitionState.CLIENT_AHEAD))
            return
        partition_id = partition.partition_id
        self._mounts[partition_id] = request.req_id
        for known in (self._levels, self._told_properties, self._awaited):
            known.pop(partition_id, None)
        self._tell_property(partition)
        if self._channel is not None and not self._faults.suspended:
            self._send_feed(self._channel, partition, request.client_high_water_mark)
        self._send(MountResponse(request.req_id, PartitionState.READY))  # also while suspended: appends are still taken

    def _begin_feed(self, request: FeedRequest | MarkFeedRequest) -> None:
        partition = self._partition_of(request)
        if partition.partition_id not in self._fed:
            partition.listen(self._committed)
        self._fed[partition.partition_id] = request.client_high_water_mark
        if type(request) is MarkFeedRequest:
            self._told_marks.add(partition.partition_id)
        else:
            self._told_marks.discard(partition.partition_id)
        self._feed(partition.partition_id)

    def _flush(self, request: FlushRequest) -> None:
        self._stream(FlushResponse(request.req_id, self._partition_of(request).high_water_mark))

    def _tell_mark(self, request: HighWaterMarkRequest) -> None:
        self._send(HighWaterMarkResponse(request.req_id, self._partition_of(request).high_water_mark))

    def _tell_confirmed_mark(self, request: ConfirmedMarkRequest) -> None:
        mark = self._partition_of(request).high_water_mark
        self._send(ConfirmedMarkResponse(request.req_id, ConfirmedMarkStatus.OK, mark))

    def _tell_time(self, request: TimeRequest) -> None:
        found = self._partition_of(request).time_entry(request.question, request.value)
        self._send(TimeResponse(request.req_id, TimeStatus.OK, *found))

    def _send_data(self, request: TransactionDataRequest) -> None:
        self._send(_data(self._partition_of(request), request))

    def _send_data_list(self, request: TransactionDataListRequest) -> None:
        self._send(_data_list(self._partition_of(request), request))

    def _committed(self, partition_id: int) -> None:
        """A transaction was committed, perhaps on another thread."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self._feed(partition_id)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._feed, partition_id)

    def _feed(self, partition_id: int) -> None:
        if self._channel is None or self._faults.suspended:
            return
        send = self._send_mark if partition_id in self._told_marks else self._send_feed
        self._fed[partition_id] = send(self._channel, self._partitions[partition_id], self._fed[partition_id])
        self._acknowledge(partition_id)

    def _send_mark(self, channel: Channel, partition: MockServerPartition, after: int) -> int:
        mark = partition.high_water_mark
        if mark > after:
            told = MarkAdvanced(ReqId.of(-1, -1, partition.partition_id, -1), mark)
            channel.send(encode(told, channel.version))
        return mark

    def _send_feed(self, channel: Channel, partition: MockServerPartition, after: int) -> int:
        records = partition.read(after + 1, 1 << 62)
        if not records:
            return after
        items = [(record.req_id, record.transaction_id, record.header) for record in records]
        channel.send(encode_feed_data(channel.version, items))
        return records[-1].transaction_id

    # Administration

    def _tell_connectivity(self, request: CheckStorageConnectivityRequest) -> None:
        self._send(CheckStorageConnectivityResponse(request.req_id, ()))

    def _tell_assignment(self, request: ServerPartitionsAssignmentRequest) -> None:
        self._send(ServerPartitionsAssignmentResponse(request.req_id, tuple(range(len(self._partitions)))))

    def _tell_health(self, request: ServerPartitionsHealthStatRequest) -> None:
        health = tuple((partition_id, True) for partition_id in range(len(self._partitions)))
        self._send(ServerPartitionsHealthStatResponse(request.req_id, health))

    def _tell_lags(self, request: LagsRequest) -> None:
        lags = [PartitionLags(partition_id, 0, 0, []) for partition_id in range(len(self._partitions))]
        self._send(LagsResponse(request.req_id, lags))

    def _add_preference(self, request: AddPreferredPartitionRequest) -> None:
        self._send(AddPreferredPartitionResponse(request.req_id, True))

    def _remove_preference(self, request: RemovePreferredPartitionRequest) -> None:
        self._send(RemovePreferredPartitionResponse(request.req_id, True))


def _data(partition: MockServerPartition, request: TransactionDataRequest) -> TransactionDataResponse:
    transaction_id = request.transaction_id
    records = partition.read(transaction_id, 1) if transaction_id >= 0 else []
    if not records:
        text = f"transaction {transaction_id} of partition {partition.partition_id} does not exist"
        return TransactionDataResponse(request.req_id, transaction_id, None, 0, text)
    return TransactionDataResponse(request.req_id, transaction_id, records[0].data, records[0].checksum, None)


def _data_list(partition: MockServerPartition, request: TransactionDataListRequest) -> TransactionDataListResponse:
    first_id = request.transaction_id
    records = partition.read(first_id, min(request.max_count, _MAX_LIST_COUNT))
    kept: list[Record] = []
    size_bytes = 0
    for record in records:
        size_bytes += len(record.data)
        if kept and size_bytes > request.max_bytes:
            break
        kept.append(record)
    return TransactionDataListResponse(
        request.req_id, first_id, DataListStatus.OK, partition.high_water_mark, kept, None
    )
