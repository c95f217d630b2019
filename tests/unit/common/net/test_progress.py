"""Waiting for as long as bytes move."""

import asyncio

import pytest

from waltz.common.net.guard import MIN_PROGRESS_BYTES
from waltz.common.net.progress import while_moving


class Line:
    """Moves so many bytes between two looks, for so many looks."""

    def __init__(self, step_bytes: int, looks: int) -> None:
        self._step_bytes = step_bytes
        self.looks = looks
        self._moved_bytes = 0

    @property
    def received_bytes(self) -> int:
        if self.looks:
            self.looks -= 1
            self._moved_bytes += self._step_bytes
        return self._moved_bytes

    def left_bytes(self) -> int:
        return 7


async def test_a_slow_answer_is_waited_for() -> None:
    line = Line(MIN_PROGRESS_BYTES, looks=1000)
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(while_moving(answer, line, 0.001))
    while line.looks > 980:
        await asyncio.sleep(0.001)
    answer.set_result(5)
    assert await waiting == 5


@pytest.mark.parametrize("line", [Line(MIN_PROGRESS_BYTES, looks=3), Line(MIN_PROGRESS_BYTES - 1, looks=1000)])
async def test_silence_ends_the_waiting_and_so_does_a_trickle(line: Line) -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        await while_moving(answer, line, 0.001)


async def test_errors_are_handed_on() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    answer.set_exception(ArithmeticError("planted"))
    with pytest.raises(ArithmeticError):
        await while_moving(answer, Line(0, 0), 1)


async def test_a_trickle_may_be_enough() -> None:
    line = Line(1, looks=1000)
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(while_moving(answer, line, 0.001, min_progress_bytes=1))
    while line.looks > 980:
        await asyncio.sleep(0.001)
    assert not waiting.done()
    line.looks = 0
    with pytest.raises(TimeoutError):
        await waiting
