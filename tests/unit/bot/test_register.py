"""Exact: compared with a search through all orders, on histories that are possible and on ones tampered with."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from waltz.bot.register import (
    ANYTHING,
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
    Write,
    Written,
)


class Call(NamedTuple):
    """One operation, between two instants."""

    began: int
    ended: int
    operation: Operation
    outcome: Outcome


class Row(NamedTuple):
    """The row that wins, of which a model that applies a given order knows all."""

    value: str | None
    timestamp_ms: int
    transaction_id: int | None


NOTHING = Row(None, 0, None)


def follow(row: Row, call: Call, timestamp_ms: int) -> Row | None:
    """What the naive model makes of a call whose outcome is known to be this; ``None`` if that cannot be."""
    match call.operation, call.outcome:
        case RowRead(), Found() as found:
            if found.value != row.value:
                return None
            if found.value is None:
                return row
            if found.timestamp_ms != row.timestamp_ms or row.transaction_id not in (None, found.transaction_id):
                return None
            return row._replace(transaction_id=found.transaction_id)
        case Swap(expected=expected), SwapConflict():
            return row if row.value != expected else None
        case Swap(expected=expected, value=value), _:
            if row.value != expected or row.timestamp_ms > timestamp_ms:
                return None
            transaction_id = call.outcome.transaction_id if isinstance(call.outcome, Written) else None
            return Row(value, timestamp_ms, transaction_id)
        case Write(value=value, timestamp_ms=own_ms), _:
            transaction_id = call.outcome.transaction_id if isinstance(call.outcome, Written) else None
            return Row(value, own_ms, transaction_id) if own_ms >= row.timestamp_ms else row
    raise AssertionError(call)


def stamps(call: Call) -> Iterator[int]:
    """Every timestamp that a swap may have had."""
    match call.operation, call.outcome:
        case Swap(), Written(stamp=(low_ms, high_ms)) | UnknownOutcome(stamp=(low_ms, high_ms)):
            return iter(range(low_ms, high_ms + 1))
    return iter([0])


def is_explained(calls: list[Call]) -> bool:
    """Whether some order of the calls, and of some of those that are unknown, explains all outcomes."""
    certain = [call for call in calls if not isinstance(call.outcome, UnknownOutcome | NotDone)]
    doubtful = [
        call for call in calls if isinstance(call.outcome, UnknownOutcome) and not isinstance(call.operation, RowRead)
    ]
    for count in range(len(doubtful) + 1):
        for chosen in itertools.combinations(doubtful, count):
            for order in itertools.permutations([*certain, *chosen]):
                if is_in_time(order) and is_possible(order, NOTHING):
                    return True
    return False


def is_in_time(order: tuple[Call, ...]) -> bool:
    """No call stands before one that had ended before it began; what is unknown has no end."""
    return not any(
        not isinstance(later.outcome, UnknownOutcome) and later.ended < earlier.began
        for earlier, later in itertools.combinations(order, 2)
    )


def is_possible(order: tuple[Call, ...], row: Row) -> bool:
    if not order:
        return True
    call, *rest = order
    return any(
        following is not None and is_possible(tuple(rest), following)
        for following in (follow(row, call, timestamp_ms) for timestamp_ms in stamps(call))
    )


def accepts(calls: list[Call]) -> bool:
    """What the register says. It is at nothing, as after the rows of former runs were deleted."""
    register = Register()
    register.begin(-1, Write(None, 0))
    register.end(-1, Written())
    events = sorted(
        [(call.began, number, False) for number, call in enumerate(calls)]
        + [(call.ended, number, True) for number, call in enumerate(calls)]
    )
    try:
        for _, number, is_end in events:
            if is_end:
                register.end(number, calls[number].outcome)
            else:
                register.begin(number, calls[number].operation)
    except Impossible:
        return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Call]:
    """What a table might have answered, and then, perhaps, one answer of another one."""
    count = draw(st.integers(1, 6))
    instants = draw(st.permutations(range(1, 2 * count + 1)))
    spans = [sorted(instants[2 * number : 2 * number + 2]) for number in range(count)]
    rows = [NOTHING]  # as they came to win, one after the other
    calls: list[Call] = [Call(0, 0, RowRead(), Found(None))] * count
    clock = draw(st.integers(-3, 1))  # of who writes plainly, against that of who swaps
    order = sorted(range(count), key=lambda number: draw(st.integers(*spans[number])))
    for place, number in enumerate(order):
        began, ended = spans[number]
        row = rows[-1]
        written = f"v{number}"
        kind = draw(st.sampled_from(["write", "delete", "swap", "read", "read"]))
        outcome: Outcome
        operation: Operation
        if kind == "read":
            operation = RowRead()
            outcome = Found(row.value) if row.value is None else Found(*row)
        elif kind == "swap":
            expected = draw(st.sampled_from(rows)).value
            operation = Swap(expected, written)
            outcome = SwapConflict()
            if row.value == expected and row.timestamp_ms <= ended:
                rows.append(Row(written, draw(st.integers(max(began, row.timestamp_ms), ended)), place))
                outcome = Written(place, Stamp(began, ended))
        else:
            timestamp_ms = max(1, began + clock)
            value = written if kind == "write" else None
            operation = Write(value, timestamp_ms)
            if timestamp_ms >= row.timestamp_ms:
                rows.append(Row(value, timestamp_ms, place))
            outcome = Written(place)
        if draw(st.integers(0, 3)) == 0:
            outcome = UnknownOutcome(Stamp(began, ended))
        calls[number] = Call(began, ended, operation, outcome)
    for _ in range(draw(st.integers(0, 2))):
        victim = draw(st.integers(0, count - 1))
        call = calls[victim]
        if isinstance(call.operation, RowRead):
            other = draw(st.sampled_from(rows))
            calls[victim] = call._replace(outcome=Found(*other) if other.value else Found(None))
        else:
            calls[victim] = call._replace(outcome=NotDone())
    return calls


@settings(max_examples=250, deadline=None)
@given(histories())
def test_it_says_what_a_search_through_all_orders_says(calls: list[Call]) -> None:
    explained = is_explained(calls)
    event("possible" if explained else "impossible")
    assert accepts(calls) is explained


def register_with(*events: tuple[Operation, Outcome]) -> Register:
    """One after the other."""
    register = Register()
    for number, (operation, outcome) in enumerate([(Write(None, 0), Written()), *events]):
        register.begin(number, operation)
        register.end(number, outcome)
    return register


def read(register: Register, value: str | None) -> None:
    register.begin(99, RowRead())
    register.end(99, Found(value))


def test_what_is_there_before_anything_was_written_may_be_anything() -> None:
    register = Register()
    assert register.possible == [ANYTHING]
    read(register, "of somebody else")
    assert register.possible == ["of somebody else"]
    assert repr(ANYTHING) == "anything"


def test_a_lost_row_a_stale_read_and_a_deleted_row_that_is_back_are_impossible() -> None:
    written = register_with((Write("a", 1), Written(0)), (Write("b", 2), Written(1)))
    with pytest.raises(Impossible, match="operation 99: .*value=None.* where .*'b'"):
        read(written, None)
    written = register_with((Write("a", 1), Written(0)), (Write("b", 2), Written(1)))
    with pytest.raises(Impossible):
        read(written, "a")
    deleted = register_with((Write("a", 1), Written(0)), (Write(None, 2), Written(1)))
    with pytest.raises(Impossible) as raised:
        read(deleted, "a")
    assert (raised.value.number, raised.value.possible) == (99, [None])


def test_a_write_of_unknown_outcome_may_show_at_any_time_or_never_until_another_wins_over_it() -> None:
    def register() -> Register:
        return register_with((Write("a", 1), Written(0)), (Write("b", 2), UnknownOutcome()))

    for seen in (["a", "a"], ["a", "b"], ["b", "b"]):
        each = register()
        assert each.possible == ["a", "b"]
        for value in seen:
            read(each, value)
    with pytest.raises(Impossible):
        read(each, "a")
    each = register()
    each.begin(50, Write("c", 3))
    each.end(50, Written(1))
    assert each.possible == ["c"]
    with pytest.raises(Impossible):
        read(each, "b")


def test_a_write_of_unknown_outcome_and_the_same_timestamp_may_still_win() -> None:
    register = register_with((Write("a", 2), UnknownOutcome()), (Write("b", 2), Written(0)))
    assert register.possible == ["b", "a"]
    read(register, "a")
    assert register.possible == ["a"]


def test_a_row_is_at_the_transaction_that_was_acknowledged() -> None:
    for found, fits in ((Found("a", 1, 7), True), (Found("a", 1, 8), False), (Found("a", 2, 7), False)):
        register = register_with((Write("a", 1), Written(7)))
        register.begin(99, RowRead())
        if fits:
            register.end(99, found)
        else:
            with pytest.raises(Impossible):
                register.end(99, found)


def test_of_two_writes_that_overlap_either_may_be_the_last_one_but_both_reads_agree() -> None:
    for first, second, fits in (("a", "a", True), ("b", "b", True), ("a", "b", False)):
        register = Register()
        register.begin(0, Write("a", 1))
        register.begin(1, Write("b", 1))
        register.end(0, Written())
        register.end(1, Written())
        read(register, first)
        if fits:
            read(register, second)
        else:
            with pytest.raises(Impossible):
                read(register, second)


def test_many_writes_of_unknown_outcome_cost_little() -> None:
    register = register_with(*((Write(f"{number}", 1), UnknownOutcome()) for number in range(300)))
    register.begin(1000, Write("end", 1))
    register.end(1000, Written())
    assert len(register.possible) == 301
    for number in (7, 299):
        read(register, f"{number}")
    with pytest.raises(Impossible):
        read(register, "7")


def test_swaps_meet_the_row_that_they_expect_or_they_conflict() -> None:
    stamp = Stamp(1, 1)
    for expected, outcome, fits in (
        ("a", Written(1, stamp), True),
        ("b", Written(1, stamp), False),
        ("a", SwapConflict(), False),
        ("b", SwapConflict(), True),
        ("b", NotDone(), True),
    ):
        register = register_with((Write("a", 1), Written(0)))
        register.begin(99, Swap(expected, "c"))
        if fits:
            register.end(99, outcome)
        else:
            with pytest.raises(Impossible):
                register.end(99, outcome)
