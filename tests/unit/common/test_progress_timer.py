import asyncio
import time

from waltz.common.progress_timer import ProgressTimer


async def looks(told: list[float], count: int) -> list[float]:
    async with asyncio.timeout(30):
        while len(told) < count:
            await asyncio.sleep(0.005)
    return told


async def test_a_punctual_timer_looks_once_and_blames_nobody() -> None:
    told: list[float] = []
    timer = ProgressTimer(told.append, tolerance_s=20.0)
    timer.start(0.01)
    states = [timer.running]
    assert await looks(told, 1) == [0.0]
    states.append(timer.running)
    assert states == [True, False]
    await asyncio.sleep(0.05)
    assert told == [0.0]


async def test_a_process_that_stood_still_is_told_for_how_long() -> None:
    told: list[float] = []
    timer = ProgressTimer(told.append, tolerance_s=0.05)
    timer.start(0.0)
    time.sleep(0.3)  # the process stands still
    (stood_still_s,) = await looks(told, 1)
    assert 0.25 < stood_still_s < 20.0


async def test_the_earliest_start_decides() -> None:
    told: list[float] = []
    timer = ProgressTimer(told.append, tolerance_s=20.0)
    timer.start(3600.0)
    timer.start(0.01)
    timer.start(3600.0)
    assert await looks(told, 1) == [0.0]
    assert not timer.running


async def test_a_stopped_timer_does_not_look_until_it_is_started_again() -> None:
    told: list[float] = []
    timer = ProgressTimer(told.append, tolerance_s=20.0)
    timer.start(0.0)
    timer.stop()
    timer.stop()
    assert not timer.running
    await asyncio.sleep(0.05)
    assert told == []
    timer.start(0.0)
    assert await looks(told, 1) == [0.0]
