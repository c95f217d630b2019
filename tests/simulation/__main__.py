"""``python -m tests.simulation``: run seeds, or planted bugs that the seeds have to find."""

import argparse
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.mutants import MUTANTS
from tests.simulation.options import draw_options
from tests.simulation.shrink import shrink
from tests.simulation.simulation import Result, Simulation

TAIL_LINES = 60
"""Lines of the trace that are shown of a failure."""


def main() -> int:
    """The exit code: 1 if a seed failed, or a planted bug was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="how many")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first")
    parser.add_argument("--trace", action="store_true", help="show every event")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for fewer faults that fail, too")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument(
        "--mutant",
        metavar="NAME",
        help="plant this bug (several: with commas; `all`) and stop at the seed that finds it",
    )
    arguments = parser.parse_args()
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    if arguments.mutant:
        names = list(MUTANTS) if arguments.mutant == "all" else arguments.mutant.split(",")
        return _find_mutants(names, arguments.seeds, arguments.start)
    failed = 0
    started_s = time.monotonic()
    for seed in seeds:
        result = run(seed, trace=arguments.trace)
        print(result, flush=True)
        if result.failures:
            failed += 1
            _report(result, shrunk=not arguments.no_shrink)
            if not arguments.keep_going:
                break
    print(f"{failed} failed; {time.monotonic() - started_s:.0f} s")
    return 1 if failed else 0


def run(seed: int, *, trace: bool = False) -> Result:
    """Run one seed."""
    options = draw_options(seed, log_level=logging.INFO if trace else logging.WARNING)
    echo: Callable[[str], None] | None = print if trace else None
    return Simulation(seed, options, echo=echo).run()


def _report(result: Result, *, shrunk: bool) -> None:
    for failure in result.failures:
        print(f"  {failure}")
    if shrunk:
        options = replace(draw_options(result.seed), log_level=logging.INFO)
        result = shrink(result, lambda faults: Simulation(result.seed, options, faults).run())
        print("  with these faults it still fails:")
        for fault in result.faults:
            print(f"    {fault}")
        for failure in result.failures:
            print(f"  {failure}")
    print("\n".join(result.trace[-TAIL_LINES:]))
    print(f"again: python -m tests.simulation --start {result.seed} --seeds 1 --trace", flush=True)


def _find_mutants(names: list[str], most_seeds: int, start: int) -> int:
    missed = 0
    for name in names:
        mutant = MUTANTS[name]
        print(f"{name:28} {mutant.description}:", end=" ", flush=True)
        for seed in range(start, start + most_seeds):
            with contextlib.ExitStack() as stack:
                stack.enter_context(mutant.plant())
                result = run(seed)
            if result.failures:
                print(f"found by seed {seed}: {result.failures[0].splitlines()[0][:200]}", flush=True)
                break
        else:
            missed += 1
            print(f"NOT FOUND by {most_seeds} seeds", flush=True)
    return 1 if missed else 0


def _reproducible() -> None:
    """Strings hash alike in every run only with a fixed hash seed, which has to be set before Python starts."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])


if __name__ == "__main__":
    _reproducible()
    sys.exit(main())
