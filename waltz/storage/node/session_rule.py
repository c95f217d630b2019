"""Which requests a partition of a storage node accepts: the session rule and the permission checks.

Pure. When a request is taken up, all checks run, in the original's order. Before the acknowledgement the fence is
checked again (rule S1): a newer session may have sent a request during the sync.
"""

from waltz.common.wire import storage as wire
from waltz.common.wire.fencing import fence_message, offline_fence_message
from waltz.common.wire.storage_times import EnterTimesRequest, TimeEntryRequest, TimeListRequest
from waltz.common.wire.storage_trim import BeginRequest, SizeRequest, TrimRequest
from waltz.storage.disk.control_file import ASSIGNED, AVAILABLE, PartitionInfo
from waltz.storage.errors import ConcurrentUpdateError, StorageError

StorageRequest = (
    wire.LastSessionInfoRequest
    | wire.LastSessionInfoResponse
    | wire.SetLowWaterMarkRequest
    | wire.TruncateRequest
    | wire.AppendRequest
    | wire.SuccessResponse
    | wire.FailureResponse
    | wire.RecordHeaderRequest
    | wire.RecordHeaderResponse
    | wire.RecordRequest
    | wire.RecordResponse
    | wire.MaxTransactionIdRequest
    | wire.MaxTransactionIdResponse
    | wire.RecordHeaderListRequest
    | wire.RecordHeaderListResponse
    | wire.RecordListRequest
    | wire.RecordListResponse
    | TimeEntryRequest
    | TimeListRequest
    | EnterTimesRequest
    | TrimRequest
    | BeginRequest
    | SizeRequest
)
"""All messages that can arrive for a partition: every message but the open request. Responses are refused when taken
up."""

ReadRequest = (
    wire.RecordHeaderRequest
    | wire.RecordRequest
    | wire.RecordHeaderListRequest
    | wire.RecordListRequest
    | TimeEntryRequest
    | TimeListRequest
    | EnterTimesRequest
)
"""What changes no record. Times are entered among reads: they do not wait for the disk's writes and syncs."""

_OfflineRequest = (
    wire.AppendRequest  # the first, since it is the most frequent
    | wire.LastSessionInfoRequest
    | wire.SetLowWaterMarkRequest
    | wire.TruncateRequest
    | wire.MaxTransactionIdRequest
    | EnterTimesRequest
    | BeginRequest
)


_SERVED = ASSIGNED | AVAILABLE


def is_offline(message: StorageRequest) -> bool:
    """Whether the request is of offline recovery. Messages without the flag are not."""
    return isinstance(message, _OfflineRequest) and message.offline


def refusal(
    message: StorageRequest, info: PartitionInfo, session_id: int, *, in_service: bool
) -> StorageError | ConcurrentUpdateError | None:
    """The reason to refuse this request when it is taken up; ``None`` when it is accepted.

    ``info`` is the persisted state, ``session_id`` the current (in-memory) session. ``in_service`` is false after a
    disk failure. Such a partition answers like a partition that an operator has switched off, also to offline recovery.
    """
    if (
        info.flags & _SERVED == _SERVED
        and in_service
        and message.session_id == session_id
        and not (isinstance(message, _OfflineRequest) and message.offline)  # is_offline without the call
    ):
        return None  # the usual case, on the path of every append
    partition_id = message.partition_id
    if not info.assigned:
        return StorageError(f"partition {partition_id} is not assigned to storage node.")
    if not in_service:
        return disabled(partition_id)
    if is_offline(message):
        if info.available:
            return StorageError("cannot run offline recovery while partition is online")
        if message.session_id != info.session_id:
            return StorageError(offline_fence_message(info.session_id, message.session_id))
        return None
    if not info.available:
        return disabled(partition_id)
    return fence(message, session_id)


def fence(message: StorageRequest, session_id: int) -> ConcurrentUpdateError | None:
    """The reason to refuse a request, other than offline recovery, because of its session; or ``None``."""
    if message.session_id == session_id or is_offline(message):
        return None
    return ConcurrentUpdateError(fence_message(session_id, message.session_id))


def overrun(partition_id: int) -> StorageError:
    """The answer to a request without room in the partition's queue."""
    return StorageError(
        f"too many requests for partition={partition_id} wait on storage node; wait for answers before sending more"
    )


def disabled(partition_id: int) -> StorageError:
    """The answer of a partition that is switched off, by an operator or by a disk failure."""
    return StorageError(f"read and write for partition={partition_id} have been disabled on storage node")
