"""One key of a table as a register: checks whether its reads are possible. Pure.

The check is exact: it fails if, and only if, the operations cannot be put into an order that

* agrees with time: if an operation has ended before another one began, it comes before the latter,
* is possible for a table: rows win by timestamp, and then by their place in the log; a read returns the winner; a swap
  writes if, and only if, the present row is the expected one (and not of a later timestamp than the swap's own end:
  writes that have begun after it have locks that it would conflict with),
* contains every operation that took effect, no operation that did not, and any of the operations of unknown outcome, at
  any place after their begin.

The algorithm is Lowe's variant of the one by Wing and Gong ("Testing for linearizability", 2017). A configuration is
one possible state: the winning row, and the set of unfinished operations that have taken effect. When an operation
ends, every configuration is continued by all orders of unfinished operations that end with this operation. Equal
configurations are kept once, which makes the check fast. If no configuration is left, no order exists. By locality
(Herlihy and Wing) the keys of a table can be checked one by one.

Two rules are added. If two configurations are equal except that one has used more operations of unknown outcome, that
one is left out: all its continuations are continuations of the other one, too. An operation of unknown outcome is
forgotten when its timestamp is below that of the present row in all configurations, because it would lose. Between
operations only the possible rows remain, and the operations of unknown outcome that may still win over these rows.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias


class Anything:
    """The value of a key without a write in this run: any read is possible."""

    def __repr__(self) -> str:
        return "anything"


ANYTHING = Anything()

Value: TypeAlias = str | Anything | None
"""The value of a row; ``None`` if readers see no row."""


class Stamp(NamedTuple):
    """Bounds (inclusive) of the timestamp of a row, in milliseconds."""

    low_ms: int
    high_ms: int


ANY_STAMP = Stamp(0, 1 << 62)


class Found(NamedTuple):
    """The result of a read: a row, or no row."""

    value: str | None
    timestamp_ms: int | None = None
    transaction_id: int | None = None


class RegisterState(NamedTuple):
    """The winning row, with its known properties."""

    value: Value
    stamp: Stamp
    transaction_id: int | None
    """``None`` while unknown."""


class Write(NamedTuple):
    """A plain write, or a deletion if the value is ``None``."""

    value: str | None
    timestamp_ms: int


class Swap(NamedTuple):
    """A write if the present row is the expected one."""

    expected: str | None
    value: str


class RowRead(NamedTuple):
    """A read of the newest row."""


Operation: TypeAlias = Write | Swap | RowRead


class Written(NamedTuple):
    """A write or a swap was committed. The stamp of a write is known; for a swap there are bounds of the stamp."""

    transaction_id: int | None = None
    stamp: Stamp = ANY_STAMP


class SwapConflict(NamedTuple):
    """A swap has met an unexpected row."""


class NotDone(NamedTuple):
    """The operation has had no effect, and never will."""


class UnknownOutcome(NamedTuple):
    """The operation has taken effect, or will later, or never will. For a swap there are bounds of the stamp."""

    stamp: Stamp = ANY_STAMP


Outcome: TypeAlias = Written | SwapConflict | NotDone | UnknownOutcome | Found


class _Configuration(NamedTuple):
    state: RegisterState
    done: frozenset[int]
    """The operations, unfinished or of unknown outcome, that have taken effect."""


class _Ended(NamedTuple):
    """An operation and its outcome."""

    operation: Operation
    outcome: Outcome


_NONE: frozenset[int] = frozenset()
NEVER = RegisterState(ANYTHING, Stamp(0, 0), None)


class Impossible(Exception):
    """No order explains an outcome."""

    def __init__(self, number: int, outcome: Outcome, possible: list[Value]) -> None:
        super().__init__(f"operation {number}: {outcome} where {possible} was possible")
        self.number = number
        self.outcome = outcome
        self.possible = possible


class Register:
    """Checks the operations on one key: takes the begin of each, and its end with the outcome.

    Numbers of operations are unique. The check is made when no operation is unfinished: then all operations since the
    last check are checked.
    """

    __slots__ = ("_begun", "_configurations", "_ended", "_events", "_loose")

    def __init__(self) -> None:
        self._configurations = {_Configuration(NEVER, _NONE)}
        self._loose: dict[int, _Ended] = {}
        self._begun: dict[int, Operation] = {}
        self._ended: dict[int, _Ended] = {}
        self._events: list[int] = []

    @property
    def possible(self) -> list[Value]:
        """The values that the next read may find, if no operation is unfinished. Present values come first."""
        present = [configuration.state.value for configuration in self._configurations]
        late = [each.operation.value for each in self._loose.values() if not isinstance(each.operation, RowRead)]
        return list(dict.fromkeys([*present, *late]))

    def begin(self, number: int, operation: Operation) -> None:
        """Take the begin of an operation."""
        self._begun[number] = operation
        self._events.append(number)

    def end(self, number: int, outcome: Outcome) -> None:
        """Take the end of an operation. Raises :class:`Impossible`; the register cannot be used after that."""
        each = _Ended(self._begun.pop(number), outcome)
        if self._events == [number] and not self._loose and not isinstance(outcome, NotDone | UnknownOutcome):
            self._events.clear()
            self._finish_alone(number, each)
            return
        self._ended[number] = each
        self._events.append(number)
        if not self._begun:
            self._check()

    def _finish_alone(self, number: int, each: _Ended) -> None:
        """The frequent case of :meth:`_finish`: no other operation could take effect before or after this one."""
        states = [state for state, _ in self._configurations]
        following = {_Configuration(after, _NONE) for state in states for after in _effects(each, state)}
        if not following:
            raise Impossible(number, each.outcome, [state.value for state in states])
        self._configurations = following

    def _check(self) -> None:
        """Check all operations since the last check. The first event of a number is the begin of its operation, the
        second the end."""
        ended, events = self._ended, self._events
        self._ended, self._events = {}, []
        under_way: dict[int, _Ended] = {}
        for number in events:
            each = ended[number]
            if isinstance(each.outcome, NotDone):
                continue
            if number not in under_way:
                under_way[number] = each
            elif isinstance(each.outcome, UnknownOutcome):
                del under_way[number]
                if not isinstance(each.operation, RowRead):
                    self._loose[number] = each
            else:
                self._finish(number, under_way)
                del under_way[number]
        if self._loose:
            self._forget_losers()

    def _finish(self, number: int, under_way: dict[int, _Ended]) -> None:
        """Continue every configuration until the operation has taken effect."""
        candidates = {**self._loose, **under_way}
        optional = frozenset(other for other, each in candidates.items() if isinstance(each.outcome, UnknownOutcome))
        seen: dict[tuple[RegisterState, frozenset[int]], list[frozenset[int]]] = {}
        waiting: deque[_Configuration] = deque()
        finished: set[_Configuration] = set()

        def reach(state: RegisterState, done: frozenset[int]) -> None:
            """Configurations with fewer operations come first, so that equal later ones can be skipped."""
            used = done & optional
            fewer = seen.setdefault((state, done - optional), [])
            if not any(other <= used for other in fewer):
                fewer.append(used)
                waiting.append(_Configuration(state, done))

        for configuration in sorted(self._configurations, key=lambda each: len(each.done)):
            reach(*configuration)
        while waiting:
            state, done = waiting.popleft()
            if number in done:
                finished.add(_Configuration(state, done - {number}))
                continue
            for other, each in candidates.items():
                if other not in done:
                    for following in _effects(each, state):
                        if other not in optional or following.value != state.value:
                            reach(following, done | {other})
        if not finished:
            possible = dict.fromkeys(state.value for state, _ in seen)
            raise Impossible(number, under_way[number].outcome, list(possible))
        self._configurations = finished

    def _forget_losers(self) -> None:
        lowest_ms = min(state.stamp.low_ms for state, _ in self._configurations)
        for number, each in list(self._loose.items()):
            if _stamp(each).high_ms < lowest_ms:
                del self._loose[number]
        known = frozenset(self._loose)
        self._configurations = {_Configuration(state, done & known) for state, done in self._configurations}


def _stamp(each: _Ended) -> Stamp:
    """The stamp of the row that an operation writes."""
    if isinstance(each.operation, Write):
        return Stamp(each.operation.timestamp_ms, each.operation.timestamp_ms)
    return each.outcome.stamp if isinstance(each.outcome, Written | UnknownOutcome) else ANY_STAMP


def _effects(each: _Ended, state: RegisterState) -> Iterator[RegisterState]:
    """The states after an operation with this outcome; none if the outcome is impossible in this state."""
    match each.operation, each.outcome:
        case RowRead(), Found() as found:
            if _may_be(state, found):
                stamp = state.stamp if found.timestamp_ms is None else Stamp(found.timestamp_ms, found.timestamp_ms)
                known = state.transaction_id if found.transaction_id is None else found.transaction_id
                yield RegisterState(found.value, stamp, known)
        case Swap(expected=expected), SwapConflict():
            if state.value != expected or isinstance(state.value, Anything):
                yield state
        case Swap(expected=expected, value=value), outcome:
            low_ms, high_ms = _stamp(each)
            if (state.value == expected or isinstance(state.value, Anything)) and state.stamp.low_ms <= high_ms:
                stamp = Stamp(max(low_ms, state.stamp.low_ms), high_ms)
                yield RegisterState(value, stamp, _transaction_id(outcome))
        case Write(value=value, timestamp_ms=timestamp_ms), outcome:
            if timestamp_ms >= state.stamp.low_ms:
                yield RegisterState(value, Stamp(timestamp_ms, timestamp_ms), _transaction_id(outcome))
            if timestamp_ms < state.stamp.high_ms:
                stamp = Stamp(max(state.stamp.low_ms, timestamp_ms + 1), state.stamp.high_ms)
                yield state._replace(stamp=stamp)


def _transaction_id(outcome: Outcome) -> int | None:
    return outcome.transaction_id if isinstance(outcome, Written) else None


def _may_be(state: RegisterState, found: Found) -> bool:
    """Whether a read in this state can have this result."""
    if isinstance(state.value, Anything):
        return True
    if state.value != found.value:
        return False
    if found.timestamp_ms is not None and not state.stamp.low_ms <= found.timestamp_ms <= state.stamp.high_ms:
        return False
    return None in (state.transaction_id, found.transaction_id) or state.transaction_id == found.transaction_id
