"""The file of one client process, with the begin and the end of each of its operations."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.histories.events import Call, Invoked, Returned, text_of
from waltz.client.errors import AppendError
from waltz.table.errors import TableError


class Outcome:
    """Fields of :class:`~tests.histories.events.Returned` that an operation fills before it ends."""

    def __init__(self, op: int) -> None:
        self.op = op
        self.fields: dict[str, object] = {}


class Recorder:
    """Numbers operations and writes them down. The operating system has a line before anything is sent."""

    def __init__(self, path: Path, process: str, first_op: int) -> None:
        self.done = 0
        """The number of operations that have ended."""
        self._file = path.open("w", buffering=1, encoding="utf-8")
        self._process = process
        self._next_op = first_op

    def next_op(self) -> int:
        """The number of the next operation, for values that name it."""
        self._next_op += 1
        return self._next_op

    @contextlib.contextmanager
    def operation(self, op: int, partition_id: int, call: Call, *, reads: bool = False) -> Iterator[Outcome]:
        """An operation, whose error decides on its outcome. One that only reads has no effect if it fails."""
        self._file.write(
            text_of(Invoked(op=op, process=self._process, at_ns=time.monotonic_ns(), partition=partition_id, call=call))
        )
        outcome = Outcome(op)
        try:
            yield outcome
        except BaseException as error:
            self._end(outcome, "fail" if reads or is_absent(error) else "info", f"{type(error).__name__}: {error}")
            raise
        self._end(outcome, "ok", None)

    def _end(self, outcome: Outcome, kind: str, error: str | None) -> None:
        fields = {"type": kind, "op": outcome.op, "at_ns": time.monotonic_ns(), "error": error, **outcome.fields}
        self._file.write(text_of(Returned.model_validate(fields)))
        self.done += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def is_absent(error: BaseException) -> bool:
    """Whether, according to the error, the transaction is not in the log and never will be."""
    return isinstance(error, TableError) or (isinstance(error, AppendError) and error.outcome_known)
