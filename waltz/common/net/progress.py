"""Waiting for an answer for as long as bytes move, and not longer (rule L1)."""

import asyncio
from typing import Protocol, TypeVar

from waltz.common.net.guard import MIN_PROGRESS_BYTES

Answer = TypeVar("Answer")


class Moving(Protocol):
    """Progress of a channel."""

    @property
    def received_bytes(self) -> int:
        """All that came, incomplete frames included."""

    def left_bytes(self) -> int:
        """All that has left this machine."""


async def while_moving(
    answer: asyncio.Future[Answer], channel: Moving, limit_s: float, min_progress_bytes: int = MIN_PROGRESS_BYTES
) -> Answer:
    """The answer. Raises ``TimeoutError`` when less than so many bytes have moved on the connection for ``limit_s``.

    Looked at once in that time, so that silence may last for up to twice as long.
    """
    moved_bytes = channel.received_bytes + channel.left_bytes()
    while True:
        done, _ = await asyncio.wait((answer,), timeout=limit_s)
        if done:
            return answer.result()
        before_bytes, moved_bytes = moved_bytes, channel.received_bytes + channel.left_bytes()
        if moved_bytes - before_bytes < min_progress_bytes:
            raise TimeoutError
