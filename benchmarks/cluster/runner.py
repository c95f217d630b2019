"""The contestants take turns: rounds of the same scenario are neighbours in time, forwards and backwards."""

import asyncio
import contextlib
import datetime
import itertools
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cluster import boot
from benchmarks.cluster.line import END_TIMEOUT_S, Line
from benchmarks.cluster.report import LEAN, OTHER, WALTZ, Report, Result, with_rounds
from benchmarks.cluster.scenarios import Scenario, by_shape
from benchmarks.cluster.summary import RATE, Metrics, turns
from waltz.common.errors import WaltzError


class Settings(NamedTuple):
    """How it is measured."""

    starts: int
    """How often the nodes are started: what differs from one start to the next is seen in several only."""
    rounds: int
    """Of each start."""
    seconds: float
    count_calls: bool
    """Whether system calls are counted, in a round for itself."""
    lean: bool
    tree: Path | None
    """Another checkout of Waltz that takes part."""
    directory: Path | None
    """Where nodes write; ``None``: a temporary directory."""


class ContestantFailedError(Exception):
    """A contestant could not do what it was told; the text is its traceback."""


class ContestantEndedError(WaltzError):
    """The process of a contestant has ended; the text names its checkout, and has the end of what it printed."""


class Progress:
    """One line on standard error that changes, on a terminal; elsewhere a line for each scenario."""

    def __init__(self, scenarios: int) -> None:
        self._scenarios = scenarios
        self._done = 0
        self._began_s = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._what = ""

    def begin(self, what: str) -> None:
        """A scenario, or what has to be done before one."""
        self._what = what
        if not self._terminal:
            self._write(f"{self._place()} {what}\n")
        else:
            self.at("")

    def at(self, where: str) -> None:
        """What is done for it at the moment."""
        if self._terminal:
            self._write(f"\r\x1b[K{self._place()} {self._what} {where}")

    def end(self, result: str) -> None:
        """A scenario has been measured."""
        self._done += 1
        self._write(f"\r\x1b[K{self._place()} {self._what}: {result}\n" if self._terminal else f"    {result}\n")

    def fail(self, reason: str, scenarios: int = 1) -> None:
        """Scenarios could not be measured."""
        self._done += scenarios
        self._write(f"\n{self._place()} {self._what} FAILED\n{reason}\n")

    def _place(self) -> str:
        return f"[{time.monotonic() - self._began_s:6.0f} s, {self._done}/{self._scenarios}]"

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class Contestant:
    """The runner's end of a contestant's process."""

    def __init__(self, line: Line, tree: Path, progress: Progress) -> None:
        self._line = line
        self._tree = tree
        self._progress = progress

    async def __call__(self, command: str, *arguments: object) -> Any:
        """Have it execute a command. Raises :class:`ContestantFailedError` and :class:`ContestantEndedError`."""
        self._line.send([command, *arguments])
        while True:
            try:
                answer = await self._line.read_json()
            except WaltzError as error:
                raise ContestantEndedError(f"the Waltz in {self._tree} cannot be measured: {error}") from error
            if "error" in answer:
                raise ContestantFailedError(answer["error"])
            if "done" in answer:
                return answer["done"]
            self._progress.at(answer["progress"])


@contextlib.asynccontextmanager
async def contestants(settings: Settings, progress: Progress) -> AsyncIterator[dict[str, Contestant]]:
    """All of them, started; in the end they stop their nodes."""
    trees = {WALTZ: boot.ROOT}
    if settings.tree is not None:
        trees[OTHER] = settings.tree
    if settings.lean:
        trees[LEAN] = boot.ROOT
    with tempfile.TemporaryDirectory(prefix="waltz-bench-", dir=settings.directory) as directory:
        lines: dict[str, Line] = {}
        try:
            for name, tree in trees.items():
                own = Path(directory, name)
                own.mkdir()
                command = boot.command("contestant", name, str(own), tree=tree)
                lines[name] = await Line.open(name, command, own / "contestant.log")
            yield {name: Contestant(line, trees[name], progress) for name, line in lines.items()}
        finally:
            await asyncio.gather(*(line.close(END_TIMEOUT_S) for line in lines.values()))


async def run(scenarios: Sequence[Scenario], settings: Settings, save: Callable[[Report], None]) -> list[Scenario]:
    """Measure all scenarios, those that fit the same cluster one after the other; the ones that failed.

    ``save`` is given what there is whenever there is more.
    """
    groups = by_shape(scenarios)
    progress = Progress(settings.starts * sum(map(len, groups.values())))
    results: dict[Scenario, Result] = {}
    failed: list[Scenario] = []
    began = datetime.datetime.now(datetime.UTC)
    how = {"starts": settings.starts, "rounds": settings.rounds, "seconds": settings.seconds}
    async with contestants(settings, progress) as all_of_them:
        names = {name: description(name, settings) for name in all_of_them}
        for (shape, those), start in itertools.product(groups.items(), range(settings.starts)):
            taking_part = {
                name: each for name, each in all_of_them.items() if name != LEAN or any(s.fits_lean for s in those)
            }
            progress.begin(
                f"starting clusters: {'TLS' if shape.tls else 'plain'}, {shape.partitions} partitions"
                + ", journal" * shape.journal
            )
            try:
                for each in taking_part.values():
                    await each("open", *shape)
                for scenario in those:
                    rounds = await _scenario(scenario, taking_part, settings, progress)
                    if rounds is None:
                        failed.append(scenario)
                    else:
                        results[scenario] = with_rounds(results.get(scenario), scenario, rounds)
                        save(Report(machine(began), how, names, list(results.values())))
            except ContestantFailedError as error:
                progress.fail(f"start {start + 1}: {error}", len(those))
                failed += those
            finally:
                for each in taking_part.values():
                    with contextlib.suppress(ContestantEndedError):  # it was told, or will be when it is asked again
                        await each("close")
    return failed


async def _scenario(
    scenario: Scenario, everybody: dict[str, Contestant], settings: Settings, progress: Progress
) -> dict[str, list[Metrics]] | None:
    """What each contestant measured in each round; ``None`` when one of them failed."""
    progress.begin(scenario.label)
    taking_part = {name: each for name, each in everybody.items() if name != LEAN or scenario.fits_lean}
    rounds: dict[str, list[Metrics]] = {name: [] for name in taking_part}
    try:
        for name, contestant in taking_part.items():
            progress.at(f"{name} warms up")
            await contestant("prepare", scenario._asdict())
        for number in range(settings.rounds):
            for name in turns(list(taking_part), number):
                progress.at(f"round {number + 1} of {settings.rounds}, {name}")
                rounds[name].append(await taking_part[name]("measure", settings.seconds))
        if settings.count_calls:
            for name, contestant in taking_part.items():
                progress.at(f"system calls, {name}")
                rounds[name][-1] |= await contestant("trace", settings.seconds)
        for contestant in taking_part.values():
            await contestant("finish")
    except ContestantFailedError as error:
        progress.fail(str(error))
        for contestant in taking_part.values():
            with contextlib.suppress(ContestantFailedError):  # what went wrong first is what is told
                await contestant("finish")
        return None
    result = Result(scenario, rounds)
    progress.end(", ".join(f"{name} {result.of(name)[RATE].median:,.0f}/s" for name in rounds))
    return rounds


def machine(began: datetime.datetime) -> dict[str, str]:
    """Where and when."""
    cpus = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "when": began.isoformat(timespec="seconds"),
        "cpu": f"{os.cpu_count()} x {cpus[0] if cpus else platform.machine()}",
        "kernel": platform.release(),
        "python": f"{platform.python_version()}, built {how_it_was_built()}",
        "load": f"{os.getloadavg()[0]:.1f} in the last minute of the run",
        "command": " ".join(sys.argv),
    }


def how_it_was_built() -> str:
    """Which optimisations the compiler was told to make of the interpreter that runs."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    flags = " ".join(sysconfig.get_config_var(name) or "" for name in ("CFLAGS", "PY_CORE_CFLAGS", "PY_LDFLAGS"))
    level = next((flag for flag in reversed(flags.split()) if flag.startswith("-O")), "without -O")
    profile = "with" if "--enable-optimizations" in arguments else "without"
    link_time = "with" if "--with-lto" in arguments or "-flto" in flags else "without"
    return f"{level}, {profile} PGO, {link_time} LTO"


def description(contestant: str, settings: Settings) -> str:
    """What stands behind a name: a commit, with a mark if there were changes beyond it."""
    if contestant == LEAN:
        return "the lean pipeline"
    tree = settings.tree if contestant == OTHER and settings.tree is not None else boot.ROOT
    found = subprocess.run(
        ["git", "-C", str(tree), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return f"{found.stdout.strip() or 'no commit'} in {tree}"


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []
