"""Polls a state that other processes change, until it is as wanted or the deadline passes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def poll_until(
    look: Callable[[], Awaitable[T]],
    satisfied: Callable[[T], bool],
    *,
    deadline_s: float,
    next_delay_s: Callable[[], float],
) -> T:
    """Look at least once, and again until a result satisfies or the next look would begin at or after the deadline.

    Args:
        look: Reads the present state; its errors end the polling.
        satisfied: Whether no further look is needed.
        deadline_s: A time of the running loop. A look that has begun is not cut off.
        next_delay_s: The pause before the next look, in seconds.

    Returns:
        The last result, which does not satisfy if the deadline ended the polling.
    """
    loop = asyncio.get_running_loop()
    while not satisfied(result := await look()):
        delay_s = next_delay_s()
        if loop.time() + delay_s >= deadline_s:
            break
        await asyncio.sleep(delay_s)
        if loop.time() >= deadline_s:
            break  # the loop was late
    return result
