"""What appends cost: system calls, syncs, tasks, calls of functions, counted in simulated time.

    python -m tests.counts [LOAD ...] [--write | --functions | --against COMMIT]

Prints the counts for each 1,000 appends. They are the same in every run, on every machine and every version of Python,
and have bounds in tests/counts/bounds.txt: `--write` makes them what is counted at present. `--functions` lists the
functions that are called. `--against` says what has changed since a commit, function by function.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.counts.instrument import KINDS
from tests.counts.loads import LOADS, Cost, cost_of
from tests.counts.tables import BOUNDS_PATH, compared, grown, load_bounds, outdated, table, text_of

ROOT = Path(__file__).parents[2]


def costs_at(commit: str, names: list[str]) -> dict[str, Cost]:
    """What the loads cost at another commit."""
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        saved = Path(directory) / "costs.json"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            command = [sys.executable, "-m", "tests.counts", *names, "--save", str(saved)]
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
        return {name: Cost(*parts) for name, parts in json.loads(saved.read_text()).items()}


def print_functions(cost: Cost) -> None:
    """Calls of each function, most of all first."""
    for role, functions in cost.functions.items():
        print(f"  {role}")
        for function, calls in sorted(functions.items(), key=lambda each: -each[1]):
            print(f"    {calls:>9.10g} {function}")


def main() -> None:
    """See the module's description."""
    epilog = "what is counted:\n" + "\n".join(f"  {kind:10} {meaning}" for kind, meaning in KINDS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.counts",
        description=__doc__.split("\n\n")[0] if __doc__ else None,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"by default all of: {'; '.join(LOADS)}")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="make the bounds what is counted at present")
    what.add_argument("--functions", action="store_true", help="list how often which function is called")
    what.add_argument("--against", metavar="COMMIT", help="say what has changed since then, function by function")
    what.add_argument("--save", type=Path, metavar="FILE", help="write all of it as JSON")
    options = parser.parse_args()
    names: list[str] = options.loads or list(LOADS)
    if unknown := set(names) - set(LOADS):
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    costs = {name: cost_of(LOADS[name]) for name in names}
    if options.write:
        kept = load_bounds() if BOUNDS_PATH.exists() else {}
        counts = {name: cost.counts for name, cost in costs.items()}
        BOUNDS_PATH.write_text(text_of({name: counts.get(name) or kept[name] for name in LOADS}))
        return
    if options.save:
        options.save.write_text(json.dumps({name: (cost.counts, cost.functions) for name, cost in costs.items()}))
        return
    if options.against:
        before = costs_at(options.against, names)
        for name, cost in costs.items():
            print(compared(name, before[name], cost))
        return
    bounds = load_bounds()
    for name, cost in costs.items():
        print(table(name, cost.counts))
        if options.functions:
            print_functions(cost)
        for line in grown(name, cost.counts, bounds[name]):
            print(f"  above its bound: {line}")
        for line in outdated(name, cost.counts, bounds[name]):
            print(f"  far below its bound: {line}")


if __name__ == "__main__":
    main()
