"""Reading a range of one partition from its replicas, in order, whole or not at all."""

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from typing import Protocol

from waltz.common.errors import (
    ConnectFailedError,
    ConnectionClosedError,
    DeadlineExceededError,
    ProtocolError,
    WaltzError,
)
from waltz.common.records import RECORD_OVERHEAD_BYTES
from waltz.spark.bulk import BulkClient
from waltz.spark.chunk import Chunk
from waltz.spark.errors import ReplicaReadError
from waltz.spark.planning import Split

logger = logging.getLogger(__name__)

TARGET_ANSWER_BYTES = 2 << 20
"""Target size of an answer. Storages of the original bound answers by the number of records only."""

FIRST_FETCH = 100
"""Number of records of the first request, when their size is not known."""

CONNECT_TIMEOUT_S = 10.0


OWNER = "the partition's server"
"""Name of the owner in error texts, where storages have names of their own."""


class RecordsClient(Protocol):
    """One open connection to a node that delivers records."""

    def records(self, partition_id: int, first: int, max_count: int) -> Coroutine[None, None, Chunk | None]:
        """Records ``first``, ``first + 1``, ...; ``None`` only when ``first`` is absent."""

    async def close(self) -> None:
        """Close the connection; a later request may open it again."""


class _LagError(WaltzError):
    """The replica does not have the next transaction."""


class SplitReader:
    """Delivers the records of a split, checked, in order and without gaps.

    One replica at a time is read. A replica that is unreachable, lags or delivers damaged data is left for the next one
    at the transaction where it failed. When all replicas in turn fail at the same transaction, the partition's server
    is read from there on, as long as it delivers; the read fails when the server fails there, too.

    While the caller works on a chunk the next one is already requested. The loop may stand still meanwhile: the request
    is repeated if its deadline has passed or its connection has closed by then.
    """

    def __init__(
        self,
        split: Split,
        tls: ssl.SSLContext | None,
        *,
        fetch_size: int,
        request_timeout_s: float,
        owner: RecordsClient | None = None,
    ) -> None:
        """``fetch_size`` limits the records of one request; without ``owner`` only replicas are read."""
        self._split = split
        self._tls = tls
        self._fetch_size = fetch_size
        self._request_timeout_s = request_timeout_s
        self._position = split.range.start
        self._fitting = FIRST_FETCH
        self._owner = owner
        self._providers = [*(source.storage for source in split.sources), *([] if owner is None else [OWNER])]
        self._turn = 0
        self._client: RecordsClient | None = None
        self._ahead: asyncio.Task[Chunk | None] | None = None

    async def next_chunk(self) -> Chunk | None:
        """The next records, or ``None`` after the last.

        Raises ``ReplicaReadError`` with every node's reason. The reader cannot be used after that.
        """
        if self._position == self._split.range.end:
            return None
        reasons: dict[str, str] = {}
        while True:
            try:
                chunk = await self._fetch()
            except WaltzError as error:
                provider = self._providers[self._turn]
                reasons[provider] = str(error)
                logger.warning("partition %d, from %s: %s", self._split.range.partition_id, provider, error)
                await self._disconnect()
                self._turn_on(reasons)
            else:
                self._position += chunk.count
                self._fitting = max(1, TARGET_ANSWER_BYTES * chunk.count // self._size_bytes(chunk))
                await self._fetch_ahead()
                return chunk

    async def close(self) -> None:
        """Give up the request under way."""
        await self._disconnect()

    def _turn_on(self, reasons: dict[str, str]) -> None:
        """Turn to the next replica that has not failed at this transaction, and after all of them to the server."""
        replicas = len(self._split.sources)
        next_ones = [*(step % replicas for step in range(self._turn + 1, self._turn + 1 + replicas))]
        for turn in [*next_ones, *range(replicas, len(self._providers))]:
            if self._providers[turn] not in reasons:
                self._turn = turn
                return
        raise self._failure(reasons)

    @property
    def _count(self) -> int:
        """How many records to ask for."""
        return min(self._split.range.end - self._position, self._fetch_size, self._fitting)

    @staticmethod
    def _size_bytes(chunk: Chunk) -> int:
        return chunk.size_bytes + RECORD_OVERHEAD_BYTES * chunk.count

    async def _fetch(self) -> Chunk:
        """The answer of the present replica to the request made ahead, or to one made now."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            try:
                return self._checked(await ahead)
            except (ConnectionClosedError, DeadlineExceededError):
                await self._disconnect()  # not the replica's fault if this process was paused
        client = self._client
        if client is None:
            client = self._client = await self._connect()
        return self._checked(await self._request(client))

    async def _fetch_ahead(self) -> None:
        if self._client is not None and self._position < self._split.range.end:
            self._ahead = asyncio.create_task(self._request(self._client))
            for _ in range(2):  # the task sends, then the channel writes all that was sent in that turn
                await asyncio.sleep(0)

    def _request(self, client: RecordsClient) -> Coroutine[None, None, Chunk | None]:
        return client.records(self._split.range.partition_id, self._position, self._count)

    async def _connect(self) -> RecordsClient:
        if self._turn == len(self._split.sources):
            assert self._owner is not None
            return self._owner
        admin = self._split.sources[self._turn].admin
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await BulkClient.connect(
                    admin,
                    cluster_key=self._split.cluster_key,
                    partition_count=self._split.partition_count,
                    tls=self._tls,
                    timeout_s=self._request_timeout_s,
                )
        except TimeoutError:
            raise ConnectFailedError(f"cannot connect to {admin}: not ready within {CONNECT_TIMEOUT_S:g} s") from None

    def _checked(self, chunk: Chunk | None) -> Chunk:
        """Check that these are the records asked for; the client has verified payloads and order."""
        if chunk is None:
            raise _LagError(f"does not have transaction {self._position}")
        if chunk.first != self._position or chunk.count > self._split.range.end - self._position:
            raise ProtocolError(
                f"transactions {chunk.first} to {chunk.first + chunk.count - 1} were sent, which were not asked for"
            )
        return chunk

    async def _disconnect(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.wait((ahead,))
            if not ahead.cancelled():
                ahead.exception()  # retrieved, so that asyncio does not report it as never retrieved
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _failure(self, reasons: dict[str, str]) -> ReplicaReadError:
        partition_id, start, end = self._split.range
        listed = "; ".join(f"{provider}: {reason}" for provider, reason in reasons.items())
        return ReplicaReadError(
            f"partition {partition_id}, transactions {start} to {end - 1}: "
            f"no replica delivers transaction {self._position}: {listed}"
        )
