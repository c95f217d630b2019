"""Every rule of the bank is broken once."""

import pytest

from waltz.bot.audit import Audit, BankEntry, Mark

OPENING = {"a": 10, "b": 10}


def move(audit: Audit, at: int, number: int, cents: int = 1, *, session: int = 5, teller: str = "t") -> list[str]:
    """The log has a transfer."""
    balances = {"a": audit.balances["a"] - cents, "b": audit.balances["b"] + cents}
    return list(audit.take(BankEntry(at, balances, {teller: Mark(number, session)})))


def test_marks_are_read_as_they_were_written() -> None:
    assert Mark.decode("run", Mark(17, -1).encode("run")) == Mark(17, -1)
    for value in ("other.1.2", "run.1", "run.x.2", "", "run"):
        assert Mark.decode("run", value) is None


def test_what_is_as_told_is_in_order() -> None:
    audit = Audit(OPENING)
    found = [*audit.acknowledge("t", 1, 7), *move(audit, 7, 1), *move(audit, 8, 2), *audit.acknowledge("t", 2, 8)]
    found += audit.refuse("t", 3)
    found += [*move(audit, 9, 5), *move(audit, 10, 1, teller="u"), *audit.reach(10)]
    found += audit.compare({"a": 6, "b": 14}, OPENING)
    assert found == []
    assert audit.transfers == 4
    assert audit.balances == {"a": 6, "b": 14}


def test_money_that_comes_or_goes() -> None:
    audit = Audit(OPENING)
    assert list(audit.take(BankEntry(3, {"a": 11}, {}))) == [
        "after transaction 3 all accounts together have 21, not 20"
    ]
    assert move(audit, 4, 1) == []
    assert list(audit.compare({"a": 10, "b": 10}, OPENING)) == ["a scan finds 20 in all accounts together, not 21"]
    assert list(audit.compare({"a": 21}, OPENING)) == ["a scan lacks 1 accounts: b"]
    assert move(audit, 5, 2, cents=100) == ["account a has -90 after transaction 5"]


def test_a_transfer_that_is_lost() -> None:
    audit = Audit(OPENING)
    assert list(audit.acknowledge("t", 1, 7)) == []
    assert list(audit.reach(6)) == []
    assert list(audit.reach(7)) == ["transfer 1 of t was acknowledged at 7, and is not there"]
    assert list(audit.reach(8)) == []
    assert list(audit.acknowledge("t", 2, 9)) == []
    assert move(audit, 10, 3) == ["transfer 2 of t was acknowledged at 9, and is not there"]


def test_a_transfer_that_is_there_twice_late_or_elsewhere() -> None:
    audit = Audit(OPENING)
    assert move(audit, 7, 2) == []
    assert move(audit, 8, 2) == ["transfer 2 of t is at 8, behind transfer 2 at 7"]
    assert move(audit, 9, 1) == ["transfer 1 of t is at 9, behind transfer 2 at 7"]
    assert list(audit.acknowledge("t", 2, 8)) == ["transfer 2 of t was acknowledged at 8; 2 was found at 7"]
    assert list(audit.acknowledge("t", 3, 11)) == []
    assert move(audit, 12, 3) == ["transfer 3 of t was acknowledged at 11, and is at 12"]


@pytest.mark.parametrize("told_first", [True, False])
def test_a_transfer_that_was_reported_not_to_be_there(told_first: bool) -> None:
    audit = Audit(OPENING)
    found = list(audit.refuse("t", 1)) if told_first else []
    found += move(audit, 7, 1)
    found += [] if told_first else list(audit.refuse("t", 1))
    assert found == ["transfer 1 of t was reported not to be appended, and is at 7"]


@pytest.mark.parametrize("told_first", [True, False])
def test_an_older_session_behind_the_beginning_of_a_newer_one(told_first: bool) -> None:
    audit = Audit(OPENING)
    found = move(audit, 6, 1, session=5)
    if told_first:
        found += audit.fence(6, 6)
    found += move(audit, 7, 2, session=-1)
    found += move(audit, 8, 3, session=6)
    assert found == []
    found += move(audit, 9, 4, session=5)
    if not told_first:
        found += audit.fence(6, 6)
    assert found == ["transaction 9 is of write session 5, but session 6 began behind 6"]
    assert list(audit.fence(5, 3)) == []
