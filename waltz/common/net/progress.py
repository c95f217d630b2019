"""Waits for an answer as long as bytes move, and no longer (rule L1)."""

import asyncio
from typing import Protocol, TypeVar

from waltz.common.net.guard import MIN_PROGRESS_BYTES

Answer = TypeVar("Answer")


class Moving(Protocol):
    """Progress of a channel."""

    @property
    def received_bytes(self) -> int:
        """Number of received bytes, with incomplete frames."""

    def left_bytes(self) -> int:
        """Number of bytes that have left this machine."""


async def while_moving(
    answer: asyncio.Future[Answer], channel: Moving, limit_s: float, min_progress_bytes: int = MIN_PROGRESS_BYTES
) -> Answer:
    """The answer. Raises ``TimeoutError`` when fewer than ``least_bytes`` have moved on the connection for ``limit_s``.

    Progress is checked once in that time, so silence may last for up to twice the limit.
    """
    moved_bytes = channel.received_bytes + channel.left_bytes()
    while True:
        done, _ = await asyncio.wait((answer,), timeout=limit_s)
        if done:
            return answer.result()
        before_bytes, moved_bytes = moved_bytes, channel.received_bytes + channel.left_bytes()
        if moved_bytes - before_bytes < min_progress_bytes:
            raise TimeoutError
