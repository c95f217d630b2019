"""A register that only the holder of an exclusive write session writes. Pure.

Each session begins with a fence: a number, and the last transaction before the session. From these, the records of the
log and the times of operations follows what must hold; nothing here knows how a server decides it.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Fence(NamedTuple):
    """A session that has begun, by its client's report."""

    op: int
    begun_ns: int
    ended_ns: int
    session: int
    transaction: int
    """The last transaction before the session, -1 for an empty log."""
    last: int | None
    """The operation that the client has read there."""


class Append(NamedTuple):
    """An append in a session that was acknowledged."""

    op: int
    ended_ns: int
    transaction: int


class Record(NamedTuple):
    """A record of the log."""

    transaction: int
    op: int
    session: int


def check(fences: Iterable[Fence], appends: Iterable[Append], records: Sequence[Record]) -> list[str]:
    """All that is wrong. The records are in the order of the log."""
    in_order = sorted(fences, key=lambda fence: (fence.session, fence.transaction))
    return [
        *_numbers(in_order),
        *_fenced(in_order, records),
        *_intruders(in_order, records),
        *_registers(in_order, records),
        *_missed(in_order, appends),
    ]


def _numbers(fences: Sequence[Fence]) -> Iterator[str]:
    for earlier, later in itertools.pairwise(fences):
        if earlier.session == later.session:
            yield f"operations {earlier.op} and {later.op} have both begun session {later.session}"
        if earlier.transaction > later.transaction:
            yield (
                f"session {earlier.session} begins behind transaction {earlier.transaction}, and the newer session "
                f"{later.session} behind {later.transaction}"
            )
        if later.ended_ns < earlier.begun_ns:
            yield f"session {later.session} had begun before session {earlier.session} was asked for"


def _fenced(fences: Sequence[Fence], records: Sequence[Record]) -> Iterator[str]:
    """No record of an older session is behind a fence."""
    waiting = sorted(fences, key=lambda fence: fence.transaction, reverse=True)
    newest: Fence | None = None
    for record in records:
        while waiting and waiting[-1].transaction < record.transaction:
            fence = waiting.pop()
            newest = fence if newest is None or fence.session > newest.session else newest
        if newest is not None and record.session < newest.session:
            yield (
                f"transaction {record.transaction} (operation {record.op}) is of session {record.session}, behind the "
                f"fence of session {newest.session} at {newest.transaction}"
            )


def _intruders(fences: Sequence[Fence], records: Sequence[Record]) -> Iterator[str]:
    """No record of another session is between a fence and the last record of its session."""
    last = {record.session: number for number, record in enumerate(records)}
    for fence in fences:
        for number in range(last.get(fence.session, 0) - 1, -1, -1):
            record = records[number]
            if record.transaction <= fence.transaction:
                break
            if record.session != fence.session:
                yield (
                    f"transaction {record.transaction} (operation {record.op}) of session {record.session} is within "
                    f"the exclusive session {fence.session}"
                )


def _registers(fences: Sequence[Fence], records: Sequence[Record]) -> Iterator[str]:
    """The client of a fence has read what was written last before it."""
    places = {record.transaction: record.op for record in records}
    for fence in fences:
        if fence.transaction >= 0 and fence.transaction not in places:
            yield f"session {fence.session} begins behind transaction {fence.transaction}, which is not in the log"
        elif fence.last != places.get(fence.transaction):
            yield (
                f"session {fence.session} has read the write of operation {fence.last}, and the log has that of "
                f"{places.get(fence.transaction)} at transaction {fence.transaction}"
            )


def _missed(fences: Sequence[Fence], appends: Iterable[Append]) -> Iterator[str]:
    """What was acknowledged before a fence was asked for is before it."""
    waiting = sorted(appends, key=lambda append: append.ended_ns, reverse=True)
    latest: Append | None = None
    for fence in sorted(fences, key=lambda fence: fence.begun_ns):
        while waiting and waiting[-1].ended_ns < fence.begun_ns:
            append = waiting.pop()
            latest = append if latest is None or append.transaction > latest.transaction else latest
        if latest is not None and latest.transaction > fence.transaction:
            yield (
                f"session {fence.session} begins behind transaction {fence.transaction}, and operation {latest.op} "
                f"had been acknowledged at {latest.transaction} before"
            )
