"""One partition that cannot write beside one that can, on the connection of one client."""

import pytest

from tests.unit.client.application import Callbacks, Context, config, open_client
from tests.unit.client.fake_server import until
from tests.unit.server.serving import GENERATION, MAX_TRANSACTION_BYTES, BatchingLog, serving
from waltz.client.errors import TransactionTooLargeError
from waltz.client.retry_policy import RetryPolicy
from waltz.common.zk.znodes import PartitionGeneration
from waltz.server.store.memory import MIN_SHARE_BYTES, MemoryBudget

FLOOD = 3000

pytestmark = pytest.mark.timeout(120)


async def ended(context: Context) -> None:
    await until(lambda: context.done)


@pytest.mark.parametrize("version", [0, 4, 5])
async def test_a_dead_partition_holds_up_nothing_else_of_its_client(version: int) -> None:
    """While far more waits for it than it may keep, all appends to the other one commit, one after the other."""
    memory = MemoryBudget(1 << 20)
    async with serving({0: BatchingLog, 1: BatchingLog}, version=version, memory=memory) as (endpoint, logs):
        endpoints = {endpoint: [PartitionGeneration(number, GENERATION) for number in (0, 1)]}
        client = await open_client(Callbacks(), endpoints, 2, config(maxConcurrentTransactions=FLOOD))
        try:
            first = Context(partition_id=0)
            await client.submit(first)
            await ended(first)
            logs[0].end_session()
            flood = [Context(bytes(500), partition_id=0) for _ in range(FLOOD)]
            for context in flood:
                await client.submit(context)
            for _ in range(200):
                healthy = Context(partition_id=1)
                await client.submit(healthy)
                await ended(healthy)
                assert memory.used_bytes <= memory.limit_bytes / 2 + MIN_SHARE_BYTES
            assert logs[1].mark == 199
            assert not any(context.done for context in flood)
            refused = sum(context.executed - 1 for context in flood)
            assert (refused > 0) == (version == 5), "told, where it can be told, and tried again"
            logs[0].open_session()
            if version == 5:
                await until(lambda: all(context.done for context in flood), "all are committed", 60)
                assert logs[0].mark == FLOOD, "each of them once"
        finally:
            await client.close()


class Once(Context):
    retry_policy = RetryPolicy(max_attempts=1)


@pytest.mark.parametrize("version", [0, 4, 5])
@pytest.mark.parametrize("size", [MAX_TRANSACTION_BYTES + 1, 5 * MAX_TRANSACTION_BYTES])
async def test_a_transaction_above_the_limit_of_the_server_ends_at_the_first_try(version: int, size: int) -> None:
    """The limit of the client is higher. Its connection stays, and what else it appends is not disturbed."""
    async with serving({0: BatchingLog, 1: BatchingLog}, version=version) as (endpoint, logs):
        endpoints = {endpoint: [PartitionGeneration(number, GENERATION) for number in (0, 1)]}
        client = await open_client(
            Callbacks(), endpoints, 2, config(maxTransactionSize=64 << 20, maxConcurrentTransactions=100)
        )
        try:
            large = Once(bytes(size), partition_id=0)
            others = [Once(partition_id=number % 2) for number in range(50)]
            for context in [*others[:25], large, *others[25:]]:
                await client.submit(context)
            await client.flush_transactions()
            assert large.executed == 1
            if version == 5:
                (error,) = large.events
                assert isinstance(error, TransactionTooLargeError)
                assert f"server.maxTransactionSize is {MAX_TRANSACTION_BYTES}" in str(error)
            else:
                assert large.events == [("completed", False)]
            assert all(context.events == [("completed", True), "applied"] for context in others)
            assert logs[0].mark == logs[1].mark == 24
        finally:
            await client.close()
