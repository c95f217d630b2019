"""The data port: hands requests to partitions and answers to peers, in bounded memory.

A connection is not read while its peer does not read the answers. Requests without room in the queue of a partition are
refused. The original stops reading the connection instead, and so stalls the other partitions of the connection. An
open request is optional: other requests are served without it.
"""

from collections import deque

from waltz.common.access import EVERYTHING, Access, Right
from waltz.common.errors import DeadlineExceededError, ProtocolError
from waltz.common.net.channel import Channel
from waltz.common.progress_timer import ProgressTimer
from waltz.common.wire import storage as wire
from waltz.common.wire import storage_version1 as our_wire
from waltz.common.wire.frames import Bounds
from waltz.common.wire.storage_times import COMMITTED_NOTICE, EnterTimesRequest, TimeEntryRequest, TimeListRequest
from waltz.common.wire.storage_trim import BeginRequest, SizeRequest, TrimRequest
from waltz.common.wire.structures import RpcException
from waltz.storage.errors import StorageError
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.replies import failure_frame
from waltz.storage.node.request_queue import PartitionRequest
from waltz.storage.node.times import take_notice

HELLO_TEXT = "Waltz Storage Server"

WRITABLE_TIMEOUT_S = 60.0
"""A peer that reads no answer for this time is disconnected."""

_LARGE_BYTES = 64 << 10

_new_tuple = tuple.__new__  # the inner call of a named tuple's constructor, at half the cost


_OUR_REQUESTS = (TimeEntryRequest, TimeListRequest, EnterTimesRequest, TrimRequest, BeginRequest, SizeRequest)
"""What :meth:`DataPort._take_ours` hands to a partition."""


class DataConnection:
    """One connection to the data port; the ``ChannelHandler`` of its channel and the ``Requester`` of its requests."""

    __slots__ = (
        "_access",
        "_channel",
        "_deadline",
        "_held_back",
        "_manager",
        "_noted",
        "_refusal",
        "_rights",
        "_unsent_bytes",
        "_version",
    )

    def __init__(self, manager: StorageManager, access: Access) -> None:
        self._manager = manager
        self._access = access
        self._rights = EVERYTHING
        self._refusal: StorageError | None = None
        self._noted = False
        self._channel: Channel | None = None
        self._version = wire.VERSION
        self._held_back: deque[PartitionRequest] = deque()
        self._deadline = ProgressTimer(self._check_progress)
        self._unsent_bytes = 0

    # The channel's callbacks

    def channel_ready(self, channel: Channel) -> None:
        self._channel = channel
        self._version = channel.version
        self._rights = self._access.rights_of(channel.principal, channel.proof)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds, *, judged: bool = False) -> None:
        """Every frame is one request, the appends of many partitions, or a notice. ``judged``: the permission was
        checked together with other frames of the same read."""
        if self._rights is not EVERYTHING and not judged:
            self._ask_permission(channel, len(bounds))
        if self._version >= our_wire.OUR_VERSION:
            for start, _ in bounds:
                if buffer[start] >= our_wire.APPEND_MANY_REQUEST:
                    self._take_one_by_one(channel, buffer, bounds)
                    return
        for message, (start, end) in zip(wire.decode_batch(buffer, bounds), bounds, strict=True):
            if isinstance(message, wire.OpenRequest):
                self.answer(self._open(message))
            else:
                self._dispatch(_new_tuple(PartitionRequest, (message, buffer[start], end - start, self)))
        self._regulate()

    def _take_one_by_one(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for start, end in bounds:
            if buffer[start] == our_wire.APPEND_MANY_REQUEST:
                self._take_many(buffer, start, end)
            elif buffer[start] > our_wire.APPEND_MANY_REQUEST:
                self._take_ours(buffer, start, end)
            else:
                self.frames_received(channel, buffer, [(start, end)], judged=True)
        self._regulate()

    def _take_many(self, buffer: bytes, start: int, end: int) -> None:
        partitions, kind = self._manager.partitions, wire.APPEND_REQUEST
        for message, size_bytes in our_wire.decode_many(buffer, start, end):
            request = _new_tuple(PartitionRequest, (message, kind, size_bytes, self))
            partition = partitions.get(message.partition_id)
            if partition is None or self._refusal is not None:
                self._dispatch(request)
            else:
                partition.receive(request)

    def _take_ours(self, buffer: bytes, start: int, end: int) -> None:
        """Take a message that version 0 does not have."""
        if buffer[start] == COMMITTED_NOTICE:
            if self._refusal is None:
                take_notice(self._manager.partitions, buffer, start, end)
            return
        message = our_wire.decode(buffer, start, end, self._version)
        if not isinstance(message, _OUR_REQUESTS):
            raise ProtocolError(f"{type(message).__name__} is not a request")
        self._dispatch(PartitionRequest(message, buffer[start], end - start, self))

    def channel_writable(self, channel: Channel) -> None:
        """Continue after the peer has read its answers."""
        self._deadline.stop()
        if self._held_back and self._rights is not EVERYTHING:
            self._ask_permission(channel, len(self._held_back), noted=self._noted)
        while self._held_back and channel.writable:
            self._dispatch(self._held_back.popleft())
        self._regulate()

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        """Queued requests are still executed: the peer cannot know which requests were executed."""
        self._held_back.clear()
        self._channel = None
        self._deadline.stop()

    # The partitions' callbacks

    @property
    def writable(self) -> bool:
        """Whether further large answers may be sent; false for ever after the end of the connection."""
        return self._channel is not None and self._channel.writable

    def answer(self, frame: bytes) -> None:
        """Send a frame of version 0, converted to the version of the connection."""
        channel = self._channel
        if channel is not None:
            if self._version != wire.VERSION:
                if frame[wire.TYPE_AT] == wire.SUCCESS_RESPONSE:
                    frame = our_wire.SUCCESS_HEAD + frame[wire.TYPE_AT + 1 :]
                else:
                    frame = our_wire.with_version(frame, self._version)
            channel.send(frame)
            if not self._deadline.running and (len(frame) > _LARGE_BYTES or not channel.writable):
                self._start_deadline(channel)

    def hold_back(self, request: PartitionRequest) -> None:
        """The memory is bounded, because the connection is not read meanwhile. A closed connection needs no answer."""
        if self._channel is not None:
            self._held_back.append(request)

    # Internals

    def _ask_permission(self, channel: Channel, count: int, *, noted: bool = False) -> None:
        """Check the permission for requests each time: the rights of a peer may change during a connection. ``noted``:
        the audit has already noted the requests that have waited."""
        rights = self._rights
        refusal = rights.refusal(Right.CLUSTER, None, channel.peer, count, noted=noted)
        self._refusal = None if refusal is None else StorageError(refusal)
        self._noted = rights.lenient and not rights.permits(Right.CLUSTER, None)

    def _open(self, message: wire.OpenRequest) -> bytes:
        error = self._refusal or self._manager.check_cluster(message.key, message.partition_count)
        if error is None:
            if self._channel is not None:
                self._channel.allow_large_frames()
            return wire.encode(wire.SuccessResponse(-1, -1, -1))
        return wire.encode(wire.FailureResponse(-1, -1, -1, RpcException(error.wire_text())))

    def _dispatch(self, request: PartitionRequest) -> None:
        if self._refusal is not None:
            self.answer(failure_frame(request.message, self._refusal.wire_text()))
            return
        partition_id = request.message.partition_id
        partition = self._manager.partitions.get(partition_id)
        if partition is None:
            self.answer(failure_frame(request.message, self._manager.absence(partition_id).wire_text()))
            return
        partition.receive(request)

    def _regulate(self) -> None:
        """Start or stop reading from the peer."""
        channel = self._channel
        if channel is None:
            return
        if self._held_back or not channel.writable:
            channel.pause_reading()
        else:
            channel.resume_reading()

    def _start_deadline(self, channel: Channel) -> None:
        self._unsent_bytes = channel.unsent_bytes
        self._deadline.start(WRITABLE_TIMEOUT_S)

    def _check_progress(self, stood_still_s: float) -> None:
        """Close the connection if the peer has read nothing since the last check."""
        channel = self._channel
        if channel is None or channel.writable:
            return
        if stood_still_s or channel.unsent_bytes < self._unsent_bytes:
            self._start_deadline(channel)
            return
        channel.abort(DeadlineExceededError(f"the peer read none of its answers for {WRITABLE_TIMEOUT_S:g} s"))
