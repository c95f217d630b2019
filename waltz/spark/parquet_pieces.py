"""Which transactions a directory of Parquet files lacks: files by their names, and objects of the archive. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from waltz.archive.manifest import ArchivedRange, covering

_NAME = re.compile(r"(\d{19})-(\d{19})\.parquet", re.ASCII)


class Piece(NamedTuple):
    """Transactions ``start`` to ``end - 1`` of one object, which become one file."""

    source: ArchivedRange
    start: int
    end: int


def file_name(start: int, end: int) -> str:
    """The name of the file with transactions ``start`` to ``end - 1``."""
    return f"{start:019d}-{end - 1:019d}.parquet"


def parse_file_name(name: str) -> tuple[int, int] | None:
    """Start and end of the transactions in a file of this name, ``None`` for a name of another form."""
    match = _NAME.fullmatch(name)
    return None if match is None or int(match[2]) < int(match[1]) else (int(match[1]), int(match[2]) + 1)


def missing_pieces(
    ranges: Sequence[ArchivedRange], present: Iterable[tuple[int, int]], start: int, end: int
) -> Iterator[Piece]:
    """What is archived of transactions ``start`` to ``end - 1`` and in no file, in ascending order.

    ``present`` has start and end of each file that is there.
    """
    there = sorted(present)
    for each in covering(ranges, start, end):
        at, behind = max(start, each.first), min(end, each.end)
        for begins, ends in there:
            if at >= behind or begins >= behind:
                break
            if begins > at:
                yield Piece(each, at, begins)
            at = max(at, ends)
        if at < behind:
            yield Piece(each, at, behind)


def committed_between(
    ranges: Iterable[ArchivedRange], since_ms: int | None, until_ms: int | None
) -> list[ArchivedRange]:
    """The objects of which the last transaction is known to have been committed later than ``since_ms`` and by
    ``until_ms``, in milliseconds since the epoch.

    So each object belongs to one of two intervals with a common bound, and an object none of whose transactions is
    later than ``since_ms`` to neither. Raises ``LookupError`` for an object of which the archive knows no time.
    """
    found = []
    for each in ranges:
        if each.last_time_ms is None:
            raise LookupError(str(each.name))
        if (since_ms is None or since_ms < each.last_time_ms) and (until_ms is None or each.last_time_ms <= until_ms):
            found.append(each)
    return found
