"""The life of a bot: from its first operation to its given end, a signal, or a table that has stopped."""

import asyncio
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import NamedTuple

from waltz.bot.bot import Bot
from waltz.bot.status import Port, open_status
from waltz.client.errors import ClientAheadError
from waltz.common.errors import WaltzError
from waltz.table.errors import TableError

CLEAN = 0
DEVIATED = 3
"""The exit code after a deviation."""

LAST_CHECK_S = 10.0
"""Time limit of the last comparison after an interruption of the work."""
SHOWN_ON_TERMINAL_S = 1.0
SHOWN_ELSEWHERE_S = 60.0
SHOWN_DEVIATIONS = 20


class RunLimits(NamedTuple):
    """The limits of a run, and the port of its status pages."""

    duration_s: float | None
    http: Port | None


async def run(bot: Bot, limits: RunLimits) -> int:
    """Let the bot work, show its progress, and report the findings at the end. Returns the exit code.

    Raises ``WaltzError`` when the bot cannot continue, the reason is no finding, and there was no finding before.
    """
    loop = asyncio.get_running_loop()
    stopping, resetting = asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as stack:
        if limits.http is not None:
            status = await open_status(limits.http, bot, resetting.set)
            stack.push_async_callback(status.close)
            scheme = "http" if limits.http.tls is None else "https"
            print(f"status: {scheme}://{limits.http.address.host}:{status.port}/health", flush=True)
        if limits.duration_s is not None:
            stack.callback(loop.call_later(limits.duration_s, stopping.set).cancel)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
            stack.callback(loop.remove_signal_handler, number)
        showing = asyncio.create_task(_show(bot))
        stack.callback(showing.cancel)
        try:
            await _work(bot, stopping, resetting)
        except WaltzError as error:
            if not bot.journal.deviations:
                raise
            print(f"Error: {error}", file=sys.stderr)
    print(_summary(bot), flush=True)
    return DEVIATED if bot.journal.deviations else CLEAN


async def _work(bot: Bot, stopping: asyncio.Event, resetting: asyncio.Event) -> None:
    while True:
        work = asyncio.create_task(bot.work())
        waiting = [work, *(asyncio.create_task(_set(event)) for event in (stopping, resetting))]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        if not work.cancelled():
            error = work.exception()
            if error is not None:
                _explain(bot, error)
            return None
        if stopping.is_set():
            return await _check_at_last(bot)
        resetting.clear()
        bot.journal.begin_anew()


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _explain(bot: Bot, error: BaseException) -> None:
    """Judge an error: a log that has become shorter is a finding, all other errors are not."""
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if not isinstance(first, TableError):
        raise first
    if not isinstance(first.__cause__, ClientAheadError):
        raise WaltzError(str(first)) from first
    bot.journal.deviate("(the log)", f"transactions that were in the log are missing now: {first.__cause__}")


async def _check_at_last(bot: Bot) -> None:
    try:
        async with asyncio.timeout(LAST_CHECK_S):
            await bot.check()
    except (WaltzError, TimeoutError, OSError) as error:
        print(f"the table was not compared again at the end: {str(error) or 'no answer in time'}", flush=True)


async def _show(bot: Bot) -> None:
    """Show progress: on a terminal one line that is rewritten, otherwise lines at intervals."""
    is_terminal = sys.stdout.isatty()
    while True:
        await asyncio.sleep(SHOWN_ON_TERMINAL_S if is_terminal else SHOWN_ELSEWHERE_S)
        line = f"{time.strftime('%H:%M:%S')}  {_counted(bot)}"
        print(f"\r{line}\x1b[K" if is_terminal else line, end="" if is_terminal else "\n", flush=True)


def _counted(bot: Bot) -> str:
    found = bot.journal.deviations
    counts: Iterable[str] = (f"{name} {value}" for name, value in bot.counts.items())
    return ", ".join([*counts, f"retries {bot.troubles.retries}", f"deviations {found}"])


def _summary(bot: Bot) -> str:
    found = list(bot.journal.expected.quarantine.values())
    lines = ["", _counted(bot), *(f"  {each.key}: {each.what}" for each in found[:SHOWN_DEVIATIONS])]
    if len(found) > SHOWN_DEVIATIONS:
        lines.append(f"  ... and {len(found) - SHOWN_DEVIATIONS} more")
    lines.append(f"{bot.journal.deviations} DEVIATIONS" if bot.journal.deviations else "clean")
    return "\n".join(lines)
