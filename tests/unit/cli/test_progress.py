"""Bars on terminals, and silence elsewhere."""

import os
import sys
import termios

import pytest

from waltz.cli import progress as module
from waltz.cli.progress import progress


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("counting", 10, " rows") as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DELAY_S", 0)
    reader, writer = os.openpty()
    os.set_blocking(reader, False)
    termios.tcsetwinsize(writer, (25, 80))
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress("counting", 10, " rows") as advance:
            advance(10)
        terminal.flush()
        shown = os.read(reader, 10_000).decode()
    os.close(reader)
    assert "counting" in shown
    assert "/10" in shown


def test_work_goes_on_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress("counting", None, "B") as advance:
        advance(10)
