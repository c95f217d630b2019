"""Files of rows: export and import of a table."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from waltz.cli.output import counted, standard_input
from waltz.cli.progress import progress
from waltz.cli.table_text import TextError, read_rows, row_writer
from waltz.common.errors import WaltzError
from waltz.table.envelope import Row
from waltz.table.view import KeyRange

if TYPE_CHECKING:
    from waltz.table.face.table import Table

STANDARD = "-"
"""File name that stands for standard output or input."""

MAX_BATCH_BYTES = 1 << 20
"""Maximum bytes of keys and values in a transaction. A larger row is a transaction of its own."""


async def export_rows(table: "Table", file: str, file_format: str, encoding: str, prefix: bytes | None) -> int:
    """Write the rows of one state of the table, including tombstones and expired rows; returns their number."""
    ranges = None if prefix is None else [KeyRange(prefix)]
    total = await table.approximate_count(raw=True) if prefix is None else None
    count = 0
    with _output(file) as output, progress("exporting", total, " rows") as advance:
        write = row_writer(output, file_format, encoding)
        async with aclosing(table.scan(ranges, raw=True)) as rows:
            async for row in rows:
                write(row)
                count += 1
                advance(1)
    return count


@contextmanager
def _output(file: str) -> Iterator[IO[str]]:
    """An output file that appears under its name when it is complete."""
    if file == STANDARD:
        sys.stdout.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]  # a text file in a process
        yield sys.stdout
        return
    path = Path(file)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with scratch.open("w", encoding="utf-8", newline="") as output:
            yield output
            output.flush()
            os.fsync(output.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


async def import_rows(table: "Table", file: str, file_format: str, batch_rows: int) -> int:
    """Write the rows of a file to the table, one transaction after the other.

    Returns:
        The number of rows.

    Raises:
        WaltzError: The import failed; the text has the line and the number of rows written before.
    """
    count = size_bytes = 0
    batch: list[Row] = []

    async def write() -> None:
        nonlocal count, size_bytes
        if batch:
            await table.batch(batch, any_timestamp=True)
        count += len(batch)
        size_bytes = 0
        batch.clear()

    line = 0
    try:
        with _input(file) as (source, size), progress("importing", size, "B") as advance:
            for line, row in read_rows(_lines(source, advance), file_format):  # noqa: B007 - for the errors
                row_bytes = len(row.prefix) + len(row.key) + len(row.value or b"")
                if len(batch) == batch_rows or size_bytes + row_bytes > MAX_BATCH_BYTES:
                    await write()
                batch.append(row)
                size_bytes += row_bytes
            await write()
    except TextError as error:
        raise WaltzError(f"{file}, {error}; {_written(count)}") from None
    except WaltzError as error:
        raise WaltzError(
            f"{file}, {counted(len(batch), 'row')} up to line {line}: {error}; {_written(count)}"
        ) from error
    return count


def _written(count: int) -> str:
    return f"imported before that: {counted(count, 'row')}; the whole file may be imported again"


@contextmanager
def _input(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """The input, and its size if it is known."""
    if file == STANDARD:
        yield standard_input(), None
        return
    with Path(file).open("rb") as source:
        yield source, os.fstat(source.fileno()).st_size


def _lines(source: BinaryIO, advance: Callable[[int], object]) -> Iterator[str]:
    for number, line in enumerate(source, 1):
        advance(len(line))
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise TextError(f"line {number} is not UTF-8") from None
