"""What of each module its own test file covers: ``python -m tests.coverage_map [PREFIX ...]``.

Only the file that mirrors a module's path is run for it (all modules, or those whose path below waltz/ begins with a
PREFIX), so that a line counts as covered when the test that is meant for it runs it, not when some other one passes by.
Modules without such a file are those of :mod:`tests.mirror`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.architecture import PACKAGE, ROOT
from tests.mirror import modules, own_test


class Covered(NamedTuple):
    """A module, and what its own test file runs of it."""

    percent: float
    module: str
    missing: str


def main() -> None:
    """Print the modules, the least covered first."""
    parser = argparse.ArgumentParser(description="coverage of every module by its own test file")
    parser.add_argument("prefix", nargs="*", default=[""])
    prefixes = tuple(parser.parse_args().prefix)
    mirrored = [path for path in modules() if own_test(path).exists()]
    rows = [measure(path) for path in mirrored if str(path.relative_to(PACKAGE)).startswith(prefixes)]
    for row in sorted(rows):
        print(f"{row.percent:5.1f} %  {row.module:40}  {row.missing}")


def measure(path: Path) -> Covered:
    """Run the module's own test file."""
    with tempfile.TemporaryDirectory() as directory:
        data, report = Path(directory, "data"), Path(directory, "report.json")
        coverage = [sys.executable, "-m", "coverage"]
        options = ["--data-file", str(data), "--include", str(path)]
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(own_test(path))]
        subprocess.run([*coverage, "run", *options, *tests], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        subprocess.run([*coverage, "json", *options, "-q", "-o", str(report)], cwd=ROOT, check=True)
        (found,) = json.loads(report.read_text())["files"].values()
    return Covered(
        found["summary"]["percent_covered"], str(path.relative_to(PACKAGE)), _runs(sorted(found["missing_lines"]))
    )


def _runs(lines: list[int]) -> str:
    """Line numbers in short: 3-5, 9."""
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][-1] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


if __name__ == "__main__":
    main()
