"""The operations of a bot and their outcomes, as lines of JSON. Any program can check the run again by this file.

There are two lines for each operation: at its begin and at its end. The order of the lines is the order in time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from waltz.common.errors import WaltzError


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_Line):
    """The first line. The first writes of a run delete the rows of former runs."""

    type: Literal["header"]
    format: Literal[1]
    bot: str
    run: str
    """Prefix of the values that this run writes."""
    cluster: str
    partition: int
    began: str
    """Begin of the run, in ISO 8601."""


class WriteCall(_Line):
    """Write rows in one transaction, with one timestamp. The value ``None`` deletes."""

    f: Literal["write"]
    rows: dict[str, str | None]
    timestamp_ms: int


class SwapCall(_Line):
    """Write a row if the present value is the expected one; ``None``: no row is expected."""

    f: Literal["swap"]
    key: str
    expected: str | None
    value: str


class ReadCall(_Line):
    """Read the newest rows of some keys."""

    f: Literal["read"]
    keys: list[str]


class ScanCall(_Line):
    """Read the newest rows of all keys."""

    f: Literal["scan"]


Call: TypeAlias = Annotated[WriteCall | SwapCall | ReadCall | ScanCall, Field(discriminator="f")]


class Invoked(_Line):
    """An operation has begun."""

    type: Literal["invoke"]
    op: int
    process: int
    """The client of the operation."""
    time_ms: int
    """Time since the epoch by the client's clock. The order of lines does not depend on it."""
    call: Call


class Returned(_Line):
    """An operation has ended: it has taken effect (``ok``), it never will (``fail``), or its outcome is unknown
    (``info``)."""

    type: Literal["ok", "fail", "info"]
    op: int
    time_ms: int
    transaction: int | None = None
    """The transaction with the committed operation."""
    conflict: bool = False
    """Whether a swap met an unexpected row."""
    stamp_ms: tuple[int, int] | None = None
    """Bounds (inclusive) of the timestamp of a swapped row."""
    rows: dict[str, tuple[str, int, int]] | None = None
    """The result of a read: value, timestamp and transaction of each key with a row."""
    error: str | None = None


Event: TypeAlias = Annotated[Header | Invoked | Returned, Field(discriminator="type")]

_EVENTS: TypeAdapter[Header | Invoked | Returned] = TypeAdapter(Event)


class HistoryError(WaltzError):
    """A file is not a history of a bot."""


class HistoryFile:
    """A file to which events are appended. A large file is renamed, and a new one begun."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        """Open the file. Raises ``OSError``."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._file = path.open("w", buffering=1, encoding="utf-8")

    @property
    def is_full(self) -> bool:
        """Whether the file is so large that a new one should be begun."""
        return self._file.tell() >= self._limit_bytes

    def append(self, event: Event) -> None:
        """Append a line. At the return the operating system has the line."""
        self._file.write(event.model_dump_json(exclude_defaults=True) + "\n")

    def begin_anew(self) -> None:
        """Add ``.1`` to the name of the file, replacing an older file, and begin a new file."""
        self._file.close()
        self._path.replace(f"{self._path}.1")
        self._file = self._path.open("w", buffering=1, encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_history(path: Path) -> Iterator[Header | Invoked | Returned]:
    """The lines of a history. An incomplete last line is left out: its writer was killed.

    Raises :class:`HistoryError`, which names the line, and ``OSError``.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                event = _EVENTS.validate_json(line)
            except ValidationError as error:
                reason = error.errors(include_url=False, include_input=False)[0]["msg"]
                raise HistoryError(f"{path}, line {number} is not one of a bot's history: {reason}") from None
            if (number == 1) != isinstance(event, Header):
                raise HistoryError(f"{path}, line {number}: a history has its header in the first line, and only there")
            yield event
