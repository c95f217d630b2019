"""``waltz append``, ``get`` and ``tail``: write and read transactions from a shell."""

import argparse
import asyncio
import json
import sys
from collections.abc import Collection, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from waltz.cli.consistency import level_option
from waltz.cli.nouns import NOUNS
from waltz.cli.output import counted, record_document, show, standard_input, terminal_width
from waltz.cli.session import (
    Nouns,
    Session,
    check_partition_ids,
    client_of,
    cluster_command,
    moment,
    number,
    partition_ranges,
)
from waltz.client.arguments import APPEND_TIMEOUT_S
from waltz.client.builder import Append
from waltz.client.errors import AppendError, AppendManyError, NotGuaranteedError, SessionFencedError
from waltz.client.locks import PartitionLocalLock
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.partition_ids import id_ranges
from waltz.common.records import Record

if TYPE_CHECKING:
    from waltz.client.plain.client import Client

_LINES_AT_ONCE = 1000


def register(nouns: Nouns) -> None:
    """Add the commands."""
    parser = cluster_command(nouns, "append", NOUNS["append"].help_text, _append, prints=True)
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)
    data = parser.add_mutually_exclusive_group()
    data.add_argument("data", nargs="?", metavar="TEXT", help="the data; by default it is read from standard input")
    data.add_argument("--file", type=Path, metavar="FILE", help="a file with the data")
    data.add_argument(
        "--lines", action="store_true", help="append each line of standard input as a transaction, in order"
    )
    parser.add_argument("--header", type=number(-(1 << 31), (1 << 31) - 1), default=0, help="default: 0")
    for kind in ("write", "read", "append"):
        parser.add_argument(
            f"--{kind}-lock", type=_lock, action="append", default=[], metavar="NAME:ID", help="may be repeated"
        )
    parser.add_argument(
        "--high-water-mark",
        type=number(minimum=-1),
        metavar="ID",
        help="the last transaction read, against which locks are checked (default: the last one)",
    )
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=int(APPEND_TIMEOUT_S),
        metavar="SECONDS",
        help="default: %(default)s",
    )
    level_option(parser)

    parser = cluster_command(nouns, "get", NOUNS["get"].help_text, _get, prints=True)
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)
    parser.add_argument("ids", type=_ids, metavar="ID[-LAST_ID]", help="one transaction, or the first and the last one")
    parser.add_argument("--raw", action="store_true", help="print the data only, unchanged")

    parser = cluster_command(nouns, "tail", NOUNS["tail"].help_text, _tail, prints=True)
    parser.add_argument("-p", "--partition", type=partition_ranges, required=True, help="e.g. 0-6,7,10-16")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("-n", "--count", type=number(minimum=0), default=10, metavar="N", help="default: 10")
    begin.add_argument(
        "--after", type=number(minimum=-1), metavar="ID", help="all transactions behind this one; -1: all"
    )
    begin.add_argument(
        "--since", type=moment, metavar="TIME", help="all transactions committed later, e.g. 2026-03-01T12:00:00Z"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="wait for new transactions, until Ctrl-C")


def _lock(text: str) -> PartitionLocalLock:
    name, _, id_text = text.rpartition(":")
    try:
        return PartitionLocalLock(name, int(id_text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a lock like account:17: {text!r}") from None


def _ids(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        low, high = int(first), int(last) if dash else int(first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a transaction id, nor a range like 7-12: {text!r}") from None
    if low > high:
        raise argparse.ArgumentTypeError(f"the first id is above the last one: {text!r}")
    return low, high


# append


async def _append(options: argparse.Namespace, session: Session) -> None:
    partition_id = options.partition
    await check_partition_ids(session, partition_id)
    async with client_of(session) as client:
        if options.lines:
            ids: list[int] = []
            try:
                await _append_lines(options, client, ids)
            finally:
                if options.json:
                    _tell_ids(options, ids)
            return
        append = _append_of(options, _data(options))
        mark = await _mark(options, client)
        try:
            transaction_id = await client.append(
                partition_id,
                append.data,
                header=append.header,
                write_locks=append.write_locks,
                read_locks=append.read_locks,
                append_locks=append.append_locks,
                high_water_mark=mark,
                timeout_s=options.timeout,
                consistency=options.consistency,
            )
        except SessionFencedError as error:
            raise WaltzError(advised(error)) from error
    _tell_ids(options, [transaction_id])


def advised(error: Exception) -> str:
    """The text of an error; advice names commands instead of functions."""
    if not isinstance(error, SessionFencedError):
        return str(error)
    return (
        f"partition {error.partition_id}: {error.reason}; nothing was appended. To take the partition over: "
        f"waltz session fence -p {error.partition_id} --if-session N, with the present number N of "
        f"waltz session show -p {error.partition_id}"
    )


async def _mark(options: argparse.Namespace, client: "Client") -> int | None:
    """The mark against which locks are checked: by default the last transaction of the partition."""
    mark: int | None = options.high_water_mark
    if mark is None and (options.write_lock or options.read_lock):
        return await client.high_water_mark(options.partition, timeout_s=options.timeout)
    return mark


def _tell_ids(options: argparse.Namespace, ids: Sequence[int]) -> None:
    document: Json = {"partition": options.partition, "transactions": list(ids)}
    show(options, document, [f"partition {options.partition}: transaction {each}" for each in ids])
    sys.stdout.flush()


async def _append_lines(options: argparse.Namespace, client: "Client", ids: list[int]) -> None:
    """Append the lines, and add the ids to ``ids``. Without ``--json``, each id is printed at once: a later line may
    fail.

    Lines with checked locks are appended one after the other, each with the mark of the line before: concurrent ones
    would conflict with each other.
    """
    mark = await _mark(options, client)
    in_turn = bool(options.write_lock or options.read_lock)
    done = 0  # number of lines, all committed

    def committed(portion: Sequence[int]) -> None:
        ids.extend(portion)
        if not options.json:
            _tell_ids(options, portion)

    for appends in _portions(options, 1 if in_turn else _LINES_AT_ONCE):
        lines = range(done + 1, done + len(appends) + 1)
        try:
            portion = await client.append_many(
                options.partition,
                appends,
                high_water_mark=mark,
                timeout_s=options.timeout,
                consistency=options.consistency,
            )
        except AppendManyError as error:
            committed([outcome for outcome in error.outcomes if isinstance(outcome, int)])
            raise WaltzError(_failed(error, lines)) from error
        except WaltzError as error:  # no byte of it was sent
            raise WaltzError(f"{_named(lines)}: {error}; not appended, {_before(lines)}") from error
        except asyncio.CancelledError:
            print(f"{_named(lines)} may have been appended or not; {_before(lines)}", file=sys.stderr)
            raise
        committed(portion)
        done += len(appends)
        if in_turn:
            mark = portion[-1]


def _failed(error: AppendManyError, lines: Sequence[int]) -> str:
    """The error text with the line at which to resume, so that each line is appended once."""
    missing: list[int] = []
    unknown: list[int] = []
    not_guaranteed: list[int] = []
    for line, outcome in zip(lines, error.outcomes, strict=True):
        if isinstance(outcome, NotGuaranteedError):
            not_guaranteed.append(line)
        elif isinstance(outcome, AppendError) and not outcome.outcome_known:
            unknown.append(line)
        elif isinstance(outcome, Exception):
            missing.append(line)
    reason = next(outcome for outcome in error.outcomes if isinstance(outcome, Exception))
    kinds = (
        (missing, "not appended"),
        (unknown, "perhaps appended"),
        (not_guaranteed, "committed and perhaps not on all storages"),
    )
    told = [f"{_named(found)} {what}" for found, what in kinds if found]
    return f"{advised(reason)}; {', '.join(told)}, {_before(lines)}"


def _named(lines: Collection[int]) -> str:
    return f"{'line' if len(lines) == 1 else 'lines'} {id_ranges(lines, ',')}"


def _before(lines: Sequence[int]) -> str:
    return f"{counted(lines[0] - 1, 'line')} before appended"


def _data(options: argparse.Namespace) -> bytes:
    if options.data is not None:
        return str(options.data).encode()
    data = standard_input().read() if options.file is None else bytes(options.file.read_bytes())
    if not data:
        raise WaltzError(
            f"nothing was appended: {options.file or 'standard input'} is empty; to append a transaction without data, "
            'give "" as text'
        )
    return data


def _append_of(options: argparse.Namespace, data: bytes) -> Append:
    return Append(
        data,
        header=options.header,
        write_locks=options.write_lock,
        read_locks=options.read_lock,
        append_locks=options.append_lock,
    )


def _portions(options: argparse.Namespace, size: int) -> Iterator[list[Append]]:
    portion: list[Append] = []
    for line in standard_input():
        portion.append(_append_of(options, line.removesuffix(b"\n")))
        if len(portion) == size:
            yield portion
            portion = []
    if portion:
        yield portion


# get


async def _get(options: argparse.Namespace, session: Session) -> None:
    partition_id, (first, last) = options.partition, options.ids
    await check_partition_ids(session, partition_id)
    async with client_of(session) as client:
        mark = await client.high_water_mark(partition_id)
        if last > mark:
            there = f"the last one is {mark}" if mark >= 0 else "the log is empty"
            raise WaltzError(f"partition {partition_id} has no transaction {last}: {there}")
        async for batch in client.feed_batches(partition_id, after=first - 1, until=last):
            if options.raw:
                sys.stdout.buffer.writelines(record.data for record in batch)
            else:
                _print(options, partition_id, batch)
    sys.stdout.flush()


# tail


async def _tail(options: argparse.Namespace, session: Session) -> None:
    await check_partition_ids(session, *options.partition)
    async with client_of(session) as client:
        await _all_of([_tail_of(options, client, partition_id) for partition_id in options.partition])


async def _tail_of(options: argparse.Namespace, client: "Client", partition_id: int) -> None:
    mark = await client.high_water_mark(partition_id)
    if options.since is not None:
        after = min(await client.offset_at(partition_id, options.since), mark)
    else:
        after = max(mark - options.count, -1) if options.after is None else options.after
    if after > mark:
        raise WaltzError(f"partition {partition_id} has no transaction {after}: the last one is {mark}")
    async for batch in client.feed_batches(partition_id, after=after, until=None if options.follow else mark):
        _print(options, partition_id, batch)


async def _all_of(work: list[Coroutine[None, None, None]]) -> None:
    """Run coroutines side by side; the first failure ends all, with its exception."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
            raise outcome


def _print(options: argparse.Namespace, partition_id: int, batch: list[Record]) -> None:
    """Print a line for each transaction at once, without waiting for a full buffer."""
    if options.json:
        lines = [json.dumps({"partition": partition_id, **record_document(record)}) for record in batch]
    else:
        width = terminal_width()
        lines = [line_of(partition_id, record, width) for record in batch]
    print("\n".join(lines), flush=True)


def line_of(partition_id: int, record: Record, width: int | None) -> str:
    """A transaction as a line: place, header, size, and data (text or hexadecimal digits), cut to ``width``."""
    try:
        text = record.data.decode()
        if not text.isprintable():
            text = json.dumps(text, ensure_ascii=False)
    except UnicodeDecodeError:
        text = f"0x{record.data.hex()}"
    line = f"{partition_id}/{record.transaction_id} header={record.header} size={len(record.data)} {text}".rstrip()
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"
