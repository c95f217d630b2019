"""What clients were told, beside the log of one partition; and the order of the log beside that of time. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple


class Operation(NamedTuple):
    """An operation that may append, with its outcome."""

    op: int
    begun_ns: int
    ended_ns: int | None
    outcome: Literal["ok", "fail", "info"]
    transaction: int | None
    """The id that the client was told, if any."""


class Record(NamedTuple):
    """A record of the log; ``op`` is ``None`` where it cannot be told whose it is."""

    transaction: int
    op: int | None


def check(operations: Iterable[Operation], records: Sequence[Record]) -> list[str]:
    """All that is wrong. The records are in the order of the log."""
    by_op = {operation.op: operation for operation in operations}
    return [*_log(by_op, records), *_outcomes(by_op, records), *_times(by_op, records)]


def _log(by_op: dict[int, Operation], records: Sequence[Record]) -> Iterator[str]:
    seen: dict[int, int] = {}
    for expected, (transaction, op) in enumerate(records):
        if transaction != expected:
            yield f"transaction {transaction} is where {expected} is next"
            return
        if op is None:
            continue
        if op not in by_op:
            yield f"transaction {transaction} is of operation {op}, which nobody has begun"
        if op in seen:
            yield f"operation {op} is in the log at {seen[op]} and at {transaction}"
        seen[op] = transaction


def _outcomes(by_op: dict[int, Operation], records: Sequence[Record]) -> Iterator[str]:
    at = {record.transaction: record.op for record in records}
    for transaction, op in records:
        if op in by_op and by_op[op].outcome == "fail":
            yield f"operation {op} was reported as not appended, and is in the log at {transaction}"
    for operation in by_op.values():
        transaction_id = operation.transaction
        if operation.outcome != "ok" or transaction_id is None:
            continue
        if transaction_id not in at:
            yield f"operation {operation.op} was acknowledged at {transaction_id}, where the log has nothing"
        elif at[transaction_id] not in (None, operation.op):
            yield (
                f"operation {operation.op} was acknowledged at {transaction_id}, where the log has operation "
                f"{at[transaction_id]}"
            )


def _times(by_op: dict[int, Operation], records: Sequence[Record]) -> Iterator[str]:
    """What has begun after another was acknowledged is behind it in the log."""
    ended = sorted(
        (operation.ended_ns, operation.transaction, operation.op)
        for operation in by_op.values()
        if operation.outcome == "ok" and operation.ended_ns is not None and operation.transaction is not None
    )
    begun = sorted(
        (by_op[op].begun_ns, transaction, op) for transaction, op in records if op is not None and op in by_op
    )
    next_ended = 0
    latest = (-1, -1)
    for begun_ns, transaction, op in begun:
        while next_ended < len(ended) and ended[next_ended][0] < begun_ns:
            latest = max(latest, ended[next_ended][1:])
            next_ended += 1
        if transaction <= latest[0] and op != latest[1]:
            yield (
                f"operation {op} is in the log at {transaction}, and had begun after operation {latest[1]} was "
                f"acknowledged at {latest[0]}"
            )
