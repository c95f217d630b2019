"""What is read again whenever it has changed."""

import asyncio
import random
from collections.abc import Callable

import pytest

from waltz.common import tasks
from waltz.common.cluster import following
from waltz.common.cluster.following import Follower
from waltz.common.zk.client import ConnectionLossError


class Reading:
    """Fails as it was told to, and then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.attempts = 0
        self.done = 0
        self.follower = Follower("what is read", self, random.Random(1))

    async def __call__(self) -> None:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.done += 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RETRY_INITIAL_S", 0.001)
    monkeypatch.setattr(tasks, "RESTART_PAUSE_S", 0)


async def test_it_is_read_after_each_change_and_only_then() -> None:
    reading = Reading()
    reading.follower.start()
    await asyncio.sleep(0.01)
    assert reading.attempts == 0
    for count in (1, 2):
        reading.follower.changed()
        await until(lambda count=count: reading.done == count)  # type: ignore[misc]  # mypy infers no type for it
    await asyncio.sleep(0.01)
    assert reading.attempts == 2
    await reading.follower.close()
    reading.follower.changed()
    await asyncio.sleep(0.01)
    assert reading.attempts == 2


async def test_a_change_before_it_is_followed_and_one_while_it_is_read_are_read() -> None:
    reading = Reading()
    reading.follower.changed()
    reading.follower.start()
    await until(lambda: reading.attempts == 1)
    reading.follower.changed()
    await until(lambda: reading.done == 2)
    await reading.follower.close()


async def test_what_cannot_be_read_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    reading = Reading(ConnectionLossError("away"), ConnectionLossError("away"))
    reading.follower.start()
    reading.follower.changed()
    await until(lambda: reading.done == 1)
    assert reading.attempts == 3
    assert "cannot read what is read: away" in caplog.text
    await reading.follower.close()


async def test_after_a_defect_it_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    reading = Reading(ArithmeticError("planted"))
    reading.follower.start()
    reading.follower.changed()
    await until(lambda: reading.done == 1)
    assert "planted" in caplog.text
    await reading.follower.close()


async def test_what_was_never_followed_is_closed() -> None:
    await Reading().follower.close()
