"""The loop: virtual time, order, and processes that end or stand still."""

import asyncio
import contextlib
import math

import pytest

from tests.simulation import loop as loop_module
from tests.simulation.loop import SimulationStalledError, SpinningError
from tests.simulation.worlds import SmallWorld, run


def test_time_jumps_to_the_next_timer() -> None:
    async def main(world: SmallWorld) -> float:
        await asyncio.sleep(3600)
        return world.loop.time()

    assert run(0, main) == 3600


def test_timers_of_one_moment_run_in_the_order_of_the_calls() -> None:
    async def main(world: SmallWorld) -> list[int]:
        order: list[int] = []
        for number in range(20):
            world.loop.call_at(1.0, order.append, number)
        await asyncio.sleep(2)
        return order

    assert run(0, main) == list(range(20))


def test_many_cancelled_timers_do_not_disturb_the_others() -> None:
    async def main(world: SmallWorld) -> list[int]:
        order: list[int] = []
        for number in range(1000):
            timer = world.loop.call_later(1 + number, order.append, number)
            if number % 7:
                timer.cancel()
        await asyncio.sleep(2000)
        return order

    assert run(0, main) == list(range(0, 1000, 7))


def test_nothing_left_to_do_is_an_error() -> None:
    async def main(world: SmallWorld) -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationStalledError):
        run(0, main)


def test_spinning_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "STEPS_PER_INSTANT_MAX", 100)

    async def main(world: SmallWorld) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SpinningError):
        run(0, main)


def test_timers_a_rounding_error_apart_are_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "STEPS_PER_INSTANT_MAX", 100)

    async def main(world: SmallWorld) -> None:
        await asyncio.sleep(1000)

        def again() -> None:
            world.loop.call_at(math.nextafter(world.loop.time(), math.inf), again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(SpinningError, match="again"):
        run(0, main)


def test_a_killed_process_ends_without_its_finally_blocks() -> None:
    async def main(world: SmallWorld) -> list[str]:
        said: list[str] = []
        process = world.process("a")

        async def program() -> None:
            try:
                await asyncio.sleep(1)
                said.append("survived")
            finally:
                said.append("finally")

        process.run(program())
        process.call_later(1, said.append, "timer")
        await asyncio.sleep(0.5)
        process.kill(power_loss=False)
        await asyncio.sleep(5)
        return list(said)

    assert run(0, main) == []


def test_a_paused_process_goes_on_where_it_was() -> None:
    async def main(world: SmallWorld) -> list[tuple[int, float]]:
        said: list[tuple[int, float]] = []
        process = world.process("a")

        def say(number: int) -> None:
            said.append((number, world.loop.time()))

        for number in range(3):
            process.call_later(number, say, number)
        await asyncio.sleep(0.5)
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(1)
        return said

    assert run(0, main) == [(0, 0.0), (1, 10.5), (2, 10.5)]


def test_tasks_belong_to_the_process_that_starts_them() -> None:
    async def main(world: SmallWorld) -> list[str]:
        said: list[str] = []
        process = world.process("a")

        async def child() -> None:
            await asyncio.sleep(1)
            said.append("child")

        async def program() -> None:
            task = asyncio.create_task(child())
            await asyncio.sleep(100)
            await task

        process.run(program())
        await asyncio.sleep(0.5)
        process.kill(power_loss=False)
        await asyncio.sleep(5)
        return said

    assert run(0, main) == []


def test_each_process_has_a_clock_of_its_own() -> None:
    async def main(world: SmallWorld) -> list[tuple[str, float, float]]:
        seen: list[tuple[str, float, float]] = []

        async def program(name: str) -> None:
            loop = world.loop
            await asyncio.sleep(6.0)
            seen.append((name, loop.time(), loop.now_s))
            deadline_s = loop.time() + 3.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await asyncio.sleep(100.0)
            assert loop.time() >= deadline_s
            seen.append((name, loop.time(), loop.now_s))

        for name, rate in (("fast", 1.2), ("right", 1.0), ("slow", 0.75)):
            process = world.process(name)
            process.clock_rate = rate
            process.run(program(name))
        await asyncio.sleep(20.0)
        assert world.loop.time() == 20.0
        return seen

    seen = [(name, round(own_s, 6), round(now_s, 6)) for name, own_s, now_s in run(0, main)]
    assert seen == [
        ("fast", 6.0, 5.0),
        ("right", 6.0, 6.0),
        ("fast", 9.0, 7.5),
        ("slow", 6.0, 8.0),
        ("right", 9.0, 9.0),
        ("slow", 9.0, 12.0),
    ]


def test_there_are_no_threads() -> None:
    async def main(world: SmallWorld) -> None:
        with pytest.raises(NotImplementedError):
            world.loop.run_in_executor(None, print)

    run(0, main)
