"""The benchmark of whole clusters, from its command line to its results, as short as it can be."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cluster.report import LEAN, WALTZ, from_json
from benchmarks.cluster.scenarios import AWAIT, Scenario
from benchmarks.cluster.summary import P50_RATIO, RATE, SHARE

ROOT = Path(__file__).parents[2]


@pytest.mark.deep
def test_a_closed_and_an_open_loop_beside_the_lean_pipeline(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.cluster", "--in-flight", "16", "--rate", "200", "--face", AWAIT]
    command += ["--rounds", "1", "--seconds", "1", "--directory", str(tmp_path), "--json", str(results)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "## Appends" in run.stdout
    closed, opened = from_json(results.read_text()).results
    assert (closed.scenario, opened.scenario) == (Scenario(AWAIT, 16), Scenario(AWAIT, 0, 200))
    for result in (closed, opened):
        for name in (WALTZ, LEAN):
            measured = result.of(name)
            assert measured[RATE].median > 0
            assert measured["batches_per_s"].median > 0
            assert {"cpu_us.client", "cpu_us.server", "cpu_us.storage", "lag"} <= measured.keys()
        assert P50_RATIO in result.of(WALTZ)
    assert SHARE in closed.of(WALTZ)
    assert SHARE not in opened.of(WALTZ)
