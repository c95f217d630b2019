"""Errors carry what caused them."""

import random

import pytest
import pytest_asyncio

import waltz
from tests.unit.client.application import QUICK, Callbacks
from waltz.client.engine.links.links import SequenceNumbers, ServerLink
from waltz.client.mock import MockDriver
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel

LOCK = waltz.PartitionLocalLock("account", 1)


class Nobody:
    """Uses a link that never connects."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)


async def refused(*arguments: object, **options: object) -> Channel:
    raise waltz.ConnectFailedError("connection refused")


@pytest_asyncio.fixture
async def link() -> ServerLink:
    return ServerLink(
        Endpoint("localhost", 1),
        Nobody(),  # type: ignore[arg-type]  # nothing of it is used
        SequenceNumbers(),
        client_id=1,
        tls=None,
        options=QUICK,
        random_source=random.Random(1),
        watched=False,
        connector=refused,
    )


async def test_waiting_for_a_connection_that_fails(link: ServerLink) -> None:
    link.start()
    with pytest.raises(waltz.ConnectFailedError) as raised:
        await link.ready_channel(10)
    assert raised.value.__cause__ is link.failure
    await link.close()


async def test_waiting_too_long_for_a_connection(link: ServerLink) -> None:
    link.failure = waltz.ConnectFailedError("connection refused")
    with pytest.raises(
        waltz.DeadlineExceededError, match="no connection to .* within 0 s: connection refused"
    ) as raised:
        await link.ready_channel(0)
    assert raised.value.__cause__ is link.failure


async def test_some_of_many_appends() -> None:
    async with waltz.connect(MockDriver()) as client:
        await client.append(0, b"a", append_locks=[LOCK])
        items = [waltz.Append(b"b"), waltz.Append(b"c", write_locks=[LOCK])]
        with pytest.raises(waltz.AppendManyError) as raised:
            await client.append_many(0, items, high_water_mark=-1)
    assert isinstance(raised.value.__cause__, waltz.LockConflict)
    assert raised.value.__cause__ is raised.value.outcomes[1]


async def test_a_decision_that_comes_too_late() -> None:
    driver = MockDriver()
    async with waltz.open_client(Callbacks(), driver) as client:
        driver.suspend_feed()
        with pytest.raises(waltz.OutcomeUnknownError) as raised:
            await client.transact(0, lambda basis: b"a", timeout_s=0.1)
        assert isinstance(raised.value.__cause__, TimeoutError)
        driver.resume_feed()


async def test_a_flush_that_takes_too_long() -> None:
    driver = MockDriver()
    options = waltz.ClientOptions(close_grace_s=0.1)
    async with waltz.open_client(Callbacks(), driver, options=options) as client:
        driver.suspend_feed()
        with pytest.raises(waltz.OutcomeUnknownError):
            await client.transact(0, lambda basis: b"a", timeout_s=0.1)
        client._engine.partitions[0].detach()
        with pytest.raises(waltz.ClientTimeoutError, match="no server is known to own the partition") as raised:
            await client.flush_transactions(timeout_s=0.1)
        assert isinstance(raised.value.__cause__, waltz.ClientError)
