"""Leases of two processes whose clocks have nothing in common."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

import waltz
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table import LeaseHeldError, LeaseLostError
from waltz.table.face.leasing import Leasing

pytestmark = pytest.mark.timeout(60)

PLACE = (b"mailer", b"p")
T = 20.0


class Process:
    """A view of the table, and a clock."""

    def __init__(self, driver: MockDriver, now_s: float) -> None:
        self.driver = driver
        self.now_s = now_s
        self.leasing: Leasing

    async def open(self, stack: AsyncExitStack) -> None:
        client = await stack.enter_async_context(waltz.connect(self.driver))
        await waltz.table.configure(client, 0, {"format": "table"})
        table = await stack.enter_async_context(client.table(0))
        self.refresh = table.refresh
        self.leasing = Leasing(table.partition, lambda: self.now_s)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Process, Process]]:
    partitions = MockServerPartition.create(1)
    async with AsyncExitStack() as stack:
        processes = Process(MockDriver(partitions), 1e6), Process(MockDriver(partitions), 3.0)
        for each in processes:
            await each.open(stack)
        yield processes


async def wait_s(process: Process, holder: str) -> float:
    await process.refresh()
    with pytest.raises(LeaseHeldError) as held:
        await process.leasing.grant(*PLACE, holder, 10_000, T)
    return held.value.wait_s


async def test_who_wants_a_lease_counts_from_the_last_renewal_that_was_seen(pair: tuple[Process, Process]) -> None:
    one, two = pair
    term = await one.leasing.grant(*PLACE, "one", 10_000, T)
    two.now_s += 100  # before it has seen the lease
    assert await wait_s(two, "two") == 10
    two.now_s += 9
    assert await wait_s(two, "two") == 1
    await one.leasing.renew(*PLACE, "one", term, T)
    two.now_s += 9
    assert await wait_s(two, "two") == 10
    one.now_s += 1e6  # another wants it there: one has not seen it for long
    assert await wait_s(one, "three") == 10
    two.now_s += 10
    later = await two.leasing.grant(*PLACE, "two", 10_000, T)
    assert later > term
    with pytest.raises(LeaseLostError, match=f"term {term} .* has ended"):
        await one.leasing.renew(*PLACE, "one", term, T)
    assert await one.leasing.release(*PLACE, "one", term, T) is None
    one.now_s += 10
    assert await wait_s(one, "three") == 10  # the row that it had waited for is another one now
    assert await two.leasing.release(*PLACE, "two", later, T) is not None
    await one.refresh()
    assert await one.leasing.grant(*PLACE, "three", 10_000, T) > later


async def test_a_lease_is_not_lost_because_a_view_lags(pair: tuple[Process, Process]) -> None:
    one, two = pair
    two.driver.suspend_feed()
    term = await one.leasing.grant(*PLACE, "one", 10_000, T)
    with pytest.raises(waltz.NotAppendedError):
        await two.leasing.renew(*PLACE, "one", term, 0.1)
    two.driver.resume_feed()
    assert await two.leasing.renew(*PLACE, "one", term, T) == term + 1
