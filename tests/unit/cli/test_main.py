"""Exit codes and errors of the command line."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType
from uuid import UUID

import pytest

from tests.unit.storage.disk.test_draining import entries_of
from tests.unit.storage.log_testing import records
from waltz.cli import disk
from waltz.cli.main import main
from waltz.common.records import Record
from waltz.common.version import installed_version
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.disk.journal.entries import Fenced, Marked
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import read_journal
from waltz.storage.disk.journal_set import JournalSet
from waltz.storage.disk.volumes import Volumes
from waltz.storage.node.journal_start import JournalSizes, open_journals


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("waltz.local.keeper.stop", interrupt)
    assert main(["local", "stop", "--directory", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_interrupted_while_modules_are_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(name: str) -> ModuleType:
        if name == "waltz.cli.status":
            raise KeyboardInterrupt
        return import_module(name)

    monkeypatch.setattr("importlib.import_module", interrupt)
    assert main(["status"]) == 130
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


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"waltz {installed_version()}\n"


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


NAMES, ROWS = ["NUMBER", "DATA"], [["7", "first\nsecond"], ["8", "third"]]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (None, disk._lines(NAMES, ROWS, [6, 6])),
        (80, disk._lines(NAMES, ROWS, [6, 6])),
        (20, ["number: 7", "data:", "first", "second", "", "number: 8", "data: third", ""]),
    ],
)
def test_what_a_terminal_is_too_narrow_for_stands_below_each_other(
    columns: int | None,
    lines: Iterable[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disk, "terminal_width", lambda: columns)
    disk._print_rows(NAMES, ROWS, [6, 6])
    assert capsys.readouterr().out == "".join(f"{line}\n" for line in lines)


def test_tables_of_the_original_are_cut_where_they_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "terminal_width", lambda: 20)
    assert disk._table(["NUMBER", "A LONG NAME"], [["7", "x"]]) == ["NUMBER  A LONG NAME", "7       x"]


def test_a_directory_that_was_not_left_in_order_is_drained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(OsFiles(max_threads=1)) as files:
        control_file = ControlFile.open(files, str(tmp_path), UUID(int=7), 1)
        control_file.set_assigned(0, True)
        directory = str(tmp_path / "journal")
        contents = read_journal(files, directory, UUID(int=7))
        journal = Journal.open(
            files, directory, cluster_key=UUID(int=7), contents=contents, file_size_bytes=1 << 16, max_files=2
        )
        control_file.guard()
        journal.append([Marked(0, 5, -1, -1)])
        journal.close()
        control_file.close()
    path = str(tmp_path / "waltz-storage.ctl")
    assert main(["disk", "dump-control-file", path]) == 1
    assert f"run waltz disk drain {tmp_path}, then repeat" in capsys.readouterr().err
    assert main(["disk", "drain", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path} is drained: 1 groups of the journal, 0 partitions changed\n"
    assert main(["disk", "dump-control-file", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["session_id"] == "5"
    assert main(["disk", "drain", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"drained": False}


def test_directories_on_several_disks_are_drained_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node was killed with fences and marks in the journal of one disk, and records in that of the other."""
    key = UUID(int=7)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with closing(OsFiles(max_threads=1)) as files:
        directory = StorageDirectory(
            files,
            str(first),
            ControlFile.open(files, str(first), key, 1),
            FenceFile.open(files, str(first), key, 1),
            Volumes.open(files, str(first), [str(second)], key),
            segment_size_threshold_bytes=1000,
            segment_cache_capacity=1,
        )
        directory.control_file.set_assigned(0, True)
        log = directory.open_log(0)
        entries = entries_of(log, records(0, 2), 1)
        log.close()
        directory.volumes.move(0, str(second))
        journals = open_journals(files, directory, JournalSet(directory), JournalSizes(1 << 16, 2))
        of_first, of_second = journals.values()
        of_first.append([Fenced(0, 5), Marked(0, 5, -1, -1)])
        of_second.append(entries)
        of_first.abandon()
        of_second.abandon()
        directory.close_files()

    def volumes() -> list[bool]:
        assert main(["disk", "volumes", str(first), "--json"]) == 0
        return [each["drained"] for each in json.loads(capsys.readouterr().out)["volumes"]]

    assert volumes() == [False, False]
    move = ["disk", "move-partition", str(first), "-p", "0", "--to", str(first)]
    assert main(move) == 1
    assert "run waltz disk drain first" in capsys.readouterr().err
    control_file = first / "waltz-storage.ctl"
    assert main(["disk", "dump-control-file", str(control_file)]) == 1
    assert f"run waltz disk drain {first}, then repeat" in capsys.readouterr().err
    assert control_file.read_bytes()[12:28] != key.bytes  # the original refuses to start
    assert main(["disk", "drain", str(first)]) == 0
    assert capsys.readouterr().out == f"{first} is drained: 2 groups of the journal, 1 partitions changed\n"
    assert control_file.read_bytes()[12:28] == key.bytes
    assert volumes() == [True, True]
    assert main(["disk", "drain", str(first), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"drained": False}
    assert main(move) == 0
    assert capsys.readouterr().out == f"partition 0 is moved from {second} to {first}\n"
    assert main(["disk", "dump-segment", str(first / "0" / f"{0:019}.seg"), "-r", "--json"]) == 0
    assert [json.loads(line)["transaction"] for line in capsys.readouterr().out.splitlines()] == [0, 1]
    assert main(["disk", "dump-control-file", str(control_file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["session_id"] == "5"
