"""Processes killed while they apply: what they leave is the state after some transaction, and it goes on from there.

``python -m tests.unit.table.stores.test_kill --times 200`` does it for long, store by store.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.architecture import ROOT
from tests.unit.table.model import Model
from tests.unit.table.stores.cases import ON_DISK, check_equal, feed, opened, random_history

TRANSACTIONS = 3000
MAX_ROWS = 40

WRITER = """
import sys
from pathlib import Path
from tests.unit.table.stores.cases import feed, opened, random_history
from waltz.table.stores.ordered import OrderedStore
OrderedStore.zone_rows = 5
name, directory, seed, transactions, max_rows = sys.argv[1:]
history = random_history(int(seed), int(transactions))
store = opened(name, Path(directory))
start = store.progress.applied + 1
print(start, flush=True)
for begin in range(start, len(history), 20):
    feed(store, history[begin : begin + 20], int(max_rows))
    print(begin, flush=True)
print("end", flush=True)
sys.stdin.read()
"""


def kill_while_applying(name: str, directory: Path, seed: int, times: int) -> int:
    """Kill a writer again and again until the log is applied; returns how often, and compares after each."""
    history = random_history(seed, TRANSACTIONS)
    chance = random.Random(seed)
    model = Model()
    kills = 0
    while kills < times and model.applied < len(history) - 1:
        command = [sys.executable, "-c", WRITER, name, str(directory), str(seed), str(TRANSACTIONS), str(MAX_ROWS)]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writes = chance.randint(1, 12)
            for _ in range(writes):
                if writer.stdout.readline() == b"end\n":
                    break
            time.sleep(chance.random() / 1000)  # for kills at every place of a write
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
        kills += 1
        store = opened(name, directory)
        applied = store.progress.applied
        assert applied >= model.applied, "what had been applied is gone"
        model.apply_all(history[model.applied + 1 : applied + 1])
        check_equal(store, model, chance, counts=not store.removing)
        store.close()
    store = opened(name, directory)
    feed(store, history[store.progress.applied + 1 :])
    model.apply_all(history[model.applied + 1 :])
    check_equal(store, model, chance)
    store.close()
    return kills


@pytest.mark.parametrize("name", ON_DISK)
def test_what_a_killed_process_leaves_is_a_state_of_the_log(name: str, tmp_path: Path) -> None:
    assert kill_while_applying(name, tmp_path, seed=11, times=4) > 0


def main() -> None:
    """Kill for long."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=200, help="for each store")
    options = parser.parse_args()
    for name in ON_DISK:
        kills = seed = 0
        while kills < options.times:
            with tempfile.TemporaryDirectory(prefix="waltz-kill-") as directory:
                kills += kill_while_applying(name, Path(directory), seed, options.times - kills)
            seed += 1
        print(f"{name}: killed {kills} times in {seed} logs, every state equal", flush=True)


if __name__ == "__main__":
    main()
