"""Attempts until one succeeds."""

import pytest

from waltz.bot.troubles import Troubles
from waltz.client.errors import NotAppendedError
from waltz.table.errors import TableError


async def test_it_is_attempted_until_it_succeeds() -> None:
    troubles = Troubles(retry_s=0)
    seen: list[str | None] = []

    async def attempt(name: str) -> str:
        seen.append(troubles.present)
        if len(seen) == 1:
            raise NotAppendedError("no quorum")
        if len(seen) == 2:
            raise TimeoutError
        return name

    assert await troubles.insist(attempt, "done") == "done"
    assert seen == [None, "no quorum", "no answer in time"]
    assert (troubles.present, troubles.retries) == (None, 2)


@pytest.mark.parametrize("error", [TableError("the view has stopped"), ValueError("a defect")])
async def test_what_cannot_get_better_is_not_attempted_again(error: Exception) -> None:
    async def attempt() -> None:
        raise error

    with pytest.raises(type(error)):
        await Troubles(retry_s=0).insist(attempt)
