"""Which requests a partition of a storage node accepts: the session rule and the permission checks.

Pure. The checks run when a request is taken up (all of them, in the original's order), and the fence once more when
it is acknowledged (rule S1): a newer session may have spoken while the disk was syncing.
"""

from waltz.common.wire import storage as wire
from waltz.common.wire.fencing import fence_message, offline_fence_message
from waltz.common.wire.storage_times import EnterTimesRequest, TimeEntryRequest, TimeListRequest
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
)
"""Whatever can arrive for a partition: every message but the open request. Responses are refused when taken up."""

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
    wire.LastSessionInfoRequest
    | wire.SetLowWaterMarkRequest
    | wire.TruncateRequest
    | wire.AppendRequest
    | wire.MaxTransactionIdRequest
    | EnterTimesRequest
)


_SERVED = ASSIGNED | AVAILABLE


def is_offline(message: StorageRequest) -> bool:
    """Whether offline recovery asks; messages that cannot carry the flag are not offline."""
    return isinstance(message, _OfflineRequest) and message.offline


def refusal(
    message: StorageRequest, info: PartitionInfo, session_id: int, *, in_service: bool
) -> StorageError | ConcurrentUpdateError | None:
    """Why the partition does not take up this request, or ``None`` when it does.

    ``info`` is the persisted state, ``session_id`` the current (in-memory) session. ``in_service`` is false after a
    disk failure: such a partition answers as one that an operator switched off, offline recovery included.
    """
    if (
        info.flags & _SERVED == _SERVED
        and in_service
        and message.session_id == session_id
        and not (isinstance(message, _OfflineRequest) and message.offline)  # is_offline without the call
    ):
        return None  # the usual case, part of every append
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
    """Why a request that is not offline is refused because of its session, or ``None``."""
    if message.session_id == session_id or is_offline(message):
        return None
    return ConcurrentUpdateError(fence_message(session_id, message.session_id))


def overrun(partition_id: int) -> StorageError:
    """The answer to a request for which there is no room in the partition's queue."""
    return StorageError(
        f"too many requests for partition={partition_id} wait on storage node; wait for answers before sending more"
    )


def disabled(partition_id: int) -> StorageError:
    """The answer of a partition that is switched off, by an operator or by a disk failure."""
    return StorageError(f"read and write for partition={partition_id} have been disabled on storage node")
