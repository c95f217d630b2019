"""Transfers between accounts: where they come from (a file or a generator) and how they are written into the log."""

import csv
import datetime as dt
import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from waltz.common.errors import WaltzError

COLUMNS = ("from", "to", "amount")
TIME_COLUMN = "time"
"""May be there; what of it is empty is no time."""
FIRST_TIME_S = 1_704_067_200
"""Seconds of the epoch when the first transfer that is made up was ordered, and the last one less than a day later."""
DAY_S = 86_400
MAX_AMOUNT_CENTS = 10**15
"""Larger amounts are rejected: sums of accepted ones stay far inside 64 bits."""
MAX_NAME_CHARACTERS = 200


class BankTransfer(NamedTuple):
    """Move ``amount_cents`` from one account to another."""

    source: str
    target: str
    amount_cents: int
    time_s: int | None = None
    """When it was ordered, in seconds of the epoch."""


class Rejected(NamedTuple):
    """A row of the input that is no transfer."""

    line: int
    reason: str


class RejectedRowError(ValueError):
    """One row of the input is no transfer; the text says why."""


class Transfers:
    """The transfers of a CSV file; ``rejected`` is told of every row that is none.

    The file has a header line that names the columns ``from``, ``to``, ``amount`` and perhaps ``time`` (ISO 8601, UTC
    if it does not say; any order, others are ignored), in UTF-8 with or without a byte order mark.
    """

    def __init__(self, path: Path, rejected: Callable[[Rejected], None] = lambda _row: None) -> None:
        self._path = path
        self._rejected = rejected

    def __iter__(self) -> Iterator[BankTransfer]:
        try:
            with self._path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
                yield from self._rows(file)
        except OSError as error:
            raise WaltzError(f"cannot read the transfers: {self._path}: {error.strerror}") from error

    def _rows(self, file: Iterator[str]) -> Iterator[BankTransfer]:
        rows = csv.reader(_without_nul(file))
        columns, time_column = self._header(rows)
        width = max(*columns, time_column) + 1
        while True:
            start = rows.line_num + 1
            try:
                row = next(rows, None)
                if row is None:
                    return
                if not row:
                    continue
                if len(row) < width:
                    raise RejectedRowError(f"{len(row)} columns where {width} are needed")
                transfer = _transfer(*(row[column] for column in columns))
                if time_column >= 0:
                    transfer = transfer._replace(time_s=_time_s(row[time_column]))
            except (RejectedRowError, csv.Error) as error:
                self._rejected(Rejected(start, str(error)))
                continue
            yield transfer

    def _header(self, rows: Iterator[list[str]]) -> tuple[list[int], int]:
        """Where the columns are; the time may be nowhere (-1)."""
        try:
            header = [name.strip().lower() for name in next(rows, [])]
        except csv.Error as error:
            raise WaltzError(f"{self._path}: the header line is not CSV: {error}") from error
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise WaltzError(
                f"{self._path}: the header line lacks {', '.join(missing)}; it must name {', '.join(COLUMNS)}"
            )
        time_column = header.index(TIME_COLUMN) if TIME_COLUMN in header else -1
        return [header.index(name) for name in COLUMNS], time_column


def _without_nul(lines: Iterator[str]) -> Iterator[str]:
    """Replace NUL characters, which the csv module of some Python versions refuses for the whole file."""
    return (line.replace("\0", "\N{REPLACEMENT CHARACTER}") for line in lines)


def _transfer(source: str, target: str, amount: str) -> BankTransfer:
    return BankTransfer(_account(source, "from"), _account(target, "to"), _cents(amount))


def _account(text: str, column: str) -> str:
    name = unicodedata.normalize("NFC", text.strip())
    if not name:
        raise RejectedRowError(f"empty account in column {column}")
    if len(name) > MAX_NAME_CHARACTERS:
        raise RejectedRowError(f"account name in column {column} is longer than {MAX_NAME_CHARACTERS} characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise RejectedRowError(f"column {column} is not UTF-8") from None
    return name


def _cents(text: str) -> int:
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        raise RejectedRowError(f"amount {text.strip()[:40]!a} is not a number") from None
    if not amount.is_finite():
        raise RejectedRowError(f"amount {text.strip()[:40]!a} is not a number")
    if amount <= 0:
        raise RejectedRowError("zero amount" if amount == 0 else "negative amount")
    if amount.adjusted() > 15 or amount * 100 > MAX_AMOUNT_CENTS:
        raise RejectedRowError(f"amount is larger than {MAX_AMOUNT_CENTS // 100}")
    exponent = amount.normalize().as_tuple().exponent
    if isinstance(exponent, int) and exponent < -2:
        raise RejectedRowError("amount has more than two decimals")
    return int(amount * 100)


def _time_s(text: str) -> int | None:
    if not text.strip():
        return None
    try:
        time = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise RejectedRowError(f"time {text.strip()[:40]!a} is not ISO 8601") from None
    return int((time if time.tzinfo else time.replace(tzinfo=dt.UTC)).timestamp())


def random_transfers(count: int, accounts: int, seed: int) -> Iterator[BankTransfer]:
    """``count`` transfers between ``accounts`` accounts, the same ones for the same seed."""
    chance = random.Random(seed)
    for number in range(count):
        source = chance.randrange(accounts)
        target = (source + 1 + chance.randrange(accounts - 1)) % accounts
        time_s = FIRST_TIME_S + DAY_S * number // count
        yield BankTransfer(f"account-{source:06}", f"account-{target:06}", chance.randrange(1, 10_000), time_s)


def encode(transfer: BankTransfer) -> bytes:
    """The payload of a transfer in the log: JSON, so that Spark can read it as columns."""
    fields: dict[str, str | int] = {"from": transfer.source, "to": transfer.target, "amount": transfer.amount_cents}
    if transfer.time_s is not None:
        fields[TIME_COLUMN] = transfer.time_s
    return json.dumps(fields, ensure_ascii=False).encode()


def decode(data: bytes) -> BankTransfer:
    """The transfer of a payload made by :func:`encode`."""
    fields = json.loads(data)
    return BankTransfer(fields["from"], fields["to"], fields["amount"], fields.get(TIME_COLUMN))
