"""Tables that fit, JSON in place of lines, questions, and records as documents."""

import argparse
import asyncio
import base64
import io
import json
import logging
import os
import pty
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cli.inputs import interrupting, piped
from waltz.cli import output
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.records import Record


def options(**values: object) -> argparse.Namespace:
    return argparse.Namespace(**{"json": False, "yes": False, **values})


CELLS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)


@given(st.data(), st.integers(1, 5), st.none() | st.integers(1, 120))
def test_a_table_fits_and_hides_nothing_without_need(data: st.DataObject, columns: int, width: int | None) -> None:
    names, *rows = data.draw(
        st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=6), label="table"
    )
    lines = output.table(names, rows, width)
    assert len(lines) == 1 + len(rows)
    needed = sum(max(map(len, column)) for column in zip(names, *rows, strict=True)) + 2 * (columns - 1)
    if width is None or needed <= width:
        assert [line.split() for line in lines] == [names, *rows]
    else:
        assert max(map(len, lines)) <= max(width, 8 * columns + 2 * (columns - 1))


def test_lines_or_a_document(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    output.show(options(), {"a": 1}, ["one", "two"])
    assert capsys.readouterr().out == "one\ntwo\n"
    output.show(options(json=True, logger_as_output=True), {"a": 1}, ["one", "two"])
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    with caplog.at_level(logging.INFO):
        output.show(options(logger_as_output=True), {"a": 1}, ["one", "two"])
    assert [record.getMessage() for record in caplog.records] == ["one", "two"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_escapes_what_its_reader_cannot_show(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "grün, 日本, 🎼, \udcff"  # the last is a byte of a file's name that is no UTF-8
    shown = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", shown)
    output.escape_output()
    print(json.dumps(text, ensure_ascii=False), flush=True)
    assert isinstance(shown.buffer, io.BytesIO)
    line = shown.buffer.getvalue().decode(encoding)
    assert json.loads(line) == text
    assert ("grün" in line, "日本" in line) == (encoding != "ascii", encoding == "utf-8")


def test_what_is_told_on_the_way_stays_out_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    output.tell(options(), "half")
    output.tell(options(json=True), "all")
    assert capsys.readouterr() == ("half\n", "all\n")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", {"data": ""}),
        ("grün\n".encode(), {"data": "grün\n"}),
        (b"\xff\x00", {"data_base64": base64.b64encode(b"\xff\x00").decode()}),
    ],
)
def test_records_in_json(data: bytes, shown: dict[str, str]) -> None:
    document = output.record_document(Record(7, ReqId.of(1, 2, 3, 4), -5, data, 0))
    head = {"transaction": 7, "client": 1, "generation": 2, "sequence": 4, "header": -5, "size_bytes": len(data)}
    assert document == head | shown
    json.dumps(document)


@contextmanager
def terminal() -> Iterator[int]:
    """Standard input and standard error are one; gives the operator's end of it."""
    operator, inside = pty.openpty()
    with (
        open(inside, closefd=False) as reader,
        open(inside, "w", closefd=False) as writer,
        pytest.MonkeyPatch.context() as patch,  # not by a fixture: pytest sets these streams between fixtures and test
    ):
        patch.setattr(sys, "stdin", reader)
        patch.setattr(sys, "stderr", writer)
        patch.setenv("TERM", "xterm")
        yield operator
    os.close(inside)
    os.close(operator)


def read_until(operator: int, text: bytes) -> None:
    screen = b""
    while text not in screen:
        screen += os.read(operator, 1000)


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_an_operator_agrees(answer: str) -> None:
    with terminal() as operator:
        os.write(operator, answer.encode())
        output.confirm(options(), "delete it?")
        read_until(operator, b"delete it? [y/N]")


@pytest.mark.parametrize("answer", ["\n", "n\n", "yesterday\n"])
def test_an_operator_does_not_agree(answer: str) -> None:
    with terminal() as operator:
        os.write(operator, answer.encode())
        with pytest.raises(WaltzError, match="nothing was done"):
            output.confirm(options(), "delete it?")


def test_an_operator_who_cannot_see_the_question_is_not_taken_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal():
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        for needs_terminal in (False, True):
            with pytest.raises(
                WaltzError, match=r"nothing was done: standard error must be a terminal .*; give --yes to agree"
            ):
                output.confirm(options(), "delete it?", needs_terminal=needs_terminal)
        output.confirm(options(yes=True), "delete it?")


def test_input_is_read_as_it_comes_until_it_is_interrupted() -> None:
    with piped() as feeder:
        source = output.standard_input()
        feeder.write(b"one\ntw")
        assert source.readline() == b"one\n"
        feeder.write(b"o\n")
        assert source.readline() == b"two\n"
        feeder.write(b"three")

        async def read() -> None:
            with interrupting():
                source.read()

        with pytest.raises(KeyboardInterrupt):
            asyncio.run(read())
        feeder.close()
        assert source.read() == b""


def test_nobody_is_asked_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    output.confirm(options(), "delete it?")
    output.confirm(options(yes=True), "delete it?", needs_terminal=True)
    with pytest.raises(WaltzError, match="give --yes"):
        output.confirm(options(), "delete it?", needs_terminal=True)
