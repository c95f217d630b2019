"""The right that every message of every protocol and every HTTP path needs: one table, which a test carries out.

A message or a path without a row here fails that test.
"""

from typing import Final, NamedTuple
from uuid import UUID

from tests.unit.server.fakes import feed, flush, mount, req_id
from tests.unit.storage.node_support import KEY, PARTITION_COUNT, record
from waltz.common.access import Right
from waltz.common.checksum import checksum
from waltz.common.consistency import Consistency
from waltz.common.ids import LONG_MIN
from waltz.common.wire import admin, admin_version1, client_server, storage, storage_version1
from waltz.common.wire.append_order import AppendOrderRequest
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest, ConfirmedMarkResponse, ConfirmedMarkStatus
from waltz.common.wire.consistency import AppendAckRequest, AppendLevelRequest
from waltz.common.wire.lags import LagsRequest
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.partition_properties import SetPropertiesRequest
from waltz.common.wire.storage_times import (
    CommittedNotice,
    CommitTime,
    EnterTimesRequest,
    PartitionCommitted,
    TimeEntryRequest,
    TimeListRequest,
    TimeQuestion,
)
from waltz.common.wire.storage_trim import BeginRequest, SizeRequest, TrimRequest
from waltz.common.wire.version5 import DataListStatus, TransactionDataListRequest, TransactionDataListResponse
from waltz.common.wire.write_sessions import (
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
from waltz.server.feeding.transaction_data import NOT_READY_TEXT

PARTITION: Final = 0
"""The partition that requests are about."""

NODE: Final = None
"""Requests about the node itself."""


class Row(NamedTuple):
    """A request and the right that it needs."""

    right: Right | None
    """``None`` if every peer may ask."""
    place: int | None
    """The partition, or :data:`NODE`."""
    request: tuple[object, ...]
    older: object = None
    """What a client hears whose version has no message for missing rights; ``None`` for nothing."""
    listing: bool = False
    """The answer is a list of partitions, without those to which the peer lacks the right. So the right to any of them
    is enough."""


CLIENT_REQUESTS: Final = (
    Row(Right.APPEND, PARTITION, AppendRequest(req_id(1), -1, (), (), (), 0, b"x", checksum(b"x"))),
    Row(
        Right.METADATA,
        PARTITION,
        mount(1, -1),
        client_server.MountResponse(req_id(1), client_server.PartitionState.NOT_READY),
    ),
    Row(Right.METADATA, PARTITION, feed(2, -1)),
    Row(Right.METADATA, PARTITION, MarkFeedRequest(req_id(2), -1)),
    Row(Right.METADATA, PARTITION, AppendAckRequest(req_id(12), -1)),
    Row(Right.APPEND, PARTITION, AppendLevelRequest(req_id(13), Consistency.LEADER_ALL)),
    Row(Right.APPEND, PARTITION, AppendOrderRequest(req_id(14), 0)),
    Row(Right.METADATA, PARTITION, flush(3)),
    Row(
        Right.READ,
        PARTITION,
        client_server.TransactionDataRequest(req_id(4), 0),
        client_server.TransactionDataResponse(req_id(4), 0, None, 0, NOT_READY_TEXT),
    ),
    Row(
        Right.READ,
        PARTITION,
        TransactionDataListRequest(req_id(5), 0, 1, 1),
        TransactionDataListResponse(req_id(5), 0, DataListStatus.NOT_READY, LONG_MIN, [], None),
    ),
    Row(
        Right.DESCRIBE,
        PARTITION,
        client_server.HighWaterMarkRequest(req_id(6)),
        client_server.HighWaterMarkResponse(req_id(6), LONG_MIN),
    ),
    Row(
        Right.DESCRIBE,
        PARTITION,
        ConfirmedMarkRequest(req_id(10)),
        ConfirmedMarkResponse(req_id(10), ConfirmedMarkStatus.NOT_READY, -1),
    ),
    Row(
        Right.DESCRIBE,
        PARTITION,
        TimeRequest(req_id(11), TimeQuestion.LAST_AT, 5),
        TimeResponse(req_id(11), TimeStatus.NOT_READY, -1, -1),
    ),
    Row(
        Right.APPEND,
        PARTITION,
        HeartbeatRequest(req_id(7), HeartbeatOption.GET_SESSION),
        HeartbeatResponse(req_id(7), HeartbeatState.NOT_READY, -1, -1, SessionFlag(0)),
    ),
    Row(
        Right.FENCE,
        PARTITION,
        HeartbeatRequest(req_id(11), HeartbeatOption.EXCLUSIVE),
        HeartbeatResponse(req_id(11), HeartbeatState.NOT_READY, -1, -1, SessionFlag(0)),
    ),
    Row(
        Right.DESCRIBE,
        PARTITION,
        LastTransactionIdRequest(req_id(8), FenceOption(0), -1),
        LastTransactionIdResponse(req_id(8), LastTransactionStatus.NOT_READY, -1, -1),
    ),
    Row(
        Right.FENCE,
        PARTITION,
        LastTransactionIdRequest(req_id(9), FenceOption.FENCE, -1),
        LastTransactionIdResponse(req_id(9), LastTransactionStatus.NOT_READY, -1, -1),
    ),
    Row(Right.CONFIGURE, PARTITION, SetPropertiesRequest(req_id(1), 0, "{}")),
    # No secret: clients know the owners from ZooKeeper, and ask this as a sign of life.
    Row(None, NODE, client_server.ServerPartitionsAssignmentRequest(req_id(1))),
    Row(Right.DESCRIBE, NODE, client_server.ServerPartitionsHealthStatRequest(req_id(1)), listing=True),
    Row(Right.DESCRIBE, NODE, client_server.CheckStorageConnectivityRequest(req_id(1))),
    Row(Right.DESCRIBE, NODE, LagsRequest(req_id(1)), listing=True),
    Row(Right.ADMIN, NODE, client_server.AddPreferredPartitionRequest(req_id(1), (PARTITION,))),
    Row(Right.ADMIN, NODE, client_server.RemovePreferredPartitionRequest(req_id(1), (PARTITION,))),
)
"""Requests to the client port of servers."""

CLIENT_ANSWERS: Final = frozenset(
    {
        "AddPreferredPartitionResponse",
        "AppendAck",
        "AppendFailed",
        "AppendsDelayed",
        "CheckStorageConnectivityResponse",
        "ConfirmedMarkResponse",
        "ConsistencyRefused",
        "FeedData",
        "FeedSuspended",
        "FlushResponse",
        "HeartbeatResponse",
        "HighWaterMarkResponse",
        "LagsResponse",
        "LastTransactionIdResponse",
        "LockFailure",
        "MarkAdvanced",
        "MountResponse",
        "NotAuthorized",
        "PartitionClosed",
        "PartitionConsistency",
        "RemovePreferredPartitionResponse",
        "ServerPartitionsAssignmentResponse",
        "ServerPartitionsHealthStatResponse",
        "SessionFenced",
        "SetPropertiesResponse",
        "TimeResponse",
        "TransactionDataListResponse",
        "TransactionDataResponse",
        "Trimmed",
    }
)
"""Messages that only servers send."""

STORAGE_REQUESTS: Final = (
    Row(Right.CLUSTER, NODE, storage.OpenRequest(-1, -1, -1, KEY, PARTITION_COUNT)),
    Row(Right.CLUSTER, NODE, storage.LastSessionInfoRequest(1, 2, PARTITION, False)),
    Row(Right.CLUSTER, NODE, storage.SetLowWaterMarkRequest(1, 2, PARTITION, 0, False)),
    Row(Right.CLUSTER, NODE, storage.TruncateRequest(1, 2, PARTITION, 0, False)),
    Row(Right.CLUSTER, NODE, storage.AppendRequest(1, 2, PARTITION, [record(0)], False)),
    Row(Right.CLUSTER, NODE, storage.RecordHeaderRequest(1, 2, PARTITION, 0)),
    Row(Right.CLUSTER, NODE, storage.RecordRequest(1, 2, PARTITION, 0)),
    Row(Right.CLUSTER, NODE, storage.MaxTransactionIdRequest(1, 2, PARTITION, False)),
    Row(Right.CLUSTER, NODE, storage.RecordHeaderListRequest(1, 2, PARTITION, 0, 1)),
    Row(Right.CLUSTER, NODE, storage.RecordListRequest(1, 2, PARTITION, 0, 1)),
    Row(
        Right.CLUSTER,
        NODE,
        storage_version1.AppendManyRequest(-1, 2, -1, [storage_version1.PartitionAppend(1, PARTITION, [record(0)])]),
    ),
    Row(Right.CLUSTER, NODE, CommittedNotice(-1, -1, -1, 5, [PartitionCommitted(1, PARTITION, 0)])),
    Row(Right.CLUSTER, NODE, TimeEntryRequest(1, 2, PARTITION, TimeQuestion.LAST_AT, 5)),
    Row(Right.CLUSTER, NODE, TimeListRequest(1, 2, PARTITION, 0, 5)),
    Row(Right.CLUSTER, NODE, EnterTimesRequest(1, 2, PARTITION, False, [CommitTime(0, 5)])),
    Row(Right.CLUSTER, NODE, TrimRequest(1, 2, PARTITION, 0)),
    Row(Right.CLUSTER, NODE, BeginRequest(1, 2, PARTITION, 5, False)),
    Row(Right.CLUSTER, NODE, SizeRequest(1, 2, PARTITION, 5)),
)
"""Requests to the data port of storages."""

STORAGE_ANSWERS: Final = frozenset(
    {
        "FailureResponse",
        "LastSessionInfoResponse",
        "MaxTransactionIdResponse",
        "RecordHeaderListResponse",
        "RecordHeaderResponse",
        "RecordListResponse",
        "RecordResponse",
        "SuccessResponse",
        "TimeEntryResponse",
        "TimeListResponse",
        "TrimResponse",
    }
)
"""Messages that only storages send, from the data port."""

ADMIN_REQUESTS: Final = (
    Row(None, NODE, admin.AdminOpenRequest(-1, UUID(int=1), PARTITION_COUNT)),
    Row(Right.ADMIN, PARTITION, admin.PartitionAvailableRequest(1, (PARTITION,), False)),
    Row(Right.ADMIN, PARTITION, admin.PartitionAssignmentRequest(1, (PARTITION,), False, True)),
    Row(Right.READ, PARTITION, admin.RecordListRequest(1, PARTITION, 0, 1)),
    Row(Right.DESCRIBE, PARTITION, admin.LastSessionInfoRequest(1, PARTITION)),
    Row(Right.DESCRIBE, NODE, admin.MetricsRequest(1)),
    Row(Right.DESCRIBE, NODE, admin.AssignedPartitionStatusRequest(1), listing=True),
    Row(Right.READ, PARTITION, admin_version1.RecordRangeRequest(1, PARTITION, 0, 1)),
    Row(Right.ADMIN, PARTITION, admin_version1.RepairSurveyRequest(1, PARTITION)),
    Row(Right.ADMIN, PARTITION, admin_version1.RepairRecordsRequest(1, PARTITION, [record(0)])),
    Row(Right.ADMIN, PARTITION, admin_version1.RepairCommitRequest(1, PARTITION, -1)),
    Row(Right.DESCRIBE, NODE, admin_version1.DisksRequest(1)),
    Row(Right.ADMIN, PARTITION, admin_version1.MoveToDiskRequest(1, PARTITION, "/nowhere", 1)),
)
"""Requests to the admin port of storages."""

ADMIN_ANSWERS: Final = frozenset(
    {
        "AdminFailureResponse",
        "AdminSuccessResponse",
        "AssignedPartitionStatusResponse",
        "DisksResponse",
        "LastSessionInfoResponse",
        "MetricsResponse",
        "RecordListResponse",
        "RecordRangeResponse",
        "RepairSurveyResponse",
    }
)
"""Messages that only storages send, from the admin port."""


class PageRow(NamedTuple):
    """What a page of an HTTP port needs."""

    right: Right | None
    """``None`` if every reader may have it."""
    everywhere: bool
    """The right to all partitions of the cluster, since the page names them."""
    filtered: bool = False
    """The page shows only the partitions to which the reader has the right; the right to any of them is enough."""


PAGES: Final = {
    "GET /ping": PageRow(None, False),
    "GET /buildinfo": PageRow(Right.DESCRIBE, False),
    "GET /metrics": PageRow(Right.DESCRIBE, True),
    "GET /metrics/prometheus": PageRow(Right.DESCRIBE, True),
    "GET /health": PageRow(Right.DESCRIBE, True),
    "GET /acl/refused": PageRow(Right.DESCRIBE, False),
    "GET /console": PageRow(Right.DESCRIBE, False, True),
    "GET /console/cluster.json": PageRow(Right.DESCRIBE, False, True),
    "GET /console/history.json": PageRow(Right.DESCRIBE, False, True),
    "GET /console/partition.json": PageRow(Right.DESCRIBE, False, True),
    "GET /console/console.css": PageRow(Right.DESCRIBE, False, True),
    "GET /console/console.js": PageRow(Right.DESCRIBE, False, True),
    "GET /console/icon.svg": PageRow(Right.DESCRIBE, False, True),
    "GET /valid-keys": PageRow(Right.DESCRIBE, True),
    "GET /invalid-keys": PageRow(Right.DESCRIBE, True),
    "POST /reset": PageRow(Right.ADMIN, True),
}
"""The right to each page of nodes, archivers and bots."""

VIEW_ROUTES: Final = {
    "GET /v1/tables/{partition}": Right.READ,
    "POST /v1/tables/{partition}/get": Right.READ,
    "GET /v1/tables/{partition}/rows/{key}": Right.READ,
    "GET /v1/tables/{partition}/rows/{key}/value": Right.READ,
    "POST /v1/tables/{partition}/scan": Right.READ,
    "GET /v1/tables/{partition}/rows": Right.READ,
    "GET /v1/tables/{partition}/take": Right.READ,
    "GET /v1/tables/{partition}/watch": Right.READ,
    "POST /v1/tables/{partition}/batch": Right.APPEND,
    "PUT /v1/tables/{partition}/rows/{key}": Right.APPEND,
    "DELETE /v1/tables/{partition}/rows/{key}": Right.APPEND,
    "POST /v1/tables/{partition}/truncate": Right.APPEND,
    "POST /v1/tables/{partition}/lease": Right.APPEND,
    "POST /v1/tables/{partition}/lease/renew": Right.APPEND,
    "POST /v1/tables/{partition}/lease/release": Right.APPEND,
    "GET /v1/tables/{partition}/sweep": Right.READ,
    "POST /v1/tables/{partition}/sweep": Right.APPEND,
}
"""The right at the partition that each request to a view node needs; tests/unit/view carries it out."""

OPEN_VIEW_ROUTES: Final = frozenset({"GET /openapi.json", "GET /v1/tables"})
"""Requests to view nodes without a partition: the description is everybody's, and the list is filtered."""
