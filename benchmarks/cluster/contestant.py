"""One contestant: a cluster and its client in a process of its own, which does what the runner says.

    python -m benchmarks.cluster.contestant waltz|lean DIRECTORY

Reads a command from each line of standard input, ``[name, argument, ...]``, and answers it with ``{"done": ...}`` or
``{"error": ...}``; lines ``{"progress": ...}`` may come before. At the end of the input it stops its nodes and ends.
"""

import asyncio
import contextlib
import json
import sys
import traceback
from pathlib import Path

import uvloop

import waltz
from benchmarks.cluster.lean_target import LeanTarget
from benchmarks.cluster.measurement import Target, measure, trace, warm_up
from benchmarks.cluster.report import LEAN
from benchmarks.cluster.scenarios import Scenario, Shape
from benchmarks.cluster.waltz_target import WaltzTarget
from waltz.common.daemon import calm_garbage_collection


def say(**fields: object) -> None:
    """One line for the runner."""
    print(json.dumps(fields), flush=True)


class Contestant:
    """Executes commands; of each there is a method."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._open = False
        self._prepared = False
        self._scenario = Scenario()

    async def open(self, tls: bool, partitions: int, journal: bool) -> None:
        """Start a cluster."""
        self._open = True
        await self._target.open(Shape(tls, partitions, journal))

    async def prepare(self, scenario: dict[str, object]) -> None:
        """Connect the clients and warm up."""
        self._scenario = Scenario(**scenario)  # type: ignore[arg-type]  # what the runner has made a dictionary of
        self._prepared = True
        await self._target.prepare(self._scenario)
        await warm_up(self._target)

    async def measure(self, seconds: float) -> dict[str, float]:
        """One round."""
        return await measure(self._target, self._scenario, seconds)

    async def trace(self, seconds: float) -> dict[str, float]:
        """System calls per batch."""
        return await trace(self._target, seconds)

    async def finish(self) -> None:
        """Disconnect the clients."""
        if self._prepared:
            self._prepared = False
            await self._target.finish()

    async def close(self) -> None:
        """Stop the cluster."""
        await self.finish()
        if self._open:
            self._open = False
            await self._target.close()


async def run(contestant: Contestant) -> None:
    """Until the input ends."""
    loop = asyncio.get_running_loop()
    commands = {each.__name__: each for each in (
        contestant.open, contestant.prepare, contestant.measure, contestant.trace, contestant.finish, contestant.close
    )}  # fmt: skip
    try:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, *arguments = json.loads(line)
            try:
                say(done=await commands[name](*arguments))
            except Exception:
                say(error=traceback.format_exc())
    finally:
        with contextlib.suppress(Exception):
            await contestant.close()


def main() -> None:
    """The life of the process."""
    kind, directory = sys.argv[1], Path(sys.argv[2])
    source = Path(waltz.__file__)
    assert source.is_relative_to(Path.cwd()), f"what would be measured is {source}, not what is in {Path.cwd()}"
    target: Target
    if kind == LEAN:
        target = LeanTarget(directory)
    else:
        target = WaltzTarget(directory, Path.cwd(), lambda text: say(progress=text))
    calm_garbage_collection()  # as the documentation advises clients, and as the nodes of both do
    uvloop.run(run(Contestant(target)))


if __name__ == "__main__":
    main()
