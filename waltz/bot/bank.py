"""The bank: tellers move money between accounts in transactions of the table. Locks make the transactions serializable.

At intervals a teller begins a write session. The other tellers cannot write until they continue in the session.
Meanwhile an auditor reads the log and all accounts.
"""

import asyncio
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from waltz.asynchronous import Client
from waltz.bot.audit import Audit, BankEntry, Mark
from waltz.bot.bot import Bot
from waltz.bot.journal import Journal
from waltz.bot.prover import READ_TIMEOUT_S
from waltz.bot.troubles import Troubles
from waltz.client.errors import AppendError, SessionFencedError, SessionNotSupportedError
from waltz.common.metrics.registry import Json
from waltz.demo.transfers import BankTransfer, random_transfers
from waltz.table.face.table import Table
from waltz.table.face.transaction import TableTransaction
from waltz.table.rows import TableRow
from waltz.table.view import KeyRange

ACCOUNT = b"bank/account/"
TELLER = b"bank/teller/"
_TRANSFERS_DRAWN = 10_000
_TAKEN_ROWS = 10_000


class BankOptions(NamedTuple):
    """Size and load of the bank."""

    accounts: int = 100
    opening_cents: int = 100_000
    pause_s: float = 0.01
    """The longest pause of a teller between two transfers."""
    audit_interval_s: float = 5.0
    fence_interval_s: float = 30.0
    """The mean time between two write sessions; 0: no write sessions."""


class SessionRounds:
    """Rounds of write sessions on an owner that supports them."""

    def __init__(self, clients: Sequence[Client], partition_id: int) -> None:
        self.rounds = 0
        self.supported: bool | None = None
        """``None`` before the first attempt."""
        self._clients = clients
        self._partition_id = partition_id

    async def begin(self, process: int) -> tuple[int, int] | None:
        """Begin a session of a client. Returns the number of the session, and the last transaction before it.

        ``None`` when the session has ended already, or the owner has no write sessions. Raises ``WaltzError``.
        """
        client = self._clients[process]
        try:
            last = await client.last_transaction_id(self._partition_id, fence=True)
        except SessionNotSupportedError:
            self.supported = False
            return None
        self.supported = True
        self.rounds += 1
        number = client.write_session(self._partition_id)
        return None if number is None else (number, last)

    async def renew(self, process: int) -> None:
        """Continue in the present session. Raises ``WaltzError``."""
        await self._clients[process].renew_session(self._partition_id)

    def number(self, process: int) -> int:
        """The number of the write session in which a client appends; -1 without one."""
        number = self._clients[process].write_session(self._partition_id)
        return -1 if number is None else number


class Bank(Bot):
    """Accounts, one teller for each client but the last, and the auditor with the last client."""

    def __init__(
        self,
        clients: Sequence[Client],
        tables: Sequence[Table],
        partition_id: int,
        journal: Journal,
        troubles: Troubles,
        options: BankOptions,
        operations: int | None,
    ) -> None:
        """``operations``: the number of transfers; ``None`` for no end."""
        super().__init__(journal, troubles)
        self.session_rounds = SessionRounds(clients, partition_id)
        self.refused = 0
        """The number of transfers without enough money, or that were certainly not appended."""
        self.unknown = 0
        self.audits = 0
        self._tables = tables
        self._options = options
        self._operations = operations
        self._accounts = [f"account-{number:06}" for number in range(options.accounts)]
        self._numbers = [0] * (len(tables) - 1)
        self._begun = 0
        self._after = -1
        self._fence_due_s = 0.0
        self._is_open = False
        self.audit = Audit({})

    @property
    def valid(self) -> Mapping[str, Json]:
        return dict(self.audit.balances)

    @property
    def counts(self) -> Mapping[str, int | str]:
        supported = self.session_rounds.supported
        return {
            "transfers": self.done,
            "refused": self.refused,
            "of unknown outcome": self.unknown,
            "audits": self.audits,
            "write sessions": "not known to the owner" if supported is False else self.session_rounds.rounds,
        }

    async def work(self) -> None:
        self._begun = self.done = 0
        self._is_open = False
        self._after = await self.troubles.insist(self._open)
        self.audit = Audit(dict.fromkeys(self._accounts, self._options.opening_cents))
        self._is_open = True
        self._fence_due_s = time.monotonic() + self._options.fence_interval_s
        async with asyncio.TaskGroup() as group:
            tellers = [group.create_task(self._serve(process)) for process in range(len(self._numbers))]
            group.create_task(self._audit_until_closed(tellers))

    async def check(self) -> None:
        if not self._is_open:
            return
        async with asyncio.timeout(READ_TIMEOUT_S):
            await self._read_log()
            await self._read_accounts()
        self.audits += 1

    async def _open(self) -> int:
        """Give every account its money in one transaction. Late transfers of former runs conflict with its locks."""

        def give(transaction: TableTransaction) -> None:
            for account in self._accounts:
                transaction.put(ACCOUNT + account.encode(), b"%d" % self._options.opening_cents)

        transaction_id = await self._tables[-1].transaction(give)
        assert transaction_id is not None
        async with asyncio.timeout(READ_TIMEOUT_S):
            for table in self._tables:  # which would read empty accounts
                await table.refresh(strict=False)
        return transaction_id

    # Tellers

    async def _serve(self, process: int) -> None:
        """Make the transfers of one teller, one by one."""
        transfers = self._draw_transfers()
        while self._operations is None or self._begun < self._operations:
            self._begun += 1
            if self._options.fence_interval_s and time.monotonic() >= self._fence_due_s:
                self._fence_due_s = time.monotonic() + self._options.fence_interval_s
                await self.troubles.insist(self._fence, process)
            await self.troubles.insist(self._transfer, process, transfers)
            self.done += 1
            await asyncio.sleep(random.random() * self._options.pause_s)

    def _draw_transfers(self) -> Iterator[BankTransfer]:
        while True:
            yield from random_transfers(_TRANSFERS_DRAWN, self._options.accounts, random.randrange(1 << 32))

    async def _transfer(self, process: int, transfers: Iterator[BankTransfer]) -> None:
        """Make one transfer, and report its outcome to the audit."""
        source, target, cents, _ = next(transfers)
        teller = f"teller-{process}"
        self._numbers[process] += 1
        number = self._numbers[process]

        def move(transaction: TableTransaction) -> None:
            balances = {account: _cents(transaction.get(ACCOUNT + account.encode())) for account in (source, target)}
            if balances[source] < cents:
                return
            transaction.put(ACCOUNT + source.encode(), b"%d" % (balances[source] - cents))
            transaction.put(ACCOUNT + target.encode(), b"%d" % (balances[target] + cents))
            mark = Mark(number, self.session_rounds.number(process))
            transaction.put(TELLER + teller.encode(), mark.encode(self.journal.run).encode())

        try:
            transaction_id = await self._tables[process].transaction(move)
        except SessionFencedError:
            self._tell(self.audit.refuse(teller, number))
            self.refused += 1
            await self.session_rounds.renew(process)
        except AppendError as error:
            if error.outcome_known:
                self._tell(self.audit.refuse(teller, number))
                self.refused += 1
            else:
                self.unknown += 1
            raise
        else:
            if transaction_id is None:
                self.refused += 1
            else:
                self._tell(self.audit.acknowledge(teller, number, transaction_id))

    async def _fence(self, process: int) -> None:
        session = await self.session_rounds.begin(process)
        if session is not None:
            self._tell(self.audit.fence(*session))

    # The auditor

    async def _audit_until_closed(self, tellers: Sequence[asyncio.Task[None]]) -> None:
        left: Collection[asyncio.Task[None]] = tellers
        while left:
            _, left = await asyncio.wait(tellers, timeout=self._options.audit_interval_s)
            await self.troubles.insist(self.check)

    async def _read_log(self) -> None:
        at_end = False
        while not at_end:
            rows, self._after, at_end = await self._tables[-1].take(self._after, _TAKEN_ROWS)
            for transaction_id, written in groupby(rows, lambda row: row.version.transaction_id):
                self._tell(self.audit.take(self._entry(transaction_id, written)))
            self._tell(self.audit.reach(self._after))

    async def _read_accounts(self) -> None:
        accounts = KeyRange(start=ACCOUNT, end=ACCOUNT[:-1] + b"0")
        await self._tables[-1].refresh(strict=False)
        found = [row async for row in self._tables[-1].scan([accounts])]
        self._tell(self.audit.compare({_name(row, ACCOUNT): _cents(row) for row in found}, self._accounts))

    def _entry(self, transaction_id: int, rows: Iterable[TableRow]) -> BankEntry:
        balances: dict[str, int] = {}
        marks: dict[str, Mark] = {}
        for row in rows:
            if row.key.startswith(ACCOUNT):
                balances[_name(row, ACCOUNT)] = _cents(row)
            elif row.key.startswith(TELLER):
                mark = Mark.decode(self.journal.run, (row.value or b"").decode("utf-8", "replace"))
                if mark is None:
                    self._tell([f"transaction {transaction_id} is of another bank: does it run in this partition?"])
                else:
                    marks[_name(row, TELLER)] = mark
        return BankEntry(transaction_id, balances, marks)

    def _tell(self, found: Iterable[str]) -> None:
        for what in found:
            self.journal.deviate(f"bank/{self.journal.deviations + 1}", what)


def _name(row: TableRow, start: bytes) -> str:
    return row.key[len(start) :].decode("utf-8", "replace")


def _cents(row: TableRow | None) -> int:
    """The balance of an account; 0 for a missing account. The audit notices a missing account by the sum."""
    value = b"" if row is None else row.value or b""
    return int(value) if value.isdigit() else 0
