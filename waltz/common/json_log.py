"""The log of a daemon as JSON: one object a line, for machines that collect logs.

Each line has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``, perhaps ``exception``, and fields for the
things that the message names: a message with ``partition 7`` has the field ``partition``. Fields are found by the words
before the arguments in the text of the log call, so that text and fields always agree; a call whose text is already
formatted gives its fields as ``extra``.
"""

import json
import logging
import re
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType

_FIELDS = (
    ("partition", r"\bpartition"),
    ("partitions", r"\bpartitions"),
    ("storage", r"\b(?:replica|storage|reading from)"),
    ("session", r"(?<!write )\bsession"),
    ("generation", r"\bgeneration"),
    ("server", r"\b[Ss]erver"),
    ("cluster", r"\b[Cc]luster"),
    ("client", r"\bclient"),
    ("peer", r"(?:\bconnection with|^refusing|\bclient %\w at|\bappends? of|^ignored a %\w of)"),
    ("transaction", r"\btransaction"),
    ("port", r"(?<!data )(?<!admin )\bport"),
)
"""Fields, and the words that stand before their values."""

FIELDS = tuple(name for name, _ in _FIELDS)
"""The fields that a line may have in addition to those of every line."""

_ARGUMENT = re.compile(r"%(?:%|[#0\- +]*\d*(?:\.\d+)?[a-zA-Z])")
_BEFORE = tuple((name, re.compile(f"{words} $")) for name, words in _FIELDS)

_Value = bool | int | float | str


class JsonFormatter(logging.Formatter):
    """Formats any record as one line, and never fails."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **_fields(record),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line)


def _message(record: logging.LogRecord) -> str:
    """The message of a record; of a call whose arguments do not fit, its parts."""
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg} {record.args}"


def _fields(record: logging.LogRecord) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    text, arguments = str(record.msg), record.args
    if isinstance(arguments, tuple):
        places = [match for match in _ARGUMENT.finditer(text) if match[0] != "%%"]
        for place, argument in zip(places, arguments, strict=False):
            before = text[: place.start()]
            name = next((name for name, words in _BEFORE if words.search(before)), None)
            if name is not None:
                found.setdefault(name, _plain(argument))
    found |= {name: _plain(value) for name in FIELDS if (value := vars(record).get(name)) is not None}
    return found


def _plain(value: object) -> _Value:
    return value if isinstance(value, (bool, int, str)) else str(value)


def log_to_stderr(level: str, log_format: str) -> None:
    """Write all logs of this process to standard error, as ``text`` or as ``json``.

    With JSON also warnings and uncaught exceptions, which Python would print there as text.
    """
    if log_format == "text":
        text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        logging.basicConfig(level=level, format=text, stream=sys.stderr)
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_of_thread


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("ended by a defect", exc_info=(kind, error, traceback))


def _log_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    text = unraisable.err_msg or "an exception was ignored"
    logging.getLogger(__name__).error(text, exc_info=unraisable.exc_value)


def _log_of_thread(ended: threading.ExceptHookArgs) -> None:
    name = "a thread" if ended.thread is None else ended.thread.name
    logging.getLogger(__name__).critical("%s was ended by a defect", name, exc_info=ended.exc_value)
