"""A client process of a campaign. It writes every operation into its file, at its begin and at its end.

It tells the number of finished operations in JSON lines on standard output. By lines on standard input it is told what
to do: ``STRIKE``, ``BEGIN_NOTHING`` and ``END``.
"""

import argparse
import asyncio
import contextlib
import functools
import json
import logging
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp
import uvloop

import waltz
from tests.histories.recorder import Recorder
from tests.histories.workloads import Consumption, Fencing, Ledger, Lists, Registers, ViewReads
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.errors import WaltzError

STRIKE = "end within the next effect"
BEGIN_NOTHING = "begin nothing new, and only consume"
END = "end"

REPORT_INTERVAL_S = 0.2
REGISTER_TASKS = 24
VIEW_TASKS = 6
LIST_TASKS = 4
LEDGER_TASKS = 12


class Options(NamedTuple):
    """The command line, parsed."""

    config: Path
    history: Path
    database: Path
    """Of the consumers' effects and positions."""
    zookeeper: str
    name: str
    first_op: int
    registers: int
    lists: int
    fences: int
    ledger: int
    """The first of the partitions of the ledger."""
    views: str
    """``HOST:PORT`` of the view nodes, with commas between them."""
    seed: int


def arguments(options: Options) -> list[str]:
    """The arguments of a process with these options."""
    words: list[str] = []
    for name, value in options._asdict().items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


async def insist(work: Callable[[], Awaitable[None]], draw: random.Random) -> None:
    """Do the work again and again: it fails while nodes are away."""
    while True:
        try:
            await work()
        except (WaltzError, TimeoutError, OSError) as error:
            logging.warning("again: %s", error)
            await asyncio.sleep(draw.uniform(0.05, 0.2))


async def run(options: Options) -> None:
    """Open the clients, and work until the line comes."""
    draw = random.Random(f"{options.seed} {options.name}")
    config = load(options.config, ClientConfig).model_copy(update={"zookeeper_connect_string": options.zookeeper})
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    recorder = Recorder(options.history, options.name, options.first_op)
    ledger = [options.ledger, options.ledger + 1]
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(recorder.close)
        client = await stack.enter_async_context(waltz.connect(config))
        holder = await stack.enter_async_context(waltz.connect(config, session_write=True))
        registers, lists = [
            await stack.enter_async_context(client.table(partition_id, store="memory"))
            for partition_id in (options.registers, options.lists)
        ]
        http = await stack.enter_async_context(aiohttp.ClientSession())
        on_registers = Registers(registers, options.registers, recorder, draw)
        views = options.views.split(",") if options.views else []
        works: list[Callable[[], Awaitable[None]]] = [
            *[on_registers.step] * REGISTER_TASKS,
            *[ViewReads(http, views, options.registers, on_registers, recorder, draw).step]
            * (VIEW_TASKS if views else 0),
            *[Lists(lists, options.lists, recorder, draw).step] * LIST_TASKS,
            *[Ledger(client, ledger, recorder, draw).step] * LEDGER_TASKS,
            Fencing(holder, options.fences, recorder, draw).step,
        ]
        consumption = Consumption(client, ledger, options.database, options.name)
        print(json.dumps({"ready": True}), flush=True)
        async with going_on([lambda: insist(consumption.step, draw), lambda: tell(recorder)]):
            async with going_on([functools.partial(insist, work, draw) for work in works]):
                while await _line(lines) == STRIKE:
                    consumption.struck = True
            print(json.dumps({"finished": True, "done": recorder.done}), flush=True)
            await _line(lines)
    print(json.dumps({"settled": True, "done": recorder.done}), flush=True)


async def _line(lines: asyncio.StreamReader) -> str:
    return (await lines.readline()).decode().rstrip()


@contextlib.asynccontextmanager
async def going_on(works: Sequence[Callable[[], Awaitable[None]]]) -> AsyncIterator[None]:
    """Work that goes on meanwhile. Raises its errors, at once."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_awaited(work)) for work in works]
        yield
        for task in tasks:
            task.cancel()


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def tell(recorder: Recorder) -> None:
    """Tell the progress, for ever."""
    while True:
        print(json.dumps({"done": recorder.done}), flush=True)
        await asyncio.sleep(REPORT_INTERVAL_S)


def main() -> int:
    """Entry point of the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    parser = argparse.ArgumentParser(prog="python -m tests.histories.worker", description=__doc__)
    kinds = {"config": Path, "history": Path, "database": Path, "zookeeper": str, "name": str, "views": str}
    for name in Options._fields:
        parser.add_argument(f"--{name.replace('_', '-')}", type=kinds.get(name, int), required=True)
    try:
        uvloop.run(run(Options(**vars(parser.parse_args()))))
    except (WaltzError, OSError) as error:
        logging.exception("the process ends")
        print(json.dumps({"ended": str(error) or type(error).__name__}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
