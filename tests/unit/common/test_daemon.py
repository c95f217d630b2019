"""How a daemon ends: signals, starts that are given up, steps of closing."""

import asyncio
import os
import signal

import pytest

from waltz.common import daemon
from waltz.common.daemon import close_step, stop_signals, unless_stopped
from waltz.common.errors import WaltzError

TIMEOUT_S = 30.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop(number: signal.Signals) -> None:
    with stop_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        async with asyncio.timeout(TIMEOUT_S):
            await stop.wait()


async def test_signals_have_their_handlers_while_it_lasts() -> None:
    loop = asyncio.get_running_loop()
    with stop_signals():
        pass
    assert not loop.remove_signal_handler(signal.SIGTERM)
    assert not loop.remove_signal_handler(signal.SIGINT)


async def give(result: int) -> int:
    await asyncio.sleep(0)
    return result


async def fail() -> int:
    await asyncio.sleep(0)
    raise WaltzError("no")


async def test_work_that_ends_first() -> None:
    stop = asyncio.Event()
    assert await unless_stopped(stop, give(3)) == 3
    with pytest.raises(WaltzError, match="no"):
        await unless_stopped(stop, fail())


@pytest.mark.parametrize(("on_cancel", "expected"), [("end", None), ("fail", None), ("finish", 5)])
async def test_work_that_is_stopped_has_ended(on_cancel: str, expected: int | None) -> None:
    stop, ended = asyncio.Event(), []

    async def work() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            ended.append(on_cancel)
            if on_cancel == "end":
                raise
            if on_cancel == "fail":
                raise WaltzError("while it was cancelled") from None
        return 5

    asyncio.get_running_loop().call_later(0.001, stop.set)
    async with asyncio.timeout(TIMEOUT_S):
        assert await unless_stopped(stop, work()) == expected
    assert ended == [on_cancel]


async def test_who_is_cancelled_takes_the_work_along() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(unless_stopped(asyncio.Event(), work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


async def test_a_step_of_closing_keeps_nothing_from_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(daemon, "CLOSE_STEP_TIMEOUT_S", 0.01)

    async def do(what: str) -> None:
        if what == "hang":
            await asyncio.Event().wait()
        if what == "fail":
            raise ValueError(what)

    await close_step("closing well", do("well"))
    assert not caplog.text
    await close_step("closing slowly", do("hang"))
    await close_step("closing badly", do("fail"))
    assert "closing slowly takes more than 0.01 s; going on without it" in caplog.text
    assert "closing badly failed; going on" in caplog.text
