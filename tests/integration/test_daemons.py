"""The daemons and tools as an operator meets them: what they say when something is wrong, and how they end."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from waltz.local.cluster import LocalCluster

pytestmark = pytest.mark.integration

TIMEOUT_S = 60


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that an operator gets; everything before it are log lines."""
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    return last


def changed(cluster: LocalCluster, tmp_path: Path, name: str, **changes: object) -> str:
    """A copy of a node's configuration with some keys changed (``None``: removed); dots are written ``__``."""
    content = yaml.safe_load(cluster.layout.config_path(name).read_text())
    for key, value in changes.items():
        content.pop(key.replace("__", "."), None)
        if value is not None:
            content[key.replace("__", ".")] = value
    path = tmp_path / "changed.yml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def free_storage(tmp_path: Path) -> dict[str, object]:
    """Ports and a directory for one more storage node."""
    directory = tmp_path / "storage"
    directory.mkdir()
    return {
        "storage__port": 0,
        "storage__admin__port": 0,
        "storage__jetty__port": 0,
        "storage__directory": str(directory),
    }


@pytest.mark.parametrize("program", ["waltz.storage", "waltz.serving"])
class TestBothDaemons:
    def test_usage(self, program: str) -> None:
        assert run(program).returncode == 2

    def test_a_missing_file(self, program: str) -> None:
        assert "No such file" in error_line(run(program, "/no/such/file.yml"))

    def test_a_log_of_json_ends_with_the_error(self, program: str) -> None:
        result = run(program, "--log-format", "json", "/no/such/file.yml")
        assert result.returncode == 1
        (line,) = map(json.loads, result.stderr.splitlines())
        assert line["level"] == "CRITICAL"
        assert "No such file" in line["message"]

    def test_a_missing_key_names_the_near_miss(self, program: str, cluster: LocalCluster, tmp_path: Path) -> None:
        name = "storage-1" if program == "waltz.storage" else "server-1"
        path = changed(cluster, tmp_path, name, cluster__root=None, cluster__rot="/waltz")
        line = error_line(run(program, path))
        assert "cluster.root" in line
        assert "cluster.rot" in line
        assert path in line

    def test_another_root(self, program: str, cluster: LocalCluster, tmp_path: Path) -> None:
        name = "storage-1" if program == "waltz.storage" else "server-1"
        path = changed(cluster, tmp_path, name, cluster__root="/nowhere")
        assert "/nowhere" in error_line(run(program, path))

    def test_a_port_in_use(self, program: str, cluster: LocalCluster, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            if program == "waltz.storage":
                path = changed(cluster, tmp_path, "storage-1", **{**free_storage(tmp_path), "storage__port": port})
            else:
                path = changed(cluster, tmp_path, "server-1", server__port=port, server__jetty__port=None)
            line = error_line(run(program, path))
        assert str(port) in line
        assert "in use" in line


def test_an_unreachable_zookeeper(cluster: LocalCluster) -> None:
    path = cluster.layout.directory / "unreachable.yml"
    path.write_text("zookeeper.connectString: 127.0.0.1:1\ncluster.root: /waltz\nzookeeper.connectTimeout: 1000\n")
    line = error_line(run("waltz.cli.main", "zookeeper", "list", "-c", str(path)))
    assert "127.0.0.1:1" in line


def test_a_directory_that_does_not_exist(cluster: LocalCluster, tmp_path: Path) -> None:
    changes = {**free_storage(tmp_path), "storage__directory": str(tmp_path / "missing")}
    assert str(tmp_path / "missing") in error_line(
        run("waltz.storage", changed(cluster, tmp_path, "storage-1", **changes))
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(cluster: LocalCluster, tmp_path: Path) -> None:
    changes = free_storage(tmp_path)
    Path(str(changes["storage__directory"])).chmod(0o500)
    line = error_line(run("waltz.storage", changed(cluster, tmp_path, "storage-1", **changes)))
    assert "Permission denied" in line


def test_the_directory_of_a_foreign_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    changes = free_storage(tmp_path)
    control_file = Path(str(changes["storage__directory"])) / "waltz-storage.ctl"
    content = bytearray((cluster.layout.data_directory(cluster.layout.storages[0]) / "waltz-storage.ctl").read_bytes())
    content[12:28] = bytes(range(16))
    control_file.write_bytes(content)
    line = error_line(run("waltz.storage", changed(cluster, tmp_path, "storage-1", **changes)))
    assert "key" in line
    assert str(control_file.parent) in line
    assert control_file.read_bytes() == content


def test_a_directory_in_use(cluster: LocalCluster, tmp_path: Path) -> None:
    in_use = str(cluster.layout.data_directory(cluster.layout.storages[0]))
    changes = {**free_storage(tmp_path), "storage__directory": in_use}
    line = error_line(run("waltz.storage", changed(cluster, tmp_path, "storage-1", **changes)))
    assert in_use in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_storage_ends_cleanly_when_asked(cluster: LocalCluster, tmp_path: Path, number: signal.Signals) -> None:
    path = changed(cluster, tmp_path, "storage-1", **free_storage(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-m", "waltz.storage", path], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "is up" in line:
                break
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    assert "Traceback" not in rest


def test_wrong_usage_of_the_tool_is_exit_code_2() -> None:
    assert run("waltz.cli.main").returncode == 2
    assert run("waltz.cli.main", "storage", "no-such-verb").returncode == 2
    assert run("waltz.cli.main", "zookeeper", "create").returncode == 2
    assert run("waltz.cli.main", "--help").returncode == 0
