"""The common part of the daemons: command line, logging, event loop, one-line errors, signals, and a bounded stop."""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from waltz.common.config.command import Look, checked, found_by, print_check, setting_options
from waltz.common.config.reader import settle
from waltz.common.config.sources import examine_sources
from waltz.common.errors import ConfigError, WaltzError
from waltz.common.json_log import log_to_stderr
from waltz.common.loops import run as run_on_loop
from waltz.common.version import installed_version

logger = logging.getLogger(__name__)

Config = TypeVar("Config", bound=BaseModel)
Result = TypeVar("Result")

CLOSE_STEP_TIMEOUT_S = 10.0
"""Time limit of each step of the stop; then the next step begins."""

GC_THRESHOLD = 50_000
"""Number of live new objects between two collections of the youngest generation: more than one turn of the loop makes
for a thousand partitions, because a collection in the middle of a turn finds next to everything alive."""


def run_daemon(
    program: str,
    model: type[Config],
    run: Callable[[Config], Awaitable[None]],
    looks: Sequence[Look],
) -> int:
    """Run a daemon whose only argument is its configuration file, or check that file; returns the exit code.

    ``looks`` find faults of things that a configuration names. Exit codes: 0 ended on request, or a check without
    fault; 1 failed (one line on standard error says why and what to do); 2 wrong usage; 130 ended by Ctrl-C during the
    start.
    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--version", action="version", version=f"{program} {installed_version() or 'not installed'}")
    parser.add_argument("config", type=Path, metavar="CONFIG.yml", help="configuration file")
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="print what would count, and what is wrong with it, and end; nothing is changed or connected to",
    )
    setting_options(parser)
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    parser.add_argument(
        "--log-format", default="text", choices=("text", "json"), help="json: one object a line (default: %(default)s)"
    )
    options = parser.parse_args()
    log_to_stderr(options.log_level, options.log_format)
    logging.getLogger("kazoo").setLevel(max(logging.WARNING, logging.getLogger().level))

    async def main() -> None:
        reading = examine_sources(options.config, model, options.settings, os.environ)
        config = settle(reading, strict=options.strict)
        for problem in found_by(looks, config, reading.source):  # before the first wait
            raise ConfigError(problem)
        try:
            await run(config)
        except ConfigError as error:
            raise ConfigError(f"{options.config}: {error}") from error

    try:
        if options.check_config:
            reading = examine_sources(options.config, model, options.settings, os.environ)
            return print_check(checked(reading, looks, strict=options.strict))
        run_on_loop(main())
    except (WaltzError, OSError) as error:
        if options.log_format == "json":
            logger.critical("%s", error)
        else:
            print(f"Error: {error}", file=sys.stderr)  # noqa: T201 - the daemon's last word
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def calm_garbage_collection() -> None:
    """Make garbage collection rare; to be called at the end of the start.

    Appends live for milliseconds and make no cycles: cycles are searched for less often than by default, and not among
    the objects of the start, which live as long as the process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 4, 50)


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set. To be used on the loop, in the main thread."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def unless_stopped(stop: asyncio.Event, work: Coroutine[object, object, Result]) -> Result | None:
    """The result of ``work``, or ``None`` when ``stop`` was set first and the cancelled ``work`` has ended.

    If ``work`` returns a result in spite of the cancellation, that is the result. Raises the errors of ``work``, unless
    it was cancelled.
    """
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
            if working.cancelled() or working.exception() is not None:
                return None
        return working.result()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def close_step(name: str, work: Awaitable[None]) -> None:
    """Run one step of the stop within :data:`CLOSE_STEP_TIMEOUT_S`; errors are logged."""
    try:
        async with asyncio.timeout(CLOSE_STEP_TIMEOUT_S):
            await work
    except TimeoutError:
        logger.warning("%s takes more than %g s; going on without it", name, CLOSE_STEP_TIMEOUT_S)
    except Exception:
        logger.exception("%s failed; going on", name)
