"""The local cluster: one command to start it, nothing left behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from waltz.common.errors import WaltzError
from waltz.local import keeper
from waltz.local.cluster import LocalCluster

pytestmark = pytest.mark.integration


def processes_of(directory: Path) -> list[int]:
    """Processes with the directory on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in command:
                found.append(int(entry.name))
    return found


def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def waltz(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "waltz.cli.main", *arguments], capture_output=True, text=True, timeout=150, check=False
    )


def test_start_status_stop_and_start_again(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    options = ("--directory", str(directory))
    shape = ("--servers", "1", "--partitions", "1", "--plaintext")
    assert waltz("local", "status", *options).returncode == 1
    for asked in (shape, ()):
        started = waltz("local", "start", *options, *asked)
        assert started.returncode == 0, started.stderr
        status = waltz("local", "status", *options)
        assert status.returncode == 0
        assert "ready" in status.stdout
        for node in ("zookeeper", "storage-1", "storage-2", "storage-3", "server-1"):
            assert node in status.stdout
        again = waltz("local", "start", *options, *shape)
        assert again.returncode == 1
        assert f"stop it first: waltz local stop --directory {directory}" in again.stderr
        listed = waltz("storage", "list", "-c", str(directory / "cli.yml"))
        assert listed.stdout.count("isAssigned: true") == 3
        assert waltz("local", "stop", *options).stdout == "stopped\n"
        until(lambda: processes_of(directory) == [])
    other = waltz("local", "start", *options, "--servers", "2", "--partitions", "1", "--plaintext")
    assert other.returncode == 1
    assert "holds a cluster of 3 storages, 1 servers" in other.stderr


def running_nodes(directory: Path) -> dict[str, int]:
    kept = keeper.running(directory)
    assert kept is not None
    return kept.nodes


def has_ended(directory: Path, node: str) -> bool:
    return node not in running_nodes(directory)


@pytest.mark.deep
def test_a_killed_node_is_shown_and_brought_back(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    options = ("--directory", str(directory))
    none = waltz("local", "start", *options, "server-1")
    assert (none.returncode, none.stderr) == (
        1,
        f"Error: no cluster is running in {directory}; start it first: waltz local start\n",
    )
    assert waltz("local", "start", *options, "--servers", "1", "--partitions", "1", "--plaintext").returncode == 0
    try:
        for node in ("server-1", "storage-2", "zookeeper"):
            os.kill(running_nodes(directory)[node], signal.SIGKILL)
            until(partial(has_ended, directory, node))
            status = waltz("local", "status", *options)
            assert status.returncode == 1
            assert status.stdout.startswith(
                f"not all nodes run; bring one back with: waltz local start --directory {directory} {node}\n"
            )
            assert [line.split()[0] for line in status.stdout.splitlines() if "has ended" in line] == [node]
            back = waltz("local", "start", *options, node)
            assert back.returncode == 0, back.stderr
            assert back.stdout.startswith("ready\n")
            again = waltz("local", "start", *options, node)
            assert again.stdout.startswith(f"{node} is already running\nready\n")
        unknown = waltz("local", "start", *options, "storage-9")
        assert unknown.returncode == 1
        assert "it has zookeeper, storage-1, storage-2, storage-3, server-1" in unknown.stderr
        whole = waltz("local", "start", *options, "--servers", "2", "server-1")
        assert "--servers=2 is for a whole cluster" in whole.stderr
    finally:
        waltz("local", "stop", *options)
    until(lambda: processes_of(directory) == [])


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.deep), signal.SIGKILL]
)
def test_nothing_outlives_a_cluster_that_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "waltz.cli.main", "local", "run", "--directory", str(tmp_path), "--servers", "1"]
    log = tmp_path / "server-1.log"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as keeper:
        until(lambda: log.exists() or keeper.poll() is not None)
        assert len(processes_of(tmp_path)) > 4
        keeper.send_signal(number)
        try:
            keeper.wait(60)
        finally:
            keeper.kill()
    until(lambda: processes_of(tmp_path) == [])


def test_a_node_that_ends_is_named_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "storage-1").write_text("in the way of the directory")
    with pytest.raises(OSError, match="storage-1"):
        LocalCluster(tmp_path, servers=1).start()
    (tmp_path / "storage-1").unlink()
    broken = LocalCluster(tmp_path, servers=1, storage_overrides={"storage.port": "nonsense"})
    with pytest.raises(WaltzError, match=r"(?s)storage-\d ended with exit code 1.*storage\.port"):
        broken.start()
    assert processes_of(tmp_path) == []
