"""Lines of the log as JSON: one each, whatever is logged, with the fields that the text names."""

import ast
import io
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.architecture import PACKAGE
from waltz.common.json_log import FIELDS, JsonFormatter
from waltz.common.quiet_log import QuietLog


class Log:
    """A logger, and what it has written."""

    def __init__(self) -> None:
        self.output = io.StringIO()
        self.logger = logging.Logger("waltz.somewhere")
        handler = logging.StreamHandler(self.output)
        handler.setFormatter(JsonFormatter())
        self.logger.addHandler(handler)

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.output.getvalue().split("\n")[:-1]]


def logged(text: str, *arguments: object, **options: object) -> dict[str, object]:
    log = Log()
    log.logger.warning(text, *arguments, **options)  # type: ignore[arg-type]
    (line,) = log.lines()
    return line


def test_a_line() -> None:
    line = logged("closing partition %d", 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("time")))
    assert line == {"level": "WARNING", "logger": "waltz.somewhere", "message": "closing partition 3", "partition": 3}


@pytest.mark.parametrize(
    ("text", "arguments", "fields"),
    [
        ("partition %d, replica %s: %s", (7, "b:6000", "gone"), {"partition": 7, "storage": "b:6000"}),
        ("opening partition %d, generation %d", (1, 2), {"partition": 1, "generation": 2}),
        ("partition %d: session %d is renewed", (1, 9), {"partition": 1, "session": 9}),
        ("server %s of cluster %s is up at %s", (4, "w", "h:1"), {"server": 4, "cluster": "w"}),
        ("partition %d: refused %d appends of %s: %s", (1, 5, "h:2", "full"), {"partition": 1, "peer": "h:2"}),
        (
            "partition %d: %s %d appends of client %s at %s: %s",
            (1, "refused", 5, 8, "h:2", "late"),
            {"partition": 1, "client": 8, "peer": "h:2"},
        ),
        (
            "partition %d: client %s at %s has begun %s %d behind transaction %d, in %.0f ms",
            (1, 8, "h:2", "write session", 3, 70, 0.5),
            {"partition": 1, "client": 8, "peer": "h:2", "transaction": 70},
        ),
        ("partition %d: reading from %s: %s", (1, "s:1", "no"), {"partition": 1, "storage": "s:1"}),
        ("partitions %s are %s now", ([1, 2], "on"), {"partitions": "[1, 2]"}),
        ("closing the connection with %s: %s", ("h:2", "late"), {"peer": "h:2"}),
        ("ignored a %s of %s", ("FeedRequest", "h:2"), {"peer": "h:2"}),
        ("up: data port %d, admin port %d", (1, 2), {}),
        ("100%% of partition %d", (1,), {"partition": 1}),
        ("the partition %s of %d", ("last", 4), {"partition": "last"}),
    ],
)
def test_what_the_text_names_is_a_field(text: str, arguments: tuple[object, ...], fields: dict[str, object]) -> None:
    line = logged(text, *arguments)
    assert line["message"] == text % arguments
    assert {name: value for name, value in line.items() if name in FIELDS} == fields


def test_fields_given_apart() -> None:
    line = logged("%s", "replica a:1 is away", extra={"partition": 0, "storage": "a:1", "color": "red"})
    assert (line["partition"], line["storage"]) == (0, "a:1")
    assert "color" not in line


def test_fields_of_messages_that_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.get_running_loop", lambda: type("Loop", (), {"time": lambda _: 1.0})())
    log = Log()
    QuietLog(log.logger).warning("no TLS connection with %s: %s", "h:2", "no")
    assert log.lines()[0]["peer"] == "h:2"


def test_an_exception_is_in_the_line() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        line = logged("partition %d: failed", 1, exc_info=True, stack_info=True)
    assert str(line["exception"]).startswith("Traceback (most recent call last):\n")
    assert str(line["exception"]).endswith("ValueError: first\nsecond")
    assert "Stack (most recent call last)" in str(line["stack"])


PRINTABLE = st.text() | st.sampled_from(["\n", "\r\n", "\u2028", "\ud800", '"}', "%", "%d", "%(x)s", "%*d", "%n"])
VALUES = st.none() | st.integers() | st.floats() | st.booleans() | PRINTABLE | st.lists(st.integers(), max_size=3)


@given(PRINTABLE, st.lists(VALUES, max_size=4))
@example("partition %d: %s", ["no number", 1.5])
@example("partition %d", [float("nan")])
def test_whatever_is_logged_is_one_line_of_json(text: str, arguments: list[object]) -> None:
    """Whoever reads the log takes each line for itself, by any notion of a line."""
    record = logging.LogRecord("waltz", logging.ERROR, __file__, 1, text, tuple(arguments), None)
    line = JsonFormatter().format(record)
    assert len(line.splitlines()) == 1
    assert line.isascii()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert isinstance(json.loads(line, parse_constant=refuse)["message"], str)


def texts_of_calls() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="debug" | "info" | "warning" | "error" | "critical" | "exception"),
                    args=[ast.Constant(value=str(text)), *_],
                ):
                    yield text


def test_every_call_that_names_a_partition_or_a_storage_has_it_as_a_field() -> None:
    named = 0
    for text in texts_of_calls():
        for noun, name in (("partition", "partition"), ("replica", "storage")):
            if f" {noun} %" in f" {text}":
                arguments = (1,) * (text.count("%") - 2 * text.count("%%"))
                assert logged(text, *arguments)[name] == 1, text
                named += 1
    assert named > 40


def test_lines_of_many_threads_do_not_mix() -> None:
    log = Log()

    def write(number: int) -> None:
        for _ in range(50):
            log.logger.warning("partition %d: %s", number, "x\n" * 2000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(str(line["partition"]) for line in log.lines()) == sorted("0123" * 50)


PROGRAM = """
import logging, threading, warnings
from waltz.common.json_log import log_to_stderr
log_to_stderr("INFO", "json")
logging.getLogger("a").info("closing partition %d", 4)
logging.getLogger("a").debug("too much")
warnings.warn("old\\nand gone")
def fail():
    raise ValueError("in a thread")
thread = threading.Thread(target=fail, name="reader")
thread.start()
thread.join()
class Broken:
    def __del__(self):
        raise ValueError("in a finalizer")
Broken()
raise ValueError("in the end")
"""


def test_all_that_a_process_writes_is_json(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False, cwd=PACKAGE.parent
    )
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert ended.returncode == 1
    assert [line["level"] for line in lines] == ["INFO", "WARNING", "CRITICAL", "ERROR", "CRITICAL"]
    assert lines[0]["partition"] == 4
    assert "UserWarning: old\nand gone" in lines[1]["message"]
    assert lines[2]["message"] == "reader was ended by a defect"
    assert [line["exception"].splitlines()[-1] for line in lines[2:]] == [
        "ValueError: in a thread",
        "ValueError: in a finalizer",
        "ValueError: in the end",
    ]
