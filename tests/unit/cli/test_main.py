"""Exit codes and errors of the command line."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from waltz.cli import disk
from waltz.cli.main import main
from waltz.common.records import Record


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("waltz.local.keeper.stop", interrupt)
    assert main(["local", "stop", "--directory", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_output_that_nobody_reads_ends_the_command_in_silence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "waltz.cli.main", "local", "stop"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_another_broken_pipe_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def break_pipe(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("waltz.local.keeper.stop", break_pipe)
    assert main(["local", "stop", "--directory", str(tmp_path)]) == 1
    assert capfd.readouterr().err == "Error: [Errno 32] Broken pipe\n"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["zookeeper", "create", "-p", "abc"], "argument -p/--partitions: not a whole number: 'abc'"),
        (["zookeeper", "create", "-p", "-1"], "argument -p/--partitions: must be at least 0, not -1"),
        (["local", "start", "--storages", "0"], "argument --storages: must be at least 1, not 0"),
        (["demo", "--accounts", "1"], "argument --accounts: must be at least 2, not 1"),
        (["storage", "max-transaction-id", "-sp", "65536"], "argument -sp/--storage-port: must be at most 65535"),
        (["storage", "add-partition", "-p", "0-x"], "not a list of partitions like 0-6,7,10-16: '0-x'"),
        (["storage", "add-partition", "-s", "nowhere"], "argument -s/--storage: "),
    ],
)
def test_wrong_arguments_are_named(command: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(command)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert text in error
    assert "invalid _" not in error


def test_a_payload_that_cannot_be_read_is_shown_with_the_reason() -> None:
    def row(data: bytes) -> str:
        return disk._record_row(Record(0, b"\0" * 16, 0, data, 0), json.loads)[-1]

    assert row(b"[1]").endswith("\n([1])")
    assert row(b"nonsense").endswith("\n(JSONDecodeError: Expecting value: line 1 column 1 (char 0))")
