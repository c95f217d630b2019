"""The event loop of a client. Used on another one it refuses, before anything is sent."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import waltz
from tests.unit.client.application import Callbacks, Context
from waltz.client.mock import MockDriver
from waltz.common.ids import Endpoint

pytestmark = pytest.mark.timeout(60)

SERVER = Endpoint("mock", 1)


async def test_these_tests_run_on_the_loop_that_every_python_has() -> None:
    """So do all others of clients, and those of tables; see tests/conftest.py."""
    expected = "uvloop" if os.environ.get("TEST_LOOP") == "uvloop" else "asyncio"
    assert type(asyncio.get_running_loop()).__module__.partition(".")[0] == expected


async def elsewhere(call: Callable[[], Any]) -> None:
    """Make a call on a loop of its own."""

    async def work() -> None:
        result = call()
        if isinstance(result, Awaitable):
            await result

    with pytest.raises(waltz.InvalidOperationError, match="on another event loop; it works on the one on which"):
        await asyncio.to_thread(lambda: asyncio.run(work()))


@pytest.mark.parametrize("joined", [False, True])
async def test_the_plain_client(joined: bool) -> None:
    driver = MockDriver(2)
    async with waltz.connect(driver) as client:
        if joined:
            await client.append(0, b"a")
        before = driver.partitions[0].high_water_mark
        feed = client.feed(0, after=-1)
        calls: list[Callable[[], Any]] = [
            lambda: client.append(0, b"other loop"),
            lambda: client.append_many(0, [b"other loop"]),
            lambda: client.high_water_mark(0),
            lambda: client.feed(0, after=-1),
            lambda: client.feed_batches(0, after=-1),
            feed.next_batch,
            lambda: anext(aiter(feed)),
            client.close,
        ]
        for call in calls:
            await elsewhere(call)
        assert driver.partitions[0].high_water_mark == before
        assert await client.append(0, b"own loop") == before + 1
        with pytest.raises(waltz.InvalidOperationError, match="outside of an event loop"):
            await asyncio.to_thread(lambda: client.feed(0, after=-1))


async def test_the_client_with_callbacks() -> None:
    driver = MockDriver(2)
    async with await driver.open_client(Callbacks()) as client:
        context = Context()
        calls: list[Callable[[], Any]] = [
            lambda: client.submit(context),
            lambda: client.set_partitions({0}),
            client.flush_transactions,
            lambda: client.high_water_mark(0),
            lambda: client.check_server_connections([SERVER]),
            lambda: client.server_partition_assignments(SERVER),
            lambda: client.server_partition_health(SERVER),
            lambda: client.add_preferred_partitions(SERVER, [0]),
            lambda: client.remove_preferred_partitions(SERVER, [0]),
            client.close,
        ]
        for call in calls:
            await elsewhere(call)
        assert (context.executed, context.events) == (0, [])
        assert driver.partitions[0].high_water_mark == -1
