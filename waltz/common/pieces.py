"""Long work that is done in pieces, with turns of other work in between (rule L4)."""

import asyncio
import time
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")

MAX_TURN_S = 0.002
"""Longest turn of the loop for work that is done in pieces."""


class Pieces:
    """Joins the pieces of one text at a time, so that many requests do not add up to a long turn."""

    def __init__(self) -> None:
        self._joining = asyncio.Lock()

    async def join(self, pieces: Iterator[str]) -> str:
        """All pieces joined; raises the errors of the iterator."""
        found = []
        async with self._joining:
            turn_over_s = time.monotonic() + MAX_TURN_S
            for piece in pieces:
                found.append(piece)
                if time.monotonic() >= turn_over_s:
                    await asyncio.sleep(0)
                    turn_over_s = time.monotonic() + MAX_TURN_S
        return "".join(found)


def at_once(work: Generator[None, None, T]) -> T:
    """The result of work in pieces, without other turns in between."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(work: Generator[None, None, T]) -> T:
    """The result of work in pieces; the loop has other turns in between."""
    turn_over_s = time.monotonic() + MAX_TURN_S
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        if time.monotonic() >= turn_over_s:
            await asyncio.sleep(0)
            turn_over_s = time.monotonic() + MAX_TURN_S
