"""The groups of tests, and the record of their seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import budget

APART = budget.APART[0]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.common.test_ids" name="test_one" time="1.5"/>
<testcase classname="tests.unit.common.test_ids.TestClass" name="test_two" time="2.5"/>
<testcase classname="tests.unit.common.test_ids" name="test_three" time="0.5"/>
<testcase classname="tests.simulation.test_seeds" name="test_no_seed_fails[a b]" time="20.0"/>
<testcase classname="tests.simulation.test_seeds" name="test_no_seed_fails[c]" time="7.0"/>
</testsuite></testsuites>"""


def test_what_shares_a_cluster_spark_or_loads_stays_together_and_seeds_run_apart() -> None:
    for file, group in (
        ("tests/integration/test_daemons.py", "cluster"),
        ("tests/integration/test_client_cluster.py", "cluster"),
        ("tests/integration/test_write_sessions.py", "tests/integration/test_write_sessions.py"),
        ("tests/spark/test_sink.py", "spark"),
        ("tests/counts/test_bounds.py", "counts"),
        ("tests/unit/test_budget.py", "tests/unit/test_budget.py"),
        (APART, f"{APART}::test_one"),
    ):
        assert budget.group_of(f"{file}::test_one") == group


def test_a_report_is_written_down_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, path = tmp_path / "report.xml", tmp_path / "seconds.txt"
    report.write_text(REPORT)
    monkeypatch.setattr(budget, "PATH", path)
    monkeypatch.setattr("sys.argv", ["budget", str(report)])
    assert budget.main() == 0
    seeds = {f"{APART}::test_no_seed_fails[a b]": 20.0, f"{APART}::test_no_seed_fails[c]": 7.0}
    file = "tests/unit/common/test_ids.py"
    assert budget.read() == {file: 2.0, f"{file}::TestClass::test_two": 2.5, **seeds}
    new = f"{APART}::test_no_seed_fails[new]"
    assert budget.expected_by_group([*seeds, new]) == {**seeds, new: budget.UNKNOWN_S}
    short, long = [f"{file}::test_one", f"{file}::test_three"], f"{file}::TestClass::test_two"
    assert budget.expected_by_group(short) == {file: 2.0}
    assert budget.expected_by_group([long]) == {file: 2.5}
    assert budget.expected_by_group([*short, long]) == {file: 4.5}


def test_all_processes_expect_the_same_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings hash differently in each process: the sum of a set of floats depends on it unless it is exact."""
    path = tmp_path / "seconds.txt"
    file = "tests/unit/common/test_ids.py"
    nodeids = [f"{file}::test_{number}" for number in range(60)]
    path.write_text("".join(f"{2 + number / 10:.1f} {nodeid}\n" for number, nodeid in enumerate(nodeids)))
    monkeypatch.setattr(budget, "PATH", path)
    code = f"import pathlib; from tests import budget; budget.PATH = pathlib.Path({str(path)!r}); "
    code += f"print(repr(budget.expected_by_group({nodeids!r})))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert outputs == {f"{budget.expected_by_group(nodeids)!r}\n"}


def test_only_what_is_known_can_have_become_slower() -> None:
    known = {"tests/unit/common/test_ids.py": 10.0, f"{APART}::test_one": 10.0}
    slower = {"tests/unit/common/test_ids.py": 26.0, f"{APART}::test_one": 24.0, f"{APART}::test_two": 2.0}
    assert budget.grown(slower, known) == [
        "unit/common takes 26 s; 10 s were written down",
        "simulation takes 26 s; 10 s were written down",
    ]
    new = {"tests/unit/common/test_ids.py": 24.0, "tests/unit/common/test_new.py": 50.0}
    assert budget.grown(new, known) == []
    assert budget.unlisted(new, known) == ["tests/unit/common/test_new.py takes 50 s, and is not written down yet"]
