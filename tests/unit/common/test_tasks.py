"""Tasks whose owners learn of their end."""

import asyncio

import pytest

from waltz.common import tasks
from waltz.common.tasks import owned, restarting


async def fail() -> None:
    raise ArithmeticError("planted")


async def test_the_owner_is_told_of_a_defect_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Exception] = []
    task = owned(fail(), "the work", told.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    (error,) = told
    assert repr(error) == "ArithmeticError('planted')"
    assert "the work has failed for an unforeseen reason" in caplog.text
    assert task.get_name() == "the work"


async def test_an_end_in_order_and_a_cancellation_are_no_defects(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Exception] = []
    returning = owned(asyncio.sleep(0), "one", told.append)
    cancelled = owned(asyncio.sleep(3600), "other", told.append)
    await returning
    cancelled.cancel()
    await asyncio.wait([cancelled])
    await asyncio.sleep(0)
    assert told == []
    assert caplog.text == ""


async def test_work_begins_again_until_it_returns(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "RESTART_PAUSE_S", 0)
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            await fail()

    await restarting(work, "the work")
    assert begun == 3
    assert caplog.text.count("it begins again") == 2
