"""The mock driver, which a test gives to the client library in place of a cluster."""

import random
import threading
import weakref
from collections.abc import Sequence

from waltz.client.callbacks import WaltzClient
from waltz.client.context import WaltzClientCallbacks
from waltz.client.engine.environment import Driver, Environment
from waltz.client.mock.cluster import FixedCluster
from waltz.client.mock.connection import MockConnection
from waltz.client.mock.partition import MockServerPartition
from waltz.client.mock.transport import MemoryConnector
from waltz.client.options import ClientOptions
from waltz.common.config.schemas import ClientConfig, from_mapping
from waltz.common.ids import Endpoint
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.zk.znodes import PartitionGeneration

CLUSTER_NAME = "mock"
LONG_WAIT_THRESHOLD_MS = 200
"""Time after which the client asks for lost appends; much shorter than in production."""

_ENDPOINT = Endpoint("mock", 1)


class MockDriver(Driver):
    """Servers in memory, with faults on command.

    Give it to :func:`waltz.connect` or :func:`waltz.blocking.connect` in place of a configuration, or open a client
    with callbacks by :meth:`open_client`. Drivers with the same ``partitions`` are clients of the same cluster; a
    number makes that number of own partitions. May be used from any thread.

    Examples:
        ```python
        from waltz.client.mock import MockDriver

        driver = MockDriver(4)
        async with waltz.connect(driver) as client:
            driver.suspend_feed()  # what is appended is committed, but nobody is told
            with pytest.raises(waltz.OutcomeUnknownError):
                await client.append(0, b"hello", timeout_s=0.05)
            driver.resume_feed()
        assert driver.partitions[0].transactions[0].data == b"hello"
        ```
    """

    def __init__(
        self,
        partitions: Sequence[MockServerPartition] | int = 1,
        *,
        client_id: int | None = None,
        versions: tuple[int, ...] = CLIENT_SERVER.versions,
        random_source: random.Random | None = None,
    ) -> None:
        """``client_id`` is that of its first client; by default ids are unique in this process."""
        self.partitions = MockServerPartition.create(partitions) if isinstance(partitions, int) else list(partitions)
        self.max_delay_s = 0.0
        """Each append takes a random time up to this."""
        self.fault_rate = 0.0
        """Probability that an append gets lost: nothing is stored, and nothing is sent."""
        self.silent_faults = True
        """With version 5, servers can say that an append failed; when this is off, lost appends are told of at once."""
        self.suspended = False
        self.serves_tables = True
        """Served tables (``view="served"``) need no view node; when this is off, their calls find none."""
        self._client_id = client_id
        self._versions = versions
        self._random = random_source or random.Random()
        self._forced_append_failures = 0
        self._forced_lock_failures = 0
        self._mutex = threading.Lock()
        self._connections: weakref.WeakSet[MockConnection] = weakref.WeakSet()

    # Faults of appends

    def force_next_append_fail(self) -> None:
        """The next append of this driver gets lost."""
        with self._mutex:
            self._forced_append_failures += 1

    def force_next_lock_fail(self) -> None:
        """The next append of this driver that does not get lost has a lock conflict (at transaction -1)."""
        with self._mutex:
            self._forced_lock_failures += 1

    def suspend_feed(self) -> None:
        """Deliver nothing to the clients of this driver; their appends are still committed."""
        self.suspended = True

    def resume_feed(self) -> None:
        """Deliver the held back messages, and resume the feed."""
        self.suspended = False
        for connection in list(self._connections):
            connection.resume_soon()

    def disconnect(self) -> None:
        """Break the connections of all clients; they connect again by themselves."""
        for connection in list(self._connections):
            connection.break_soon()

    def next_delay_s(self) -> float:
        return self._random.random() * self.max_delay_s if self.max_delay_s else 0.0

    def next_append_fails(self) -> bool:
        with self._mutex:
            if self._forced_append_failures:
                self._forced_append_failures -= 1
                return True
            return self.fault_rate > 0 and self._random.random() < self.fault_rate

    def next_lock_fails(self) -> bool:
        with self._mutex:
            if not self._forced_lock_failures:
                return False
            self._forced_lock_failures -= 1
            return True

    # Clients

    async def open_client(
        self,
        callbacks: WaltzClientCallbacks,
        *,
        auto_mount: bool = True,
        num_transaction_retry_threads: int = 1,
        max_concurrent_transactions: int = 5,
        long_wait_threshold_ms: int = LONG_WAIT_THRESHOLD_MS,
        options: ClientOptions | None = None,
    ) -> WaltzClient:
        """A client with callbacks; to be closed. The arguments are those of the configuration."""
        settings = {
            "autoMount": auto_mount,
            "numTransactionRetryThreads": num_transaction_retry_threads,
            "maxConcurrentTransactions": max_concurrent_transactions,
            "longWaitThreshold": long_wait_threshold_ms,
        }
        return await WaltzClient.open_in(self.environment(options or ClientOptions(), **settings), callbacks)

    def environment(self, options: ClientOptions, **settings: object) -> Environment:
        """The environment of one client; ``settings`` are keys of its configuration below ``client``."""
        with self._mutex:
            client_id, self._client_id = self._client_id, None
        partitions = [PartitionGeneration(partition.partition_id, 0) for partition in self.partitions]
        client_ids = () if client_id is None else (client_id,)
        endpoints = {_ENDPOINT: partitions}
        nodes = self.partitions[0].nodes if self.partitions else None
        cluster = FixedCluster(CLUSTER_NAME, len(partitions), endpoints, client_ids=client_ids, nodes=nodes)
        connector = MemoryConnector(self._versions, self._connection)
        return Environment(_config(**settings), cluster, connector, options, serves_tables=lambda: self.serves_tables)

    def _connection(self) -> MockConnection:
        connection = MockConnection(self.partitions, self)
        self._connections.add(connection)
        return connection


def _config(**values: object) -> ClientConfig:
    document: dict[str, object] = {
        "zookeeper.connectString": "mock:1",
        "zookeeper.sessionTimeout": 30_000,
        "cluster.root": "/mock",
        "client.ssl.plaintext": True,
        "client.longWaitThreshold": LONG_WAIT_THRESHOLD_MS,
    }
    document.update({f"client.{key}": value for key, value in values.items()})
    return from_mapping(document, ClientConfig)
