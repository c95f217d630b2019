"""Admission to a partition."""

import asyncio

import pytest

from waltz.client.engine.partition.places import Places


async def test_places_are_given_in_turn() -> None:
    places = Places(2)
    assert places.try_take()
    assert places.try_take()
    assert not places.try_take()
    order: list[int] = []

    async def take(number: int) -> None:
        assert await places.take(10)
        order.append(number)

    tasks = [asyncio.create_task(take(number)) for number in range(3)]
    await asyncio.sleep(0)
    places.release()
    assert places.taken == 2
    assert not places.try_take()  # the place is promised to the first who waits
    for _ in range(2):
        places.release()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]
    assert places.taken == 2


async def test_a_time_out_leaves_the_queue() -> None:
    places = Places(1)
    assert await places.take(1)
    assert not await places.take(0.001)
    places.release()
    assert places.taken == 0
    assert places.try_take()


async def test_a_cancelled_waiter_passes_its_place_on() -> None:
    places = Places(1)
    assert places.try_take()
    first, second = (asyncio.create_task(places.take(10)) for _ in range(2))
    await asyncio.sleep(0)
    places.release()  # goes to the first
    first.cancel()
    assert await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert places.taken == 1


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    places = Places(1)
    assert places.try_take()
    waiting = asyncio.create_task(places.take(10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    places.release()
    assert places.try_take()


async def test_failing_wakes_everyone_with_an_error_of_its_own() -> None:
    places = Places(1)
    assert places.try_take()
    tasks = [asyncio.create_task(places.take(10)) for _ in range(2)]
    await asyncio.sleep(0)
    places.fail(lambda: KeyError("closed"))
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [KeyError, KeyError]
    assert errors[0] is not errors[1]
    assert places.taken == 1
