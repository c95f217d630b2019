"""The last resort of a bulk read: the server that owns the partition, where no replica delivers.

A server answers with committed transactions only, out of its caches or from any storage that its own session reaches,
so it may have what the replicas that a reader can see have not. It needs version 5 of the client-server protocol.
"""

import asyncio
import random
import ssl

from waltz.common.errors import (
    ConnectFailedError,
    ConnectionClosedError,
    DeadlineExceededError,
    ProtocolError,
    WaltzError,
)
from waltz.common.ids import Endpoint, ReqId
from waltz.common.net.backoff import Backoff
from waltz.common.net.channel import Channel, connect
from waltz.common.net.progress import while_moving
from waltz.common.wire.client_server import (
    DataListStatus,
    TransactionDataListRequest,
    TransactionDataListResponse,
    decode,
    encode,
)
from waltz.common.wire.frames import CLIENT_SERVER, Bounds
from waltz.common.wire.versions import FIRST_WITH_DATA_LISTS
from waltz.common.zk.store_admin import read_partition_assignment, read_server_descriptors, sync_cluster
from waltz.spark.chunk import Chunk, decode_chunk
from waltz.spark.marks import HELLO_TEXT, INITIAL_DELAY_S, MAXIMUM_DELAY_S, TOOL_CLIENT_ID
from waltz.spark.options import ClusterOptions
from waltz.spark.planning import connect_zookeeper

MAX_ANSWER_BYTES = 1 << 20
"""What is asked for at a time: servers serve the application first."""

CLOSE_TIMEOUT_S = 5.0

_REQ_ID_START, _REQ_ID_END = 1, 17
_STATUS_END = 29
_RECORDS_START = 37  # behind type, request id, first id, status and mark
_NO_ERROR_BYTES = 4  # the text behind the records, which is null


class OwnerNotReadyError(WaltzError):
    """There is no owner at the moment, or it does not know the partition's mark yet; another attempt may succeed."""


class OwnerReader:
    """Reads one partition from whoever owns it; the owner may change meanwhile."""

    def __init__(self, options: ClusterOptions, partition_id: int, tls: ssl.SSLContext | None) -> None:
        """Connects to nobody before the first read."""
        self._options = options
        self._partition_id = partition_id
        self._tls = tls
        self._client: OwnerClient | None = None

    async def records(self, partition_id: int, first: int, max_count: int) -> Chunk | None:
        """Committed records ``first``, ``first + 1``, ...; ``None`` only when ``first`` is not committed.

        An owner that is not to be had, or has the partition no more, is looked for until the deadline of a request.
        Raises ``WaltzError`` that says why there is none, or what the owner says.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.request_timeout_s
        backoff = Backoff(INITIAL_DELAY_S, MAXIMUM_DELAY_S, random.Random())
        while True:
            try:
                if self._client is None:
                    self._client = await self._connect(max(0.001, deadline_s - loop.time()))
                return await self._client.records(partition_id, first, max_count)
            except (OwnerNotReadyError, ConnectFailedError, ConnectionClosedError):
                await self.close()
                delay_s = backoff.next_delay_s()
                if loop.time() + delay_s >= deadline_s:
                    raise
            await asyncio.sleep(delay_s)

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _connect(self, timeout_s: float) -> "OwnerClient":
        endpoint, generation = await self._find()
        client = OwnerClient(endpoint, generation, self._options.request_timeout_s)
        await client.open(self._tls, timeout_s)
        return client

    async def _find(self) -> tuple[Endpoint, int]:
        """The owner and its generation, as ZooKeeper says."""
        root = self._options.cluster_root
        zookeeper = await connect_zookeeper(self._options)
        try:
            await sync_cluster(zookeeper, root)  # one that was replaced may take for uncommitted what is committed
            assignment = await read_partition_assignment(zookeeper, root)
            servers = {server.server_id: server.endpoint for server in await read_server_descriptors(zookeeper, root)}
        finally:
            await zookeeper.close()
        for server_id, owned in assignment.servers.items():
            for partition_id, generation in owned:
                if partition_id == self._partition_id and server_id in servers:
                    return servers[server_id], generation
        raise OwnerNotReadyError(f"no server owns partition {self._partition_id}")


class OwnerClient:
    """One connection to a server, over which one partition is read; a ``ChannelHandler``."""

    def __init__(self, endpoint: Endpoint, generation: int, timeout_s: float) -> None:
        """After ``timeout_s`` in which nothing moves a request is given up."""
        self.peer = f"server {endpoint}"
        self._endpoint = endpoint
        self._generation = generation
        self._timeout_s = timeout_s
        self._channel: Channel | None = None
        self._asked: dict[bytes, asyncio.Future[Chunk | None]] = {}
        self._requests = 0

    async def open(self, tls: ssl.SSLContext | None, timeout_s: float) -> None:
        """Connect. Raises ``ConnectFailedError``, and ``WaltzError`` for a server that has no bulk reads."""
        self._channel = await connect(self._endpoint, CLIENT_SERVER, HELLO_TEXT, self, tls=tls, timeout_s=timeout_s)
        if self._channel.version < FIRST_WITH_DATA_LISTS:
            version = self._channel.version
            await self.close()
            raise WaltzError(f"{self.peer} speaks version {version} of the protocol, which has no bulk reads")

    async def records(self, partition_id: int, first: int, max_count: int) -> Chunk | None:
        """Committed records ``first``, ``first + 1``, ...; ``None`` only when ``first`` is not committed.

        Raises ``WaltzError`` (what the server says), ``OwnerNotReadyError``, ``DeadlineExceededError``,
        ``ConnectionClosedError``, ``DataCorruptionError`` and ``ProtocolError``.
        """
        channel = self._channel
        if channel is None or channel.closed:
            raise ConnectionClosedError(f"the connection to {self.peer} is closed")
        req_id = bytes(ReqId.of(TOOL_CLIENT_ID, self._generation, partition_id, self._requests))
        self._requests += 1
        answer: asyncio.Future[Chunk | None] = asyncio.get_running_loop().create_future()
        self._asked[req_id] = answer
        channel.send(encode(TransactionDataListRequest(req_id, first, max_count, MAX_ANSWER_BYTES), channel.version))
        try:
            return await while_moving(answer, channel, self._timeout_s)
        except TimeoutError:
            raise DeadlineExceededError(f"{self.peer} did not answer within {self._timeout_s:g} s") from None
        finally:
            self._asked.pop(req_id, None)

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close_within(CLOSE_TIMEOUT_S)

    # The channel's callbacks

    def channel_ready(self, channel: Channel) -> None:
        """Part of ``ChannelHandler``."""

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """Part of ``ChannelHandler``: answers that nobody waits for any more are dropped."""
        for start, end in bounds:
            answer = self._asked.get(buffer[start + _REQ_ID_START : start + _REQ_ID_END])
            if answer is None or answer.done():
                continue
            try:
                answer.set_result(self._chunk(buffer, start, end, channel.version))
            except WaltzError as error:
                answer.set_exception(error)

    def channel_writable(self, channel: Channel) -> None:
        """Part of ``ChannelHandler``."""

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        """Part of ``ChannelHandler``: everything that waits fails."""
        reason = f": {error}" if error is not None else ""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionClosedError(f"{self.peer} closed the connection{reason}"))

    def _chunk(self, buffer: bytes, start: int, end: int, version: int) -> Chunk | None:
        if end - start < _RECORDS_START + _NO_ERROR_BYTES:
            raise ProtocolError(f"{self.peer} sent an answer that is too short")
        status = int.from_bytes(buffer[start + _STATUS_END - 4 : start + _STATUS_END], "big")
        if status == DataListStatus.OK:
            partition_id = ReqId(buffer[start + _REQ_ID_START : start + _REQ_ID_END]).partition_id
            begin = start + _RECORDS_START
            return decode_chunk(buffer, begin, end - _NO_ERROR_BYTES, partition_id=partition_id, source=self.peer)
        message = decode(buffer, start, end, version)
        if not isinstance(message, TransactionDataListResponse):
            raise ProtocolError(f"{self.peer} answered with {type(message).__name__}")
        if message.status is DataListStatus.NOT_READY:
            raise OwnerNotReadyError(f"{self.peer} does not own partition {ReqId(message.req_id).partition_id} yet")
        raise WaltzError(f"{self.peer}: {message.error or 'no reason was given'}")
