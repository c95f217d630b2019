"""The last resort of a bulk read when no replica delivers: the server that owns the partition.

A server answers with committed transactions only, from its caches or from any storage that its own session reaches,
so it may have transactions that the replicas within a reader's reach lack. Needs version 5 of the client-server
protocol.
"""

import asyncio
import random
import ssl

from waltz.common.cluster.owners import RETRY_INITIAL_S, RETRY_MAXIMUM_S, Answer, OwnerConnection, read_owners
from waltz.common.errors import (
    ConnectFailedError,
    ConnectionClosedError,
    DeadlineExceededError,
    ProtocolError,
    WaltzError,
)
from waltz.common.ids import Endpoint
from waltz.common.net.backoff import Backoff
from waltz.common.net.progress import while_moving
from waltz.common.wire.version5 import DataListStatus, TransactionDataListRequest, TransactionDataListResponse
from waltz.common.wire.versions import FIRST_WITH_DATA_LISTS
from waltz.common.zk.store_admin import sync_cluster
from waltz.spark.chunk import Chunk, decode_chunk
from waltz.spark.options import ClusterOptions
from waltz.spark.planning import connect_zookeeper

MAX_ANSWER_BYTES = 1 << 20
"""Size of one request: small, since servers serve the application first."""

_STATUS_START, _STATUS_END = 25, 29  # behind type, request id and first id
_RECORDS_START = 37  # behind status and mark, too
_NO_ERROR_BYTES = 4  # the text behind the records, which is null


class OwnerNotReadyError(WaltzError):
    """There is no owner at the moment, or it does not know the partition's mark yet; another attempt may succeed."""


class OwnerReader:
    """Reads one partition from its owner; the owner may change meanwhile."""

    def __init__(self, options: ClusterOptions, partition_id: int, tls: ssl.SSLContext | None) -> None:
        """The first read connects."""
        self._options = options
        self._partition_id = partition_id
        self._tls = tls
        self._connection: OwnerConnection | None = None
        self._generation = 0
        """Generation of the partition at the last look-up of its owner."""

    async def records(self, partition_id: int, first: int, max_count: int) -> Chunk | None:
        """Committed records ``first``, ``first + 1``, ...; ``None`` only when ``first`` is not committed.

        While the partition has no owner, or its owner cannot be reached, the owner is looked up again until the
        deadline of a request. Raises ``WaltzError`` with the reason for the lack of an owner, or the owner's answer.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.request_timeout_s
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random())
        while True:
            try:
                if self._connection is None:
                    self._connection = await self._connect(max(0.001, deadline_s - loop.time()))
                return await self._read(self._connection, partition_id, first, max_count)
            except (OwnerNotReadyError, ConnectFailedError, ConnectionClosedError):
                await self.close()
                delay_s = backoff.next_delay_s()
                if loop.time() + delay_s >= deadline_s:
                    raise
            await asyncio.sleep(delay_s)

    async def close(self) -> None:
        """Close the connection; a later read opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connect(self, timeout_s: float) -> OwnerConnection:
        endpoint, self._generation = await self._find()
        connection = await OwnerConnection.open(endpoint, tls=self._tls, timeout_s=timeout_s)
        version = connection.channel.version
        if version < FIRST_WITH_DATA_LISTS:
            await connection.close()
            raise WaltzError(f"server {endpoint} speaks version {version} of the protocol, which has no bulk reads")
        return connection

    async def _find(self) -> tuple[Endpoint, int]:
        """The owner and its generation, as ZooKeeper says."""
        root = self._options.cluster_root
        zookeeper = await connect_zookeeper(self._options)
        try:
            await sync_cluster(zookeeper, root)  # a former owner may lack committed transactions
            owner = (await read_owners(zookeeper, root)).get(self._partition_id)
        finally:
            await zookeeper.close()
        if owner is None or owner.endpoint is None:
            raise OwnerNotReadyError(f"no server owns partition {self._partition_id}")
        return owner.endpoint, owner.generation

    async def _read(self, connection: OwnerConnection, partition_id: int, first: int, max_count: int) -> Chunk | None:
        """One request. A connection on which nothing moves for the time-out of a request is given up."""
        answer = connection.send(
            partition_id,
            self._generation,
            lambda req_id: TransactionDataListRequest(req_id, first, max_count, MAX_ANSWER_BYTES),
        )
        server, timeout_s = f"server {connection.endpoint}", self._options.request_timeout_s
        try:
            return _chunk(await while_moving(answer, connection.channel, timeout_s), partition_id, server)
        except TimeoutError:
            raise DeadlineExceededError(f"{server} did not answer within {timeout_s:g} s") from None
        finally:
            answer.cancel()


def _chunk(answer: Answer, partition_id: int, server: str) -> Chunk | None:
    """The records of an answer, cut out of the frame without making objects of them."""
    buffer, start, end, _ = answer
    if end - start < _RECORDS_START + _NO_ERROR_BYTES:
        raise ProtocolError(f"{server} sent an answer that is too short")
    status = int.from_bytes(buffer[start + _STATUS_START : start + _STATUS_END], "big")
    if status == DataListStatus.OK:
        return decode_chunk(
            buffer, start + _RECORDS_START, end - _NO_ERROR_BYTES, partition_id=partition_id, source=server
        )
    message = answer.decode()
    if not isinstance(message, TransactionDataListResponse):
        raise ProtocolError(f"{server} answered with {type(message).__name__}")
    if message.status is DataListStatus.NOT_READY:
        raise OwnerNotReadyError(f"{server} does not own partition {partition_id} yet")
    raise WaltzError(f"{server}: {message.error or 'no reason was given'}")
