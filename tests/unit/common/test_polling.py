import asyncio
import itertools

import pytest

from waltz.common.polling import poll_until


async def poll(wanted: int, *, timeout_s: float, delay_s: float) -> int:
    """Look at a number that rises by one with each look."""
    numbers = itertools.count(1)

    async def look() -> int:
        return next(numbers)

    deadline_s = asyncio.get_running_loop().time() + timeout_s
    return await poll_until(look, lambda number: number == wanted, deadline_s=deadline_s, next_delay_s=lambda: delay_s)


async def test_it_looks_until_it_is_satisfied() -> None:
    assert await poll(1, timeout_s=3600, delay_s=3600) == 1
    assert await poll(9, timeout_s=3600, delay_s=0) == 9


@pytest.mark.parametrize("timeout_s", [-1, 0, 0.5, 1])
async def test_no_look_begins_after_the_deadline(timeout_s: float) -> None:
    """The last result tells the caller why it was not satisfied."""
    assert await poll(2, timeout_s=timeout_s, delay_s=1) == 1


async def test_what_a_look_raises_ends_the_polling() -> None:
    async def look() -> bool:
        raise ValueError("it cannot be read")

    with pytest.raises(ValueError, match="cannot be read"):
        await poll_until(look, bool, deadline_s=0, next_delay_s=lambda: 0.0)
