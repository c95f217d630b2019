"""The committed records of a partition, read from its replicas in the form they have on disk."""

import logging
import random
import sys
from array import array
from typing import Protocol

from waltz.archive.object_format import Records
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import Source, read_replicas
from waltz.common.errors import WaltzError
from waltz.common.zk.znodes import StoreParams
from waltz.storage.disk.segment.segment_format import encode_record
from waltz.storage.remote.admin_client import StorageAdminClient

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
"""Maximum time of a request without any byte sent or received."""

TARGET_ANSWER_BYTES = 4 << 20
FIRST_ANSWER_RECORDS = 100
"""Number of records in the first request, before their size is known."""

MAX_ANSWER_RECORDS = 50_000


class SourceError(WaltzError):
    """A replica does not deliver records. Another replica may."""


class RecordSource(Protocol):
    """Delivers records of one partition in order."""

    async def read(self, first: int, max_count: int) -> Records:
        """Read one record or more, from ``first`` on. The records are not verified.

        Raises:
            SourceError: No replica delivers the record.
        """

    async def reject(self, reason: str) -> None:
        """Report that the last records read are damaged; the next read goes to another replica.

        Raises:
            SourceError: There is no other replica.
        """

    async def close(self) -> None:
        """Close the connections."""


class ReplicaSource:
    """One replica."""

    def __init__(self, client: StorageAdminClient, partition_id: int, storage: str) -> None:
        """Use :func:`connect_replica`."""
        self._client = client
        self._partition_id = partition_id
        self._storage = storage
        self._fitting = FIRST_ANSWER_RECORDS

    async def read(self, first: int, max_count: int) -> Records:
        count = min(max_count, self._fitting, MAX_ANSWER_RECORDS)
        try:
            stored = await self._client.stored_records(self._partition_id, first, count)
            if stored is None:
                pieces = [encode_record(each) for each in await self._client.records(self._partition_id, first, count)]
                found = Records(b"".join(pieces), [*map(len, pieces)])
            else:
                found = Records(stored[1], _integers(stored[0]))
        except WaltzError as error:
            raise SourceError(f"{self._storage}: {error}") from error
        if not found.sizes or len(found.sizes) > count:
            raise SourceError(
                f"{self._storage} does not hold transaction {first} of partition {self._partition_id}, "
                "although it is committed"
            )
        self._fitting = max(1, TARGET_ANSWER_BYTES * len(found.sizes) // len(found.data))
        return found

    async def reject(self, reason: str) -> None:
        raise SourceError(f"{self._storage}: {reason}")

    async def close(self) -> None:
        await self._client.close()


def _integers(data: bytes) -> "array[int]":
    found = array("i")
    found.frombytes(data[: len(data) - len(data) % found.itemsize])
    if sys.byteorder == "little":
        found.byteswap()
    return found


async def connect_replica(
    cluster: ClusterHandle, store: StoreParams, partition_id: int, source: Source
) -> RecordSource:
    """Connect to one replica.

    Raises:
        SourceError: The connection fails.
    """
    try:
        client = await StorageAdminClient.connect(
            source.admin,
            cluster_key=store.key,
            partition_count=store.partition_count,
            tls=cluster.tls,
            timeout_s=REQUEST_TIMEOUT_S,
        )
    except WaltzError as error:
        raise SourceError(f"{source.storage}: {error}") from error
    return ReplicaSource(client, partition_id, source.storage)


async def choose(cluster: ClusterHandle, partition_id: int) -> tuple[Source, ...]:
    """The replicas that may be read up to a mark that was read before this call (rule S6), in random order.

    Raises:
        SourceError: There are none.
        WaltzError: ZooKeeper failed.
    """
    chosen = (await read_replicas(cluster.zookeeper, cluster.root, [partition_id])).choose(partition_id)
    if not chosen.sources:
        reasons = "; ".join(f"{storage}: {reason}" for storage, reason in chosen.refused.items())
        raise SourceError(f"no replica of partition {partition_id} may serve a read: {reasons or 'there are none'}")
    return tuple(random.sample(chosen.sources, len(chosen.sources)))


class AnyReplica:
    """A ``RecordSource`` of several replicas: when one fails, the next one follows."""

    def __init__(
        self, cluster: ClusterHandle, store: StoreParams, partition_id: int, sources: tuple[Source, ...]
    ) -> None:
        """``sources`` are those of :func:`choose`."""
        self._cluster = cluster
        self._store = store
        self._partition_id = partition_id
        self._left = [*reversed(sources)]
        self._present: RecordSource | None = None
        self._reasons: list[str] = []

    async def read(self, first: int, max_count: int) -> Records:
        while self._present is not None or self._left:
            try:
                if self._present is None:
                    source = self._left.pop()
                    self._present = await connect_replica(self._cluster, self._store, self._partition_id, source)
                return await self._present.read(first, max_count)
            except SourceError as error:
                await self._leave(str(error))
        raise SourceError(
            f"no replica delivers transaction {first} of partition {self._partition_id}: {'; '.join(self._reasons)}"
        )

    async def reject(self, reason: str) -> None:
        await self._leave(reason)

    async def close(self) -> None:
        present, self._present = self._present, None
        if present is not None:
            await present.close()

    async def _leave(self, reason: str) -> None:
        logger.warning("%s", reason)
        self._reasons.append(reason)
        await self.close()
