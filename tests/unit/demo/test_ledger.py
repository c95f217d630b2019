"""The bank's database."""

import random
import sqlite3
from pathlib import Path

from waltz.demo.ledger import COMMIT_EVERY, Ledger, digest
from waltz.demo.transfers import BankTransfer


def test_balances_follow_the_transfers(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a.db", 0, 1_000)
    chance = random.Random(1)
    naive: dict[str, int] = {}
    for transaction_id in range(2_500):
        transfer = BankTransfer(f"a{chance.randrange(20)}", f"a{chance.randrange(20)}", chance.randrange(1, 50))
        naive.setdefault(transfer.source, 1_000)
        naive.setdefault(transfer.target, 1_000)
        naive[transfer.source] -= transfer.amount_cents
        naive[transfer.target] += transfer.amount_cents
        ledger.apply(transaction_id, transfer)
    assert ledger.balances() == naive
    assert ledger.balance_cents("a1") == naive["a1"]
    assert ledger.balance_cents("never seen") == 1_000
    assert ledger.high_water_mark == 2_499
    ledger.close()


def test_after_a_crash_the_balances_belong_to_the_position(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = Ledger(path, 0, 0)
    for transaction_id in range(COMMIT_EVERY + 10):
        ledger.apply(transaction_id, BankTransfer("a", "b", 1))
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT cents FROM balance WHERE account = 'b'").fetchone() == (COMMIT_EVERY,)
        assert other.execute("SELECT high_water_mark FROM position").fetchone() == (COMMIT_EVERY - 1,)
    other.close()
    ledger.close()
    reopened = Ledger(path, 0, 0)
    assert reopened.high_water_mark == COMMIT_EVERY + 9
    assert reopened.balances() == {"a": -COMMIT_EVERY - 10, "b": COMMIT_EVERY + 10}
    reopened.close()


def test_digest_depends_on_content_not_on_order() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1, "b": 2}) != digest({"a": 2, "b": 1})
