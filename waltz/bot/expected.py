"""The possible values of a table after all operations so far, and impossible values that were found. Pure.

The input is the events of a history, so the same code checks a run and, later, its history.
"""

from collections.abc import Iterable
from typing import NamedTuple

from waltz.bot.history import Header, Invoked, ReadCall, Returned, ScanCall, SwapCall, WriteCall
from waltz.bot.register import (
    ANY_STAMP,
    Anything,
    Found,
    Impossible,
    NotDone,
    Operation,
    Outcome,
    Register,
    RowRead,
    Stamp,
    Swap,
    SwapConflict,
    UnknownOutcome,
    Value,
    Write,
    Written,
)

SHOWN_VALUES = 10
_NO_ROW = Found(None)


class Deviation(NamedTuple):
    """An impossible outcome."""

    key: str
    op: int
    """The operation whose outcome no order explains. An earlier operation may be the cause."""
    process: int
    time_ms: int
    what: str


class Expected:
    """The possible values of a table. Keys with an impossible outcome are in quarantine: they are not checked any
    more."""

    def __init__(self) -> None:
        self.quarantine: dict[str, Deviation] = {}
        self.operations = 0
        """The number of finished operations."""
        self.unknown = 0
        """The number of finished writes and swaps of unknown outcome."""
        self._registers: dict[str, Register] = {}
        self._begun: dict[int, tuple[Invoked, list[str]]] = {}

    @property
    def valid(self) -> dict[str, list[str | None]]:
        """The possible values of each key. Keys without a possible value, and keys in quarantine, are left out."""
        found = {key: register.possible for key, register in self._registers.items() if key not in self.quarantine}
        return {
            key: [None if isinstance(value, Anything) else value for value in possible]
            for key, possible in found.items()
            if possible != [None]
        }

    def take(self, event: Header | Invoked | Returned) -> list[Deviation]:
        """Take the next event. Returns the deviations that it proves."""
        if isinstance(event, Invoked):
            self._begin(event)
        elif isinstance(event, Returned):
            return self._end(event)
        return []

    def give_up(self) -> list[Deviation]:
        """Treat the outcomes of all unfinished operations as unknown."""
        found: list[Deviation] = []
        for op, (invoked, _) in list(self._begun.items()):
            found += self._end(Returned(type="info", op=op, time_ms=invoked.time_ms))
        return found

    def _begin(self, invoked: Invoked) -> None:
        op, call = invoked.op, invoked.call
        operations: Iterable[tuple[str, Operation]]
        match call:
            case WriteCall():
                operations = [(key, Write(value, call.timestamp_ms)) for key, value in call.rows.items()]
            case SwapCall():
                operations = [(call.key, Swap(call.expected, call.value))]
            case ReadCall():
                operations = [(key, RowRead()) for key in call.keys]
            case ScanCall():
                operations = [(key, RowRead()) for key in self._registers]
        keys: list[str] = []
        for key, operation in operations:
            if key in self.quarantine:
                continue
            register = self._registers.get(key)
            if register is None:
                register = self._registers[key] = Register()
            register.begin(op, operation)
            keys.append(key)
        self._begun[op] = (invoked, keys)

    def _end(self, returned: Returned) -> list[Deviation]:
        begun = self._begun.pop(returned.op, None)
        if begun is None:
            return []
        invoked, keys = begun
        self.operations += 1
        reads = isinstance(invoked.call, ReadCall | ScanCall)
        self.unknown += returned.type == "info" and not reads
        found: list[Deviation] = []
        outcome = _outcome(invoked.call, returned)
        rows = returned.rows or {}
        for key in keys:
            if key in self.quarantine:
                continue
            try:
                if outcome is None:
                    row = rows.get(key)
                    self._registers[key].end(returned.op, _NO_ROW if row is None else Found(*row))
                else:
                    self._registers[key].end(returned.op, outcome)
            except Impossible as impossible:
                found.append(self._deviation(key, invoked, returned, _describe(impossible)))
        if isinstance(invoked.call, ScanCall):
            for key in sorted(rows.keys() - self._registers.keys() - self.quarantine.keys()):
                what = f"there is a row that nobody wrote: {rows[key]}"
                found.append(self._deviation(key, invoked, returned, what))
        self.quarantine.update({deviation.key: deviation for deviation in found})
        return found

    def _deviation(self, key: str, invoked: Invoked, returned: Returned, what: str) -> Deviation:
        return Deviation(key, invoked.op, invoked.process, returned.time_ms, f"{invoked.call.f} {invoked.op}: {what}")


def _outcome(call: WriteCall | SwapCall | ReadCall | ScanCall, returned: Returned) -> Outcome | None:
    """The outcome of an operation for each of its keys; ``None`` if these outcomes contradict each other."""
    if returned.type == "fail":
        return NotDone()
    stamp = ANY_STAMP if returned.stamp_ms is None else Stamp(*returned.stamp_ms)
    if returned.type == "info":
        return UnknownOutcome(stamp)
    if returned.conflict:
        return SwapConflict()
    return Written(returned.transaction, stamp) if isinstance(call, WriteCall | SwapCall) else None


def _describe(impossible: Impossible) -> str:
    match impossible.outcome:
        case Found(value=None):
            what = "there is no row"
        case Found(value=value, timestamp_ms=timestamp_ms, transaction_id=transaction_id):
            what = f"the row is {value!r} of transaction {transaction_id} and timestamp {timestamp_ms}"
        case SwapConflict():
            what = "the row was reported as different from the expected row"
        case _:
            what = "it was said to be done"
    return f"{what}; it can have been {_listed(impossible.possible)}"


def _listed(values: list[Value]) -> str:
    shown = ["no row" if value is None else repr(value) for value in values[:SHOWN_VALUES]]
    more = len(values) - len(shown)
    return " or ".join(shown) + (f", or one of {more} more" if more > 0 else "")
