"""``python -m tests.models``: check the specifications in ``docs/models`` at large sizes, and their mistakes."""

import os
import sys
import time

from tests.models.checker import MODELS_TO_CHECK, NO_BUG, check


def main() -> int:
    """Print one line for each run; 1 if anything was not as it should be."""
    wrong = 0
    for model in MODELS_TO_CHECK:
        runs = [(NO_BUG, model.large), *((plant.bug, plant.constants) for plant in model.plants)]
        for bug, constants in runs:
            started_s = time.monotonic()
            outcome = check(model, constants, bug, workers=os.cpu_count() or 1)
            expected = None if bug == NO_BUG else model.invariant
            wrong += outcome.violated != expected
            said = "holds" if outcome.violated is None else "counterexample"
            took_s = time.monotonic() - started_s
            mark = "" if outcome.violated == expected else "  WRONG"
            print(f"{model.name}: {bug}: {said}, {outcome.distinct_states:,} states, {took_s:.0f} s{mark}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
