"""What view nodes have answered beside the log: the rows of one state of it, which is as new as was demanded. Pure.

An answer tells the last transaction that its view had applied. So every answer, of whatever level, is compared with the
rows that the log gives up to there. Whether fresh answers are linearizable, the checker of the registers decides, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A row as a view tells it."""

    value: str
    timestamp_ms: int
    transaction: int


class Read(NamedTuple):
    """An answer."""

    op: int
    begun_ns: int
    ended_ns: int
    fresh: bool
    """Whether everything was demanded that had been committed before."""
    least: int
    """The transaction that was demanded; -1 if none was."""
    applied: int
    keys: Sequence[str]
    rows: Mapping[str, Row]


class Told(NamedTuple):
    """A client has learned that a transaction is committed."""

    at_ns: int
    transaction: int


class Record(NamedTuple):
    """A record of the log, with the value (``None``: deleted) and the timestamp of each of its rows."""

    transaction: int
    rows: Mapping[str, tuple[str | None, int]]


def check(reads: Iterable[Read], told: Iterable[Told], records: Sequence[Record]) -> Iterator[str]:
    """All that is wrong. The records are in the order of the log."""
    all_reads = list(reads)
    yield from _demands(all_reads, told)
    yield from _states(all_reads, records)


def _demands(reads: Sequence[Read], told: Iterable[Told]) -> Iterator[str]:
    for read in reads:
        if read.applied < read.least:
            yield f"read {read.op} demands transaction {read.least}, and the view has applied {read.applied}"
    for read, known in committed_before(reads, told):
        if read.fresh and read.applied < known:
            yield (
                f"read {read.op} is fresh, and the view has applied {read.applied}; transaction {known} was known to "
                "be committed before it began"
            )


def committed_before(reads: Iterable[Read], told: Iterable[Told]) -> Iterator[tuple[Read, int]]:
    """Each read with the last transaction that anybody knew to be committed when it began; -1 if there was none."""
    all_reads = list(reads)
    waiting = sorted([*told, *(Told(read.ended_ns, read.applied) for read in all_reads)], reverse=True)
    known = -1
    for read in sorted(all_reads, key=lambda read: read.begun_ns):
        while waiting and waiting[-1].at_ns < read.begun_ns:
            known = max(known, waiting.pop().transaction)
        yield read, known


def _states(reads: Sequence[Read], records: Sequence[Record]) -> Iterator[str]:
    """The rows are those of the log up to the last applied transaction: of a key, the last one of the highest time."""
    waiting = list(reversed(records))
    winners: dict[str, tuple[str | None, int, int]] = {}
    for read in sorted(reads, key=lambda read: read.applied):
        while waiting and waiting[-1].transaction <= read.applied:
            record = waiting.pop()
            for key, (value, timestamp_ms) in record.rows.items():
                if key not in winners or timestamp_ms >= winners[key][1]:
                    winners[key] = (value, timestamp_ms, record.transaction)
        if read.applied > (records[-1].transaction if records else -1):
            yield f"read {read.op} is of transaction {read.applied}, which is not in the log"
            continue
        for key in read.keys:
            winner = winners.get(key)
            in_log = None if winner is None or winner[0] is None else Row(winner[0], *winner[1:])
            if read.rows.get(key) != in_log:
                yield (
                    f"read {read.op} of transaction {read.applied} has found {_shown(read.rows.get(key))} at {key}, "
                    f"and the log has {_shown(in_log)} there"
                )


def _shown(row: Row | None) -> str:
    if row is None:
        return "no row"
    return f"{row.value!r} (timestamp {row.timestamp_ms}, transaction {row.transaction})"
