"""How a run ends, and what it says then."""

import asyncio
import os
import signal
from collections.abc import Mapping

import pytest

from tests.unit.bot.places import Found
from tests.unit.common.net.test_http import exchange
from waltz.bot import running
from waltz.bot.bot import Bot
from waltz.bot.journal import Journal
from waltz.bot.running import CLEAN, DEVIATED, RunLimits, run
from waltz.bot.status import Port
from waltz.bot.troubles import Troubles
from waltz.client.errors import ClientAheadError
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Json
from waltz.table.errors import TableError

pytestmark = pytest.mark.timeout(60)

FOREVER = RunLimits(None, None)


class Worker(Bot):
    """Does what a test says."""

    valid: Mapping[str, Json] = {}

    def __init__(self) -> None:
        super().__init__(Journal("worker", "c", 0, None, Found()), Troubles())
        self.begun = asyncio.Semaphore(0)
        self.ends = False
        self.error: BaseException | None = None
        self.checked = 0
        self.check_error: BaseException | None = None

    @property
    def counts(self) -> Mapping[str, int | str]:
        return {"pieces": self.done}

    async def work(self) -> None:
        self.begun.release()
        if self.error is not None:
            raise self.error
        if not self.ends:
            await asyncio.Event().wait()
        self.done += 1

    async def check(self) -> None:
        self.checked += 1
        if self.check_error is not None:
            raise self.check_error


async def test_the_work_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    bot = Worker()
    bot.ends = True
    assert await run(bot, FOREVER) == CLEAN
    assert bot.checked == 0
    assert capsys.readouterr().out == "\npieces 1, retries 0, deviations 0\nclean\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_with_a_last_check(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    bot = Worker()
    running_ = asyncio.create_task(run(bot, FOREVER))
    await bot.begun.acquire()
    os.kill(os.getpid(), number)
    assert await running_ == CLEAN
    assert bot.checked == 1
    assert "clean" in capsys.readouterr().out


async def test_it_ends_after_its_time_and_says_when_the_last_check_was_not_possible(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bot = Worker()
    bot.check_error = TimeoutError()
    assert await run(bot, RunLimits(0.01, None)) == CLEAN
    assert bot.checked == 1
    assert "the table was not compared again at the end: no answer in time" in capsys.readouterr().out


async def test_deviations_are_told_and_have_an_exit_code_of_their_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SHOWN_DEVIATIONS", 1)
    bot = Worker()
    bot.ends = True
    bot.journal.deviate("a", "it is gone")
    bot.journal.deviate("b", "it is back")
    assert await run(bot, FOREVER) == DEVIATED
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["pieces 1, retries 0, deviations 2", "  a: it is gone", "  ... and 1 more", "2 DEVIATIONS"]


async def test_a_reset_begins_anew_and_what_was_found_still_counts(capsys: pytest.CaptureFixture[str]) -> None:
    bot = Worker()
    running_ = asyncio.create_task(run(bot, RunLimits(None, Port(Endpoint("127.0.0.1", 0)))))
    await bot.begun.acquire()
    port = int(capsys.readouterr().out.rpartition(":")[2].partition("/")[0])
    bot.journal.deviate("a", "it is gone")
    await exchange(port, b"POST /reset HTTP/1.1\r\n\r\n")
    await bot.begun.acquire()
    assert bot.journal.expected.quarantine == {}
    os.kill(os.getpid(), signal.SIGINT)
    assert await running_ == DEVIATED


async def test_a_table_that_has_stopped_is_an_error_and_a_log_that_is_shorter_a_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bot = Worker()
    bot.error = TableError("the view has stopped: it is closed")
    with pytest.raises(WaltzError, match="the view has stopped"):
        await run(bot, FOREVER)
    bot.journal.deviate("a", "it is gone")
    assert await run(bot, FOREVER) == DEVIATED
    assert "Error: the view has stopped" in capsys.readouterr().err
    bot = Worker()
    bot.error = TableError("the view has stopped: it is closed")
    bot.error.__cause__ = ClientAheadError(0, 17, 9)
    bot.error = ExceptionGroup("of a group", [bot.error])
    assert await run(bot, FOREVER) == DEVIATED
    (found,) = bot.journal.expected.quarantine.values()
    assert "transactions that were in the log are missing now: client is ahead of store" in found.what
    bot.error = RuntimeError("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        await run(bot, FOREVER)


async def test_it_shows_how_it_is_going(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(running, "SHOWN_ELSEWHERE_S", 0.001)
    await run(Worker(), RunLimits(0.05, None))
    assert "  pieces 0, retries 0, deviations 0\n" in capsys.readouterr().out
