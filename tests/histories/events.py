"""The history of a campaign: lines of JSON, by which everything can be judged again.

Operations have two lines, at their begin and at their end; the clock is that of the machine (``CLOCK_MONOTONIC``),
which all its processes share. What was in flight when its process was killed has no second line. Behind the operations
there are the records of the log, and the effects of the consumers, each in its order.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from waltz.bot.history import ReadCall, SwapCall, WriteCall
from waltz.common.errors import WaltzError


class Line(BaseModel):
    """A line."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(Line):
    """The first line."""

    type: Literal["header"] = "header"
    format: Literal[1] = 1
    seed: int
    registers: int
    """The partition of a workload."""
    lists: int
    fences: int
    ledger: list[int]


class TransactCall(Line):
    """Reads of lists, and appends of elements to them, in one transaction."""

    f: Literal["transact"] = "transact"
    steps: list[tuple[str, str | None]]
    """Keys, each with the element that is appended, or ``None`` for a read."""


class FenceCall(Line):
    """Begin an exclusive write session, and read the register up to the fence."""

    f: Literal["fence"] = "fence"


class AppendCall(Line):
    """Append the number of the operation."""

    f: Literal["append"] = "append"
    session: int | None = None
    """The number of the exclusive write session."""


class ViewReadCall(Line):
    """Read the rows of some keys from a view node, of a state that is as new as demanded."""

    f: Literal["view read"] = "view read"
    view: str
    keys: list[str]
    fresh: bool = False
    """Of everything that was committed before."""
    least: int = -1
    """The view has applied this transaction."""


Call: TypeAlias = Annotated[
    WriteCall | SwapCall | ReadCall | TransactCall | FenceCall | AppendCall | ViewReadCall, Field(discriminator="f")
]


def may_write(call: Call) -> bool:
    """Whether an operation may append a transaction."""
    return not isinstance(call, ReadCall | FenceCall | ViewReadCall)


class Invoked(Line):
    """An operation begins."""

    type: Literal["invoke"] = "invoke"
    op: int
    process: str
    at_ns: int
    partition: int
    call: Call


class Returned(Line):
    """An operation has ended: with effect (``ok``), without (``fail``), or nobody knows (``info``)."""

    type: Literal["ok", "fail", "info"]
    op: int
    at_ns: int
    transaction: int | None = None
    """The id of the transaction; of a fence, the last one before the session."""
    conflict: bool = False
    """Whether a compare-and-set met another row."""
    stamp_ms: tuple[int, int] | None = None
    """Bounds of the timestamp of a row that was set."""
    rows: dict[str, tuple[str, int, int]] | None = None
    """What a read has found: value, timestamp, and transaction."""
    applied: int | None = None
    """The last transaction that a view node had applied."""
    seen: list[list[str] | None] | None = None
    """What each step of a transaction has read."""
    attempts: int = 1
    """How often the steps of a transaction were done."""
    session: int | None = None
    """The number of the session that a fence has begun."""
    last: int | None = None
    """The operation that wrote last before the fence, as its client has read."""
    error: str | None = None


class RecordLine(Line):
    """A transaction in the log, as all replicas have it."""

    type: Literal["record"] = "record"
    partition: int
    transaction: int
    op: int | None = None
    """The operation, which is part of the data; ``None`` where there are only deletions."""
    session: int | None = None
    lists: dict[str, list[str]] | None = None
    rows: dict[str, tuple[str | None, int]] | None = None
    """Value (``None``: deleted) and timestamp of each row of a register's transaction."""


class EffectLine(Line):
    """What a consumer has done for a transaction, in the same database transaction as its position."""

    type: Literal["effect"] = "effect"
    partition: int
    transaction: int
    op: int
    consumer: str


class FaultLine(Line):
    """What has happened to processes and lines."""

    type: Literal["fault"] = "fault"
    kind: str
    targets: list[str]
    at_ns: int
    until_ns: int


class OwnerLine(Line):
    """A partition is assigned to another server."""

    type: Literal["owner"] = "owner"
    partition: int
    server: int
    at_ns: int


Event: TypeAlias = Header | Invoked | Returned | RecordLine | EffectLine | FaultLine | OwnerLine
Timed: TypeAlias = Invoked | Returned | FaultLine | OwnerLine

_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])


class HistoryError(WaltzError):
    """A file is not a history of a campaign."""


def text_of(event: Event) -> str:
    """The line of an event."""
    return event.model_dump_json() + "\n"


def read(path: Path) -> Iterator[Event]:
    """The events of a file. An incomplete last line is left out: its writer was killed.

    Raises :class:`HistoryError`, which names the line, and ``OSError``.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                yield _EVENTS.validate_json(line)
            except ValidationError as error:
                reason = error.errors(include_url=False, include_input=False)[0]["msg"]
                raise HistoryError(f"{path}, line {number} is not one of a history: {reason}") from None


def merge(header: Header, parts: Sequence[Path], rest: Iterable[Event], path: Path) -> None:
    """Write one history of the files of all processes, each in the order of time. ``rest`` comes behind them."""

    def order(event: Event) -> tuple[int, bool]:
        """What begins at the same time as another thing ends is concurrent to it."""
        assert isinstance(event, Timed)
        return event.at_ns, isinstance(event, Returned)

    with path.open("w", encoding="utf-8") as file:
        file.write(text_of(header))
        for event in heapq.merge(*(read(part) for part in parts), key=order):
            file.write(text_of(event))
        for event in rest:
            file.write(text_of(event))
