"""Seconds of tests, file by file: which groups begin first, and which have become slower than they were.

``tests/seconds.txt`` has the seconds of each file on two cores. ``python -m tests.budget REPORT.xml ...`` renews it
from reports that ``pytest --junitxml`` made; with ``--check`` it fails instead if a folder takes half as long again as
there, and ten seconds more. No test fails for being slow: that would be the machine's affair.
"""

import argparse
import functools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

PATH = Path(__file__).parent / "seconds.txt"
HEAD = "# Seconds of each test file on two cores. Written by `python -m tests.budget REPORT.xml ...`; never by hand.\n"

WORTH_A_TABLE = 1000
"""Fewer tests are somebody's daily work on one folder."""

SLACK = 1.5
SLACK_S = 10.0

UNKNOWN_S = 1.0
"""Of a file that is not listed."""

APART = ("tests/simulation/test_seeds.py", "tests/simulation/test_mutants.py")
"""Files whose tests have nothing in common, and take long."""


def group_of(nodeid: str) -> str:
    """The tests that have to run in one process, one after the other."""
    file = nodeid.partition("::")[0]
    if file in APART:
        return nodeid
    if file.startswith("tests/spark/"):
        return "spark"
    return "cluster" if file.startswith("tests/integration/") and _shares_the_cluster(file) else file


@functools.cache
def _shares_the_cluster(file: str) -> bool:
    """Whether tests use the cluster of the whole run, and not one that their file makes for itself."""
    text = (PATH.parents[1] / file).read_text()
    return "cluster: LocalCluster" in text and "def cluster(" not in text


def expected_by_group(nodeids: Iterable[str]) -> dict[str, float]:
    """How long each group will take, if every test of a file takes as long as the others."""
    seconds, counts = read(), Counter[str]()
    of_group: dict[str, set[str]] = defaultdict(set)
    for nodeid in nodeids:
        file = nodeid.partition("::")[0]
        counts[file] += 1
        of_group[group_of(nodeid)].add(file)
    return {
        group: sum(seconds.get(file, UNKNOWN_S) / (counts[file] if file in APART else 1) for file in files)
        for group, files in of_group.items()
    }


def read() -> dict[str, float]:
    """Seconds by file."""
    rows = [line.split() for line in PATH.read_text().splitlines() if line and not line.startswith("#")]
    return {file: float(seconds) for seconds, file in rows}


def folder_of(file: str) -> str:
    """The folder that a file is counted in: of unit tests that of their package."""
    parts = file.split("/")[1:-1]
    return "/".join(parts[: 2 if parts[:1] == ["unit"] else 1]) or "."


def by_folder(seconds: Mapping[str, float]) -> dict[str, float]:
    """Sums, the largest first."""
    sums: dict[str, float] = defaultdict(float)
    for file, file_s in seconds.items():
        sums[folder_of(file)] += file_s
    return dict(sorted(sums.items(), key=lambda each: -each[1]))


def table(reports: Iterable[pytest.TestReport], expected: Mapping[str, float]) -> Iterator[str]:
    """A line for each folder of a run: its seconds, and those of the same files when they were written down."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += report.duration
    known = by_folder({file: expected.get(file, 0.0) for file in seconds})
    for folder, folder_s in by_folder(seconds).items():
        yield f"{folder_s:8.1f} s   ({known[folder]:.1f} s expected)   {folder}"


def of_reports(paths: Iterable[Path]) -> dict[str, float]:
    """Seconds by file, of reports in JUnit's format."""
    seconds: dict[str, float] = defaultdict(float)
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            seconds[_file_of(case.get("classname") or "")] += float(case.get("time") or 0)
    return dict(seconds)


def _file_of(classname: str) -> str:
    parts = classname.split(".")
    while parts and not parts[-1].startswith("test_"):
        parts.pop()
    return "/".join(parts) + ".py"


def grown(seconds: Mapping[str, float], expected: Mapping[str, float]) -> list[str]:
    """What has become slower, folder by folder."""
    known = by_folder({file: expected.get(file, UNKNOWN_S) for file in seconds})
    return [
        f"{folder} takes {folder_s:.0f} s; {known[folder]:.0f} s were written down"
        for folder, folder_s in by_folder(seconds).items()
        if folder_s > SLACK * known[folder] + SLACK_S
    ]


def main() -> int:
    """See the module's description."""
    parser = argparse.ArgumentParser(prog="python -m tests.budget", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT.xml")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parsed = parser.parse_args()
    seconds = of_reports(parsed.reports)
    if parsed.check:
        complaints = grown(seconds, read())
        print("\n".join(complaints) or "no folder has become slower")
        return 1 if complaints else 0
    lines = [f"{file_s:8.1f} {file}\n" for file, file_s in sorted(seconds.items(), key=lambda each: -each[1])]
    PATH.write_text(HEAD + "".join(line for line in lines if not line.startswith("     0.0 ")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
