"""Reads committed records from the replicas of a session. After a failure the next replica is asked."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.records import Record, RecordHeader
from waltz.common.zk.znodes import ReplicaId
from waltz.server.store.connections import Lane, StorageConnections, StorageRpc
from waltz.server.store.interface import ReadFailedError, StoreOptions
from waltz.server.store.replica.replica import Replica
from waltz.server.store.replica.router import MAX_LATENCY_MS, LatencyWeightedRouter

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT", Record, RecordHeader)


class ReaderSession(Protocol):
    """The part of the session that reads use."""

    partition_id: int
    session_id: int
    connections: StorageConnections
    options: StoreOptions

    def noticed(self, error: Exception) -> bool:
        """Note that a request to a storage has failed. Returns whether that has ended the session, because a newer
        session exists (rule S2)."""
        ...


class ReplicaReader:
    """Chooses replicas by latency, among the replicas with the wanted records."""

    def __init__(self, session: ReaderSession, replicas: Sequence[Replica]) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._patience_s = session.options.stall_timeout_s / 4
        self._router: LatencyWeightedRouter[Replica] = LatencyWeightedRouter()
        for replica in replicas:
            self._router.add(replica)

    async def records(self, first_id: int, count: int, except_from: ReplicaId | None = None) -> list[Record]:
        """One to ``count`` records from ``first_id`` on, checksums verified. Raises :class:`ReadFailedError`.

        ``except_from`` is the replica that catches up by this read. A quorum may be waiting for it, so the next replica
        is asked sooner, after a time that is learnt from earlier reads.
        """
        ids, options = (self._session.session_id, self._session.partition_id), self._session.options
        timeout_s = options.read_timeout_s if except_from is None else self._patience_s
        return await self._read(
            lambda client: client.records(*ids, first_id, count, timeout_s=timeout_s), first_id, except_from
        )

    async def headers(self, first_id: int, count: int) -> list[RecordHeader]:
        """One to ``count`` headers from ``first_id`` on. Raises :class:`ReadFailedError`."""
        ids, timeout_s = (self._session.session_id, self._session.partition_id), self._session.options.read_timeout_s
        return await self._read(
            lambda client: client.record_headers(*ids, first_id, count, timeout_s=timeout_s), first_id
        )

    async def _read(
        self,
        request: Callable[[StorageRpc], Awaitable[list[ItemT]]],
        first_id: int,
        except_from: ReplicaId | None = None,
    ) -> list[ItemT]:
        tried: set[ReplicaId] = set() if except_from is None else {except_from}
        while True:
            replica = self._router.pick(lambda route: route.replica_id not in tried and route.holds(first_id))
            if replica is None:
                raise ReadFailedError(
                    f"partition {self._session.partition_id}: no replica can deliver transaction {first_id}"
                )
            tried.add(replica.replica_id)
            items = await self._ask(replica, request, first_id)
            if items:
                return items

    async def _ask(
        self,
        replica: Replica,
        request: Callable[[StorageRpc], Awaitable[list[ItemT]]],
        first_id: int,
    ) -> list[ItemT]:
        """The records of the replica; empty after a failure, which is logged."""
        started_s = self._loop.time()
        try:
            async with asyncio.timeout(self._session.options.read_timeout_s):
                client = await self._session.connections.client(replica.storage, Lane.READ)
            items = await request(client)
        except (WaltzError, OSError) as error:
            if self._session.noticed(error):
                raise ReadFailedError(str(error)) from None
            if isinstance(error, DeadlineExceededError):
                self._learn_patience(self._patience_s)
            logger.warning("partition %d: reading from %s: %s", self._session.partition_id, replica.storage, error)
            self._router.update(replica, MAX_LATENCY_MS)
            return []
        if not items:
            logger.error(
                "partition %d: storage %s has acknowledged transaction %d, but does not have it",
                self._session.partition_id,
                replica.storage,
                first_id,
            )
            self._router.update(replica, MAX_LATENCY_MS)
            return []
        took_s = self._loop.time() - started_s
        self._router.update(replica, took_s * 1000)
        self._learn_patience(took_s)
        return items

    def _learn_patience(self, took_s: float) -> None:
        """Learn the patience: twice the duration of a read. A time-out counts as the duration."""
        options = self._session.options
        self._patience_s = min(max(took_s * 2, options.stall_timeout_s / 4), options.read_timeout_s)
