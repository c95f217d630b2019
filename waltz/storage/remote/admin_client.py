"""Client of a storage node's admin port: assignment, availability, raw reads. For tools and tests."""

import asyncio
import ssl
from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel
from waltz.common.records import Record
from waltz.common.wire import admin as wire
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire.frames import STORAGE_ADMIN, Bounds
from waltz.common.wire.structures import SessionInfo
from waltz.storage.remote.connection import StorageConnection, verify_payloads
from waltz.storage.remote.pending_calls import OPEN_SEQ_NUM

HELLO_TEXT = "Waltz Storage Admin Client"

LONG_WORK_TIMEOUT_S = 3600.0
"""Deadline of requests that depend on the disk. The node sends signs of life meanwhile."""

SIGN_OF_LIFE_BYTES = 1
"""The number of bytes that count as progress during such a request: any byte is a sign of life."""

Response = TypeVar("Response")


class StorageAdminClient(StorageConnection[admin_wire.Message]):
    """One open connection to the admin port of a storage node. The node answers its requests in order.

    Every method raises ``RemoteStorageError`` when the node refuses, ``DeadlineExceededError`` and
    ``ConnectionClosedError`` when the outcome is unknown. The deadline of each request is the ``timeout_s`` of
    :meth:`connect`, and moves as long as bytes move. Requests that open, read or copy files may take as long as the
    node sends signs of life; nodes of the original send none.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        """Use :meth:`connect`."""
        super().__init__(endpoint, f"storage admin {endpoint}")
        self._timeout_s = timeout_s

    @classmethod
    async def connect(
        cls,
        endpoint: Endpoint,
        *,
        cluster_key: UUID,
        partition_count: int,
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> "StorageAdminClient":
        """Connect and open. Raises ``ConnectFailedError`` or ``RemoteStorageError`` (foreign cluster, node closing)."""
        client = cls(endpoint, timeout_s)
        request = wire.AdminOpenRequest(OPEN_SEQ_NUM, cluster_key, partition_count)

        async def open_store(remaining_s: float) -> None:
            await client._request(request, wire.AdminSuccessResponse, remaining_s)

        await client._open(STORAGE_ADMIN, HELLO_TEXT, open_store, tls=tls, timeout_s=timeout_s)
        return client

    async def set_available(self, partition_ids: Iterable[int], available: bool) -> None:
        """Switch partitions on or off for servers."""
        request = wire.PartitionAvailableRequest(self._calls.next_seq_num(), tuple(partition_ids), available)
        await self._long_request(request, wire.AdminSuccessResponse)

    async def set_assigned(self, partition_ids: Iterable[int], assigned: bool, *, delete_files: bool = False) -> None:
        """Assign partitions to the node, or remove them (with ``delete_files`` also their files)."""
        seq_num = self._calls.next_seq_num()
        request = wire.PartitionAssignmentRequest(seq_num, tuple(partition_ids), assigned, delete_files)
        await self._long_request(request, wire.AdminSuccessResponse)

    async def records(self, partition_id: int, first: int, max_count: int) -> list[Record]:
        """Records ``first``, ``first + 1``, ... as stored, committed or not. Empty only when ``first`` is absent.

        Fewer than ``max_count`` does not mean that there are no more. Raises ``DataCorruptionError``.
        """
        request = wire.RecordListRequest(self._calls.next_seq_num(), partition_id, first, max_count)
        records = (await self._request(request, wire.RecordListResponse)).records
        verify_payloads(records, partition_id, self.endpoint)
        return records

    async def stored_records(self, partition_id: int, first: int, max_count: int) -> tuple[bytes, bytes] | None:
        """The size of each record in 4 bytes, and the bytes of the same records on disk, one behind the other.

        Both are empty only when ``first`` is absent. Nothing is verified. ``None`` from a node of the original, which
        has no such request.
        """
        if self._version < admin_wire.OUR_VERSION:
            return None
        request = admin_wire.RecordRangeRequest(self._calls.next_seq_num(), partition_id, first, max_count)
        answer = await self._request(request, admin_wire.RecordRangeResponse)
        return answer.sizes or b"", answer.records or b""

    async def last_session_info(self, partition_id: int) -> SessionInfo:
        """The persisted session and marks. No session is fenced."""
        request = wire.LastSessionInfoRequest(self._calls.next_seq_num(), partition_id)
        return (await self._request(request, wire.LastSessionInfoResponse)).info

    async def metrics(self) -> str:
        """The node's metrics, a JSON document."""
        request = wire.MetricsRequest(self._calls.next_seq_num())
        return (await self._request(request, wire.MetricsResponse)).metrics_json or ""

    async def assigned_partition_status(self) -> dict[int, bool]:
        """Every assigned partition, with whether it is online."""
        request = wire.AssignedPartitionStatusRequest(self._calls.next_seq_num())
        return dict((await self._request(request, wire.AssignedPartitionStatusResponse)).partition_status)

    async def repair_survey(self, partition_id: int) -> tuple[tuple[tuple[int, int], ...], int, bool]:
        """First and last ids of damaged or missing records, the last expected id, and whether all is well.

        The node forgets the records of an unfinished repair. Raises ``WaltzError`` when the node is of the original.
        """
        if self._version < admin_wire.OUR_VERSION:
            raise WaltzError(
                f"storage admin {self.endpoint} is a node of the original, which cannot be repaired over the network: "
                "take the partition from it with its files, and assign it anew"
            )
        request = admin_wire.RepairSurveyRequest(self._calls.next_seq_num(), partition_id)
        answer = await self._long_request(request, admin_wire.RepairSurveyResponse)
        return answer.missing, answer.last_transaction_id, answer.whole

    async def repair_records(self, partition_id: int, records: list[Record]) -> None:
        """Send missing records, in ascending order."""
        request = admin_wire.RepairRecordsRequest(self._calls.next_seq_num(), partition_id, records)
        await self._request(request, wire.AdminSuccessResponse)

    async def repair_commit(self, partition_id: int, certain_up_to: int) -> None:
        """Put the sent records in their places. Above ``certain_up_to`` the log is cut before the first missing
        record."""
        request = admin_wire.RepairCommitRequest(self._calls.next_seq_num(), partition_id, certain_up_to)
        await self._long_request(request, wire.AdminSuccessResponse)

    async def disks(self) -> str:
        """The node's disks, and the moves that even out their free space: a JSON document.

        Raises ``WaltzError`` when the node is of the original.
        """
        self._check_disks()
        request = admin_wire.DisksRequest(self._calls.next_seq_num())
        return (await self._request(request, admin_wire.DisksResponse)).disks_json or ""

    async def move_to_disk(self, partition_id: int, directory: str, rate_bytes_per_s: int) -> None:
        """Move a partition to another directory of the node. Raises ``WaltzError`` when the node is of the original."""
        self._check_disks()
        request = admin_wire.MoveToDiskRequest(self._calls.next_seq_num(), partition_id, directory, rate_bytes_per_s)
        await self._long_request(request, wire.AdminSuccessResponse)

    def _check_disks(self) -> None:
        if self._version < admin_wire.OUR_VERSION:
            raise WaltzError(f"storage admin {self.endpoint} is a node of the original, which has one disk only")

    # The channel's callbacks

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for start, end in bounds:
            message = admin_wire.decode(buffer, start, end, channel.version)
            self._calls.resolve(message.seq_num, message)

    # Internals

    async def _request(
        self, request: admin_wire.Message, response_type: type[Response], timeout_s: float | None = None
    ) -> Response:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        frame = admin_wire.encode(request, self._open_channel().version)
        return await self._call(request.seq_num, frame, response_type, type(request).__name__, limit_s)

    async def _long_request(self, request: admin_wire.Message, response_type: type[Response]) -> Response:
        """Send a request that depends on the disk of the node. A dead connection is noticed nevertheless (rule L3)."""
        channel, seq_num, what = self._open_channel(), request.seq_num, type(request).__name__
        future = self._calls.expect(seq_num)
        channel.send(admin_wire.encode(request, channel.version))
        try:
            async with asyncio.timeout(LONG_WORK_TIMEOUT_S):
                answer = await self._calls.wait_while_moving(
                    seq_num, future, self._timeout_s, what, channel, SIGN_OF_LIFE_BYTES
                )
        except TimeoutError:
            raise DeadlineExceededError(f"{self._peer} has not done {what} within {LONG_WORK_TIMEOUT_S:g} s") from None
        return self._expect(answer, response_type, what)
