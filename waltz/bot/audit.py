"""The invariants of the bank's log, checked transaction by transaction. Pure.

* The amount of money is constant: after every transaction the sum of all accounts is the sum at the opening of the
  bank.
* Every acknowledged transfer is in the log, at the acknowledged transaction. A transfer that was reported as not
  appended is not in the log. No transfer is in the log twice. The transfers of one teller are in order: all of them
  change one row, so a transfer of unknown outcome cannot come behind a later transfer.
* Behind the transaction at which a write session began, there is no transaction of an older session.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Mark(NamedTuple):
    """A teller's row, written with every transfer."""

    number: int
    """The number of the transfer. Numbers grow."""
    session: int
    """The write session; -1 without one."""

    def encode(self, run: str) -> str:
        """The value of the row."""
        return f"{run}.{self.number}.{self.session}"

    @classmethod
    def decode(cls, run: str, value: str) -> "Mark | None":
        """The mark in the value of a row; ``None`` if another run has written the row."""
        writer, _, rest = value.partition(".")
        number, _, session = rest.partition(".")
        try:
            return cls(int(number), int(session)) if writer == run else None
        except ValueError:
            return None


class BankEntry(NamedTuple):
    """One transaction of the bank in the log."""

    transaction_id: int
    balances: Mapping[str, int]
    """New balances by account."""
    marks: Mapping[str, Mark]
    """Marks by teller."""


class Audit:
    """Checks the acknowledgements of tellers against the transactions in the log. Both are taken in their own order,
    interleaved in any way."""

    def __init__(self, opening: Mapping[str, int]) -> None:
        self.transfers = 0
        """The number of transfers found in the log."""
        self._balances = dict(opening)
        self._sum = sum(opening.values())
        self._last: dict[str, tuple[int, int]] = {}  # by teller: number and transaction of the last seen transfer
        self._acknowledged: dict[tuple[str, int], int] = {}
        self._absent: set[tuple[str, int]] = set()
        self._fence = (-1, -1)  # the number of the newest known session, and the transaction behind which it began
        self._newest_of: dict[int, int] = {}  # by session: the last seen transaction

    @property
    def balances(self) -> Mapping[str, int]:
        """The balances after the last transaction that the audit has seen."""
        return self._balances

    def acknowledge(self, teller: str, number: int, transaction_id: int) -> Iterator[str]:
        """Take a transfer that was reported as committed."""
        seen, at = self._last.get(teller, (-1, -1))
        if seen < number:
            self._acknowledged[teller, number] = transaction_id
        elif (seen, at) != (number, transaction_id):
            yield f"transfer {number} of {teller} was acknowledged at {transaction_id}; {seen} was found at {at}"

    def refuse(self, teller: str, number: int) -> Iterator[str]:
        """Take a transfer that was reported as not appended, now and for ever."""
        seen, at = self._last.get(teller, (-1, -1))
        if seen == number:
            yield f"transfer {number} of {teller} was reported not to be appended, and is at {at}"
        elif seen < number:
            self._absent.add((teller, number))

    def fence(self, session: int, transaction_id: int) -> Iterator[str]:
        """A write session has begun after a transaction."""
        if session <= self._fence[0]:
            return
        self._fence = (session, transaction_id)
        for older in [number for number in self._newest_of if number < session]:
            newest = self._newest_of.pop(older)
            if newest > transaction_id:
                yield _behind(newest, older, self._fence)

    def take(self, entry: BankEntry) -> Iterator[str]:
        """Take the next transaction of the bank from the log."""
        at = entry.transaction_id
        self._balances.update(entry.balances)
        total = sum(self._balances.values())
        if total != self._sum:
            yield f"after transaction {at} all accounts together have {total}, not {self._sum}"
            self._sum = total
        for account in [account for account, balance in entry.balances.items() if balance < 0]:
            yield f"account {account} has {entry.balances[account]} after transaction {at}"
        for teller, mark in entry.marks.items():
            yield from self._check_mark(teller, mark, at)

    def _check_mark(self, teller: str, mark: Mark, at: int) -> Iterator[str]:
        self.transfers += 1
        last, last_at = self._last.get(teller, (-1, -1))
        name = f"transfer {mark.number} of {teller}"
        if mark.number <= last:
            yield f"{name} is at {at}, behind transfer {last} at {last_at}"
            return
        self._last[teller] = (mark.number, at)
        told_at = self._acknowledged.pop((teller, mark.number), at)
        if told_at != at:
            yield f"{name} was acknowledged at {told_at}, and is at {at}"
        if (teller, mark.number) in self._absent:
            yield f"{name} was reported not to be appended, and is at {at}"
        self._absent = {each for each in self._absent if each[0] != teller or each[1] > mark.number}
        yield from self._lost(teller, mark.number)
        if mark.session >= 0:
            session, begin = self._fence
            if mark.session < session and at > begin:
                yield _behind(at, mark.session, self._fence)
            elif mark.session >= session:
                self._newest_of[mark.session] = at

    def _lost(self, teller: str, before: int) -> Iterator[str]:
        for key in [key for key in self._acknowledged if key[0] == teller and key[1] < before]:
            yield f"transfer {key[1]} of {teller} was acknowledged at {self._acknowledged.pop(key)}, and is not there"

    def reach(self, transaction_id: int) -> Iterator[str]:
        """Note that all transactions of the bank up to this one were taken."""
        for key, at in [(key, at) for key, at in self._acknowledged.items() if at <= transaction_id]:
            del self._acknowledged[key]
            yield f"transfer {key[1]} of {key[0]} was acknowledged at {at}, and is not there"

    def compare(self, scanned: Mapping[str, int], accounts: Iterable[str]) -> Iterator[str]:
        """Check all accounts that one client has read, from one state of the table."""
        if missing := sorted(set(accounts) - scanned.keys()):
            yield f"a scan lacks {len(missing)} accounts: {', '.join(missing[:5])}"
        elif (total := sum(scanned.values())) != self._sum:
            yield f"a scan finds {total} in all accounts together, not {self._sum}"


def _behind(at: int, session: int, fence: tuple[int, int]) -> str:
    return f"transaction {at} is of write session {session}, but session {fence[0]} began behind {fence[1]}"
