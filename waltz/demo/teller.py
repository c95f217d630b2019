"""One instance of the bank: a process with a client of the log and a database of its own.

Started by :mod:`waltz.demo.bank`, which it tells of its progress in JSON lines on standard output. It submits its share
of the transfers, says so, and stays, applying what the others append, until a line on standard input asks it to settle.
"""

import argparse
import asyncio
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.locks import PartitionLocalLock
from waltz.client.transaction import Transaction
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.errors import WaltzError
from waltz.common.loops import run as run_on_loop
from waltz.demo.ledger import Ledger, digest
from waltz.demo.transfers import BankTransfer, Transfers, decode, encode, random_transfers

PARTITION_ID = 0
TRANSFER = 1
"""The header of a transfer's transaction: an application with several kinds of transactions tells them apart by it."""
REPORT_INTERVAL_S = 0.2
SETTLE_TIMEOUT_S = 120.0


class TellerOptions(NamedTuple):
    """The command line, parsed."""

    config: Path
    database: Path
    number: int
    """Which of the tellers, from 0."""
    tellers: int
    in_flight: int
    opening_cents: int
    input: Path | None
    transactions: int
    accounts: int
    seed: int


class Counts:
    """Counts of transfers so far."""

    def __init__(self) -> None:
        self.committed = 0
        self.refused = 0
        self.lock_conflicts = 0

    @property
    def done(self) -> int:
        return self.committed + self.refused


class TransferContext(TransactionContext):
    """One transfer, from its first attempt to its application."""

    __slots__ = ("_counts", "_ended", "_ledger", "_transfer")

    def __init__(
        self, transfer: BankTransfer, ledger: Ledger, counts: Counts, ended: Callable[[Exception | None], None]
    ):
        self._transfer = transfer
        self._ledger = ledger
        self._counts = counts
        self._ended = ended

    def partition_id(self, partition_count: int) -> int:
        """All accounts live in one partition: a transfer locks two of them."""
        return PARTITION_ID

    def execute(self, builder: TransactionBuilder) -> bool:
        """Refuse an overdraft; else write the transfer, provided that neither account changes meanwhile."""
        transfer = self._transfer
        if self._ledger.balance_cents(transfer.source) < transfer.amount_cents:
            return False
        builder.set_header(TRANSFER)
        builder.set_data(encode(transfer))
        builder.set_write_locks([account_lock(transfer.source), account_lock(transfer.target)])
        return True

    def on_completion(self, committed: bool) -> None:
        """Count the outcome; a refused transfer ends here."""
        if committed:
            self._counts.committed += 1
        else:
            self._counts.refused += 1
            self._ended(None)

    def on_application(self) -> None:
        """The ledger contains the transfer: the next one may start."""
        self._ended(None)

    def on_lock_failure(self) -> None:
        """Another transfer changed one of the accounts first; execute is called again."""
        self._counts.lock_conflicts += 1

    def on_exception(self, error: Exception) -> None:
        """The outcome is unknown: the bank cannot go on."""
        self._ended(error)


def account_lock(account: str) -> PartitionLocalLock:
    """The lock that stands for the state of an account."""
    return PartitionLocalLock(f"account:{account}", 0)


class Teller(WaltzClientCallbacks):
    """Applies what the log says to the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def client_high_water_mark(self, partition_id: int) -> int:
        """Where the ledger stands; of other partitions nothing is wanted, but all are fed."""
        return self._ledger.high_water_mark if partition_id == PARTITION_ID else -1

    async def apply_transaction(self, transaction: Transaction) -> None:
        """Apply one transfer, whoever made it."""
        if transaction.partition_id != PARTITION_ID:
            return
        self._ledger.apply(transaction.transaction_id, decode(await transaction.data_bytes()))
        while self._waiting and self._waiting[0][0] <= transaction.transaction_id:
            self._waiting.pop(0)[1].set_result(None)

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        """Report the error; the client tries again."""
        print(f"applying transaction {transaction_id} failed: {error!r}", file=sys.stderr, flush=True)

    async def applied(self, high_water_mark: int) -> None:
        """Return when everything up to ``high_water_mark`` has been applied."""
        if self._ledger.high_water_mark < high_water_mark:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((high_water_mark, future))
            self._waiting.sort(key=lambda waiting: waiting[0])
            await future


def share(options: TellerOptions) -> Iterator[BankTransfer]:
    """The transfers that this teller makes: every n-th."""
    transfers: Iterator[BankTransfer]
    if options.input is not None:
        transfers = iter(Transfers(options.input))
    else:
        transfers = random_transfers(options.transactions, options.accounts, options.seed)
    return itertools.islice(transfers, options.number, None, options.tellers)


async def submit_all(client: WaltzClient, options: TellerOptions, ledger: Ledger, counts: Counts) -> None:
    """Submit the share, with at most ``in_flight`` transfers under way, and wait until all have ended."""
    places = asyncio.Semaphore(options.in_flight)
    failures: list[Exception] = []

    def ended(error: Exception | None) -> None:
        if error is not None:
            failures.append(error)
        places.release()

    for transfer in share(options):
        await places.acquire()
        if failures:
            break
        await client.submit(TransferContext(transfer, ledger, counts, ended))
    for _ in range(options.in_flight):
        await places.acquire()
    if failures:
        raise failures[0]


def say(**fields: object) -> None:
    """One line for the bank."""
    print(json.dumps(fields), flush=True)


async def report(counts: Counts, ledger: Ledger) -> None:
    """Tell the progress, for ever."""
    while True:
        say(done=counts.done, applied=ledger.high_water_mark + 1, lock_conflicts=counts.lock_conflicts)
        await asyncio.sleep(REPORT_INTERVAL_S)


async def asked_to_settle() -> None:
    """Return when the bank has written a line on standard input; its end means that the bank is gone."""
    if not await asyncio.to_thread(sys.stdin.readline):
        raise WaltzError("the bank has gone away")


async def run(options: TellerOptions) -> None:
    """The life of a teller."""
    ledger = Ledger(options.database, PARTITION_ID, options.opening_cents)
    counts = Counts()
    teller = Teller(ledger)
    config = load(options.config, ClientConfig)
    config = config.model_copy(update={"max_concurrent_transactions": options.in_flight})
    client = await WaltzClient.open(teller, config)
    reporter = asyncio.create_task(report(counts, ledger))
    try:
        await submit_all(client, options, ledger, counts)
        say(finished=True, done=counts.done, refused=counts.refused, lock_conflicts=counts.lock_conflicts)
        await asked_to_settle()
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            high_water_mark = await client.high_water_mark(PARTITION_ID)
            await teller.applied(high_water_mark)
        balances = ledger.balances()
        say(
            settled=True,
            high_water_mark=high_water_mark,
            committed=counts.committed,
            accounts=len(balances),
            total_cents=sum(balances.values()),
            digest=digest(balances),
        )
    finally:
        reporter.cancel()
        await asyncio.gather(reporter, return_exceptions=True)
        await client.close()
        ledger.close()


def options_from(arguments: list[str]) -> TellerOptions:
    """Parse the command line that :func:`command` makes."""
    parser = argparse.ArgumentParser(prog="python -m waltz.demo.teller", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--input", type=Path)
    for name in ("number", "tellers", "in-flight", "opening-cents", "transactions", "accounts", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return TellerOptions(**vars(parser.parse_args(arguments)))


def command(options: TellerOptions) -> list[str]:
    """The command that starts a teller with these options."""
    words = [sys.executable, "-m", "waltz.demo.teller"]
    for name, value in options._asdict().items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def main() -> int:
    """Entry point of the process."""
    try:
        run_on_loop(run(options_from(sys.argv[1:])))
    except (WaltzError, OSError, TimeoutError) as error:
        say(failed=f"{error}" or type(error).__name__)
        return 1
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a thread may still wait on standard input, and would keep the process
