"""The transactions that a read covers: options become bounds, and bounds become ranges. Pure.

Transaction ids of a partition are dense and begin at 0. A range includes its start and excludes its end. Both ends
are settled when the read is planned; transactions committed later belong to another read.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from waltz.common.errors import ConfigError
from waltz.common.partition_ids import check_partition
from waltz.spark.errors import DataLossError, PlanningError

FIRST_TRANSACTION_ID = 0

STARTING_OFFSETS = "startingOffsets"
ENDING_OFFSETS = "endingOffsets"

EARLIEST = "earliest"
LATEST = "latest"

_INTERVAL = re.compile(r"(\d{1,10})(?:\s*-\s*(\d{1,10}))?", re.ASCII)
_PARTITION_ID = re.compile(r"\d{1,10}", re.ASCII)

Bound = int | str
"""A transaction id, :data:`EARLIEST` or :data:`LATEST`."""


class OffsetSpec(NamedTuple):
    """Value of ``startingOffsets`` or ``endingOffsets``: a bound for all partitions, and exceptions."""

    default: Bound
    by_partition: Mapping[int, Bound]

    def bound(self, partition_id: int) -> Bound:
        """The bound of one partition."""
        return self.by_partition.get(partition_id, self.default)


class OffsetRange(NamedTuple):
    """Transactions ``start`` to ``end - 1`` of a partition."""

    partition_id: int
    start: int
    end: int


class Interval(NamedTuple):
    """Partitions ``first`` to ``last``, both included."""

    first: int
    last: int


def parse_partitions(text: str) -> tuple[Interval, ...]:
    """Parse ``"0-3,7"``; intervals are not expanded, since their size is the user's to choose.

    Raises ``ConfigError``.
    """
    intervals = []
    for part in text.split(","):
        match = _INTERVAL.fullmatch(part.strip())
        if match is None:
            raise ConfigError(f"option partitions: expected ids and intervals such as 0-3,7, found {text!r}")
        interval = Interval(int(match[1]), int(match[2] or match[1]))
        if interval.last < interval.first:
            raise ConfigError(f"option partitions: {part.strip()} ends before it starts")
        intervals.append(interval)
    return tuple(intervals)


def select_partitions(intervals: Sequence[Interval] | None, partition_count: int) -> list[int]:
    """The ids to read, sorted; all of the cluster's when nothing was chosen. Raises ``PlanningError``."""
    if intervals is None:
        return list(range(partition_count))
    for interval in intervals:
        check_partition(interval.last, partition_count, lambda text: PlanningError(f"option partitions: {text}"))
    return sorted({partition for interval in intervals for partition in range(interval.first, interval.last + 1)})


def parse_offsets(option: str, text: str, default: Bound) -> OffsetSpec:
    """Parse ``earliest``, ``latest`` or a JSON object such as ``{"0": 5, "1": "latest"}``.

    Partitions that the object does not name get ``default``. Raises ``ConfigError`` that names the option.
    """
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return OffsetSpec(word, {})
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except ValueError as error:
        raise ConfigError(
            f"option {option}: expected earliest, latest or a JSON object, found {text!r}: {error}"
        ) from None
    if not isinstance(document, dict):
        raise ConfigError(f'option {option}: expected a JSON object such as {{"0": 5}}, found {text!r}')
    return OffsetSpec(default, dict(_parse_entry(option, key, value) for key, value in document.items()))


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a partition is given twice")
    return found


def _parse_entry(option: str, key: str, value: object) -> tuple[int, Bound]:
    if _PARTITION_ID.fullmatch(key) is None:
        raise ConfigError(f"option {option}: {key!r} is not a partition id")
    if isinstance(value, str) and value.lower() in (EARLIEST, LATEST):
        return int(key), value.lower()
    if isinstance(value, bool) or not isinstance(value, int) or value < FIRST_TRANSACTION_ID:
        raise ConfigError(
            f"option {option}: partition {key} needs a transaction id from {FIRST_TRANSACTION_ID}, "
            f"earliest or latest, not {json.dumps(value)}"
        )
    return int(key), value


def check_named_partitions(option: str, spec: OffsetSpec, selected: Sequence[int]) -> None:
    """Refuse offsets for partitions that are not read. Raises ``PlanningError``."""
    strangers = sorted(spec.by_partition.keys() - set(selected))
    if strangers:
        raise PlanningError(
            f"option {option} names partition {strangers[0]}, which is not read: "
            "it is not in the option partitions or not in the cluster"
        )


def resolve_range(
    partition_id: int, starting: OffsetSpec, ending: OffsetSpec, high_water_mark: int, *, fail_on_data_loss: bool = True
) -> OffsetRange:
    """The range of one partition below its committed mark.

    A start or an end behind the committed mark raises ``DataLossError``, since the answer would be shorter than the
    range that was asked for; without ``fail_on_data_loss`` the range is clipped. An end before the start raises
    ``PlanningError``.
    """
    behind = high_water_mark + 1
    start = resolve_bound(STARTING_OFFSETS, starting, partition_id, behind, fail_on_data_loss=fail_on_data_loss)
    end = resolve_bound(ENDING_OFFSETS, ending, partition_id, behind, fail_on_data_loss=fail_on_data_loss)
    if end < start:
        raise PlanningError(
            f"option endingOffsets: partition {partition_id} would end at {end}, before its start at {start}"
        )
    return OffsetRange(partition_id, start, end)


def resolve_bound(
    option: str, spec: OffsetSpec, partition_id: int, behind: int, *, fail_on_data_loss: bool = True
) -> int:
    """One bound as a transaction id; ``behind`` is the first that is not committed. See :func:`resolve_range`."""
    bound = spec.bound(partition_id)
    value = bound if isinstance(bound, int) else FIRST_TRANSACTION_ID if bound == EARLIEST else behind
    if value <= behind:
        return value
    if fail_on_data_loss:
        raise DataLossError(
            f"option {option}: {value} is beyond partition {partition_id}, whose committed transactions "
            f"end before {behind}; use latest, or failOnDataLoss=false (or is this another cluster?)"
        )
    return behind


def split_ranges(ranges: Sequence[OffsetRange], max_rows: int, min_partitions: int) -> list[OffsetRange]:
    """Cut the ranges into pieces of nearly equal size, at most ``max_rows`` each.

    There are at least ``min_partitions`` pieces if there are as many rows. Empty ranges have no piece.
    """
    total = sum(end - start for _, start, end in ranges)
    size = max(1, min(max_rows, total // max(1, min_partitions)))
    return [piece for whole in ranges for piece in _pieces(whole, size)]


def _pieces(whole: OffsetRange, size: int) -> list[OffsetRange]:
    rows = whole.end - whole.start
    count = -(-rows // size)
    cuts = [whole.start + rows * index // count for index in range(count + 1)] if count else []
    return [OffsetRange(whole.partition_id, start, end) for start, end in itertools.pairwise(cuts)]
