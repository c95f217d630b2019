"""What shells ask, and are answered."""

import os
import subprocess
import sys

import pytest

from waltz.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_something_to_run(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("argcomplete")
    assert main(["completion", shell]) == 0
    assert "_ARGCOMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("waltz cluster ver", {"verify"}),
        ("waltz sta", {"status"}),
        ("waltz server list --j", {"--json"}),
        ("waltz completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_words_are_completed(line: str, words: set[str]) -> None:
    pytest.importorskip("argcomplete")
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
    }
    command = [sys.executable, "-m", "waltz.cli.main"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert {word.strip() for word in result.stdout.split("\n") if word.strip() and not word.startswith("-h")} >= words


def test_without_argcomplete_it_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["completion", "bash"]) == 1
    assert "completion needs argcomplete: install waltz-log with its extra 'tools'" in capsys.readouterr().err
