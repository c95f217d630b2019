"""A client that is dropped without being closed says so."""

import asyncio
import gc
import warnings

import pytest

import waltz
import waltz.blocking
from tests.unit.client.application import Callbacks
from waltz.client.mock import MockDriver


async def test_a_client_with_callbacks() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = await MockDriver().open_client(Callbacks())
        engine = client._engine
        del client
        gc.collect()
    assert [each.category for each in caught] == [ResourceWarning]
    assert "unclosed <waltz.client.callbacks.WaltzClient" in str(caught[0].message)
    await engine.close()


async def test_a_plain_client() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = await waltz.connect(MockDriver()).open()
        await client.append(0, b"a")
        engine = client._engine
        assert engine is not None
        del client
        gc.collect()
    assert [each.category for each in caught] == [ResourceWarning]
    assert "unclosed <waltz.asynchronous.Client" in str(caught[0].message)
    await engine.close()


def test_a_blocking_client() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = waltz.blocking.connect(MockDriver()).open()
        client.append(0, b"a")
        engine, background, loop = client._client._engine, client._background, client._loop
        assert engine is not None
        assert loop is not None
        del client
        gc.collect()
    assert [each.category for each in caught] == [ResourceWarning]
    assert "unclosed <waltz.asynchronous.Client" in str(caught[0].message)
    asyncio.run_coroutine_threadsafe(engine.close(), loop).result()
    background.leave()


@pytest.mark.parametrize("opened", [False, True])
async def test_one_that_is_closed_or_was_never_opened_says_nothing(opened: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = waltz.connect(MockDriver())
        if opened:
            await client.open()
            await client.close()
        with_callbacks = await MockDriver().open_client(Callbacks())
        await with_callbacks.close()
        del client, with_callbacks
        gc.collect()
    assert not caught


async def test_a_feed() -> None:
    async with waltz.connect(MockDriver(2)) as client:
        await client.append(0, b"a")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            feed = client.feed(0, after=-1)
            await feed.next_batch()
            del feed
            gc.collect()
        assert [each.category for each in caught] == [ResourceWarning]
        assert "unclosed <waltz.client.plain.feed.TransactionFeed" in str(caught[0].message)


async def test_a_table() -> None:
    async with waltz.connect(MockDriver(2)) as client:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table = client.table(0, properties=waltz.table.PartitionProperties(format="table"))
            await table.__aenter__()
            follower, configured = table._partition.follower, table._partition.configured
            del table
            gc.collect()
        assert [each.category for each in caught] == [ResourceWarning]
        assert "unclosed <waltz.table.face.table.Table" in str(caught[0].message)
        await configured.close()
        await follower.stop()


async def test_feeds_and_tables_that_came_to_an_end_say_nothing() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with waltz.connect(MockDriver(2)) as client:
            await client.append(0, b"a")
            never_begun = client.feed(0, after=-1)
            to_the_end = client.feed(0, after=-1, until=0)
            await to_the_end.next_batch()
            async for _ in client.feed(0, after=-1):
                break
            async with client.table(1, properties=waltz.table.PartitionProperties(format="table")):
                pass
            left_to_the_client = client.feed(0, after=-1)
            await left_to_the_client.next_batch()
            del never_begun, to_the_end
            gc.collect()
        del client, left_to_the_client
        gc.collect()
    assert not caught
