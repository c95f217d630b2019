"""The shortest list of faults, found by leaving some out, that still makes a simulation fail."""

from collections.abc import Callable, Sequence

from tests.simulation.simulation import Result
from tests.simulation.target import Fault

RUNS_MAX = 40
"""Simulations that one search may take."""


def shrink(failed: Result, run: Callable[[Sequence[Fault]], Result]) -> Result:
    """Leave out what came after the failure, then larger and smaller pieces of the rest, as long as it fails."""
    best = failed
    runs = 0
    prefix = [fault for fault in failed.faults if fault.at_s <= failed.failed_at_s]
    size = len(prefix)
    candidates = [prefix]
    while size >= 1 and runs < RUNS_MAX:
        for candidate in candidates:
            if runs >= RUNS_MAX:
                break
            runs += 1
            result = run(candidate)
            if result.failures:
                best = result
                break
        else:
            size = size // 2 if size < len(prefix) else max(len(prefix) // 2, 1)
            if size == 0:
                break
        size = min(size, max(len(best.faults), 1))
        candidates = [best.faults[:start] + best.faults[start + size :] for start in range(0, len(best.faults), size)]
        if not best.faults:
            break
    return best
