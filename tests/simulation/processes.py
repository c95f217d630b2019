"""Simulations in processes of their own, with the fixed hash seed that makes them replayable."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple


class Outcome(NamedTuple):
    """How a process ended, and what it said."""

    exit_code: int
    output: str


def simulate(*arguments: str) -> Outcome:
    """Run ``python -m tests.simulation``."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Outcome(result.returncode, result.stdout)


def simulate_side_by_side(calls: Sequence[Sequence[str]]) -> list[Outcome]:
    """Run one process per call, all at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: simulate(*call), calls))
