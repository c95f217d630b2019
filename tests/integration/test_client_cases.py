"""The cases that the original asserts of its client, with callbacks, against real servers."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import waltz
from tests.unit.client.application import AsyncCallbacks, AsyncContext, Callbacks, Context
from tests.unit.client.fake_server import until
from waltz.common.config.schemas import ClientConfig, load
from waltz.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


class Clients:
    """Opens clients at the present end of the log, and closes them."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._config = load(cluster.layout.client_config_path, ClientConfig)
        self._open: list[waltz.WaltzClient] = []
        self.marks: dict[int, int] = {}

    async def read_marks(self) -> None:
        async with waltz.connect(self._config) as plain:
            self.marks = {p: await plain.high_water_mark(p) for p in range(plain.partition_count)}

    async def __call__(self, callbacks: Callbacks, **values: object) -> waltz.WaltzClient:
        callbacks.marks = {**self.marks, **callbacks.marks}
        client = await waltz.WaltzClient.open(callbacks, self._config.model_copy(update=values))
        self._open.append(client)
        return client

    async def close(self) -> None:
        for client in self._open:
            await client.close()


@pytest_asyncio.fixture
async def clients(cluster: LocalCluster) -> AsyncIterator[Clients]:
    made = Clients(cluster)
    await made.read_marks()
    yield made
    await made.close()


def locks(count: int = 2) -> list[waltz.PartitionLocalLock]:
    name = str(uuid.uuid4())
    return [waltz.PartitionLocalLock(name, number) for number in range(count)]


async def run(client: waltz.WaltzClient, *contexts: Context) -> None:
    for context in contexts:
        await client.submit(context)
    await until(lambda: all(context.done for context in contexts))


@pytest.mark.parametrize("kinds", [(Callbacks, Context), (AsyncCallbacks, AsyncContext)], ids=["plain", "async"])
async def test_with_retries_all_of_a_crowd_commit(clients: Clients, kinds: tuple[Any, Any]) -> None:
    callbacks_kind, context_kind = kinds
    callbacks = callbacks_kind()
    client = await clients(callbacks, max_concurrent_transactions=16)
    lock, _ = locks()
    contexts = [context_kind(write=[lock]) for _ in range(40)]
    await run(client, *contexts)
    assert all(context.events[-2:] == [("completed", True), "applied"] for context in contexts)
    first = clients.marks[0] + 1
    assert callbacks.applied[0] == list(range(first, first + 40))
    await client.flush_transactions()
    assert not client.has_pending_transactions()


async def test_of_two_on_the_same_state_the_first_commits(clients: Clients) -> None:
    client = await clients(Callbacks())
    lock, other = locks()
    contexts = [
        Context(write=[lock], attempts=1),
        Context(write=[lock], attempts=1),
        Context(write=[other], attempts=1),
    ]
    await run(client, *contexts)
    assert [context.events[-1] for context in contexts] == ["applied", ("completed", False), "applied"]
    readers = [Context(read=[other], attempts=1), Context(read=[other], attempts=1)]
    await run(client, *readers)
    assert [context.events[-1] for context in readers] == ["applied", "applied"]


async def test_clients_catch_up(clients: Clients) -> None:
    client = await clients(Callbacks(), max_concurrent_transactions=32)
    await run(client, *[Context(b"%d" % number) for number in range(100)])
    end = clients.marks[0] + 100
    for behind in (50, 30):
        callbacks = Callbacks({0: end - behind})
        await clients(callbacks)
        await until(lambda callbacks=callbacks: callbacks.marks[0] == end)  # type: ignore[misc]  # a bound default
        assert callbacks.applied[0] == list(range(end - behind + 1, end + 1))


async def test_applications_that_fail_once_for_each(clients: Clients) -> None:
    class Failing(Callbacks):
        def __init__(self) -> None:
            super().__init__()
            self.failed: set[int] = set()

        async def apply_transaction(self, transaction: waltz.Transaction) -> None:
            await transaction.data_bytes()
            if transaction.transaction_id not in self.failed:
                self.failed.add(transaction.transaction_id)
                raise ValueError("not yet")
            self.record(transaction)

    callbacks = Failing()
    client = await clients(callbacks)
    contexts = [Context() for _ in range(50)]
    await run(client, *contexts)
    assert all(context.events == [("completed", True), "applied"] for context in contexts)
    assert len(callbacks.uncaught) == 50


async def test_sets_of_partitions(clients: Clients) -> None:
    callbacks = Callbacks()
    client = await clients(callbacks, auto_mount=False)
    with pytest.raises(waltz.PartitionInactiveError):
        await client.submit(Context())
    for chosen in ({1}, {0, 1}, {0}, set(), {0, 1}):
        await client.set_partitions(chosen)
        assert client.partitions == chosen
        await run(client, *[Context(partition_id=partition_id) for partition_id in chosen])
    assert {partition_id: len(ids) for partition_id, ids in callbacks.applied.items()} == {0: 3, 1: 3}


async def test_data_of_others_in_any_order(clients: Clients) -> None:
    read: dict[int, bytes] = {}

    class Reading(Callbacks):
        async def apply_transaction(self, transaction: waltz.Transaction) -> None:
            read[transaction.transaction_id] = await transaction.data_bytes()

    client = await clients(Callbacks(), max_concurrent_transactions=64)
    await clients(Reading())
    await run(client, *[Context(b"%d" % number) for number in range(200)])
    await until(lambda: len(read) == 200)
    assert sorted(read.values(), key=int) == [b"%d" % number for number in range(200)]


async def test_a_client_that_is_ahead(clients: Clients) -> None:
    client = await clients(Callbacks({0: clients.marks[0] + 1_000}))
    with pytest.raises(waltz.ClientAheadError):
        await client.submit(Context())


async def test_no_update_is_lost_whoever_is_writing(cluster: LocalCluster, clients: Clients) -> None:
    """Two plain clients with followers, one that reads the log each time, and one with callbacks, on one counter."""
    (lock,) = locks(1)
    prefix = f"{lock.name} ".encode()
    start = clients.marks[0]
    rounds = 15

    class Total(Callbacks):
        value = 0

        async def apply_transaction(self, transaction: waltz.Transaction) -> None:
            self.take(await transaction.data_bytes())
            self.record(transaction)

        def take(self, data: bytes) -> None:
            if data.startswith(prefix):
                self.value = int(data.removeprefix(prefix))

        def add_one(self, basis: waltz.Basis) -> waltz.Append:
            return waltz.Append(prefix + b"%d" % (self.value + 1), write_locks=[lock])

    async def follow(client: waltz.Client, total: Total) -> None:
        async for record in client.feed(0, after=start):
            total.take(record.data)

    async def with_follower() -> None:
        async with waltz.connect(cluster.layout.client_config_path) as client:
            total = Total()
            following = asyncio.create_task(follow(client, total))
            await asyncio.sleep(0)
            for _ in range(rounds):
                assert await client.transact(0, total.add_one) is not None
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def reading_the_log() -> None:
        async with waltz.connect(cluster.layout.client_config_path) as client:

            async def decide(basis: waltz.Basis) -> waltz.Append:
                total = Total()
                async for record in client.feed(0, after=start, until=basis.high_water_mark):
                    total.take(record.data)
                return total.add_one(basis)

            for _ in range(rounds):
                assert await client.transact(0, decide, reads_log=True) is not None

    async def with_callbacks() -> None:
        total = Total()
        client = await clients(total)
        for _ in range(rounds):
            assert await client.transact(0, total.add_one) is not None

    await asyncio.gather(with_follower(), with_follower(), reading_the_log(), with_callbacks())
    async with waltz.connect(cluster.layout.client_config_path) as client:
        end = await client.high_water_mark(0)
        written = [record.data async for record in client.feed(0, after=start, until=end)]
    counted = [int(data.removeprefix(prefix)) for data in written if data.startswith(prefix)]
    assert counted == list(range(1, 4 * rounds + 1))
