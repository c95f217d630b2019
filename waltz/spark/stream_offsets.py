"""Offsets of a stream: how they stand in Spark's checkpoint, and how far one micro-batch goes. Pure.

An offset is ``{"0": 12, "1": 4}``: for every partition, as text, the id of the next transaction. Spark compares
offsets as texts, so the order of partitions is always the same.

The very first offset bears ``"initial": true``, and the end of the first micro-batch with rows bears ``"since"`` with
the start of that batch. Spark stores ends only: when it repeats the first batch it asks for the initial offset again,
and with ``startingOffsets=latest`` there would be another answer by then.
"""

import re
from collections.abc import Mapping, Sequence

from waltz.spark.errors import PlanningError
from waltz.spark.offsets import FIRST_TRANSACTION_ID, OffsetRange

Offset = dict[str, object]
"""An offset as Spark stores it."""

Positions = dict[int, int]
"""Partition to next transaction id."""

_INITIAL = "initial"
_SINCE = "since"
_PARTITION_ID = re.compile(r"\d{1,10}", re.ASCII)


def initial_offset(positions: Mapping[int, int]) -> Offset:
    """The offset at which a stream begins."""
    return {**_texts(positions), _INITIAL: True}


def end_offset(start: Mapping[str, object], end: Mapping[int, int]) -> Offset:
    """The end of the micro-batch that begins at ``start``; ``start`` itself if there is nothing new."""
    if positions(start) == dict(end):
        return dict(start)
    if start.get(_INITIAL):
        return {**_texts(end), _SINCE: _texts(positions(start))}
    return dict(_texts(end))


def reported_offset(end: Mapping[int, int]) -> Offset:
    """The newest offset there is, for progress reports."""
    return dict(_texts(end))


def positions(offset: Mapping[str, object]) -> Positions:
    """The next id of each partition in an offset. Raises ``PlanningError`` for an offset of another data source."""
    found: Positions = {}
    for key, value in offset.items():
        if key in (_INITIAL, _SINCE):
            continue
        if (
            _PARTITION_ID.fullmatch(key) is None
            or isinstance(value, bool)
            or not isinstance(value, int)
            or value < FIRST_TRANSACTION_ID
        ):
            raise PlanningError(f"the checkpoint holds an offset that is not of this data source: {dict(offset)!r}")
        found[int(key)] = value
    return found


def batch_ranges(start: Mapping[str, object], end: Mapping[str, object]) -> list[OffsetRange]:
    """The ranges that a micro-batch reads. Raises ``PlanningError`` when the offsets do not belong together."""
    begins = positions(_true_start(start, end))
    ends = positions(end)
    if begins.keys() != ends.keys():
        raise PlanningError(
            f"the checkpoint is of partitions {_list(begins)}, this query reads {_list(ends)}; "
            "use another checkpoint for other partitions"
        )
    for partition_id, position in begins.items():
        if ends[partition_id] < position:
            raise PlanningError(
                f"the micro-batch of partition {partition_id} would begin at {position} and end at {ends[partition_id]}"
            )
    return [OffsetRange(partition_id, begins[partition_id], ends[partition_id]) for partition_id in sorted(begins)]


def _true_start(start: Mapping[str, object], end: Mapping[str, object]) -> Mapping[str, object]:
    """The true start of a micro-batch; Spark tells another start if it has asked for the initial offset again."""
    if not start.get(_INITIAL):
        return start
    since = end.get(_SINCE)
    return since if isinstance(since, dict) else end


def check_partitions(start: Mapping[str, object], selected: Sequence[int]) -> None:
    """Raise ``PlanningError`` when the partitions of a checkpoint are not those that are read now."""
    found = positions(start)
    if sorted(found) != list(selected):
        raise PlanningError(
            f"the checkpoint is of partitions {_list(found)}, this query reads {_list(selected)}; "
            "use another checkpoint for other partitions"
        )


def advance(start: Mapping[int, int], available: Mapping[int, int], max_rows: int | None) -> Positions:
    """The end of one micro-batch: all that is ``available``, or the first ``max_rows`` rows of it.

    The rows are shared among the partitions in proportion to the rows that wait in each. Never ends before the start.
    """
    waiting = {partition_id: max(0, available.get(partition_id, 0) - place) for partition_id, place in start.items()}
    total = sum(waiting.values())
    if max_rows is None or total <= max_rows:
        return {partition_id: place + waiting[partition_id] for partition_id, place in start.items()}
    shares = {partition_id: max_rows * rows // total for partition_id, rows in waiting.items()}
    # Rows left over by rounding go to the largest remainders.
    spare = max_rows - sum(shares.values())
    remainders = sorted(waiting, key=lambda partition_id: (-(max_rows * waiting[partition_id] % total), partition_id))
    for partition_id in remainders[:spare]:
        shares[partition_id] += 1
    return {partition_id: place + shares[partition_id] for partition_id, place in start.items()}


def _texts(found: Mapping[int, int]) -> dict[str, int]:
    return {str(partition_id): found[partition_id] for partition_id in sorted(found)}


def _list(partition_ids: Sequence[int] | Mapping[int, int]) -> str:
    return ", ".join(str(partition_id) for partition_id in sorted(partition_ids)) or "none"
