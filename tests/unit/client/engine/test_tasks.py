"""Tasks with an owner, and signals."""

import asyncio
import logging

import pytest

from waltz.client.engine.tasks import Closing, Signal, TaskOwner, take_all
from waltz.common import tasks


async def test_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("boom")

    owner = TaskOwner()
    with caplog.at_level(logging.ERROR):
        owner.spawn(fail(), "the test")
        await owner.close(10)
    assert "the test failed" in caplog.text


async def test_close_cancels_what_does_not_end_and_what_has_not_begun() -> None:
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    owner = TaskOwner()
    owner.spawn(hang(), "hanging")
    await asyncio.sleep(0)
    owner.spawn(hang(), "never begun")
    await owner.close()
    assert cancelled.is_set()


async def test_a_task_may_close_its_owner() -> None:
    owner = TaskOwner()
    closed = asyncio.Event()

    async def close() -> None:
        await owner.close()
        closed.set()

    owner.spawn(close(), "closing")
    async with asyncio.timeout(60):
        await closed.wait()


async def test_a_signal_wakes_in_order_and_times_out() -> None:
    signal = Signal()
    signal.notify()  # nobody waits: nothing is remembered
    assert not await signal.wait(0.001)
    order: list[int] = []

    async def wait(number: int) -> None:
        assert await signal.wait(10)
        order.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    signal.notify()
    await asyncio.gather(*tasks)
    assert order == list(range(5))


async def test_what_is_kept_begins_again_after_a_defect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "RESTART_PAUSE_S", 0)
    begun = asyncio.Semaphore(0)

    async def work() -> None:
        begun.release()
        raise ArithmeticError("planted")

    owner = TaskOwner()
    owner.keep(work, "the sweep")
    async with asyncio.timeout(60):
        for _ in range(3):
            await begun.acquire()
    await owner.close()
    assert "the sweep has failed for an unforeseen reason; it begins again" in caplog.text


async def test_what_closes_goes_on_when_all_who_wait_for_it_give_up() -> None:
    closing = Closing()
    begun, go_on = asyncio.Event(), asyncio.Event()
    times = 0

    async def work() -> None:
        nonlocal times
        begun.set()
        await go_on.wait()
        times += 1

    first = asyncio.create_task(closing.run(work))
    await begun.wait()
    second = asyncio.create_task(closing.run(work))
    for waiting in (first, second):
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    third = asyncio.create_task(closing.run(work))
    go_on.set()
    await third
    assert closing.over
    await closing.run(work)
    assert times == 1


async def test_who_waits_for_what_closes_is_told_its_failure() -> None:
    closing = Closing()

    async def work() -> None:
        await asyncio.sleep(0)
        raise OSError("no")

    results = await asyncio.gather(closing.run(work), closing.run(work), return_exceptions=True)
    assert [str(result) for result in results] == ["no", "no"]
    await closing.run(work)


async def test_all_steps_are_taken_in_turn_whatever_they_raise(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[str] = []

    async def take(step: str) -> None:
        taken.append(step)
        if step != "b":
            raise OSError(step)

    with pytest.raises(OSError, match="a"):
        await take_all(lambda: take("a"), lambda: take("b"), lambda: take("c"))
    assert taken == ["a", "b", "c"]
    assert [record.getMessage() for record in caplog.records] == ["closing failed once more: OSError('c')"]
