"""What the plain face rests on: a client that follows the log of the partitions that are used, and applies nothing."""

import weakref
from typing import Protocol, runtime_checkable

from waltz.client.callbacks import WaltzClient
from waltz.client.context import WaltzClientCallbacks
from waltz.client.engine.feed import Followed
from waltz.client.errors import ClientClosedError, PartitionInactiveError, PartitionNotFoundError
from waltz.client.options import ClientOptions
from waltz.client.plain.joined import JoinedPartition
from waltz.client.transaction import Transaction
from waltz.common.config import ClientConfig
from waltz.common.errors import WaltzError
from waltz.common.records import Record
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.kazoo_client import connect as connect_zookeeper

_CONNECT_TIMEOUT_S = 30.0


class ListRequest(Protocol):
    """A bulk read on its way; see :class:`~waltz.client.engine.data_lists.PendingList`."""

    max_count: int
    high_water_mark: int

    @property
    def done(self) -> bool:
        """Whether :meth:`wait` returns at once."""
        ...

    async def wait(self) -> list[Record]:
        """The records."""
        ...


class Core(Protocol):
    """The members of :class:`FollowingClient` that the plain face uses; the mock driver has them, too."""

    @property
    def client_id(self) -> int:
        """Id of the client in the cluster."""
        ...

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        ...

    @property
    def partition_count(self) -> int:
        """Number of partitions."""
        ...

    async def join(self, partition_id: int) -> JoinedPartition:
        """Follow a partition from its present high-water mark on."""
        ...

    def obstacle(self, partition_id: int) -> WaltzError | None:
        """What keeps the partition from being asked for anything at present, as far as that is known."""
        ...

    async def advanced(self, partition_id: int, transaction_id: int) -> None:
        """Return when the transaction is committed."""
        ...

    async def high_water_mark(self, partition_id: int, *, timeout_s: float | None = None) -> int:
        """Ask the server."""
        ...

    def request_list(self, partition_id: int, first_id: int, max_count: int, max_bytes: int) -> ListRequest:
        """Begin a bulk read."""
        ...

    async def close(self) -> None:
        """Close."""
        ...


class ReadingClient(Protocol):
    """A client that reads a partition by applying it."""

    async def set_partitions(self, partition_ids: set[int]) -> None:
        """Take part in these."""
        ...

    async def close(self) -> None:
        """Close."""
        ...


class Cores(Protocol):
    """Makes what the plain face needs."""

    async def open_core(self) -> Core:
        """The core."""
        ...

    async def open_reader(self, callbacks: WaltzClientCallbacks) -> ReadingClient:
        """Another client, of no partition at first, for reading from servers without bulk reads."""
        ...

    async def close(self) -> None:
        """Close what all of them share."""
        ...


@runtime_checkable
class Driver(Protocol):
    """Stands in for a cluster: a :class:`~waltz.client.mock.driver.MockDriver`."""

    def cores(self, max_in_flight: int, options: ClientOptions | None) -> Cores:
        """For one plain client."""
        ...

    async def open_client(
        self, callbacks: WaltzClientCallbacks, *, options: ClientOptions | None = None
    ) -> WaltzClient:
        """A client with callbacks."""
        ...


class Nobody(Followed):
    """Never called."""

    __slots__ = ()

    def client_high_water_mark(self, partition_id: int) -> int:
        raise NotImplementedError

    def apply_transaction(self, transaction: Transaction) -> None:
        raise NotImplementedError

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        raise NotImplementedError


class FollowingClient(WaltzClient):
    """A client of no partition at first; :meth:`join` adds one."""

    async def join(self, partition_id: int) -> JoinedPartition:
        """Follow a partition from its present high-water mark on, which its server tells.

        Raises ``PartitionNotFoundError``, ``DeadlineExceededError`` and ``ClientClosedError``.
        """
        if not 0 <= partition_id < self.partition_count:
            raise PartitionNotFoundError(partition_id)
        if partition_id not in self._active:
            high_water_mark = await self._rpc.high_water_mark(partition_id)  # nobody else has to wait for that

            async def known(partition_id: int) -> int:
                return high_water_mark

            async with self._changing_partitions:
                if partition_id not in self._active:
                    await self._activate_only(self._active | {partition_id}, known)
        return self._stream.partitions[partition_id].appends

    def obstacle(self, partition_id: int) -> WaltzError | None:
        """What keeps the partition from being asked for anything at present, as far as that is known."""
        return self._rpc.partitions[partition_id].obstacle

    async def advanced(self, partition_id: int, transaction_id: int) -> None:
        """Return when the transaction is known to be committed; raises when the client is closed."""
        partition = self._stream.partitions[partition_id]
        while partition.feed.applied < transaction_id:
            if self._closed:
                raise ClientClosedError
            if not partition.active:
                raise PartitionInactiveError(partition_id)
            await partition.feed.advanced.wait()

    def request_list(self, partition_id: int, first_id: int, max_count: int, max_bytes: int) -> ListRequest:
        """Begin a bulk read."""
        return self._rpc.partitions[partition_id].request_list(first_id, max_count, max_bytes)


class ClusterCores:
    """Clients of one cluster that share one ZooKeeper session."""

    def __init__(self, config: ClientConfig, options: ClientOptions | None, zookeeper: ZooKeeper | None) -> None:
        self._config = config.model_copy(update={"auto_mount": False})
        self._options = options
        self._zookeeper = zookeeper
        self._own_zookeeper: ZooKeeper | None = None
        self._readers: weakref.WeakSet[WaltzClient] = weakref.WeakSet()  # the tasks of each keep it alive

    async def open_core(self) -> FollowingClient:
        """The core; raises as ``WaltzClient.open``."""
        return await FollowingClient.open(
            Nobody(), self._config, zookeeper=await self._session(), options=self._options
        )

    async def open_reader(self, callbacks: WaltzClientCallbacks) -> WaltzClient:
        """Another client of no partition."""
        reader = await WaltzClient.open(callbacks, self._config, zookeeper=await self._session(), options=self._options)
        self._readers.add(reader)
        return reader

    async def close(self) -> None:
        """Close the readers, and the ZooKeeper session unless it was given."""
        for reader in list(self._readers):
            await reader.close()
        zookeeper, self._own_zookeeper = self._own_zookeeper, None
        if zookeeper is not None:
            await zookeeper.close()

    async def _session(self) -> ZooKeeper:
        if self._zookeeper is None:
            self._zookeeper = self._own_zookeeper = await connect_zookeeper(
                self._config.zookeeper_connect_string,
                session_timeout_s=self._config.zookeeper_session_timeout_ms / 1000,
                connect_timeout_s=_CONNECT_TIMEOUT_S,
            )
        return self._zookeeper
