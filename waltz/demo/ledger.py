"""The bank's own database: balances in SQLite, and the log position that they belong to."""

import hashlib
import sqlite3
from pathlib import Path

from waltz.demo.transfers import BankTransfer

COMMIT_EVERY = 1_000
"""Applied transfers per database transaction. The position is part of it, so a crash only means applying some again."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, cents INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (partition_id INTEGER PRIMARY KEY, high_water_mark INTEGER NOT NULL);
"""


class Ledger:
    """The balances after every transfer up to ``high_water_mark``.

    An account opens with ``opening_cents`` at its first appearance in the log.
    """

    def __init__(self, path: Path, partition_id: int, opening_cents: int) -> None:
        self._partition_id = partition_id
        self._opening_cents = opening_cents
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.executescript(_SCHEMA)
        row = self._database.execute(
            "SELECT high_water_mark FROM position WHERE partition_id = ?", (partition_id,)
        ).fetchone()
        self.high_water_mark: int = row[0] if row else -1
        self._uncommitted = 0

    def balance_cents(self, account: str) -> int:
        """The balance of ``account``; the opening balance if it has not appeared yet."""
        row = self._database.execute("SELECT cents FROM balance WHERE account = ?", (account,)).fetchone()
        return self._opening_cents if row is None else int(row[0])

    def apply(self, transaction_id: int, transfer: BankTransfer) -> None:
        """Apply the next transfer of the log."""
        if not self._uncommitted:
            self._database.execute("BEGIN")
        self._add(transfer.source, -transfer.amount_cents)
        self._add(transfer.target, transfer.amount_cents)
        self.high_water_mark = transaction_id
        self._uncommitted += 1
        if self._uncommitted == COMMIT_EVERY:
            self.commit()

    def _add(self, account: str, cents: int) -> None:
        self._database.execute(
            "INSERT INTO balance VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET cents = cents + ?",
            (account, self._opening_cents + cents, cents),
        )

    def commit(self) -> None:
        """Make all applied transfers durable, together with the position."""
        if self._uncommitted:
            self._database.execute(
                "INSERT INTO position VALUES (?, ?) "
                "ON CONFLICT (partition_id) DO UPDATE SET high_water_mark = excluded.high_water_mark",
                (self._partition_id, self.high_water_mark),
            )
            self._database.execute("COMMIT")
            self._uncommitted = 0

    def balances(self) -> dict[str, int]:
        """All balances, in cents."""
        return dict(self._database.execute("SELECT account, cents FROM balance"))

    def close(self) -> None:
        """Commit and close the database."""
        self.commit()
        self._database.close()


def digest(balances: dict[str, int]) -> str:
    """A fingerprint of balances, independent of their order."""
    text = "\n".join(f"{cents} {account}" for account, cents in sorted(balances.items()))
    return hashlib.sha256(text.encode()).hexdigest()
