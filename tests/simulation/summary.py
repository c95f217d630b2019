"""What is said of many seeds: how far they are, and what became of them all."""

import sys
import time

from tests.simulation.simulation import Result

PROGRESS_INTERVAL_S = 30.0


class Summary:
    """Adds up the results of seeds."""

    def __init__(self, seeds: int) -> None:
        """``seeds``: how many there are to be run."""
        self.failed: list[int] = []
        """The seeds that failed."""
        self._seeds = seeds
        self._ended = 0
        self._committed = 0
        self._lock_failures = 0
        self._faults = 0
        self._events = 0
        self._simulated_s = 0.0
        self._cpu_s = 0.0
        self._started_s = self._shown_s = time.monotonic()

    def add(self, result: Result) -> None:
        """A seed has ended."""
        self._ended += 1
        self._committed += result.committed
        self._lock_failures += result.lock_failures
        self._faults += len(result.faults)
        self._events += result.events
        self._simulated_s += result.simulated_s
        self._cpu_s += result.cpu_s
        if result.failures:
            self.failed.append(result.seed)

    def crashed(self, seed: int) -> None:
        """The process of a seed has ended without a result."""
        self._ended += 1
        self.failed.append(seed)

    def show_progress(self) -> None:
        """Say on standard error now and then how far it is."""
        now_s = time.monotonic()
        if now_s - self._shown_s >= PROGRESS_INTERVAL_S:
            self._shown_s = now_s
            took_s = now_s - self._started_s
            left_s = took_s / self._ended * (self._seeds - self._ended)
            print(
                f"{self._ended} of {self._seeds} seeds, {len(self.failed)} failed, "
                f"{took_s / 60:.0f} min, about {left_s / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )

    def __str__(self) -> str:
        mean_s = self._cpu_s / max(self._ended, 1)
        seeds = f" ({', '.join(map(str, self.failed))})" if self.failed else ""
        return (
            f"{self._ended} seeds: {self._committed} committed, {self._lock_failures} lock failures, "
            f"{self._faults} faults, {self._events} events, {self._simulated_s / 3600:.1f} h simulated, "
            f"{mean_s:.2f} s of processor time per seed\n"
            f"{len(self.failed)} failed{seeds}; {time.monotonic() - self._started_s:.0f} s"
        )
