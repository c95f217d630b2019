"""``waltz table``: rows of tables, from the shell. :mod:`waltz.cli.table_files` has files of rows, and
:mod:`waltz.cli.table_snapshots` saved snapshots."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from waltz.cli.consistency import is_any, level_option, read_option
from waltz.cli.output import confirm, counted, json_option, show, yes_option
from waltz.cli.progress import progress
from waltz.cli.session import Nouns, client_command, noun, number, partition_ranges
from waltz.cli.table_files import export_rows, import_rows
from waltz.cli.table_snapshots import add_options, add_upkeep_options, run_upkeep, save_snapshot
from waltz.cli.table_text import ENCODINGS, FORMATS, TextError, to_bytes, to_json, to_line, to_text
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.table.envelope import Row
from waltz.table.errors import VersionConflict
from waltz.table.face.levels import AsOf
from waltz.table.rows import TableRow, Version
from waltz.table.view import KeyRange

if TYPE_CHECKING:
    from waltz.asynchronous import Client
    from waltz.table.face.table import Table

_KEEPS_NOTHING = "noop"
"""The store of commands that only write: they do not read the log."""

_DEFAULT_STORE_ON_DISK = "sqlite"

_WATCH_INTERVAL_S = 0.2

TableCommand: TypeAlias = "Callable[[argparse.Namespace, Table], Awaitable[None]]"


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "table")
    _register_reads(verbs)
    _register_writes(verbs)
    _register_upkeep(verbs)
    _register_files(verbs)
    _register_snapshots(verbs)


def _register_reads(verbs: Nouns) -> None:
    help_text = "print rows; ends with 1 if one of them does not exist"
    parser = _table_command(verbs, "get", help_text, _get, _reads_view)
    parser.add_argument("keys", nargs="+", type=data, metavar="KEY")
    _add_prefix(parser)
    parser.add_argument("--raw", action="store_true", help="also tombstones and expired rows")
    read_option(parser)
    _add_output(parser)
    parser = _table_command(verbs, "scan", "print rows in the order of their keys", _scan, _reads_view)
    parser.add_argument("--prefix", type=data, help="the rows of this prefix only ('' for those without one)")
    parser.add_argument("--start", type=data, metavar="KEY", help="from this key of the prefix on")
    parser.add_argument("--end", type=data, metavar="KEY", help="up to this key of the prefix, exclusive")
    parser.add_argument("--reverse", action="store_true", help="from the last to the first")
    parser.add_argument("--limit", type=number(minimum=1), metavar="N", help="maximum number of rows")
    parser.add_argument("--raw", action="store_true", help="also tombstones and expired rows")
    parser.add_argument("--count", action="store_true", help="print only the number of rows")
    read_option(parser)
    _add_output(parser)
    help_text = "print rows in the order of the log, including overwritten ones, and the cursor to continue from"
    parser = _table_command(verbs, "take", help_text, _take, _never)
    parser.add_argument(
        "--after",
        type=number(minimum=-1),
        default=-1,
        metavar="ID",
        help="only rows behind this transaction (default: -1, all)",
    )
    parser.add_argument(
        "--limit", type=number(minimum=1), metavar="N", help="stop after the transaction that reaches N rows"
    )
    parser.add_argument("--prefix", type=data, help="the rows of this prefix only")
    parser.add_argument("--follow", action="store_true", help="wait for new rows at the end of the log, until Ctrl-C")
    _add_output(parser)


def _register_writes(verbs: Nouns) -> None:
    help_text = "write a row, and print the id of its transaction"
    parser = _table_command(verbs, "put", help_text, _put, _is_conditional, prints=True)
    parser.add_argument("key", type=data, metavar="KEY")
    value = parser.add_mutually_exclusive_group(required=True)
    value.add_argument("value", nargs="?", type=data, metavar="VALUE")
    value.add_argument("--null", action="store_true", help="the null value (not the empty value)")
    value.add_argument("--value-file", type=Path, metavar="FILE", help="read the value from this file")
    _add_prefix(parser)
    condition = parser.add_mutually_exclusive_group()
    condition.add_argument("--timestamp", type=number(minimum=1), metavar="MS", help="default: now")
    condition.add_argument("--if-absent", action="store_true", help="only if the row does not exist")
    condition.add_argument(
        "--if-version", type=_version, metavar="ID:ROW", help="only if the row has this version: transaction_id and row"
    )
    level_option(parser)
    help_text = "delete rows, and print the id of the transaction"
    parser = _table_command(verbs, "delete", help_text, _delete, _never, prints=True)
    parser.add_argument("keys", nargs="+", type=data, metavar="KEY")
    _add_prefix(parser)
    parser.add_argument("--timestamp", type=number(minimum=1), metavar="MS", help="default: now")
    level_option(parser)


def _register_upkeep(verbs: Nouns) -> None:
    parser = _table_command(verbs, "truncate", "void all rows of the table", _truncate, _never, prints=True)
    yes_option(parser)
    help_text = (
        "let all views remove rows that have reached their age, if that is due by the table's properties; "
        "run it regularly, on any number of machines"
    )
    parser = client_command(verbs, "sweep", help_text, _sweep, prints=True)
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all tables)")
    parser.add_argument("--now", action="store_true", help="sweep even if that is not due")
    parser.add_argument("--dry-run", action="store_true", help="only print the rows to remove")
    _add_view(parser)


def _register_files(verbs: Nouns) -> None:
    parser = _table_command(
        verbs, "export", "write all rows to a file, including tombstones and expired rows", _export, _always
    )
    parser.add_argument("file", metavar="FILE", help="- is the standard output; an existing file is replaced")
    parser.add_argument("--prefix", type=data, help="the rows of this prefix only ('' for those without one)")
    _add_encoding(parser)
    _add_format(parser)
    parser = _table_command(
        verbs,
        "import",
        "write the rows of a file to the table; may be repeated",
        _import,
        _never,
    )
    parser.add_argument("file", metavar="FILE", help="- is the standard input")
    parser.add_argument(
        "--batch-rows", type=number(minimum=1, maximum=1000), default=500, help="rows of a transaction (default: 500)"
    )
    _add_format(parser)


def _register_snapshots(verbs: Nouns) -> None:
    help_text = "save all rows of tables in an object store, for new views and for Spark to begin with"
    parser = client_command(verbs, "snapshot", help_text, _snapshot, prints=True)
    add_options(parser)
    _add_store(parser)
    help_text = "list, check or remove saved snapshots; no cluster is needed"
    parser = verbs.add_parser("snapshots", help=help_text, description=help_text)
    add_upkeep_options(parser)
    json_option(parser)
    parser.set_defaults(run=run_upkeep)


def _table_command(
    verbs: Nouns,
    name: str,
    help_text: str,
    command: TableCommand,
    needs_view: Callable[[argparse.Namespace], bool],
    *,
    prints: bool = False,
) -> argparse.ArgumentParser:
    """Add a command on one table. If it needs no view with these options, it does not read the log."""

    async def run(options: argparse.Namespace, client: "Client") -> None:
        if not needs_view(options):
            async with client.table(options.partition, store=_KEEPS_NOTHING) as table:
                await command(options, table)
            return
        view = await view_of(client, options.partition, options.store, options.directory, options.snapshots)
        async with view as table:
            if not _takes_any(options):
                await catch_up(table)
            await command(options, table)

    parser = client_command(verbs, name, help_text, run, prints=prints)
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True, help="partition of the table")
    if needs_view is not _never:
        _add_view(parser)
    return parser


def _always(_options: argparse.Namespace) -> bool:
    return True


def _never(_options: argparse.Namespace) -> bool:
    return False


def _reads_view(options: argparse.Namespace) -> bool:
    return not isinstance(options.consistency, AsOf)  # which reads the log


def _takes_any(options: argparse.Namespace) -> bool:
    """Whether the view in a directory is good enough as it is; one in memory is empty before it has caught up."""
    return options.directory is not None and is_any(getattr(options, "consistency", None))


def _add_view(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument(
        "--snapshots",
        metavar="URL",
        help="where saved snapshots are: an empty view begins with the newest (cluster: the store of its archive)",
    )


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="NAME", help="of the view (default: memory, which is built from the whole log each time)"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="directory of a view in a store on disk, kept for the next command",
    )


def _add_prefix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prefix", type=data, default=b"", help="default: none")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row, with all its fields")
    _add_encoding(parser)


def _add_encoding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--encoding",
        choices=ENCODINGS,
        default="utf-8",
        help="encoding of keys, prefixes and values in the output; bytes that are not UTF-8 are always base64:... "
        "(default: utf-8)",
    )


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, help="default: csv for a FILE.csv, else jsonl")


def data(text: str) -> bytes:
    """Bytes for argparse: text, or ``base64:...`` or ``hex:...``."""
    try:
        return to_bytes(text)
    except TextError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _version(text: str) -> Version:
    transaction_id, _, row = text.partition(":")
    try:
        return Version(int(transaction_id), int(row))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not of the form ID:ROW: {text!r}") from None


async def view_of(
    client: "Client", partition_id: int, store: str | None, directory: Path | None, snapshots: str | None
) -> "Table":
    """A table with a view, not yet open. Without a directory, the table's properties do not decide on the store."""
    from waltz.table.face.configured import properties_of
    from waltz.table.face.partition import DEFAULT_STORE

    if store is None and directory is not None:
        store = (await properties_of(client, partition_id)).index_class_name or _DEFAULT_STORE_ON_DISK
    return client.table(partition_id, store=store or DEFAULT_STORE, directory=directory, snapshots=snapshots)


async def catch_up(table: "Table") -> None:
    """Wait until the view has all transactions up to the server's mark at the call."""
    mark = await table.high_water_mark(strict=False)
    seen = table.applied
    with progress("reading the log", mark - seen, " transactions") as advance:
        refreshing = asyncio.create_task(table.refresh(strict=False))
        try:
            while not refreshing.done():
                await asyncio.wait([refreshing], timeout=_WATCH_INTERVAL_S)
                advance(table.applied - seen)
                seen = table.applied
            await refreshing
        finally:
            refreshing.cancel()


# Reads


def _printed(row: TableRow, options: argparse.Namespace) -> str:
    return to_json(row, options.encoding) if options.json else to_line(row, options.encoding)


async def _get(options: argparse.Namespace, table: "Table") -> None:
    rows = await table.get(options.keys, prefix=options.prefix, raw=options.raw, consistency=options.consistency)
    for row in rows:
        if row is not None:
            print(_printed(row, options))
    missing = [to_text(key, printable=True) for key, row in zip(options.keys, rows, strict=True) if row is None]
    if missing:
        raise WaltzError(f"no row with the key {', '.join(missing)}")


async def _scan(options: argparse.Namespace, table: "Table") -> None:
    ranges = None
    if options.prefix is not None or options.start is not None or options.end is not None:
        ranges = [KeyRange(options.prefix or b"", options.start or b"", options.end)]
    count = 0
    scan = table.scan(
        ranges,
        reverse=options.reverse,
        limit=options.limit,
        raw=options.raw,
        consistency=options.consistency,
    )
    async with aclosing(scan) as rows:
        async for row in rows:
            count += 1
            if not options.count:
                print(_printed(row, options))
    if options.count:
        print(count)


async def _take(options: argparse.Namespace, table: "Table") -> None:
    """Prints the cursor on standard error, also after an interrupt: the output has rows only."""
    mark = await table.high_water_mark(strict=False)
    cursor, left = options.after, options.limit

    def tell_cursor() -> None:
        sys.stdout.flush()  # the cursor must not be behind rows that were not written yet
        print(
            f"cursor {cursor}, {'at the end of the log' if cursor >= mark else 'with more behind it'}", file=sys.stderr
        )

    try:
        with progress("taking", max(mark - cursor, 0), " transactions") as advance:
            if cursor < mark:
                async with aclosing(table.follow(cursor, prefix=options.prefix, until=mark)) as batches:
                    async for rows, last, _ in batches:
                        if left is not None and len(rows) >= left:
                            last = rows[left - 1].version.transaction_id
                        for row in rows:
                            if row.version.transaction_id <= last:
                                print(_printed(row, options))
                        advance(last - cursor)
                        cursor = last
                        if left is not None:
                            left -= len(rows)
                            if left <= 0:
                                break
        if options.follow and cursor >= mark:
            tell_cursor()
            async with aclosing(table.follow(cursor, prefix=options.prefix)) as batches:
                async for batch in batches:
                    for row in batch.rows:
                        print(_printed(row, options), flush=True)
                    cursor = batch.cursor
    except (asyncio.CancelledError, WaltzError):
        tell_cursor()
        raise
    tell_cursor()


# Writes


def _is_conditional(options: argparse.Namespace) -> bool:
    return options.if_absent or options.if_version is not None


async def _put(options: argparse.Namespace, table: "Table") -> None:
    value = None if options.null else options.value
    if options.value_file is not None:
        value = await asyncio.to_thread(options.value_file.read_bytes)
    if not _is_conditional(options):
        transaction_id = await table.put(
            options.key,
            value,
            prefix=options.prefix,
            timestamp_ms=options.timestamp,
            consistency=options.consistency,
        )
        _written(options, transaction_id)
        return
    if options.consistency is not None:
        raise WaltzError("a condition takes no --consistency: such a write has the level that the partition demands")
    try:
        _written(options, await table.put_if(options.key, value, options.if_version, prefix=options.prefix))
    except VersionConflict as error:
        raise WaltzError(f"nothing was written: {error}") from None


async def _delete(options: argparse.Namespace, table: "Table") -> None:
    rows = [Row(options.prefix, key, None, options.timestamp, tombstone=True) for key in options.keys]
    _written(options, await table.batch(rows, consistency=options.consistency))


async def _truncate(options: argparse.Namespace, table: "Table") -> None:
    confirm(options, f"void all rows of partition {options.partition}?", needs_terminal=True)
    _written(options, await table.truncate())


def _written(options: argparse.Namespace, transaction_id: int) -> None:
    show(options, {"transaction": transaction_id}, [str(transaction_id)])


# Upkeep


async def _sweep(options: argparse.Namespace, client: "Client") -> None:
    async def sweep(_: int, table: "Table") -> tuple[str, dict[str, Json]]:
        return await _sweep_one(options, table)

    await _for_each(options, client, options.snapshots, sweep)


async def _snapshot(options: argparse.Namespace, client: "Client") -> None:
    async def save(partition_id: int, table: "Table") -> tuple[str, dict[str, Json]]:
        return await save_snapshot(options, client, partition_id, table)

    await _for_each(options, client, options.to, save)


async def _for_each(
    options: argparse.Namespace,
    client: "Client",
    snapshots: str | None,
    work: Callable[[int, "Table"], Awaitable[tuple[str, dict[str, Json]]]],
) -> None:
    """Do something with the views of the tables that were named, or of all; print what ``work`` says of each."""
    from waltz.table.face.configured import properties_of

    partitions: Iterable[int] = range(client.partition_count) if options.partition is None else options.partition
    found: list[Json] = []
    for partition_id in partitions:
        if options.partition is None and (await properties_of(client, partition_id)).format != "table":
            continue
        directory = None if options.directory is None else options.directory / str(partition_id)
        async with await view_of(client, partition_id, options.store, directory, snapshots) as table:
            await catch_up(table)
            text, document = await work(partition_id, table)
        found.append({"partition": partition_id, **document})
        if not options.json:
            print(f"partition {partition_id}: {text}", flush=True)
    if not found:
        raise WaltzError("no partition of the cluster is a table")
    show(options, found, ())


async def _sweep_one(options: argparse.Namespace, table: "Table") -> tuple[str, dict[str, Json]]:
    """Sweep one partition; returns the changes (or with ``--dry-run`` the possible changes) as a line and as JSON."""
    if not any(table.properties.ages):
        return "its properties have no ages", {"due": False}
    if options.dry_run:
        aged, due = await table.check_sweep()
        text = f"{counted(aged, 'row')} old enough to be removed; a sweep is {'due' if due else 'not due'}"
        return text, {"due": due, "aged": aged}
    before = await _count(table)
    transaction_id = await (table.sweep() if options.now else table.sweep_if_due())
    if transaction_id is None:
        return "nothing is due", {"due": False}
    removed = before - await _count(table)
    text = f"transaction {transaction_id} has removed {removed} of {counted(before, 'row')}"
    return text, {"transaction": transaction_id, "removed": removed, "rows": before}


async def _count(table: "Table") -> int:
    """Number of rows, including tombstones. (The view's own count includes rows that a sweep still has to remove.)"""
    count = 0
    async for _ in table.scan_keys(raw=True):
        count += 1
    return count


# Files


async def _export(options: argparse.Namespace, table: "Table") -> None:
    count = await export_rows(table, options.file, _format(options), options.encoding, options.prefix)
    print(f"exported {counted(count, 'row')}", file=sys.stderr)


async def _import(options: argparse.Namespace, table: "Table") -> None:
    count = await import_rows(table, options.file, _format(options), options.batch_rows)
    print(f"imported {counted(count, 'row')}", file=sys.stderr)


def _format(options: argparse.Namespace) -> str:
    return options.format or ("csv" if options.file.endswith(".csv") else "jsonl")
