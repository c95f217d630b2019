"""Simulations in processes of their own, with the fixed hash seed that makes them replayable."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

_ENVIRONMENT = {**os.environ, "PYTHONHASHSEED": "0"}


class Outcome(NamedTuple):
    """How a process ended, and what it said."""

    exit_code: int
    output: str


class SimulationServer:
    """Runs command lines of ``tests.simulation`` in processes that begin with everything imported."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def simulate(self, *arguments: str) -> Outcome:
        """Run ``python -m tests.simulation``."""
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory, "output")
            try:
                exit_code = self._request([str(output), arguments])
            except BaseException:  # such as the end of the test's time: nothing of it may go on
                self.close()
                raise
            return Outcome(exit_code, output.read_text())

    def close(self) -> None:
        """End the processes, whatever they do."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes the pipes, and waits
            os.killpg(process.pid, signal.SIGKILL)

    def _request(self, request: object) -> int:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.simulation.server"],
                env=_ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                process_group=0,
            )
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        return int(answers.readline())


def simulate_side_by_side(calls: Sequence[Sequence[str]]) -> list[Outcome]:
    """Run ``python -m tests.simulation`` once per call, all at the same time, and each from its very beginning."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(_simulate, calls))


def _simulate(arguments: Sequence[str]) -> Outcome:
    result = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Outcome(result.returncode, result.stdout)
