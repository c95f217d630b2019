"""Load for clients whose connections are disturbed, and what has to be true of it in the end."""

import asyncio
from collections import Counter

import waltz
from waltz.client.callbacks import WaltzClient

COMMITTED = ["completed True", "applied"]
"""The calls of a context whose transaction was committed."""


class LoadCallbacks(waltz.WaltzClientCallbacks):
    """Notes what is applied, and starts where the log ended before."""

    def __init__(self, marks: dict[int, int]) -> None:
        self.marks = marks
        self.applied: dict[int, list[tuple[int, bytes]]] = {partition_id: [] for partition_id in marks}
        self.errors: list[BaseException] = []

    def client_high_water_mark(self, partition_id: int) -> int:
        return self.marks[partition_id]

    def apply_transaction(self, transaction: waltz.Transaction) -> None:
        self.applied[transaction.partition_id].append((transaction.transaction_id, transaction.req_id))

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        self.errors.append(error)


class LoadContext(waltz.TransactionContext):
    """Counts every callback, and says when it has ended."""

    def __init__(self, partition_id: int, data: bytes, lock: waltz.PartitionLocalLock) -> None:
        self.partition = partition_id
        self.data = data
        self.lock = lock
        self.calls: list[str] = []
        self.ended = asyncio.get_running_loop().create_future()

    def partition_id(self, partition_count: int) -> int:
        return self.partition

    def execute(self, builder: waltz.TransactionBuilder) -> bool:
        builder.set_data(self.data)
        builder.set_write_locks([self.lock])
        return True

    def on_completion(self, committed: bool) -> None:
        self.calls.append(f"completed {committed}")

    def on_application(self) -> None:
        self.calls.append("applied")
        self.ended.set_result(None)

    def on_exception(self, error: Exception) -> None:
        self.calls.append(repr(error))
        if not self.ended.done():
            self.ended.set_result(None)


class Load:
    """Workers that submit one transaction after the other until they are told to stop."""

    def __init__(self, client: WaltzClient, name: str, workers: int) -> None:
        self.contexts: list[LoadContext] = []
        self.stopping = False
        self._client = client
        self._name = name
        self._workers = workers

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(number))

    async def _work(self, worker: int) -> None:
        count = 0
        while not self.stopping:
            partition_id = (worker + count) % self._client.partition_count
            data = f"{self._name} {worker} {count}".encode()
            context = LoadContext(partition_id, data, waltz.PartitionLocalLock("account", count % 7))
            self.contexts.append(context)
            count += 1
            try:
                await self._client.submit(context)
            except waltz.ClientTimeoutError:
                continue  # the network was away for too long: it was told by on_exception
            await context.ended

    @property
    def committed_count(self) -> int:
        return sum(context.calls == COMMITTED for context in self.contexts)

    def check(self, callbacks: LoadCallbacks, log: dict[int, list[waltz.Record]]) -> None:
        """Check that every transaction was applied exactly once; ``log`` has the log of each partition."""
        assert not callbacks.errors
        for partition_id, applied in callbacks.applied.items():
            expected = [(record.transaction_id, record.req_id) for record in log[partition_id]]
            assert applied == expected, f"partition {partition_id}: not exactly the log"
        stored = Counter(record.data for records in log.values() for record in records)
        for context in self.contexts:
            if context.calls == COMMITTED:
                assert stored[context.data] == 1, context.data
            else:
                assert len(context.calls) == 1, context.calls
                assert "Timeout" in context.calls[0], context.calls
                assert not stored[context.data]
