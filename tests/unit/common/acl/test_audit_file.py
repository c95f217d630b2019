"""The file of the audit log: written, renamed by others, and not writable."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from waltz.common.acl import audit_file
from waltz.common.acl.audit_file import AuditFile
from waltz.common.errors import ConfigError


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    file = AuditFile(str(path))
    for number in range(100):
        file.write(f"line {number}")
    file.close()
    assert path.read_text().splitlines() == ["before", *(f"line {number}" for number in range(100))]
    assert file.lost == 0


def test_a_renamed_file_is_opened_again(tmp_path: Path) -> None:
    path, rotated = tmp_path / "audit.log", tmp_path / "audit.log.1"
    file = AuditFile(str(path))
    file.write("one")
    until(lambda: path.read_text() == "one\n")
    path.rename(rotated)
    file.write("two")
    file.close()
    assert (rotated.read_text(), path.read_text()) == ("one\n", "two\n")


def test_lines_that_cannot_be_written_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    path = directory / "audit.log"
    file = AuditFile(str(path))
    path.unlink()
    directory.rmdir()
    for _ in range(50):
        file.write("lost")
    until(lambda: file.lost == 50)
    directory.mkdir()
    file.write("found")
    file.close()
    assert path.read_text() == "found\n"
    assert [record.getMessage() for record in caplog.records] == [
        f"the audit log {path} cannot be written, and lines of it are lost; trying again"
    ]


def test_a_slow_disk_costs_lines_and_not_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "MAX_QUEUED", 10)
    file = AuditFile(str(tmp_path / "audit.log"))
    file._file.acquire()  # the disk stands still
    for number in range(100):
        file.write(f"line {number}")
    file._file.release()
    file.close()
    written = len((tmp_path / "audit.log").read_text().splitlines())
    assert 10 <= written <= 11
    assert file.lost == 100 - written


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the audit log .*/missing/audit.log cannot be opened: No such file"):
        AuditFile(str(tmp_path / "missing" / "audit.log"))
