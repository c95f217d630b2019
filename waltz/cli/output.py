"""Output of commands: lines that fit the terminal, or JSON for programs; questions to the operator."""

import argparse
import base64
import codecs
import contextlib
import io
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.metrics.registry import Json
from waltz.common.records import Record

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)

_ESCAPE = "waltz.cli.escape"

_READ_BYTES = 1 << 16

_GAP = "  "
_LEAST_WIDTH = 8
"""Minimum width of a cell that is cut to make a table fit."""


def json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, which prints the result for programs."""
    parser.add_argument("--json", action="store_true", help="print JSON instead, for programs")


def logger_option(parser: argparse.ArgumentParser) -> None:
    """Add ``-l``, the original's option to print lines with a time."""
    parser.add_argument("-l", "--logger-as-output", action="store_true", help="log the lines instead of printing them")


def show(options: argparse.Namespace, document: Json, lines: Iterable[str]) -> None:
    """Print ``document`` with ``--json``, else ``lines``; with ``-l`` log the lines instead."""
    if options.json:
        print(json.dumps(document, indent=2))
    elif getattr(options, "logger_as_output", False):
        logger.setLevel(logging.INFO)
        for line in lines:
            logger.info("%s", line)
    else:
        for line in lines:
            print(line)


def escape_output() -> None:
    """Print characters that the terminal cannot show in the form ``\\u00e9``, for JSON decoders."""
    codecs.register_error(_ESCAPE, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # standard output may be replaced (in a notebook) or missing
            stream.reconfigure(errors=_ESCAPE)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def counted(count: int, noun: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tell(options: argparse.Namespace, line: str) -> None:
    """Report progress to the operator; on standard error if the output is JSON."""
    print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


def record_document(record: Record) -> dict[str, Json]:
    """A transaction as JSON: its data as text if it is UTF-8, else in Base64 under another name."""
    req_id = ReqId(record.req_id)
    document: dict[str, Json] = {
        "transaction": record.transaction_id,
        "client": req_id.client_id,
        "generation": req_id.generation,
        "sequence": req_id.seq_num,
        "header": record.header,
        "size_bytes": len(record.data),
    }
    try:
        document["data"] = record.data.decode()
    except UnicodeDecodeError:
        document["data_base64"] = base64.b64encode(record.data).decode()
    return document


def terminal_width() -> int | None:
    """Number of columns of the terminal; ``None`` if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(names: Sequence[str], rows: Sequence[Sequence[object]], width: int | None) -> list[str]:
    """The rows in columns below their names; the widest cells are cut if a line would exceed ``width``."""
    texts = [[str(cell) for cell in row] for row in (names, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    if width is not None:
        surplus = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        while surplus > 0 and max(widths) > _LEAST_WIDTH:
            widest = widths.index(max(widths))
            widths[widest] -= 1
            surplus -= 1
    return [_GAP.join(map(_cell, row, widths)).rstrip() for row in texts]


def _cell(text: str, width: int) -> str:
    return cut(text.ljust(width), width)


def cut(text: str, width: int) -> str:
    """The text, cut to ``width``; an ellipsis marks a cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


# Questions


def yes_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``, for scripts."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def confirm(options: argparse.Namespace, question: str, *, needs_terminal: bool = False) -> None:
    """Ask the operator; return if the answer, or ``--yes``, is yes.

    Without a terminal as standard input there is no question: the command continues, or fails if it
    ``needs_terminal``. The command also fails if only standard error is not a terminal, since it shows the question.

    Raises:
        WaltzError: The operator does not agree, or cannot be asked.
    """
    if options.yes:
        return
    if sys.stdin.isatty() and not sys.stderr.isatty():
        raise WaltzError("nothing was done: standard error must be a terminal for a question; give --yes to agree")
    if not sys.stdin.isatty():
        if needs_terminal:
            raise WaltzError("nothing was done: there is no terminal for a question; give --yes to agree")
        return
    with _interruptible() as interrupted:
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        select.select([sys.stdin, interrupted], [], [])
        answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        raise WaltzError("nothing was done")


def standard_input() -> BinaryIO:
    """The bytes of standard input, in place of ``sys.stdin.buffer``: Ctrl-C ends the wait for them."""
    source = sys.stdin.buffer
    return (
        io.BufferedReader(_InterruptibleInput(source), _READ_BYTES) if isinstance(source, io.BufferedReader) else source
    )


class _InterruptibleInput(io.RawIOBase):
    """Reads bytes as they arrive."""

    def __init__(self, source: io.BufferedReader) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        with _interruptible() as interrupted:
            select.select([self._source.fileno(), interrupted.fileno()], [], [])
            return os.readv(self._source.fileno(), [buffer])


@contextlib.contextmanager
def _interruptible() -> Iterator[socket.socket]:
    """Let Ctrl-C raise ``KeyboardInterrupt``: the event loop would handle the signal later, but it is blocked here.

    The yielded descriptor becomes readable with the first signal, so a signal just before a blocking call is not
    missed.
    """
    readable, told = socket.socketpair()
    told.setblocking(False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    wakeup = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, handler)
        readable.close()
        told.close()
