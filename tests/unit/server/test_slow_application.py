"""One partition that is applied slowly beside one that is applied at once, on the connection of one client."""

import asyncio
from collections.abc import Awaitable

import pytest

from tests.unit.client.application import QUICK, Callbacks, Context, config, open_client
from tests.unit.client.fake_server import until
from tests.unit.server.fakes import FakeLog
from tests.unit.server.serving import GENERATION, BatchingLog, serving
from waltz.client.callbacks import WaltzClient
from waltz.client.locks import PartitionLocalLock
from waltz.client.transaction import Transaction
from waltz.common.ids import Endpoint
from waltz.common.wire.client_server import MAX_FEED_COUNT
from waltz.common.zk.znodes import PartitionGeneration
from waltz.server.store.interface import LogListener

LENGTH = 20_000
ROOM = QUICK.feed_queue_low + MAX_FEED_COUNT
HEALTHY = 200

pytestmark = pytest.mark.timeout(120)


class LongLog(BatchingLog):
    """Has a past."""

    def __init__(self, listener: LogListener) -> None:
        super().__init__(listener, LENGTH)


class Slow(Callbacks):
    """Applies nothing of partition 0 until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_apply = asyncio.Event()
        self.most_waiting = 0
        self.client: WaltzClient | None = None

    def apply_transaction(self, transaction: Transaction) -> Awaitable[None] | None:
        if transaction.partition_id == 0:
            assert self.client is not None
            self.most_waiting = max(self.most_waiting, self.client._engine.partitions[0].feed.backlog)
            return self._apply_later(transaction)
        self.record(transaction)
        return None

    async def _apply_later(self, transaction: Transaction) -> None:
        await self.may_apply.wait()
        self.record(transaction)


async def joined(callbacks: Slow, endpoint: Endpoint, client_id: int = 7) -> WaltzClient:
    endpoints = {endpoint: [PartitionGeneration(number, GENERATION) for number in (0, 1)]}
    client = callbacks.client = await open_client(
        callbacks, endpoints, 2, config(maxConcurrentTransactions=100), client_id=client_id
    )
    return client


async def commit_one_by_one(client: WaltzClient, count: int) -> None:
    for _ in range(count):
        healthy = Context(partition_id=1)
        await client.submit(healthy)
        await until(lambda healthy=healthy: healthy.done)  # type: ignore[misc]  # a lambda with a default
        assert healthy.events == [("completed", True), "applied"]


async def test_a_partition_that_is_mounted_far_behind_holds_up_nothing_else() -> None:
    """It gets as much as it has room for, and the connection is read all the time."""
    logs: dict[int, type[FakeLog]] = {0: LongLog, 1: BatchingLog}
    async with serving(logs) as (endpoint, _):
        callbacks = Slow()
        client = await joined(callbacks, endpoint)
        try:
            slow = client._engine.partitions[0]
            link = slow.mount.link
            assert link is not None
            await until(lambda: slow.feed.received == MAX_FEED_COUNT - 1)
            await commit_one_by_one(client, HEALTHY)
            assert not link._paused_by
            assert slow.feed.received == MAX_FEED_COUNT - 1
            assert slow.mount.channel is None, "it has not seen what was committed before the mount"

            late = Context(partition_id=0, write=[PartitionLocalLock("row", 1)])
            submitting = asyncio.create_task(client.submit(late))
            callbacks.may_apply.set()
            await submitting
            await until(lambda: late.done)
            assert late.events == [("completed", True), "applied"]
            assert late.executed == 1, "nothing was committed since it was mounted"
            assert callbacks.applied[0] == list(range(LENGTH + 1))
            assert callbacks.most_waiting <= ROOM
        finally:
            await client.close()


async def test_a_partition_that_falls_behind_holds_up_nothing_else() -> None:
    """Whoever else appends to it: it hears of what it has room for, and of its own appends behind that."""
    async with serving({0: BatchingLog, 1: BatchingLog}) as (endpoint, logs):
        callbacks, other = Slow(), Slow()
        other.may_apply.set()
        client, writer = await joined(callbacks, endpoint), await joined(other, endpoint, 8)
        try:
            own = Context(partition_id=0)
            await client.submit(own)
            for _ in range(LENGTH // 100):
                batch = [Context(partition_id=0) for _ in range(100)]
                for context in batch:
                    await writer.submit(context)
                await writer.flush_transactions()
            later = Context(partition_id=0)
            await client.submit(later)
            await commit_one_by_one(client, HEALTHY)
            slow = client._engine.partitions[0]
            assert slow.mount.link is not None
            assert not slow.mount.link._paused_by
            assert slow.feed.backlog <= ROOM
            assert slow.appends.monitor.pending, "the fate of its own append comes with the feed"
            callbacks.may_apply.set()
            await until(lambda: later.done)
            assert later.events == [("completed", True), "applied"]
            assert callbacks.applied[0] == list(range(logs[0].mark + 1))
        finally:
            await client.close()
            await writer.close()


async def test_a_backlog_does_not_grow_with_every_new_connection() -> None:
    """A partition is mounted anew when it has room again; the others at once."""
    logs: dict[int, type[FakeLog]] = {0: LongLog, 1: BatchingLog}
    async with serving(logs) as (endpoint, _):
        callbacks = Slow()
        client = await joined(callbacks, endpoint)
        try:
            slow, quick = client._engine.partitions
            link = slow.mount.link
            assert link is not None
            await until(lambda: slow.feed.received == MAX_FEED_COUNT - 1)
            for number in range(5):
                before = link.seq_num
                link.reconnect(f"for the {number}th time")
                await until(lambda before=before: link.seq_num > before)  # type: ignore[misc]  # a lambda with a default
                await until(lambda: quick.mount.channel is not None)
                await commit_one_by_one(client, 10)
                assert slow.feed.received == MAX_FEED_COUNT - 1
            callbacks.may_apply.set()
            await until(lambda: callbacks.applied.get(0) == list(range(LENGTH)))
            await until(lambda: slow.mount.channel is not None)
            assert callbacks.most_waiting <= ROOM
        finally:
            await client.close()
