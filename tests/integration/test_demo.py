"""The demo as a user runs it: from a file, and while nodes of its cluster are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

VERDICTS = ("every transfer in the log once", "balances equal", "money conserved", "Spark agrees")
STREAMS = "streams agree after a restart"


def start_demo(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "waltz.cli.main", "demo", "--directory", str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def report_of(demo: "subprocess.Popen[str]") -> dict[str, str]:
    """The report's lines by their names; all verdicts must be good."""
    output, errors = demo.communicate(timeout=240)
    assert demo.returncode == 0, output + errors
    assert "Traceback" not in errors
    report = {line[2:34].strip(): line[34:].strip() for line in output.splitlines() if line.startswith("  ")}
    assert {name: report.get(name) for name in VERDICTS} == dict.fromkeys(VERDICTS, "yes"), output
    return report


CSV = """\
from,to,amount,time,note
alice,bob,10.50,2024-02-29T23:59:59,first
"Müller, Jürgen",bob,3,2024-03-01T01:00:00+01:00,quoted and Unicode
,bob,1,,no sender
alice,,1,,no receiver
alice,bob,-4,,negative
alice,bob,0,,zero
alice,bob
bob,alice,much,,no number
bob,口座,1000,2024-03-01 00:30,
bob,alice,500,,overdraft: everything else of bob is gone
alice,alice,5,,to oneself
bob,alice,1,yesterday,no time
"""


@pytest.mark.deep
def test_a_file_with_good_bad_and_refused_transfers(tmp_path: Path) -> None:
    file = tmp_path / "transfers.csv"
    file.write_text(CSV)
    rejects = tmp_path / "rejects.csv"
    demo = start_demo(
        tmp_path / "data", "--input", str(file), "--rejects", str(rejects), "--tellers", "1", "--in-flight", "1"
    )
    report = report_of(demo)
    assert report["transfers"] == "5"
    assert report["committed"] == "4"
    assert report["refused (overdraft)"] == "1"
    assert rejects.read_text().splitlines() == [
        "line,reason",
        "4,empty account in column from",
        "5,empty account in column to",
        "6,negative amount",
        "7,zero amount",
        "8,2 columns where 4 are needed",
        "9,amount 'much' is not a number",
        "13,time 'yesterday' is not ISO 8601",
    ]
    assert report[STREAMS] == "yes"
    hours = pyarrow.dataset.dataset(tmp_path / "data" / "pipeline" / "hours", partitioning="hive")
    newest = {row["hour"]: row for row in sorted(hours.to_table().to_pylist(), key=lambda row: int(row["epoch"]))}
    assert {hour and hour.isoformat(): (row["transfers"], row["cents"]) for hour, row in newest.items()} == {
        "2024-02-29T23:00:00": (1, 1_050),
        "2024-03-01T00:00:00": (2, 100_300),
        None: (1, 500),
    }
    assert (tmp_path / "data" / "pipeline" / "pipeline.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_without_a_usable_transfer_ends_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "transfers.csv"
    file.write_text("from,to,amount\na,b,nothing\n")
    demo = start_demo(tmp_path / "data", "--input", str(file))
    output, errors = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "line 2: amount 'nothing' is not a number" in output
    assert errors == f"Error: {file} has no usable transfer\n"


def process_of(configuration: Path) -> int:
    """The node that was started with this configuration file."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if str(configuration) in command:
                return int(entry.name)
    raise LookupError(f"no process of {configuration}")


def wait_for_log(directory: Path, size_bytes: int) -> None:
    """Wait until the demo's log has grown to a size: its transfers are under way."""
    deadline = time.monotonic() + 60
    while sum(path.stat().st_size for path in directory.glob("storage-2/0/*.seg")) < size_bytes:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def owner(directory: Path) -> str:
    """The server that owns the partition."""
    return next(
        path.stem
        for path in directory.glob("server-*.log")
        if "opening partition 0" in path.read_text(errors="replace")
    )


@pytest.mark.deep
@pytest.mark.parametrize("victim", ["storage", "server"])
def test_the_demo_survives_a_killed_node(tmp_path: Path, victim: str) -> None:
    demo = start_demo(tmp_path, "--transactions", "6000", "--accounts", "500", "--no-pipeline")
    wait_for_log(tmp_path, 100_000)
    first_owner = owner(tmp_path)
    name = first_owner if victim == "server" else "storage-1"
    os.kill(process_of(tmp_path / f"{name}.yml"), signal.SIGKILL)
    assert demo.poll() is None
    report = report_of(demo)
    assert report["committed"] == "6,000"
    assert STREAMS not in report
    if victim == "server":
        other = {"server-1": "server-2", "server-2": "server-1"}[first_owner]
        assert "opening partition 0" in (tmp_path / f"{other}.log").read_text()
