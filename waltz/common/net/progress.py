"""Waits for an answer while bytes move (rule L1)."""

import asyncio
from typing import Protocol, TypeVar

from waltz.common.net.guard import MIN_PROGRESS_BYTES

Answer = TypeVar("Answer")


class Moving(Protocol):
    """Progress of a channel."""

    @property
    def received_bytes(self) -> int:
        """Number of received bytes, including those of incomplete frames."""

    def left_bytes(self) -> int:
        """Number of bytes that have left this machine."""


async def while_moving(
    answer: asyncio.Future[Answer], channel: Moving, limit_s: float, min_progress_bytes: int = MIN_PROGRESS_BYTES
) -> Answer:
    """Wait for an answer while bytes move on the connection.

    Progress is checked once per ``limit_s``, so silence may last up to twice that time.

    Raises:
        TimeoutError: Fewer than ``min_progress_bytes`` have moved in ``limit_s``.
    """
    moved_bytes = channel.received_bytes + channel.left_bytes()
    while True:
        done, _ = await asyncio.wait((answer,), timeout=limit_s)
        if done:
            return answer.result()
        before_bytes, moved_bytes = moved_bytes, channel.received_bytes + channel.left_bytes()
        if moved_bytes - before_bytes < min_progress_bytes:
            raise TimeoutError
