"""The admin port: assignment, availability, raw reads and metrics; strictly in order on each connection.

Where the original closes the connection (an id out of range, unassigning what is not assigned), this one answers with
a failure and changes nothing. A message that is no request closes the connection, as in the original.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Sequence
from functools import partial

from waltz.common.errors import DeadlineExceededError, ProtocolError
from waltz.common.exposition import admin_document, to_json
from waltz.common.metrics import Registry
from waltz.common.net.channel import Channel
from waltz.common.tasks import owned
from waltz.common.wire import admin as wire
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire.frames import Bounds
from waltz.storage.errors import ConcurrentUpdateError, PartitionNotAssignedError, StorageError, wire_text
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.replies import read_encoded, read_stored, with_records

logger = logging.getLogger(__name__)

HELLO_TEXT = "Waltz Storage Admin Server"

MAX_QUEUED_REQUESTS = 100
"""A connection with more requests waiting is not read."""

WRITABLE_TIMEOUT_S = 60.0
"""A peer that reads nothing of its answers for so long is disconnected."""

AdminRequest = (
    wire.AdminOpenRequest
    | wire.PartitionAvailableRequest
    | wire.PartitionAssignmentRequest
    | wire.RecordListRequest
    | wire.LastSessionInfoRequest
    | wire.MetricsRequest
    | wire.AssignedPartitionStatusRequest
    | admin_wire.RepairSurveyRequest
    | admin_wire.RepairRecordsRequest
    | admin_wire.RepairCommitRequest
    | admin_wire.RecordRangeRequest
)
_REQUESTS = (
    wire.AdminOpenRequest,
    wire.PartitionAvailableRequest,
    wire.PartitionAssignmentRequest,
    wire.RecordListRequest,
    wire.LastSessionInfoRequest,
    wire.MetricsRequest,
    wire.AssignedPartitionStatusRequest,
    admin_wire.RepairSurveyRequest,
    admin_wire.RepairRecordsRequest,
    admin_wire.RepairCommitRequest,
    admin_wire.RecordRangeRequest,
)
_REPAIR_REQUESTS = (
    admin_wire.RepairSurveyRequest,
    admin_wire.RepairRecordsRequest,
    admin_wire.RepairCommitRequest,
)


class AdminService:
    """Makes the handlers of the admin port's connections and owns the tasks that work for them."""

    def __init__(self, manager: StorageManager, registry: Registry) -> None:
        self._manager = manager
        self._registry = registry
        self._workers: set[asyncio.Task[None]] = set()

    def connection(self) -> "AdminConnection":
        """The handler of a new connection."""
        return AdminConnection(self)

    def start_worker(self, connection: "AdminConnection") -> None:
        """Have the connection's requests executed until it closes."""
        worker = owned(connection.run(), "a connection to the admin port", connection.give_up)
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    def is_of_this_cluster(self, request: wire.AdminOpenRequest) -> bool:
        """Whether who sent it knows the cluster's key and size."""
        return self._manager.check_cluster(request.key, request.partition_count) is None

    async def execute(self, request: AdminRequest, version: int) -> Sequence[bytes]:
        """The frame, in a version of the protocol and in pieces, that answers a request."""
        try:
            if isinstance(request, wire.RecordListRequest):
                return [await self._read_records(request, version)]
            if isinstance(request, admin_wire.RecordRangeRequest):
                return await self._read_range(request)
            return [admin_wire.encode(await self._answer(request), version)]
        except Exception as error:
            if not isinstance(error, StorageError | ConcurrentUpdateError | PartitionNotAssignedError | OSError):
                logger.exception("%s failed for an unforeseen reason", type(request).__name__)
            failure = wire.AdminFailureResponse(request.seq_num, wire.RpcException(wire_text(error)))
            return [admin_wire.encode(failure, version)]

    async def close(self) -> None:
        """Let the requests in execution end. Call it when the connections are closed."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def _read_records(self, request: wire.RecordListRequest, version: int) -> bytes:
        seq_num, partition_id, first, max_count = request
        records = await self._manager.read_log(partition_id, partial(read_encoded, first=first, max_count=max_count))
        return with_records(admin_wire.encode(wire.RecordListResponse(seq_num, partition_id, []), version), records)

    async def _answer(self, request: AdminRequest) -> admin_wire.Message:
        if isinstance(request, _REPAIR_REQUESTS):
            return await self._repair(request)
        return await self._execute(request)

    async def _read_range(self, request: admin_wire.RecordRangeRequest) -> Sequence[bytes]:
        seq_num, partition_id, first, max_count = request
        blocks = await self._manager.read_log(partition_id, partial(read_stored, first=first, max_count=max_count))
        sizes = b"".join(struct.pack(f">{len(block.sizes)}i", *block.sizes) for block in blocks)
        return admin_wire.range_frame(seq_num, partition_id, sizes, [block.data for block in blocks])

    async def _repair(
        self,
        request: admin_wire.RepairSurveyRequest | admin_wire.RepairRecordsRequest | admin_wire.RepairCommitRequest,
    ) -> admin_wire.Message:
        manager, seq_num, partition_id = self._manager, request.seq_num, request.partition_id
        if isinstance(request, admin_wire.RepairSurveyRequest):
            return admin_wire.RepairSurveyResponse(seq_num, partition_id, *await manager.survey(partition_id))
        if isinstance(request, admin_wire.RepairRecordsRequest):
            await manager.stage(partition_id, request.records)
        else:
            await manager.repair(partition_id, request.certain_up_to)
        return wire.AdminSuccessResponse(seq_num)

    async def _execute(self, request: AdminRequest) -> wire.Message:
        manager, seq_num = self._manager, request.seq_num
        if isinstance(request, wire.AdminOpenRequest):
            error = manager.check_cluster(request.key, request.partition_count)
            if error is not None:
                return wire.AdminFailureResponse(-1, wire.RpcException(error.wire_text()))
            return wire.AdminSuccessResponse(-1)
        if isinstance(request, wire.LastSessionInfoRequest):
            info = manager.last_session_info(request.partition_id)
            return wire.LastSessionInfoResponse(seq_num, request.partition_id, info)
        if isinstance(request, wire.MetricsRequest):
            return wire.MetricsResponse(seq_num, to_json(admin_document(self._registry), pretty=True))
        if isinstance(request, wire.AssignedPartitionStatusRequest):
            return wire.AssignedPartitionStatusResponse(seq_num, tuple(manager.assigned_partition_status().items()))
        assert isinstance(request, wire.PartitionAvailableRequest | wire.PartitionAssignmentRequest)
        await self._administer(request)
        return wire.AdminSuccessResponse(seq_num)

    async def _administer(self, request: wire.PartitionAvailableRequest | wire.PartitionAssignmentRequest) -> None:
        if request.partition_ids is None:
            raise StorageError("the list of partitions is missing")
        partition_ids = request.partition_ids
        if isinstance(request, wire.PartitionAvailableRequest):
            await self._manager.set_available(partition_ids, request.available)
            logger.info("partitions %s are %s now", list(partition_ids), "on" if request.available else "off")
        elif request.assigned:
            await self._manager.assign(partition_ids)
            logger.info("partitions %s are assigned to this node now", list(partition_ids))
        else:
            await self._manager.unassign(partition_ids, delete_files=request.delete_files)
            fate = "deleted" if request.delete_files else "kept"
            logger.info("partitions %s are no longer assigned to this node; files %s", list(partition_ids), fate)


class AdminConnection:
    """One connection to the admin port; the ``ChannelHandler`` of its channel."""

    def __init__(self, service: AdminService) -> None:
        self._service = service
        self._channel: Channel | None = None
        self._requests: deque[AdminRequest] = deque()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Execute the requests in order until the connection is gone; then end after the one in execution."""
        while (channel := self._channel) is not None:
            self._changed.clear()
            if not channel.writable and not channel.closed:
                await self._wait_writable(channel)
            elif self._requests:
                request = self._requests.popleft()
                if isinstance(request, wire.AdminOpenRequest) and self._service.is_of_this_cluster(request):
                    channel.allow_large_frames()
                for piece in await self._service.execute(request, channel.version):
                    channel.send(piece)
            else:
                channel.resume_reading()
                await self._changed.wait()

    def give_up(self, error: Exception) -> None:
        """Nobody executes its requests any more."""
        if self._channel is not None:
            self._channel.abort(error)

    async def _wait_writable(self, channel: Channel) -> None:
        channel.pause_reading()
        try:
            async with asyncio.timeout(WRITABLE_TIMEOUT_S):
                await self._changed.wait()
        except TimeoutError:
            channel.abort(DeadlineExceededError(f"the peer read none of its answers for {WRITABLE_TIMEOUT_S:g} s"))
            await self._changed.wait()

    # The channel's callbacks

    def channel_ready(self, channel: Channel) -> None:
        self._channel = channel
        self._service.start_worker(self)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """Every frame is one request."""
        for start, end in bounds:
            message = admin_wire.decode(buffer, start, end, channel.version)
            if not isinstance(message, _REQUESTS):
                raise ProtocolError(f"{type(message).__name__} is not a request")
            self._requests.append(message)
        if len(self._requests) > MAX_QUEUED_REQUESTS:
            channel.pause_reading()
        self._changed.set()

    def channel_writable(self, channel: Channel) -> None:
        self._changed.set()

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        """Requests that were not begun are dropped."""
        self._channel = None
        self._requests.clear()
        self._changed.set()
