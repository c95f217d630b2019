"""A small application of the log for integration tests: it remembers what it was told."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.locks import PartitionLocalLock
from waltz.client.transaction import Transaction
from waltz.common.config.schemas import ClientConfig, load
from waltz.local.cluster import LocalCluster


class Application(WaltzClientCallbacks):
    """Applies transactions by keeping them: ``applied[partition_id]`` lists ids and data in the order of the calls."""

    def __init__(self) -> None:
        self.applied: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self.errors: list[BaseException] = []

    def client_high_water_mark(self, partition_id: int) -> int:
        return len(self.applied[partition_id]) - 1

    async def apply_transaction(self, transaction: Transaction) -> None:
        data = await transaction.data_bytes()
        self.applied[transaction.partition_id].append((transaction.transaction_id, data))

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        self.errors.append(error)


class Append(TransactionContext):
    """One append; ``outcome`` is true when it was committed and applied, or the exception that ended it."""

    def __init__(self, partition_id: int, data: bytes, locks: Iterable[PartitionLocalLock] = ()) -> None:
        self._partition_id = partition_id
        self._locks = list(locks)
        self.data = data
        self.completions: list[bool] = []
        self.lock_failures = 0
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def partition_id(self, partition_count: int) -> int:
        return self._partition_id

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_data(self.data)
        builder.set_write_locks(self._locks)
        return True

    def on_completion(self, committed: bool) -> None:
        self.completions.append(committed)

    def on_application(self) -> None:
        self.outcome.set_result(True)

    def on_lock_failure(self) -> None:
        self.lock_failures += 1

    def on_exception(self, error: Exception) -> None:
        self.outcome.set_exception(error)


def client_config(cluster: LocalCluster, in_flight: int = 64) -> ClientConfig:
    """The configuration of a client of the cluster."""
    config = load(cluster.layout.client_config_path, ClientConfig)
    return config.model_copy(update={"max_concurrent_transactions": in_flight})


async def append_all(client: WaltzClient, appends: list[Append], timeout_s: float = 60) -> None:
    """Submit all and wait until each has been applied."""
    async with asyncio.timeout(timeout_s):
        for append in appends:
            await client.submit(append)
        await asyncio.gather(*(append.outcome for append in appends))
