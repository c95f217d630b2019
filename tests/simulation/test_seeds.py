"""A few whole simulations, in processes of their own with a fixed hash seed, so that failures can be replayed."""

import os
import subprocess
import sys

SEEDS = 12
"""As many as take about half a minute."""


def simulate(*arguments: str) -> str:
    """Run ``python -m tests.simulation``; its output. Fails the test when a seed fails."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_no_seed_fails() -> None:
    output = simulate("--seeds", str(SEEDS))
    assert output.count(" ok ") == SEEDS


def test_one_seed_is_one_course_of_events() -> None:
    def digest(output: str) -> str:
        return next(line for line in output.splitlines() if line.startswith("seed 5 ")).rpartition("digest ")[2]

    alone = digest(simulate("--start", "5", "--seeds", "1"))
    after_another = digest(simulate("--start", "4", "--seeds", "2"))
    assert alone == after_another
