"""``python -m tests.simulation``: run seeds, or planted bugs that the seeds have to find."""

import argparse
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

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
    parser.add_argument("--faults", metavar="KINDS", default="", help="only these kinds of faults, with commas")
    arguments = parser.parse_args()
    kinds = tuple(filter(None, arguments.faults.split(",")))
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    if arguments.mutant:
        names = list(MUTANTS) if arguments.mutant == "all" else arguments.mutant.split(",")
        return _find_mutants(names, seeds, kinds)
    gc.collect()
    gc.freeze()  # the garbage of a run is found much sooner when modules are not looked at again
    failed = 0
    started_s = time.monotonic()
    for seed in seeds:
        result = run(seed, kinds, trace=arguments.trace)
        print(result, flush=True)
        if result.failures:
            failed += 1
            _report(result, kinds, shrunk=not arguments.no_shrink)
            if not arguments.keep_going:
                break
    print(f"{failed} failed; {time.monotonic() - started_s:.0f} s")
    return 1 if failed else 0


def run(
    seed: int,
    fault_kinds: tuple[str, ...] = (),
    *,
    trace: bool = False,
    conditions: Mapping[str, Any] = MappingProxyType({}),
) -> Result:
    """Run one seed. ``conditions`` replace options of the seed."""
    level = logging.INFO if trace else logging.WARNING
    options = draw_options(seed, log_level=level, fault_kinds=fault_kinds)
    options = replace(options, **conditions)
    echo: Callable[[str], None] | None = print if trace else None
    return Simulation(seed, options, echo=echo).run()


def _report(result: Result, fault_kinds: tuple[str, ...], *, shrunk: bool) -> None:
    for failure in result.failures:
        print(f"  {failure}")
    if shrunk:
        options = draw_options(result.seed, log_level=logging.INFO)
        result = shrink(result, lambda faults: Simulation(result.seed, options, faults).run())
        print("  with these faults it still fails:")
        for fault in result.faults:
            print(f"    {fault}")
        for failure in result.failures:
            print(f"  {failure}")
    print("\n".join(result.trace[-TAIL_LINES:]))
    only = f" --faults {','.join(fault_kinds)}" if fault_kinds else ""
    print(f"again: python -m tests.simulation --start {result.seed} --seeds 1 --trace{only}", flush=True)


def _find_mutants(names: list[str], seeds: range, fault_kinds: tuple[str, ...]) -> int:
    missed = 0
    for name in names:
        mutant = MUTANTS[name]
        print(f"{name:28} {mutant.description}:", end=" ", flush=True)
        for seed in seeds:
            with mutant.plant():
                result = run(seed, fault_kinds or mutant.fault_kinds, conditions=mutant.conditions)
            if result.failures:
                print(f"found by seed {seed}: {result.failures[0].splitlines()[0][:200]}", flush=True)
                break
        else:
            missed += 1
            print(f"NOT FOUND by {len(seeds)} seeds", flush=True)
    return 1 if missed else 0


def _reproducible() -> None:
    """Strings hash alike in every run only with a fixed hash seed, which has to be set before Python starts."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])


if __name__ == "__main__":
    _reproducible()
    sys.exit(main())
