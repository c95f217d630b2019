"""Requests that are answered within a time, in virtual time."""

import asyncio

from tests.unit.server.fakes import flush, new_link
from tests.unit.server.store.virtual_time import run
from waltz.server.requests.deadlines import Deadlines
from waltz.server.requests.pending import Pending


def test_whoever_is_not_answered_in_time_is_told_once() -> None:
    async def scenario() -> None:
        expired: list[tuple[float, Pending]] = []
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(10, lambda pending: expired.append((loop.time(), pending)))
        first, second, third = (Pending(new_link(), flush(number)) for number in range(3))
        deadlines.add(first)
        await asyncio.sleep(3)
        deadlines.add(second)
        deadlines.add(third)
        second.end()
        assert deadlines.waiting() == [first, third]
        await asyncio.sleep(100)
        assert expired == [(10, first), (13, third)]
        assert first.answered
        assert deadlines.waiting() == deadlines.take() == []

    run(scenario())


def test_who_is_taken_is_watched_no_more() -> None:
    async def scenario() -> None:
        expired: list[Pending] = []
        deadlines = Deadlines(10, expired.append)
        pending, answered = Pending(new_link(), flush(1)), Pending(new_link(), flush(2))
        deadlines.add(answered)
        deadlines.add(pending)
        answered.end()
        assert deadlines.take() == [pending]
        await asyncio.sleep(100)
        assert not expired

    run(scenario())


def test_who_was_answered_makes_room() -> None:
    async def scenario() -> None:
        deadlines = Deadlines(10, lambda pending: None)
        for number in range(100):
            pending = Pending(new_link(), flush(number))
            deadlines.add(pending)
            pending.end()
        assert len(deadlines) == 1

    run(scenario())
