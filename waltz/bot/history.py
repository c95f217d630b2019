"""What a bot did and what came of it, as lines of JSON: enough to check it again, by this or by other programs.

Two lines for each operation, when it begins and when it has ended; the order of the lines is that of time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from waltz.common.errors import WaltzError


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_Line):
    """The first line. What other runs have left is deleted by the first writes of this one."""

    type: Literal["header"]
    format: Literal[1]
    bot: str
    run: str
    """The values that this run writes begin with it."""
    cluster: str
    partition: int
    began: str
    """ISO 8601."""


class WriteCall(_Line):
    """Rows in one transaction, all of one timestamp; ``None`` deletes."""

    f: Literal["write"]
    rows: dict[str, str | None]
    timestamp_ms: int


class SwapCall(_Line):
    """A row if the present one has this value; ``None``: if there is none."""

    f: Literal["swap"]
    key: str
    expected: str | None
    value: str


class ReadCall(_Line):
    """The newest rows of some keys."""

    f: Literal["read"]
    keys: list[str]


class ScanCall(_Line):
    """The newest rows of all keys."""

    f: Literal["scan"]


Call: TypeAlias = Annotated[WriteCall | SwapCall | ReadCall | ScanCall, Field(discriminator="f")]


class Invoked(_Line):
    """An operation has begun."""

    type: Literal["invoke"]
    op: int
    process: int
    """The client that does it."""
    time_ms: int
    """Time by the client's clock, since the epoch. The order of lines does not depend on it."""
    call: Call


class Returned(_Line):
    """An operation has ended: it was done, it was not and never will be, or that is not known (``info``)."""

    type: Literal["ok", "fail", "info"]
    op: int
    time_ms: int
    transaction: int | None = None
    """At which it was committed."""
    conflict: bool = False
    """A swap met another row than the one that it expected."""
    stamp_ms: tuple[int, int] | None = None
    """Bounds of the timestamp of a swapped row, both included."""
    rows: dict[str, tuple[str, int, int]] | None = None
    """Result of a read: value, timestamp and transaction of each key that has a row."""
    error: str | None = None


Event: TypeAlias = Annotated[Header | Invoked | Returned, Field(discriminator="type")]

_EVENTS: TypeAdapter[Header | Invoked | Returned] = TypeAdapter(Event)


class HistoryError(WaltzError):
    """A file is no history of a bot."""


class HistoryFile:
    """A file that is written as things happen, and put aside when it has become large."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        """Raises ``OSError``."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._file = path.open("w", buffering=1, encoding="utf-8")

    @property
    def is_full(self) -> bool:
        """Whether it should be begun anew."""
        return self._file.tell() >= self._limit_bytes

    def append(self, event: Event) -> None:
        """One line, which is with the operating system when this returns."""
        self._file.write(event.model_dump_json(exclude_defaults=True) + "\n")

    def begin_anew(self) -> None:
        """Keep what is there under the name with ``.1`` behind it, instead of what that name stood for."""
        self._file.close()
        self._path.replace(f"{self._path}.1")
        self._file = self._path.open("w", buffering=1, encoding="utf-8")

    def close(self) -> None:
        """The last line was written."""
        self._file.close()


def read_history(path: Path) -> Iterator[Header | Invoked | Returned]:
    """The lines of a history. A last line that was cut is left out: its writer was killed.

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
