"""What the journal still has to hold."""

from waltz.storage.node.debts import Debts


def test_the_oldest_debt_decides() -> None:
    debts = Debts()
    assert debts.floor(5) == 5
    debts.owe(1, 5)
    debts.owe(2, 6)
    debts.owe(1, 7)
    assert (debts.by_age(), debts.floor(8)) == ([1, 2], 5)
    debts.paid(1, 7)
    assert (debts.by_age(), debts.floor(8), 1 in debts) == ([2], 6, False)


def test_what_came_after_the_sync_had_begun_is_still_owed() -> None:
    debts = Debts()
    debts.owe(1, 5)
    debts.owe(1, 9)
    debts.paid(1, 7)
    assert (1 in debts, debts.floor(10)) == (True, 8)
    debts.paid(1, 6)
    assert debts.floor(10) == 8, "an older sync pays nothing back"


def test_who_is_given_up_owes_nothing() -> None:
    debts = Debts()
    debts.owe(1, 5)
    debts.owe(2, 6)
    debts.forgive(1)
    debts.forgive(3)
    debts.paid(3, 9)
    assert debts.floor(7) == 6
    debts.clear()
    assert debts.by_age() == []
