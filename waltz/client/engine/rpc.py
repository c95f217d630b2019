"""The RPC half of a client: transaction data, high-water marks and administration, over connections apart from the
stream."""

import asyncio
import random
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from waltz.client.arguments import check_endpoint, check_integer, check_seconds
from waltz.client.engine.links.assignments import Assigned
from waltz.client.engine.links.links import UNMANAGED_CLIENT_ID, Connector, Links, ServerLink
from waltz.client.engine.reads.admin import AdminCalls
from waltz.client.engine.reads.data_requests import RpcPartition
from waltz.client.engine.tasks import TaskOwner
from waltz.client.errors import ClientClosedError, InvalidOperationError, NotAuthorizedError, PartitionNotFoundError
from waltz.client.options import ClientOptions
from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.ids import PARTITION_PART, Endpoint, ReqId
from waltz.common.net.channel import connect
from waltz.common.wire.client_server import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    HighWaterMarkResponse,
    Message,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    TransactionDataResponse,
    decode,
    transaction_data_head,
)
from waltz.common.wire.client_times import TimeResponse
from waltz.common.wire.confirmed_marks import ConfirmedMarkResponse
from waltz.common.wire.frames import Bounds
from waltz.common.wire.partition_properties import SetPropertiesRequest, SetPropertiesResponse
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.version5 import TransactionDataListResponse
from waltz.common.wire.write_sessions import LastTransactionIdResponse

Response = TypeVar("Response", bound=Message)


class RpcClient:
    """The RPC half. Can be used on its own for administrative calls, which name the server. Connects on demand.

    Close it, or use it as an asynchronous context manager.

    Examples:
        ```python
        async with waltz.RpcClient(tls=None) as rpc:  # tls: an ssl.SSLContext, None for servers in plaintext
            server = waltz.Endpoint("localhost", port)
            print(await rpc.server_partition_assignments(server))
            print(await rpc.server_partition_health(server))
        ```
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None,
        options: ClientOptions | None = None,
        random_source: random.Random | None = None,
        connector: Connector = connect,
    ) -> None:
        self.partitions: list[RpcPartition] = []
        """The partitions by id; empty until the client has joined the cluster."""
        self._client_id = UNMANAGED_CLIENT_ID
        self._options = options or ClientOptions()
        self._random = random_source or random.Random()
        self._links = Links(
            self, tls=tls, options=self._options, random_source=self._random, watched=False, connector=connector
        )
        self._admin: dict[Endpoint, AdminCalls] = {}
        self._tasks = TaskOwner()
        self._handlers: Mapping[type[Message], Callable[[RpcPartition, Any], None]] = {
            TransactionDataResponse: RpcPartition.data_response,
            TransactionDataListResponse: RpcPartition.list_response,
            HighWaterMarkResponse: RpcPartition.mark_response,
            ConfirmedMarkResponse: RpcPartition.confirmed_mark_response,
            TimeResponse: RpcPartition.time_response,
            LastTransactionIdResponse: RpcPartition.last_response,
            NotAuthorized: RpcPartition.not_authorized,
            Trimmed: RpcPartition.trimmed,
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def create_partitions(self, client_id: int, partition_count: int) -> None:
        """Create the partition objects. Called once."""
        self._client_id = self._links.client_id = client_id
        self.partitions = [
            RpcPartition(partition_id, client_id, self._options, self._random, self._link_of)
            for partition_id in range(partition_count)
        ]
        self._tasks.keep(self._sweep_for_ever, "the sweep of unanswered requests")

    def set_endpoints(self, endpoints: Mapping[Endpoint, Sequence[Assigned]]) -> None:
        """Take the owners of the partitions from the cluster."""
        for partition_id, owner in self._links.assign(endpoints).items():
            if not 0 <= partition_id < len(self.partitions):
                continue
            partition = self.partitions[partition_id]
            partition.generation = max(partition.generation, owner.generation)
            if partition.link is not None or not partition.idle:
                partition.set_link(self._links.to(owner.endpoint))

    def remove_server(self, endpoint: Endpoint) -> None:
        """Remove a server that has left the cluster."""
        link = self._links.remove(endpoint)
        if link is None:
            return
        for partition in self.partitions:
            if partition.link is link:
                partition.set_link(None)
        admin = self._admin.pop(endpoint, None)
        if admin is not None:
            admin.fail(WaltzError("the server is gone"))

    async def high_water_mark(
        self, partition_id: int, timeout_s: float | None = None, *, confirmed: bool = False
    ) -> int:
        """The committed high-water mark of a partition, confirmed by the storages on request.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ConfirmedMarkNotSupportedError: The server is too old to confirm marks.
            DeadlineExceededError: No answer came in time.
            ClientClosedError: The client is closed.
        """
        return await self._partition(partition_id, timeout_s).high_water_mark(
            self._options.rpc_timeout_s if timeout_s is None else timeout_s, confirmed=confirmed
        )

    async def time_entry(
        self, partition_id: int, question: TimeQuestion, value: int, timeout_s: float | None = None
    ) -> tuple[int, int]:
        """A transaction and the time of its commit; both -1 when unknown.

        The ``question`` is for the last transaction at a time, or for the first known time of a transaction. ``value``
        is the time in milliseconds since 1970, or the id of the transaction.

        Raises as :meth:`high_water_mark`, with ``TimesNotSupportedError`` for servers and storages that are too old.
        """
        partition = self._partition(partition_id, timeout_s)
        return await partition.time_entry(
            question, value, self._options.rpc_timeout_s if timeout_s is None else timeout_s
        )

    def _partition(self, partition_id: int, timeout_s: float | None) -> RpcPartition:
        check_integer(partition_id, "partition_id")
        if not 0 <= partition_id < len(self.partitions):
            raise PartitionNotFoundError(partition_id, len(self.partitions))
        if timeout_s is not None:
            check_seconds(timeout_s, "timeout_s")
        return self.partitions[partition_id]

    # Administration. All raise ConnectFailedError, ConnectionClosedError, DeadlineExceededError, ClientClosedError, and
    # ProtocolError when the server's version is too old.

    async def check_server_connections(self, endpoints: Iterable[Endpoint]) -> dict[Endpoint, dict[str, bool]]:
        """For each server, the storages (``host:port``) that it reaches. Servers without an answer are left out."""
        wanted = list(endpoints)
        for endpoint in wanted:
            check_endpoint(endpoint)
        answers = await asyncio.gather(*(self._check_connectivity(endpoint) for endpoint in wanted))
        return {endpoint: answer for endpoint, answer in zip(wanted, answers, strict=True) if answer is not None}

    async def server_partition_assignments(self, endpoint: Endpoint) -> list[int]:
        """The partitions that a server owns, ascending."""
        request = ServerPartitionsAssignmentRequest(ReqId.of(self._client_id, 0, 0, 0))
        response = await self._call(endpoint, request, ServerPartitionsAssignmentResponse)
        return sorted(response.partition_ids)

    async def server_partition_health(self, endpoint: Endpoint) -> dict[int, bool]:
        """The partitions of a server, and whether each is healthy."""
        request = ServerPartitionsHealthStatRequest(ReqId.of(self._client_id, 0, 0, 0))
        response = await self._call(endpoint, request, ServerPartitionsHealthStatResponse)
        return dict(response.health)

    async def add_preferred_partitions(self, endpoint: Endpoint, partition_ids: Sequence[int]) -> bool:
        """Make a server prefer these partitions. Returns whether the server has agreed."""
        request = AddPreferredPartitionRequest(self._preference_id(partition_ids), tuple(partition_ids))
        return (await self._call(endpoint, request, AddPreferredPartitionResponse)).result

    async def remove_preferred_partitions(self, endpoint: Endpoint, partition_ids: Sequence[int]) -> bool:
        """Take back the preference. Returns whether the server has agreed."""
        request = RemovePreferredPartitionRequest(self._preference_id(partition_ids), tuple(partition_ids))
        return (await self._call(endpoint, request, RemovePreferredPartitionResponse)).result

    async def set_partition_properties(
        self, endpoint: Endpoint, partition_id: int, change: int, properties: str
    ) -> SetPropertiesResponse:
        """Let a server replace the properties of a partition, which need not be there.

        Args:
            endpoint: The server.
            partition_id: The partition.
            change: The number of changes of the properties that were read; with another number nothing is done.
            properties: A JSON object: those that differ from their defaults, without the trim point.

        Raises:
            NotAuthorizedError: The right to configure the partition is missing.
        """
        request = SetPropertiesRequest(self._preference_id([partition_id]), change, properties)
        return await self._call(endpoint, request, SetPropertiesResponse)

    async def close(self) -> None:
        """Close the connections. Open requests end with ``ClientClosedError`` or ``ConnectionClosedError``."""
        self._links.closed = True
        for partition in self.partitions:
            partition.close()
        for admin in self._admin.values():
            admin.fail(ClientClosedError())
        await self._links.close()
        await self._tasks.close()

    def _preference_id(self, partition_ids: Sequence[int]) -> ReqId:
        if not partition_ids or min(partition_ids) < 0:
            raise InvalidOperationError(f"not a list of partitions: {list(partition_ids)}")
        return ReqId.of(self._client_id, 0, partition_ids[0], 0)

    async def _check_connectivity(self, endpoint: Endpoint) -> dict[str, bool] | None:
        request = CheckStorageConnectivityRequest(ReqId.of(self._client_id, 0, 0, 0))
        try:
            response = await self._call(endpoint, request, CheckStorageConnectivityResponse)
        except ClientClosedError:
            raise
        except WaltzError:
            return None
        return dict(response.connectivity)

    async def _call(self, endpoint: Endpoint, request: Message, response_type: type[Response]) -> Response:
        if self._links.closed:
            raise ClientClosedError
        check_endpoint(endpoint)
        link = self._links.to(endpoint)
        admin = self._admin.get(endpoint)
        if admin is None:
            admin = self._admin[endpoint] = AdminCalls(link, self._tasks)
        return await admin.call(request, response_type, self._options.rpc_timeout_s)

    def _link_of(self, partition_id: int) -> ServerLink | None:
        owner = self._links.owner(partition_id)
        return None if owner is None or self._links.closed else self._links.to(owner.endpoint)

    # Calls of the links: this is their LinkUser

    def link_ready(self, link: ServerLink) -> None:
        for partition in self.partitions:
            if partition.link is link:
                partition.resend()

    def link_lost(self, link: ServerLink, error: Exception) -> None:
        """Administrative requests fail. Other requests are sent again when there is a connection."""
        admin = self._admin.get(link.endpoint)
        if admin is not None and link in self._links:
            admin.fail(error)

    def link_refused(self, link: ServerLink) -> None:
        """Waiting questions for marks fail, unless another server is being asked."""
        for partition in self.partitions:
            if partition.link is link:
                partition.resend()

    def link_writable(self, link: ServerLink) -> None:
        """Do nothing: requests are few and small, and do not wait for this."""

    def link_received(self, link: ServerLink, buffer: bytes, bounds: Bounds) -> None:
        """Hand each answer to its request."""
        if link.channel is None or link not in self._links:
            return
        version = link.channel.version
        for start, end in bounds:
            try:
                message = decode(buffer, start, end, version)
            except ProtocolError:
                self._note_damage(buffer, start, end)
                raise
            handle = self._handlers.get(type(message))
            if isinstance(message, NotAuthorized) and not ReqId(message.req_id).seq_num:  # an administrative request
                self._refuse(link, message)
            elif handle is not None:
                handle(self._partition_of(message.req_id), message)
            elif not self._resolve(link, message) and not link.answers_ping(message):
                raise ProtocolError(f"unexpected {type(message).__name__}")

    def _resolve(self, link: ServerLink, message: Message) -> bool:
        admin = self._admin.get(link.endpoint)
        return admin is not None and admin.resolve(message)

    def _refuse(self, link: ServerLink, message: NotAuthorized) -> None:
        admin = self._admin.get(link.endpoint)
        if admin is not None:
            admin.refused(NotAuthorizedError(message.text))

    def _partition_of(self, req_id: bytes) -> RpcPartition:
        partition_id = int.from_bytes(req_id[PARTITION_PART], "big")
        if partition_id >= len(self.partitions):
            raise ProtocolError(f"answer for an unknown partition: {ReqId(req_id)}")
        return self.partitions[partition_id]

    def _note_damage(self, buffer: bytes, start: int, end: int) -> None:
        """Count a wrong answer for transaction data: a damaged record must not cause reconnects for ever."""
        head = transaction_data_head(buffer, start, end)
        if head is not None:
            req_id, transaction_id = head
            partition_id = int.from_bytes(req_id[PARTITION_PART], "big")
            if partition_id < len(self.partitions):
                self.partitions[partition_id].data_damaged(transaction_id)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._options.rpc_sweep_interval_s)
            for link in self._links:
                link.check_silence()
            for partition in self.partitions:
                if not partition.idle:
                    partition.sweep()
