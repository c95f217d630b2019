"""What the entry points of the daemons share: the command line, logging, the event loop, one-line errors."""

import argparse
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import uvloop
from pydantic import BaseModel

from waltz.common.config import load
from waltz.common.errors import WaltzError

Config = TypeVar("Config", bound=BaseModel)

GC_THRESHOLD = 10_000
"""Objects made and not freed between two looks at the youngest generation."""


def run_daemon(program: str, model: type[Config], run: Callable[[Config], Awaitable[None]]) -> int:
    """Run a daemon whose only argument is its configuration file; the exit code.

    0: ended on request. 1: one line on standard error says what is wrong and what to do. 2: wrong usage. 130: ended by
    Ctrl-C before it was up.
    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("config", type=Path, metavar="CONFIG.yml", help="configuration file")
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    options = parser.parse_args()
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    logging.getLogger("kazoo").setLevel(max(logging.WARNING, logging.getLogger().level))

    async def main() -> None:
        await run(load(options.config, model))

    try:
        uvloop.run(main())
    except (WaltzError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201 - the daemon's last word
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def calm_garbage_collection() -> None:
    """To be called when the process is up.

    Appends live for milliseconds and make no cycles: look for those less often than by default, and not among what
    stays for as long as the process does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)
