"""The admin port: assignment, availability, raw reads and metrics; strictly in order on each connection.

For an id out of range, or the removal of an unassigned partition, the original closes the connection; this port answers
with a failure and changes nothing. A message that is no request closes the connection, as in the original.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from waltz.common.access import EVERYTHING, Access, Action, Proof, Right, Rights
from waltz.common.errors import DeadlineExceededError, ProtocolError
from waltz.common.metrics.exposition import admin_pieces, to_json
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.channel import Channel
from waltz.common.pieces import Pieces
from waltz.common.tasks import owned
from waltz.common.wire import admin as wire
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire.frames import Bounds
from waltz.common.wire.structures import RpcException
from waltz.storage.errors import ConcurrentUpdateError, PartitionNotAssignedError, StorageError, wire_text
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.replies import read_encoded, read_stored, with_records

logger = logging.getLogger(__name__)

HELLO_TEXT = "Waltz Storage Admin Server"

MAX_QUEUED_REQUESTS = 100
"""The largest number of waiting requests of a connection; with more, the connection is not read."""

WRITABLE_TIMEOUT_S = 60.0
"""A peer that reads no answer for this time is disconnected."""

SIGN_OF_LIFE_INTERVAL_S = 5.0
"""Interval of keep-alives during a request. The keep-alives distinguish long work from a dead connection."""

RIGHTS: Mapping[type[admin_wire.Message], Right | None] = {
    wire.AdminOpenRequest: None,
    wire.PartitionAvailableRequest: Right.ADMIN,
    wire.PartitionAssignmentRequest: Right.ADMIN,
    wire.LastSessionInfoRequest: Right.DESCRIBE,
    wire.MetricsRequest: Right.DESCRIBE,
    wire.AssignedPartitionStatusRequest: Right.DESCRIBE,
    wire.RecordListRequest: Right.READ,
    admin_wire.RecordRangeRequest: Right.READ,
    admin_wire.RepairSurveyRequest: Right.ADMIN,
    admin_wire.RepairRecordsRequest: Right.ADMIN,
    admin_wire.RepairCommitRequest: Right.ADMIN,
    admin_wire.DisksRequest: Right.DESCRIBE,
    admin_wire.MoveToDiskRequest: Right.ADMIN,
}
"""The right that each request needs; none is needed to open a connection."""

_NAMES: Mapping[type[admin_wire.Message], str] = {
    admin_wire.RepairSurveyRequest: "survey for a repair",
    admin_wire.RepairRecordsRequest: "stage records of a repair",
    admin_wire.RepairCommitRequest: "repair",
    admin_wire.MoveToDiskRequest: "move to another disk",
}

Answering = Callable[[Any], Coroutine[None, None, admin_wire.Message]]
"""A function that executes a request and returns the answer."""

Reading = Callable[[Any, int], Coroutine[None, None, Sequence[bytes]]]
"""A function that executes a request in the version of the connection, and returns the frame of the answer in
pieces."""


class AdminService:
    """Creates the handlers of the admin port's connections, and owns the tasks that work for them."""

    def __init__(self, manager: StorageManager, registry: Registry, access: Access) -> None:
        self._manager = manager
        self._access = access
        self._registry = registry
        self._pieces = Pieces()
        self._workers: set[asyncio.Task[None]] = set()
        self._answering: dict[type[admin_wire.Message], Answering] = {
            wire.AdminOpenRequest: self._open,
            wire.PartitionAvailableRequest: self._set_available,
            wire.PartitionAssignmentRequest: self._assign,
            wire.LastSessionInfoRequest: self._tell_session,
            wire.MetricsRequest: self._tell_metrics,
            wire.AssignedPartitionStatusRequest: self._tell_assigned,
            admin_wire.RepairSurveyRequest: self._survey,
            admin_wire.RepairRecordsRequest: self._stage,
            admin_wire.RepairCommitRequest: self._repair,
            admin_wire.DisksRequest: self._tell_disks,
            admin_wire.MoveToDiskRequest: self._move_to_disk,
        }
        self._reading: dict[type[admin_wire.Message], Reading] = {
            wire.RecordListRequest: self._read_records,
            admin_wire.RecordRangeRequest: self._read_range,
        }

    def rights_of(self, principal: str, proof: Proof) -> Rights:
        """The rights of a peer."""
        return self._access.rights_of(principal, proof)

    def connection(self) -> "AdminConnection":
        """The handler of a new connection."""
        return AdminConnection(self)

    def start_worker(self, connection: "AdminConnection") -> None:
        """Start a task that executes the connection's requests until it closes."""
        worker = owned(connection.run(), "a connection to the admin port", connection.give_up)
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    def is_of_this_cluster(self, request: wire.AdminOpenRequest) -> bool:
        """Whether the sender has the cluster's key and size."""
        return self._manager.check_cluster(request.key, request.partition_count) is None

    def is_request(self, message: admin_wire.Message) -> bool:
        """Whether :meth:`execute` takes the message."""
        return type(message) in self._answering or type(message) in self._reading

    async def execute(
        self, request: admin_wire.Message, version: int, rights: Rights = EVERYTHING, peer: str = ""
    ) -> Sequence[bytes]:
        """The frame, in a version of the protocol and in pieces, that answers a request of a peer with these rights."""
        right, permitted, error_text = RIGHTS[type(request)], False, "it was interrupted"
        try:
            _check_permission(request, rights, peer)
            permitted = True
            if type(request) in self._reading:
                frames = await self._reading[type(request)](request, version)
            else:
                answer = await self._answering[type(request)](request)
                if isinstance(answer, wire.AssignedPartitionStatusResponse):
                    answer = _shown(answer, rights, peer)
                frames = [admin_wire.encode(answer, version)]
            error_text = ""
            return frames
        except Exception as error:
            if not isinstance(error, StorageError | ConcurrentUpdateError | PartitionNotAssignedError | OSError):
                logger.exception("%s failed for an unforeseen reason", type(request).__name__)
            error_text = wire_text(error)
            failure = wire.AdminFailureResponse(request.seq_num, RpcException(error_text))
            return [admin_wire.encode(failure, version)]
        finally:
            if permitted and right is Right.ADMIN:
                places = [place for place in _places(request) if place is not None]
                rights.acted(Action(_operation(request), right, places, peer, error_text))

    async def close(self) -> None:
        """Wait for the requests in execution. To be called after closing the connections."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def _read_records(self, request: wire.RecordListRequest, version: int) -> Sequence[bytes]:
        seq_num, partition_id, first, max_count = request
        records = await self._manager.read_log(partition_id, partial(read_encoded, first=first, max_count=max_count))
        return [with_records(admin_wire.encode(wire.RecordListResponse(seq_num, partition_id, []), version), records)]

    async def _read_range(self, request: admin_wire.RecordRangeRequest, version: int) -> Sequence[bytes]:
        seq_num, partition_id, first, max_count = request
        blocks = await self._manager.read_log(partition_id, partial(read_stored, first=first, max_count=max_count))
        sizes = b"".join(struct.pack(f">{len(block.sizes)}i", *block.sizes) for block in blocks)
        return admin_wire.range_frame(seq_num, partition_id, sizes, [block.data for block in blocks])

    async def _survey(self, request: admin_wire.RepairSurveyRequest) -> admin_wire.Message:
        seq_num, partition_id = request
        return admin_wire.RepairSurveyResponse(seq_num, partition_id, *await self._manager.survey(partition_id))

    async def _stage(self, request: admin_wire.RepairRecordsRequest) -> wire.Message:
        await self._manager.stage(request.partition_id, request.records)
        return wire.AdminSuccessResponse(request.seq_num)

    async def _repair(self, request: admin_wire.RepairCommitRequest) -> wire.Message:
        await self._manager.repair(request.partition_id, request.certain_up_to)
        return wire.AdminSuccessResponse(request.seq_num)

    async def _tell_disks(self, request: admin_wire.DisksRequest) -> admin_wire.Message:
        uses, moves = await self._manager.plan_rebalance()
        directories: list[Json] = [
            {
                "directory": use.directory,
                "free_bytes": use.free_bytes,
                "partitions": {str(each): size for each, size in use.partitions.items()},
            }
            for use in uses
        ]
        planned: list[Json] = [
            {"partition": move.partition_id, "from": move.source, "to": move.to, "bytes": move.size_bytes}
            for move in moves
        ]
        return admin_wire.DisksResponse(request.seq_num, to_json({"directories": directories, "moves": planned}))

    async def _move_to_disk(self, request: admin_wire.MoveToDiskRequest) -> wire.Message:
        if not request.directory or request.rate_bytes_per_s < 1:
            raise StorageError("the directory or a rate above 0 is missing")
        await self._manager.move_to_disk(request.partition_id, request.directory, request.rate_bytes_per_s)
        return wire.AdminSuccessResponse(request.seq_num)

    async def _open(self, request: wire.AdminOpenRequest) -> wire.Message:
        error = self._manager.check_cluster(request.key, request.partition_count)
        if error is not None:
            return wire.AdminFailureResponse(-1, RpcException(error.wire_text()))
        return wire.AdminSuccessResponse(-1)

    async def _tell_session(self, request: wire.LastSessionInfoRequest) -> wire.Message:
        info = self._manager.last_session_info(request.partition_id)
        return wire.LastSessionInfoResponse(request.seq_num, request.partition_id, info)

    async def _tell_metrics(self, request: wire.MetricsRequest) -> wire.Message:
        return wire.MetricsResponse(request.seq_num, await self._pieces.join(admin_pieces(self._registry)))

    async def _tell_assigned(self, request: wire.AssignedPartitionStatusRequest) -> wire.Message:
        status = tuple(self._manager.assigned_partition_status().items())
        return wire.AssignedPartitionStatusResponse(request.seq_num, status)

    async def _set_available(self, request: wire.PartitionAvailableRequest) -> wire.Message:
        partition_ids = _listed(request.partition_ids)
        await self._manager.set_available(partition_ids, request.available)
        logger.info("partitions %s are %s now", list(partition_ids), "on" if request.available else "off")
        return wire.AdminSuccessResponse(request.seq_num)

    async def _assign(self, request: wire.PartitionAssignmentRequest) -> wire.Message:
        partition_ids = _listed(request.partition_ids)
        if request.assigned:
            await self._manager.assign(partition_ids)
            logger.info("partitions %s are assigned to this node now", list(partition_ids))
        else:
            await self._manager.unassign(partition_ids, delete_files=request.delete_files)
            fate = "deleted" if request.delete_files else "kept"
            logger.info("partitions %s are no longer assigned to this node; files %s", list(partition_ids), fate)
        return wire.AdminSuccessResponse(request.seq_num)


def _check_permission(request: admin_wire.Message, rights: Rights, peer: str) -> None:
    """Raise ``StorageError`` if the peer lacks the right for one of the request's partitions. The audit notes all
    partitions of the request."""
    right = RIGHTS[type(request)]
    if right is None:
        return
    if isinstance(request, wire.AssignedPartitionStatusRequest):
        refusal = rights.refusal_anywhere(right, peer)
        if refusal is not None:
            raise StorageError(refusal)
        return
    refusals = [rights.refusal(right, partition_id, peer) for partition_id in _places(request)]
    for refusal in refusals:
        if refusal is not None:
            raise StorageError(refusal)


def _shown(
    answer: wire.AssignedPartitionStatusResponse, rights: Rights, peer: str
) -> wire.AssignedPartitionStatusResponse:
    """The list without the partitions that the peer may not see."""
    status = dict(answer.partition_status)
    shown = rights.filtered(Right.DESCRIBE, status, "list assigned partitions", peer)
    return answer._replace(partition_status=tuple((partition_id, status[partition_id]) for partition_id in shown))


def _places(request: admin_wire.Message) -> list[int | None]:
    """The partitions of a request; ``None`` for the node."""
    listed: Sequence[int | None] | None = getattr(request, "partition_ids", None)
    return list(dict.fromkeys(listed or [getattr(request, "partition_id", None)]))


def _operation(request: admin_wire.Message) -> str:
    """The name of the requested operation, for the audit log."""
    if isinstance(request, wire.PartitionAvailableRequest):
        return "make partitions available" if request.available else "make partitions unavailable"
    if isinstance(request, wire.PartitionAssignmentRequest):
        if request.assigned:
            return "assign partitions"
        return "unassign partitions and delete their files" if request.delete_files else "unassign partitions"
    return _NAMES[type(request)]


def _listed(partition_ids: tuple[int, ...] | None) -> tuple[int, ...]:
    """The list of a request. On the wire the list may be null: raises ``StorageError`` then."""
    if partition_ids is None:
        raise StorageError("the list of partitions is missing")
    return partition_ids


class AdminConnection:
    """One connection to the admin port; the ``ChannelHandler`` of its channel."""

    def __init__(self, service: AdminService) -> None:
        self._service = service
        self._channel: Channel | None = None
        self._rights = EVERYTHING
        self._requests: deque[admin_wire.Message] = deque()
        self._changed = asyncio.Event()
        self._sign_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Execute the requests in order. After the end of the connection, stop with the present request."""
        while (channel := self._channel) is not None:
            self._changed.clear()
            if not channel.writable and not channel.closed:
                await self._wait_writable(channel)
            elif self._requests:
                request = self._requests.popleft()
                if isinstance(request, wire.AdminOpenRequest) and self._service.is_of_this_cluster(request):
                    channel.allow_large_frames()
                await self._execute(channel, request)
            else:
                channel.resume_reading()
                await self._changed.wait()

    def give_up(self, error: Exception) -> None:
        """Stop the execution of requests."""
        if self._channel is not None:
            self._channel.abort(error)

    async def _execute(self, channel: Channel, request: admin_wire.Message) -> None:
        if channel.version >= admin_wire.OUR_VERSION:  # peers of the original get no keep-alives
            self._sign_later(channel)
        try:
            for piece in await self._service.execute(request, channel.version, self._rights, channel.peer):
                channel.send(piece)
        finally:
            if self._sign_timer is not None:
                self._sign_timer.cancel()

    def _sign_later(self, channel: Channel) -> None:
        loop = asyncio.get_running_loop()
        self._sign_timer = loop.call_later(SIGN_OF_LIFE_INTERVAL_S, self._give_sign, channel)

    def _give_sign(self, channel: Channel) -> None:
        channel.send_keep_alive()
        self._sign_later(channel)

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
        self._rights = self._service.rights_of(channel.principal, channel.proof)
        self._service.start_worker(self)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """Every frame is one request."""
        for start, end in bounds:
            message = admin_wire.decode(buffer, start, end, channel.version)
            if not self._service.is_request(message):
                raise ProtocolError(f"{type(message).__name__} is not a request")
            self._requests.append(message)
        if len(self._requests) > MAX_QUEUED_REQUESTS:
            channel.pause_reading()
        self._changed.set()

    def channel_writable(self, channel: Channel) -> None:
        self._changed.set()

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        """Drop the requests that were not begun."""
        self._channel = None
        self._requests.clear()
        self._changed.set()
