"""``python -m tests.simulation``: run seeds, or planted bugs that the seeds have to find."""

import argparse
import contextlib
import functools
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.options import (
    CONDITIONS,
    WITHOUT_ARCHIVERS,
    WITHOUT_JOURNAL,
    SimulationOptions,
    draw_options,
    format_settings,
    parse_settings,
)
from tests.simulation.parallel import Crash, cores, run_apart
from tests.simulation.schedule import ALL_FAULTS, draw_faults
from tests.simulation.shrink import shrink
from tests.simulation.simulation import Result, Simulation
from tests.simulation.summary import Summary
from tests.simulation.target import Fault

_T = TypeVar("_T")

TAIL_LINES = 60
"""Lines of the trace that are shown of a failure."""


@dataclass(frozen=True, slots=True)
class Course:
    """The options that all seeds of a call have in common."""

    fault_kinds: tuple[str, ...] = ()
    """The only kinds of faults; none: whatever the seed selects."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Options that replace those of the seed."""
    only_faults: tuple[int, ...] | None = None
    """Numbers of the only faults that happen, of those that the seed has; ``None``: all."""
    planted: tuple[str, ...] = ()
    """Bugs that are planted."""

    def with_conditions_of(self, mutant: Mutant) -> "Course":
        """The course with the conditions that bring a planted bug to light, unless other conditions were given."""
        kinds = self.fault_kinds or mutant.fault_kinds
        conditions = {**WITHOUT_JOURNAL, **WITHOUT_ARCHIVERS, **mutant.conditions, **self.conditions}
        return replace(self, fault_kinds=kinds, conditions=conditions)

    def options(self, seed: int, log_level: int = logging.WARNING) -> SimulationOptions:
        """The options of a seed."""
        drawn = draw_options(seed, log_level=log_level, fault_kinds=self.fault_kinds)
        if self.conditions or self.fault_kinds:  # a course of its own: nothing else comes between
            drawn = replace(drawn, access_rules=False)
        return replace(drawn, **self.conditions)

    def faults(self, seed: int) -> list[Fault]:
        """The faults that the seed has, whether they happen or not."""
        options = self.options(seed)
        return draw_faults(seed, options.fault_count, options.duration_s, options.fault_kinds)

    def run(self, seed: int, faults: Sequence[Fault] | None = None, *, trace: bool = False) -> Result:
        """Run one seed; ``faults`` replaces those that happen."""
        if faults is None and self.only_faults is not None:
            drawn = self.faults(seed)
            faults = [drawn[number] for number in self.only_faults]
        echo: Callable[[str], None] | None = print if trace else None
        options = self.options(seed, logging.INFO if trace else logging.WARNING)
        with contextlib.ExitStack() as planted:
            for name in self.planted:
                planted.enter_context(MUTANTS[name].plant())
            return Simulation(seed, options, faults, echo).run()

    def command(self, seed: int, only_faults: Sequence[int] | None) -> str:
        """The command that runs a seed again."""
        parts = [f"python -m tests.simulation --start {seed} --seeds 1 --trace --no-shrink"]
        if self.fault_kinds:
            parts.append(f"--faults {','.join(self.fault_kinds)}")
        parts += [f"--set {setting}" for setting in format_settings(self.conditions)]
        if self.planted:
            parts.append(f"--plant {','.join(self.planted)}")
        if only_faults is not None:
            parts.append(f"--only-faults {','.join(map(str, only_faults)) or 'none'}")
        return " ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if a seed failed, or a planted bug was not found."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.list_mutants:
        for name, mutant in MUTANTS.items():
            print(f"{name}: {mutant.description}; found by seed {mutant.found_by}, within {mutant.seeds} seeds")
        return 0
    try:
        course = Course(
            _names(parsed.faults, ALL_FAULTS),
            parse_settings(parsed.set),
            _numbers(parsed.only_faults),
            _names(parsed.plant, MUTANTS),
        )
        mutants = list(MUTANTS) if parsed.mutant == "all" else _names(parsed.mutant, MUTANTS)
    except (ValueError, SyntaxError) as error:
        parser.error(str(error))
    gc.collect()
    gc.freeze()  # the garbage of a run is found much sooner when modules are not looked at again
    for name in course.planted:
        course = course.with_conditions_of(MUTANTS[name])
    if mutants:
        seeds = None if parsed.seeds is None else range(parsed.start or 0, (parsed.start or 0) + parsed.seeds)
        return _find_mutants(
            mutants, seeds, course, jobs=parsed.jobs, known=parsed.known, checked=not parsed.only_planted
        )
    start = parsed.start or 0
    seeds = range(start, start + (10 if parsed.seeds is None else parsed.seeds))
    jobs = 0 if len(seeds) == 1 or parsed.trace else parsed.jobs  # one seed can be looked at with a debugger
    shrunk = not parsed.no_shrink
    return _run_seeds(course, seeds, jobs=jobs, trace=parsed.trace, keep_going=parsed.keep_going, shrunk=shrunk)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", help="how many; 10, or what is stated for each planted bug")
    parser.add_argument("--start", type=int, metavar="S", help="the first; 0")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        default=cores(),
        help="seeds that run at the same time, each in a process of its own; 0: one after another in this process. "
        "As many as there are cores, unless it is one seed or traced: that runs in this process",
    )
    parser.add_argument("--trace", action="store_true", help="show every event")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for fewer faults that fail, too")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--faults", metavar="KINDS", default="", help="only these kinds of faults, with commas")
    parser.add_argument(
        "--only-faults",
        metavar="NUMBERS",
        help="only these faults of those that the seed has, by number, with commas; or `none`",
    )
    parser.add_argument(
        "--set",
        metavar="OPTION=VALUE",
        action="append",
        default=[],
        help=f"replace an option of the seeds, or several: {', '.join(CONDITIONS)}",
    )
    parser.add_argument(
        "--plant", metavar="NAMES", default="", help="plant these bugs (with commas), under their conditions"
    )
    parser.add_argument(
        "--mutant",
        metavar="NAMES",
        default="",
        help="plant each of these bugs (with commas; `all`) alone, and stop at the seed that finds it",
    )
    parser.add_argument(
        "--known", action="store_true", help="with --mutant: begin with the seed that is known to find it"
    )
    parser.add_argument(
        "--only-planted", action="store_true", help="with --mutant: do not look whether the seed passes without the bug"
    )
    parser.add_argument("--list-mutants", action="store_true", help="list the planted bugs")
    return parser


def _names(text: str, known: Mapping[str, object]) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is none of {', '.join(known)}")
    return names


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return () if text == "none" else tuple(map(int, text.split(",")))


def _run(works: Sequence[Callable[[], _T]], jobs: int) -> Generator[_T | Crash]:
    return run_apart(works, jobs) if jobs else (work() for work in works)


class _Outcome(NamedTuple):
    """The outcome of a seed."""

    result: Result
    report: str
    """The report of the failure."""


def _run_seeds(course: Course, seeds: range, *, jobs: int, trace: bool, keep_going: bool, shrunk: bool) -> int:
    def run(seed: int) -> _Outcome:
        result = course.run(seed, trace=trace)
        report = _report(result, course, shrunk=shrunk, traced=trace) if result.failures else ""
        return _Outcome(replace(result, trace=[]), report)

    works = [functools.partial(run, seed) for seed in seeds]
    summary = Summary(len(seeds))
    with contextlib.closing(_run(works, jobs)) as outcomes:
        for seed, outcome in zip(seeds, outcomes, strict=True):
            if isinstance(outcome, Crash):
                print(f"seed {seed:<6} CRASHED {outcome}")
                print(f"again: {course.command(seed, course.only_faults)}", flush=True)
                summary.crashed(seed)
            else:
                print(outcome.result, flush=True)
                if outcome.report:
                    print(outcome.report, flush=True)
                summary.add(outcome.result)
            summary.show_progress()
            if summary.failed and not keep_going:
                break
    print(summary)
    return 1 if summary.failed else 0


def _report(result: Result, course: Course, *, shrunk: bool, traced: bool) -> str:
    """The failures, the faults, the end of the trace, and the commands that repeat them."""
    lines = [f"  {failure}" for failure in result.failures]
    only_faults: Sequence[int] = course.only_faults or ()
    if shrunk:
        whole = course.faults(result.seed)
        result = shrink(result, lambda faults: course.run(result.seed, faults))
        only_faults = [whole.index(fault) for fault in result.faults]
        lines.append(f"  it still fails with {len(only_faults)} of {len(whole)} faults:")
        lines += [f"    {number}: {fault}" for number, fault in zip(only_faults, result.faults, strict=True)]
        lines += [f"  {failure}" for failure in result.failures]
    if not traced:
        lines += result.trace[-TAIL_LINES:]
    lines.append(f"again: {course.command(result.seed, course.only_faults)}")
    if shrunk:
        lines.append(f"with these faults only: {course.command(result.seed, only_faults)}")
    return "\n".join(lines)


class _Finding(NamedTuple):
    """A seed that fails with a planted bug, and what is said of it."""

    seed: int
    what: str


def _find_mutants(
    names: Sequence[str], seeds: range | None, course: Course, *, jobs: int, known: bool, checked: bool
) -> int:
    def find(name: str) -> tuple[_Finding | None, str]:
        mutant = MUTANTS[name]
        tried: Sequence[int] = seeds or range(mutant.seeds)
        if known:
            tried = list(dict.fromkeys((mutant.found_by, *tried)))
        started_s = time.process_time()
        finding = _find(name, tried, course)
        what = f"NOT FOUND by {len(tried)} seeds" if finding is None else finding.what
        if known and finding is not None and finding.seed != mutant.found_by:
            what += f"; not by seed {mutant.found_by}, as it is stated"
        return finding, f"{what} ({time.process_time() - started_s:.0f} s)"

    missed = 0
    fails_without: dict[str, str | Crash] = {}
    works = [functools.partial(find, name) for name in names]
    for name, outcome in zip(names, _run(works, jobs), strict=True):
        finding, what = (None, str(outcome)) if isinstance(outcome, Crash) else outcome
        if finding is not None and checked:
            without = _fails(
                replace(course.with_conditions_of(MUTANTS[name]), planted=()), finding.seed, fails_without, jobs
            )
            if without:
                what = f"seed {finding.seed} fails WITHOUT the planted bug: {without}"
                finding = None
        missed += finding is None
        print(f"{name:30} {what}", flush=True)
    return 1 if missed else 0


def _find(name: str, seeds: Sequence[int], course: Course) -> _Finding | None:
    """The first seed that fails with the bug."""
    sick = replace(course.with_conditions_of(MUTANTS[name]), planted=(name,))
    for seed in seeds:
        result = sick.run(seed)
        if result.failures:
            return _Finding(seed, f"found by seed {seed}: {_first_line(result)}")
    return None


def _fails(course: Course, seed: int, known: dict[str, str | Crash], jobs: int) -> str | Crash:
    """How a seed fails without any bug, or nothing. One that does finds no bug. Bugs have courses in common."""
    key = course.command(seed, None)
    if key not in known:

        def run() -> str:
            result = course.run(seed)
            return _first_line(result) if result.failures else ""

        (known[key],) = _run([run], jobs)
    return known[key]


def _first_line(result: Result) -> str:
    return result.failures[0].splitlines()[0][:160]


def _reproducible() -> None:
    """Strings hash alike in every run only with a fixed hash seed, which has to be set before Python starts."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])


if __name__ == "__main__":
    _reproducible()
    sys.exit(main())
