"""``python -m tests.histories``: histories of real processes, judged by independent checkers."""

import argparse
import collections
import gc
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import uvloop

from tests.histories.campaign import Campaign, Options
from tests.histories.events import read
from tests.histories.faults import DECK, MEAN_PAUSE_S
from tests.histories.judge import History, collect, violations
from tests.histories.planted import BUGS
from tests.histories.sometimes import counts
from waltz.common.errors import WaltzError

LONG = 20_000
"""A campaign of so many operations has to reach all rare states; a shorter one only tells which it has missed."""
FAULTS = 3 * len(DECK)
"""Operations alone say little: such a campaign lasts for so many faults by default."""
SHOWN = 10
"""Findings of one checker that are listed; one defect easily makes thousands."""


def main() -> int:
    """The exit code: 0 if the history is possible, 1 if not (it is kept then), or if rare states are missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--operations", type=int, default=2_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the faults and of the load")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--views", type=int, default=2, help="view nodes")
    parser.add_argument("--pause", type=float, default=MEAN_PAUSE_S, metavar="S", help="mean time between two faults")
    parser.add_argument("--planted", default="", metavar="BUG,...", help=f"bugs to be found: {', '.join(BUGS)}")
    parser.add_argument(
        "--faults",
        type=int,
        metavar="N",
        help=f"do not end before so many (default: {FAULTS} with {LONG} operations or more, otherwise 0)",
    )
    parser.add_argument("--directory", type=Path, help="where nodes write (default: a temporary directory)")
    parser.add_argument("--keep", action="store_true", help="keep logs, data and history of a good campaign, too")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="only judge the history in a file again")
    arguments = parser.parse_args()
    if arguments.judge is not None:
        return report(arguments.judge)
    options = Options(
        operations=arguments.operations,
        seed=arguments.seed,
        servers=arguments.servers,
        clients=arguments.clients,
        views=arguments.views,
        faults=least_faults(arguments.operations) if arguments.faults is None else arguments.faults,
        pause_s=arguments.pause,
        planted=arguments.planted,
    )
    directory = Path(tempfile.mkdtemp(prefix="waltz-histories-", dir=arguments.directory))
    print(f"{options}\nlogs, data and history in {directory}", flush=True)
    campaign = Campaign(options, directory)
    try:
        uvloop.run(campaign.run())
    except (WaltzError, TimeoutError, ExceptionGroup) as error:
        print(f"it cannot be brought to its end: {error!r}\nlogs and data are kept in {directory}")
        return 1
    code = report(campaign.history)
    if code:
        print(f"everything is kept in {directory}\nagain: python -m tests.histories --judge {campaign.history}")
    elif not arguments.keep:
        shutil.rmtree(directory)
    return code


def least_faults(operations: int) -> int:
    """How many faults a campaign of so many operations lasts for, unless told otherwise."""
    return FAULTS if operations >= LONG else 0


def report(path: Path) -> int:
    """Judge a history, and tell the verdict. Returns the exit code."""
    gc.disable()  # a history is millions of objects without cycles, and every collection would look at all of them
    try:
        return _report(path)
    finally:
        gc.enable()


def _report(path: Path) -> int:
    try:
        history = collect(read(path))
    except (WaltzError, OSError) as error:
        print(f"there is no history: {error}")
        return 1
    wrong = violations(history)
    reached = counts(history)
    print("\n".join(lines(history, reached)))
    missed = [name for name, count in reached.items() if not count]
    for name in missed:
        print(f"  not reached: {name}")
    for checker, group in itertools.groupby(wrong, key=lambda each: each.split(":")[0]):
        of_checker = list(group)
        print("\n".join(f"  {each}" for each in of_checker[:SHOWN]))
        if len(of_checker) > SHOWN:
            print(f"  {checker}: and {len(of_checker) - SHOWN:,} more")
    is_long = len(history.operations) >= LONG
    if missed:
        print("rare states are missing" + ("" if is_long else "; a long campaign would fail"))
    print("WRONG" if wrong else "no violation")
    return int(bool(wrong) or (bool(missed) and is_long))


def lines(history: History, reached: Mapping[str, int]) -> Iterator[str]:
    """What there was, for people."""
    calls = collections.Counter(each.invoked.call.f for each in history.operations.values())
    outcomes = collections.Counter(each.outcome for each in history.operations.values())
    faults = collections.Counter(fault.kind for fault in history.faults)
    for what, counter in (("operations", calls), ("outcomes", outcomes), ("faults", faults)):
        listed = ", ".join(f"{count:,} {name}" for name, count in counter.most_common())
        yield f"  {what:<12}{sum(counter.values()):>10,}  {listed}"
    if history.timed:
        seconds = (history.timed[-1].at_ns - history.timed[0].at_ns) / 1e9
        yield f"  {'time':<12}{seconds:>10,.1f} s, {len(history.operations) / max(seconds, 0.1):,.0f} operations/s"
    records = sum(map(len, history.records.values()))
    yield f"  {'records':<12}{records:>10,}"
    yield f"  {'effects':<12}{sum(map(len, history.effects.values())):>10,}"
    yield "  reached:"
    yield from (f"  {count:>10,}  {name}" for name, count in reached.items() if count)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
