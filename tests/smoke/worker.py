"""One client process of the smoke test.

It tells its progress in JSON lines on standard output. When everything that it submitted has ended it waits for a line
with the committed high-water marks on standard input, applies the log up to there, and writes its journal to a file.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.smoke.journal import Journal
from tests.smoke.sessions import Sessions
from tests.smoke.trial import settle
from tests.smoke.workload import Application, Load, Workload
from waltz.client.callbacks import WaltzClient
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.errors import WaltzError

REPORT_INTERVAL_S = 0.2
SETTLE_TIMEOUT_S = 120.0


class Options(NamedTuple):
    """The command line, parsed."""

    config: Path
    journal: Path
    number: int
    partitions: int
    transactions: int
    rate: float
    in_flight: int
    large: float
    large_bytes: int
    zookeeper: str
    sessions: int
    """1 if its appends belong to write sessions, else 0."""
    seed: int


def say(**fields: object) -> None:
    """One line for the smoke test."""
    print(json.dumps(fields), flush=True)


def progress(workload: Workload) -> dict[str, int]:
    """How far it is."""
    journal = workload.journal
    return {
        "submitted": len(journal.submitted),
        "committed": len(journal.samples),
        "pending": workload.pending,
        "applied": sum(len(applied) for applied in journal.applied),
        "retries": journal.retries,
        "errors": len(workload.application.errors),
    }


async def report(workload: Workload) -> None:
    """Tell the progress, for ever."""
    while True:
        say(**progress(workload))
        await asyncio.sleep(REPORT_INTERVAL_S)


@contextlib.asynccontextmanager
async def fencing(sessions: Sessions | None) -> AsyncIterator[None]:
    """Write sessions begin meanwhile."""
    if sessions is None:
        yield
        return
    beginning = asyncio.create_task(sessions.run())
    try:
        yield
    finally:
        beginning.cancel()
        await asyncio.wait([beginning])
    if not beginning.cancelled():
        beginning.result()


async def run(options: Options) -> None:
    """The life of a client process."""
    application = Application(Journal(options.number), options.partitions)
    settings = {
        "max_concurrent_transactions": options.in_flight,
        "zookeeper_connect_string": options.zookeeper,
        "enable_session_write": bool(options.sessions),
    }
    config = load(options.config, ClientConfig).model_copy(update=settings)
    client = await WaltzClient.open(application, config)
    draw = random.Random(f"{options.seed} {options.number}")
    what = Load(options.in_flight, options.rate, large=options.large, large_bytes=options.large_bytes)
    sessions = Sessions(client, application.journal, draw) if options.sessions else None
    workload = Workload(client, application, what, draw, sessions)
    say(ready=True)
    reporter = asyncio.create_task(report(workload))
    try:
        async with fencing(sessions):
            await workload.run(options.transactions)
        say(finished=True, **progress(workload))
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            raise WaltzError("the smoke test has gone away")
        await settle(application, json.loads(line), SETTLE_TIMEOUT_S)
        application.journal.write(options.journal)
        say(settled=True, **progress(workload))
    finally:
        reporter.cancel()
        await asyncio.gather(reporter, return_exceptions=True)
        await client.close()


def command(options: Options) -> list[str]:
    """The command that starts a client process with these options."""
    words = [sys.executable, "-m", "tests.smoke.worker"]
    for name, value in options._asdict().items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def main() -> int:
    """Entry point of the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    parser = argparse.ArgumentParser(prog="python -m tests.smoke.worker", description=__doc__)
    kinds = {"config": Path, "journal": Path, "rate": float, "large": float, "zookeeper": str}
    for name in Options._fields:
        parser.add_argument(f"--{name.replace('_', '-')}", type=kinds.get(name, int), required=True)
    try:
        uvloop.run(run(Options(**vars(parser.parse_args()))))
    except (WaltzError, OSError) as error:
        say(failed=f"{error}" or type(error).__name__)
        return 1
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a thread may still wait on standard input, and would keep the process
