"""When lock failures are told: after the commit of what they name, before the feed of a later append of that client.

A client takes an older append for lost as soon as a later one of its own comes in the feed. A lock failure that came
behind that would find nobody: the callbacks would not hear of the conflict.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.client.application import QUICK, Callbacks, Context, config
from tests.unit.server.fakes import FakeLog, PartitionSetup, append, channel_of, new_link, req_id, take
from waltz.client.client import WaltzClient
from waltz.client.context import TransactionContext
from waltz.client.locks import PartitionLocalLock
from waltz.client.retry_policy import RetryPolicy
from waltz.common.cluster.manager import PartitionGeneration
from waltz.common.ids import Endpoint
from waltz.common.metrics import Registry
from waltz.common.net.listener import Listener
from waltz.common.wire.client_server import FeedData, FeedRequest, LockFailure, Message
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.server.appends import AppendLimits
from waltz.server.caches import FeedCache, TransactionCache
from waltz.server.memory import MemoryBudget
from waltz.server.partition import PartitionOptions, ServerPartition
from waltz.server.partition_metrics import PartitionMetrics
from waltz.server.service import ServerService
from waltz.server.store.interface import Append, LogListener

CLIENTS = 3


class Submit(NamedTuple):
    """A client appends with a write lock, and a mark that is so far behind the log."""

    client: int
    lock: int
    behind: int


class Commit(NamedTuple):
    number: int


class Block(NamedTuple):
    """The connection of a client becomes not writable, or writable again."""

    client: int


class Run(NamedTuple):
    """Some turns of the loop pass: those behind are fed."""

    turns: int


submits = st.builds(Submit, st.integers(0, CLIENTS - 1), st.integers(1, 3), st.integers(0, 2))
steps = st.lists(
    st.one_of(
        submits,
        submits,
        submits,
        st.builds(Commit, st.integers(1, 6)),
        st.builds(Block, st.integers(0, CLIENTS - 1)),
        st.builds(Run, st.integers(1, 2)),
    ),
    max_size=60,
)


class Client:
    """What one client was sent, against what it may be sent."""

    def __init__(self, number: int, setup: PartitionSetup, promised: int) -> None:
        """The connection of client 0 is always writable."""
        self.promised = promised
        self.number = number
        self.setup = setup
        self.link = new_link(client_id=number, number=number, version=number % 6)
        self.submitted: list[bytes] = []
        self.told: dict[bytes, int] = {}
        self.fed = -1

    def receive(self) -> None:
        for message in take(self.link):
            self.check(message)

    def check(self, message: Message) -> None:
        if isinstance(message, FeedData):
            assert message.transaction_id == self.fed + 1
            self.fed = message.transaction_id
            if message.req_id in self.submitted:
                older = self.submitted[: self.submitted.index(message.req_id)]
                fed = {record.req_id for record in self.setup.log.records[: self.fed]}
                assert all(req_id in fed or req_id in self.told for req_id in older), "told before anything later"
        elif isinstance(message, LockFailure):
            assert message.req_id not in self.told, "one answer only"
            assert message.transaction_id <= self.setup.log.mark, "committed"
            self.told[message.req_id] = message.transaction_id
            if self.number == 0 and self.fed + 1 < self.promised:
                assert message.transaction_id <= self.fed, "who is at the tip has been fed what it names"


@settings(max_examples=300, deadline=None)
@given(steps, st.sampled_from([3, 10, 1000]))
def test_every_client_is_told_of_its_conflicts_in_time(
    actions: list[Submit | Commit | Block | Run], fetch_size: int
) -> None:
    async def scenario() -> None:
        setup = PartitionSetup(0, PartitionOptions(lock_table_size=1 << 14, min_fetch_size=fetch_size))
        setup.partition.start()
        setup.log.open_session()
        clients = [Client(number, setup, fetch_size) for number in range(CLIENTS)]
        for client in clients:
            setup.mounted(client.link)
            setup.partition.feed(client.link, FeedRequest(req_id(0, client.number), -1))
        for number, action in enumerate(actions, 1):
            if isinstance(action, Submit):
                client = clients[action.client]
                request = append(number, setup.log.mark - action.behind, [action.lock], client_id=action.client)
                client.submitted.append(request.req_id)
                setup.partition.append(client.link, [request])
            elif isinstance(action, Commit):
                if setup.log.undecided:
                    setup.log.commit(min(action.number, len(setup.log.undecided)))
            elif isinstance(action, Block):
                if action.client:
                    channel = channel_of(clients[action.client].link)
                    channel.writable = not channel.writable
                    if channel.writable:
                        clients[action.client].link.resume_paused()
            else:
                for _ in range(action.turns):
                    await asyncio.sleep(0)
            for client in clients:
                client.receive()
        if setup.log.undecided:
            setup.log.commit()
        for client in clients:
            channel_of(client.link).writable = True
            client.link.resume_paused()
        for _ in range(20):
            await asyncio.sleep(0)
        for client in clients:
            client.receive()
            log = {record.req_id for record in setup.log.records}
            assert set(client.submitted) == (set(client.submitted) & log) | set(client.told), "nobody is forgotten"
        await setup.partition.close()

    asyncio.run(scenario())


# With a real client, over a real connection


class BatchingLog(FakeLog):
    """Commits by itself, in batches of odd sizes."""

    def append(self, appends: Sequence[Append]) -> None:
        if not self.undecided:
            asyncio.get_running_loop().call_soon(self.commit_next)
        super().append(appends)

    def commit_next(self) -> None:
        self.commit(min(97, len(self.undecided)))
        if self.undecided:
            asyncio.get_running_loop().call_soon(self.commit_next)


@asynccontextmanager
async def server_of_version(version: int) -> AsyncIterator[Endpoint]:
    """A server with one partition that speaks no newer version."""
    registry = Registry()

    def make_log(listener: LogListener) -> BatchingLog:
        logs.append(BatchingLog(listener))
        logs[0].generation = 1
        return logs[0]

    def make_partition(partition_id: int, generation: int) -> ServerPartition:
        return ServerPartition(
            partition_id,
            generation,
            PartitionOptions(),
            feed_cache=FeedCache(1 << 20),
            transaction_cache=TransactionCache(1 << 20),
            metrics=PartitionMetrics(registry, partition_id),
            random_source=random.Random(1),
            memory=MemoryBudget(),
            log_factory=make_log,
        )

    async def check_storages() -> dict[str, bool]:
        return {}

    async def set_preferred(partition_ids: Sequence[int]) -> None: ...

    logs: list[BatchingLog] = []
    service = ServerService(
        make_partition,
        partition_count=1,
        append_limits=AppendLimits(1 << 20, 10_000),
        question_timeout_s=10,
        check_storages=check_storages,
        set_preferred=set_preferred,
    )
    family = CLIENT_SERVER._replace(versions=tuple(range(version + 1)))
    listener = await Listener.open("127.0.0.1", 0, family, "Waltz Server", service.connection, tls=None)
    service.set_partitions({0: 1})
    logs[0].open_session()
    try:
        yield Endpoint("127.0.0.1", listener.port)
    finally:
        await service.close()
        await listener.close()


async def joined(client: WaltzClient, endpoint: Endpoint) -> WaltzClient:
    client.cluster_joined("test", 7, 1)
    client.set_endpoints({endpoint: [PartitionGeneration(0, 1)]})
    await client.activate()
    return client


class Conflicting(Context):
    """Attempted once; notes what it is told."""

    retry_policy = RetryPolicy(max_attempts=1)


TOTAL = 500


@pytest.mark.timeout(60)
@pytest.mark.parametrize("version", range(6))
async def test_every_conflict_is_told_to_its_context(version: int) -> None:
    """Of pairs with one lock the second conflicts with the first; an append without locks is always behind it."""
    async with server_of_version(version) as endpoint:
        client = await joined(
            WaltzClient(Callbacks(), config(maxConcurrentTransactions=3 * TOTAL), tls=None, options=QUICK), endpoint
        )
        try:
            conflicting: list[Conflicting] = []
            for number in range(TOTAL):  # all in one turn of the loop, so that nothing is applied in between
                lock = [PartitionLocalLock("pair", number)]
                conflicting.append(Conflicting(write=lock))
                contexts: list[TransactionContext] = [Context(write=lock), conflicting[-1], Context()]
                for context in contexts:
                    await client.submit(context)
            await client.flush_transactions()
        finally:
            await client.close()
        told = [found.events for found in conflicting]
        assert told == [["lock failure", ("completed", False)]] * TOTAL
