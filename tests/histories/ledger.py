"""The effects of consumers beside the log that they consume: each transaction once, in order. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """A transaction in the log, or what was done for it."""

    transaction: int
    op: int


def check(log: Sequence[Entry], effects: Sequence[Entry]) -> Iterator[str]:
    """What is wrong with the effects of one partition, in the order in which their transactions were committed."""
    done = Counter(effects)
    known = set(log)
    for entry in log:
        if not done[entry]:
            yield f"nothing was done for {entry}"
    for entry, count in done.items():
        if count > 1:
            yield f"{count} effects of {entry}"
        if entry not in known:
            yield f"an effect of {entry}, which is not in the log"
    highest = -1
    for entry in dict.fromkeys(effects):
        if entry.transaction < highest:
            yield f"the effect of {entry} comes after that of transaction {highest}"
        highest = max(highest, entry.transaction)
