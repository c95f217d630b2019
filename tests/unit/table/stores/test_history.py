"""One random history through every store, beside the dictionary.

``python -m tests.unit.table.stores.test_history --rows 1000000`` does it for long.
"""

import argparse
import random
import tempfile
from pathlib import Path

from tests.unit.table.model import Model
from tests.unit.table.stores.cases import KEEPING, check_equal, feed, opened, random_history

PARTS = 20
ROWS_PER_TRANSACTION = 3.4
"""On average, as ``random_history`` makes them."""


def compare(directory: Path, transactions: int, keys: int) -> int:
    """All stores and the model are equal after every part; returns the number of rows."""
    history = random_history(21, transactions, keys)
    model = Model()
    stores = [opened(name, directory) for name in KEEPING]
    chance = random.Random(4)
    size = -(-transactions // PARTS)
    for start in range(0, transactions, size):
        part = history[start : start + size]
        model.apply_all(part)
        for store in stores:
            feed(store, part)
            check_equal(store, model, chance)
    for store in stores:
        store.close()
    return sum(len(getattr(envelope, "rows", ())) for envelope in history)


def test_all_stores_are_equal_to_the_dictionary(tmp_path: Path) -> None:
    assert compare(tmp_path, 1000, 200) > 3000


def main() -> None:
    """Compare for long."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waltz-history-") as directory:
        rows = compare(Path(directory), int(options.rows / ROWS_PER_TRANSACTION), 2000)
    print(f"{rows:,} rows through {', '.join(KEEPING)}: all equal to the dictionary")


if __name__ == "__main__":
    main()
