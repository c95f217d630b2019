"""Seconds of tests, file by file: which groups begin first, and which have become slower than they were.

``tests/seconds.txt`` has the seconds of each file on two cores without its long tests, and of each of these, be they of
``make test`` or of ``make test-deep``. ``python -m tests.budget REPORT.xml ...`` renews it from reports of both that
``pytest --junitxml`` made; with ``--check`` it fails instead if the known files of a folder take half as long again as
there, and ten seconds more, and it names new files. No test fails for being slow: that would be the machine's affair.
"""

import argparse
import functools
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

PATH = Path(__file__).parent / "seconds.txt"
HEAD = "# Seconds of test files on two cores. Written by `python -m tests.budget REPORT.xml ...`; never by hand.\n"

WORTH_A_TABLE = 1000
"""Fewer tests are somebody's daily work on one folder."""

SLACK = 1.5
SLACK_S = 10.0

LONG_S = 2.0
"""A test that takes longer is listed by itself."""

UNKNOWN_S = 1.0
"""Of a file or test that is not listed."""

USES_THE_CLUSTER = re.compile(r"(?:def test_\w+|fixture[^\n]*\n(?:async )?def \w+)\([^)]*\bcluster: LocalCluster")
"""A test or a fixture with the cluster among its parameters."""

APART = ("tests/simulation/test_seeds.py", "tests/simulation/test_mutants.py")
"""Files whose tests have nothing in common, and take long."""


def group_of(nodeid: str) -> str:
    """The tests that have to run in one process, one after the other."""
    file = nodeid.partition("::")[0]
    if file in APART:
        return nodeid
    if file.startswith(("tests/spark/", "tests/counts/")):
        return file.split("/")[1]
    return "cluster" if file.startswith("tests/integration/") and _shares_the_cluster(file) else file


@functools.cache
def _shares_the_cluster(file: str) -> bool:
    """Whether tests use the cluster of the whole run, and not one that their file makes for itself."""
    text = (PATH.parents[1] / file).read_text()
    return USES_THE_CLUSTER.search(text) is not None and "def cluster(" not in text


def _key(nodeid: str, seconds: Mapping[str, float]) -> str:
    """What a test is listed as."""
    file = _file(nodeid)
    return nodeid if file in APART or seconds.get(nodeid, 0.0) >= LONG_S else file


def _file(key: str) -> str:
    return key.partition("::")[0]


def expected_by_group(nodeids: Iterable[str]) -> dict[str, float]:
    """How long each group will take."""
    seconds = read()
    of_group: dict[str, set[str]] = defaultdict(set)
    for nodeid in nodeids:
        of_group[group_of(nodeid)].add(_key(nodeid, seconds))
    # The order of a set differs from process to process, and with it a sum that is rounded at each step; but all
    # processes have to agree on which group is the longer one.
    return {group: math.fsum(seconds.get(key, UNKNOWN_S) for key in keys) for group, keys in of_group.items()}


def read() -> dict[str, float]:
    """Seconds by file, or by test."""
    rows = [line.split(maxsplit=1) for line in PATH.read_text().splitlines() if line and not line.startswith("#")]
    return {key: float(seconds) for seconds, key in rows}


def by_file(seconds: Mapping[str, float]) -> dict[str, float]:
    """Sums, of files of which each test is listed, too."""
    sums: dict[str, float] = defaultdict(float)
    for key, key_s in seconds.items():
        sums[_file(key)] += key_s
    return dict(sums)


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
    keys: set[str] = set()
    for report in reports:
        seconds[_file(report.nodeid)] += report.duration
        keys.add(_key(report.nodeid, expected))
    known = by_folder(by_file({key: expected.get(key, 0.0) for key in keys}))
    for folder, folder_s in by_folder(seconds).items():
        yield f"{folder_s:8.1f} s   ({known[folder]:.1f} s expected)   {folder}"


def of_reports(paths: Iterable[Path]) -> dict[str, float]:
    """Seconds by file, or by test, of reports in JUnit's format."""
    of_test: dict[str, float] = defaultdict(float)
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            of_test[_nodeid(case.get("classname") or "", case.get("name") or "")] += float(case.get("time") or 0)
    seconds: dict[str, float] = defaultdict(float)
    for nodeid, test_s in of_test.items():
        seconds[_key(nodeid, of_test)] += test_s
    return dict(seconds)


def _nodeid(classname: str, name: str) -> str:
    """What pytest calls a test of a report."""
    file, classes = classname.split("."), list[str]()
    while file and not file[-1].startswith("test_"):
        classes.insert(0, file.pop())
    return "::".join(["/".join(file) + ".py", *classes, name])


def grown(seconds: Mapping[str, float], expected: Mapping[str, float]) -> list[str]:
    """What has become slower, folder by folder; what is new has nothing to be compared with."""
    known_s = by_file(expected)
    known = by_folder(known_s)
    return [
        f"{folder} takes {folder_s:.0f} s; {known[folder]:.0f} s were written down"
        for folder, folder_s in by_folder({k: each_s for k, each_s in by_file(seconds).items() if k in known_s}).items()
        if folder_s > SLACK * known[folder] + SLACK_S
    ]


def unlisted(seconds: Mapping[str, float], expected: Mapping[str, float]) -> list[str]:
    """The files that are not listed and take longer than is assumed of them."""
    known_s = by_file(expected)
    return [
        f"{file} takes {file_s:.0f} s, and is not written down yet"
        for file, file_s in by_file(seconds).items()
        if file not in known_s and file_s > UNKNOWN_S
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
        print("\n".join([*(complaints or ["no folder has become slower"]), *unlisted(seconds, read())]))
        return 1 if complaints else 0
    lines = [f"{key_s:8.1f} {key}\n" for key, key_s in sorted(seconds.items(), key=lambda each: -each[1])]
    PATH.write_text(HEAD + "".join(line for line in lines if not line.startswith("     0.0 ")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
