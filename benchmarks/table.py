"""Rows per second of tables: applied from a log in memory, got one by one, scanned; and opening a store again.

    python -m benchmarks.table [--rows 200000] [--batch 1] [--stores memory rocksdb lmdb sqlite] [--sweeps]

Keys are random, of 16 bytes, values have 100. Rows per second of CPU time of this process, with the background threads
of a store, and of wall-clock time; opening is wall-clock time.

With ``--sweeps`` the longest step, for which a view holds its event loop, in milliseconds of CPU time, and all steps:
of filling the table, of sweep marks that remove nothing, one row and half of the rows, and of a truncate.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from waltz.table.envelope import Batch, Envelope, Row, SweepMark, Truncate, encode
from waltz.table.stores.directory import StoreIdentity
from waltz.table.stores.interface import Changes, Store
from waltz.table.stores.registry import open_store
from waltz.table.view import Reading, steps

IDENTITY = StoreIdentity(0, "benchmark")
GETS = 100_000


def log_of(rows: int, batch: int) -> tuple[list[bytes], list[tuple[int, bytes]]]:
    """Keys, and the transactions that write them."""
    chance = random.Random(1)
    keys = [chance.randbytes(16) for _ in range(rows)]
    records = []
    for transaction_id, start in enumerate(range(0, rows, batch)):
        written = [Row(b"", key, b"v" * 100) for key in keys[start : start + batch]]
        records.append((transaction_id, encode(Batch(1_000_000 + start, written))))
    return keys, records


def timed(count: int, what: Callable[[], object]) -> tuple[float, float]:
    """Things per second of CPU time and of wall-clock time."""
    wall, cpu = time.perf_counter(), time.process_time()
    what()
    return count / (time.process_time() - cpu), count / (time.perf_counter() - wall)


def apply_all(store: Store, records: list[tuple[int, bytes]]) -> None:
    """Everything, in the writes that a view makes."""
    for step in steps(records, -1):
        assert isinstance(step, Changes)
        store.apply(step)


def get_each(reading: Reading, keys: list[bytes]) -> None:
    """One key at a time."""
    for key in keys:
        assert reading.get(b"", [key])[0] is not None


def steps_of(store: Store, records: Iterable[tuple[int, bytes]]) -> Iterator[None]:
    """What a view does for them between two turns of the loop."""
    for step in steps(records, store.progress.applied):
        if isinstance(step, Changes):
            store.apply(step)
        else:
            store.sweep(step)
        yield
    while store.removing:
        store.remove_page()
        yield


def longest(store: Store, records: Iterable[tuple[int, bytes]]) -> str:
    """Of the steps, the longest one, and all."""
    begun = last = time.thread_time()
    longest_s = 0.0
    for _ in steps_of(store, records):
        now = time.thread_time()
        longest_s, last = max(longest_s, now - last), now
    return f"{1000 * longest_s:,.1f} ms of {last - begun:,.1f} s"


def print_sweeps(names: list[str], count: int) -> None:
    """Rows a millisecond apart, with keys in another order."""
    chance = random.Random(1)
    columns = ("fill", "nothing", "one row", "one row", "half", "truncate")
    print(f"{'store':<10}" + "".join(f"{column:>24}" for column in columns), flush=True)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="waltz-bench-") as directory:
            store = open_store(name, Path(directory), IDENTITY)
            ids = iter(range(1 << 62))
            rows = (
                (next(ids), encode(Batch(number, [Row(b"", chance.randbytes(8), b"v" * 10)])))
                for number in range(count)
            )
            figures = [longest(store, rows)]
            removals: list[Envelope] = [SweepMark(0, row_written_at_ms=bound_ms) for bound_ms in (0, 1, 2, count // 2)]
            removals.append(Truncate(0))
            figures += [longest(store, [(next(ids), encode(each))]) for each in removals]
            store.close()
        print(f"{name:<10}" + "".join(f"{figure:>24}" for figure in figures), flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=1, help="rows of each transaction")
    parser.add_argument("--stores", nargs="+", default=["memory", "rocksdb", "lmdb", "sqlite"])
    parser.add_argument("--sweeps", action="store_true", help="how long the loop of a view is held instead")
    options = parser.parse_args()
    if options.sweeps:
        print_sweeps(options.stores, options.rows)
        return
    keys, records = log_of(options.rows, options.batch)
    some = random.Random(2).sample(keys, min(GETS, len(keys)))
    print(f"{'store':<10}{'apply/s':>22}{'get/s':>22}{'scan/s':>22}{'open ms':>10}   (CPU, wall)")
    for name in options.stores:
        with tempfile.TemporaryDirectory(prefix="waltz-bench-") as directory:
            store = open_store(name, Path(directory), IDENTITY)
            applied = timed(len(keys), lambda: apply_all(store, records))  # noqa: B023 - called at once
            reading = Reading(store, 0)
            got = timed(len(some), lambda: get_each(reading, some))  # noqa: B023
            scanned = timed(len(keys), lambda: sum(1 for _ in reading.scan()))  # noqa: B023
            store.close()
            begun = time.perf_counter()
            open_store(name, Path(directory), IDENTITY).close()
            opened_ms = 1000 * (time.perf_counter() - begun)
        figures = "".join(f"{f'{cpu:,.0f} {wall:,.0f}':>22}" for cpu, wall in (applied, got, scanned))
        print(f"{name:<10}{figures}{opened_ms:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
