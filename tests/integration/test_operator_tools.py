"""The operators' commands on real nodes; one server knows no version of the protocol but those of the original.

Partitions 0 and 1 belong to the validation, 3 to the examples of the documentation.
"""

import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

import waltz.blocking
from tests.integration.test_cluster_tools import MixedCluster
from tests.integration.test_storage_tools import TIMEOUT_S, Result, done, failed
from tests.integration.test_storage_tools import waltz as run
from waltz.cli.session import CONFIG_VARIABLE
from waltz.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Each server owns two of the partitions. It suffers in the last test."""
    with (
        MixedCluster(tmp_path_factory.mktemp("operated"), servers=2, partitions=PARTITIONS) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(CONFIG_VARIABLE, str(running.layout.cli_config_path))
        until(running, lambda: len({each["owner"] for each in partitions()}) == 2)
        yield running


def until(cluster: LocalCluster, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, run("status")
        cluster.check()
        time.sleep(0.2)


def status(*arguments: str) -> dict[str, list[dict[str, object]]]:
    document = json.loads(done("status", "--json", "--interval", "0", *arguments))
    assert isinstance(document, dict)
    return document


def partitions() -> list[dict[str, object]]:
    return status()["partitions"]


def states(partition: dict[str, object]) -> list[str]:
    """The states of a partition's replicas, sorted."""
    replicas = partition["replicas"]
    assert isinstance(replicas, list)
    return sorted(each["state"] for each in replicas)


def until_owned(cluster: LocalCluster, servers: set[str]) -> None:
    """Until these share the partitions evenly, and no other one has any."""
    share = PARTITIONS // len(servers)
    until(cluster, lambda: Counter(each["endpoint"] for each in partitions()) == dict.fromkeys(servers, share))


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_cluster_that_is_well(cluster: LocalCluster) -> None:
    until(cluster, lambda: run("status", "--exit-code", "--interval", "0").returncode == 0)
    document = status()
    assert [each["version"] for each in document["servers"]] in ([4, 6], [6, 4])
    for partition in document["partitions"]:
        assert partition["high_water_mark"] == -1
        states = partition["replicas"]
        assert isinstance(states, list)
        assert [(each["state"], each["lag"]) for each in states] == [("current", 0)] * 3
    text = done("status")
    assert re.match("cluster local at /[a-z]+: 4 partitions, all well, 0 transactions/s\n", text)
    assert text.count("3 of 3 current") == PARTITIONS


def test_nothing_gets_lost_between_several_clients(cluster: LocalCluster) -> None:
    document = json.loads(done("client", "validate", "-tpc", "15", "-nc", "3", "-i", "0", "-ap", "2", "--json"))
    assert (document["transactions"], document["partitions"]) == (45, 2)
    assert done("client", "create-producer", "-tpc", "5", "-i", "1", "-ap", "2").startswith("5 transactions appended; ")
    assert done("client", "create-consumer", "-tpc", "50", "-ap", "2") == "50 transactions are as they were appended\n"
    again = json.loads(done("client", "validate", "-tpc", "1", "-nc", "1", "-i", "0", "-ap", "2", "--json"))
    assert again["transactions"] == 51
    assert failed("client", "validate", "-tpc", "1", "-nc", "1", "-i", "0", "-ap", "5") == (
        "Error: the command needs 5 partitions, but the cluster has 4"
    )


def examples() -> list[tuple[str, list[str]]]:
    """The commands of the page's example, and the lines below each."""
    (block,) = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ waltz "):
            found.append((line.removeprefix("$ waltz "), []))
        else:
            found[-1][1].append(line)
    return found


def test_the_examples_of_the_page(cluster: LocalCluster) -> None:
    assert len(examples()) == 8
    for command, expected in examples():
        result = run(*shlex.split(command))
        fails = expected[0].startswith("Error: ")
        assert result.returncode == int(fails), (command, result)
        printed = (result.stderr if fails else result.stdout).splitlines()
        assert len(printed) == len(expected), (command, printed)
        for line, wanted in zip(printed, expected, strict=True):
            assert line.startswith(wanted[:-3]) if wanted.endswith("...") else line == wanted


def test_transactions_from_standard_input_and_files(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = int(done("client", "high-water-mark", "-p", "2").split()[-1]) + 1
    type_in(monkeypatch, b"one\ntwo\r\n\nlast")
    document = json.loads(done("append", "-p", "2", "--lines", "--json"))
    assert document == {"partition": 2, "transactions": [first, first + 1, first + 2, first + 3]}
    type_in(monkeypatch, b"\xff all\nof it")
    done("append", "-p", "2")
    (tmp_path / "data").write_bytes(b"of a file")
    done("append", "-p", "2", "--file", str(tmp_path / "data"))
    lines = [json.loads(line) for line in done("tail", "-p", "2", "--after", str(first - 1), "--json").splitlines()]
    assert [each.get("data") for each in lines] == ["one", "two\r", "", "last", None, "of a file"]
    assert lines[4]["data_base64"]
    assert [each["transaction"] for each in lines] == list(range(first, first + 6))
    assert len(done("tail", "-p", "2", "-n", "2").splitlines()) == 2
    assert len(done("tail", "-p", "2-3", "-n", "1").splitlines()) == 2
    assert done("tail", "-p", "2", "-n", "0") == ""


def start(*command: str) -> "subprocess.Popen[str]":
    """A command in a process of its own."""
    program = [sys.executable, "-m", "waltz.cli.main", *command]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_comes_is_followed_until_ctrl_c(cluster: LocalCluster) -> None:
    done("append", "-p", "2", "before")
    with start("tail", "-p", "2", "-n", "1", "--follow") as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline().endswith(" before\n")
        done("append", "-p", "2", "while it looks")
        assert follower.stdout.readline().endswith(" while it looks\n")
        follower.send_signal(signal.SIGINT)
        assert (follower.stdout.read(), follower.stderr.read()) == ("", "interrupted\n")
    assert follower.returncode == 130


def test_top_is_a_screen_that_ctrl_c_leaves(cluster: LocalCluster) -> None:
    pytest.importorskip("rich")
    operator, inside = pty.openpty()
    command = [sys.executable, "-m", "waltz.cli.main", "top"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment) as top:
        os.close(inside)
        screen = b""
        while b"3 of 3 current" not in screen:
            screen += os.read(operator, 65536)
        top.send_signal(signal.SIGINT)
        while b"interrupted" not in screen:
            screen += os.read(operator, 65536)
    os.close(operator)
    assert top.returncode == 130
    assert b"Traceback" not in screen


def test_top_for_programs(cluster: LocalCluster) -> None:
    with start("top", "--json", "--interval", "1", "-p", "2") as top:
        assert top.stdout is not None
        first, second = (json.loads(top.stdout.readline())["partitions"][0] for _ in range(2))
        top.send_signal(signal.SIGINT)
        top.stdout.read()
    assert (first["rate_per_s"], second["rate_per_s"]) == (None, 0.0)
    assert top.returncode == 130


def test_performance_of_producers(cluster: LocalCluster, tmp_path: Path) -> None:
    load = ("performance", "test-producers", "-s", "100", "-p", "50", "-t", "2", "-ap", "4")
    closed = json.loads(done(*load, "-i", "0", "--in-flight", "4", "--json"))
    assert (closed["loop"], closed["transactions"], closed["retries_per_transaction"]) == ("closed", 100, 0)
    assert sum(closed["committed_per_s"]) == 100
    assert 0 < closed["latency_ms"]["p50"] <= closed["latency_ms"]["p99"] <= closed["latency_ms"]["p100"]
    reported = ["--report", str(tmp_path)] if find_spec("matplotlib") else []
    text = done(*load, "-i", "1", "-l", "3", "-ml", *reported)
    assert "2 producers, 4 partitions, 100 bytes, open loop, 1 ms apart" in text
    assert "Latency in ms: p50 " in text
    assert {each.name for each in tmp_path.iterdir()} in (set(), {"report.md", "report.json", "report.svg"})


def test_performance_of_consumers(cluster: LocalCluster) -> None:
    load = ("performance", "test-consumers", "-s", "100", "-t", "30", "-ap", "4")
    there = sum(int(done("client", "high-water-mark", "-p", str(each)).split()[-1]) + 1 for each in range(PARTITIONS))
    assert json.loads(done(*load, "-ml", "--json"))["transactions"] == 30
    assert done(*load).startswith(f"Read {there + 60} transactions, ")


def test_partitions_move_to_the_server_that_prefers_them(cluster: LocalCluster) -> None:
    ours, old = (node.connect_string for node in cluster.layout.servers)
    for server in (old, ours):
        done("server", "add-preferred-partition", "-s", server, "-p", "0-3")
        until_owned(cluster, {server})
        assert done("server", "remove-preferred-partition", "-s", server, "-p", "0-3").endswith(
            f" removed from the preferences of {server}\n"
        )
    until_owned(cluster, {ours, old})
    assert failed("server", "add-preferred-partition", "-s", ours, "-p", "4").endswith("the cluster has 4 (0 to 3)")
    assert "there is no server localhost:1 in" in failed(
        "server", "add-preferred-partition", "-s", "localhost:1", "-p", "0"
    )
    node = cluster.layout.servers[0]
    listing = ("server", "list", "-s", f"localhost:{node.http_port}")
    until(cluster, lambda: json.loads(done(*listing, "--json"))["partitions"] == 2)  # it hears of its share later
    document = json.loads(done(*listing, "--json"))
    storages = sorted(each.connect_string for each in cluster.layout.storages)
    assert document["replicas"] == {str(each): storages for each in range(PARTITIONS)}
    assert done(*listing).startswith("There are 2 partitions for current server\npartition 0 replicas:\n  localhost:")


class Writer:
    """Appends numbers to all partitions, one after the other, while other things happen."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._config = cluster.layout.client_config_path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written: dict[int, list[tuple[int, bytes]]] = {each: [] for each in range(cluster.layout.partitions)}

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        with waltz.blocking.connect(self._config) as client:
            number = 0
            while not self._stop.is_set():
                data = b"under load %d" % number
                partition_id = number % len(self.written)
                self.written[partition_id].append((client.append(partition_id, data, timeout_s=TIMEOUT_S), data))
                number += 1

    def check(self) -> None:
        """All that was committed is where it was committed, and nothing was written twice."""
        with waltz.blocking.connect(self._config) as client:
            for partition_id, written in self.written.items():
                assert written
                mark = client.high_water_mark(partition_id)
                records = list(client.feed(partition_id, after=written[0][0] - 1, until=mark))
                assert [(each.transaction_id, each.data) for each in records] == written


def test_a_server_is_drained_under_load_though_the_operator_is_interrupted(cluster: LocalCluster) -> None:
    ours, old = (node.connect_string for node in cluster.layout.servers)
    drain = ("server", "drain", "-s", ours)
    plan = json.loads(done(*drain, "--plan", "--json"))
    assert plan["applied"] is False
    moving = [each["partition"] for each in plan["moves"]]
    assert len(moving) == 2
    assert failed(*drain) == "Error: nothing was done: there is no terminal for a question; give --yes to agree"
    assert {each["endpoint"] for each in partitions()} == {ours, old}
    with Writer(cluster) as writer:
        with start(*drain, "--yes") as draining:
            assert draining.stdout is not None
            while "has moved" not in (line := draining.stdout.readline()):
                assert line
            draining.kill()
            draining.stdout.read()
        text = done(*drain, "--yes")
        assert text.endswith("has no partitions, and can be stopped\n")
        assert {each["endpoint"] for each in partitions()} == {old}
        assert done(*drain, "--plan").startswith("nothing is to be done: server ")
        assert json.loads(done("cluster", "rebalance", "--plan", "--json"))["moves"]
        document = json.loads(done("cluster", "rebalance", "--apply", "--yes", "--json"))
        assert (document["applied"], len(document["moves"])) == (True, 2)
        assert [each["partitions"] for each in status()["servers"]] == [2, 2]
        again = json.loads(done("cluster", "rebalance", "--apply", "--json"))
        assert again == {"applied": True, "steps": [], "moves": []}
    writer.check()
    for server in (ours, old):
        done("server", "remove-preferred-partition", "-s", server, "-p", "0-3")
    until_owned(cluster, {ours, old})


def test_what_zookeeper_knows(cluster: LocalCluster, caplog: pytest.LogCaptureFixture) -> None:
    document = json.loads(done("zookeeper", "list", "--json"))
    assert document["partitions"] == PARTITIONS
    assert document["key"] == json.loads(done("zookeeper", "show-cluster-key", "--json"))["key"]
    assert sorted(each["partition"] for each in document["assignments"]) == list(range(PARTITIONS))
    lines = done("zookeeper", "list").splitlines()
    assert done("zookeeper", "list", "-l") == ""
    assert [each.getMessage() for each in caplog.records if each.levelname == "INFO"] == lines


def test_programs_read_what_other_commands_print(cluster: LocalCluster) -> None:
    def printed(*command: str) -> Any:
        return json.loads(done(*command, "--json"))

    node, directory = cluster.layout.storages[0], str(cluster.layout.cli_config_path.parent)
    admin = f"localhost:{node.admin_port}"
    until(cluster, lambda: printed("cluster", "verify")["failures"] == [])
    assert printed("cluster", "verify", "-p", "2")["checks"] == 12
    storages = {each.connect_string: True for each in cluster.layout.storages}
    reached = printed("cluster", "check-connectivity")
    assert reached == {each.connect_string: storages for each in cluster.layout.servers}
    assert [each["partition"] for each in printed("session", "show")] == list(range(PARTITIONS))
    at_ours = next(each["partition_id"] for each in partitions() if each["write_session"] is not None)
    fenced = printed("session", "fence", "-p", str(at_ours), "--force")
    assert (fenced["partition"], fenced["write_session"] > 0) == (at_ours, True)
    assert printed("storage", "validate") == {"valid": True}
    listed = printed("storage", "list", "-s", admin)[admin]
    assert sorted(listed) == [str(each) for each in range(PARTITIONS)]
    assert all(each["online"] for each in listed.values())
    highest = ("storage", "max-transaction-id", "-s", admin, "-sp", str(node.port), "-p", "3")
    assert printed(*highest) == {"max_transaction_id": partitions()[3]["high_water_mark"]}
    assert printed("storage", "repair", "-s", admin, "-p", "3") == {"restored": 0, "uncommitted": []}
    stopped = run("local", "status", "--directory", f"{directory}/elsewhere", "--json")
    assert (stopped.returncode, json.loads(stopped.stdout)) == (1, {"state": "stopped", "nodes": []})


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("tail -p 0-4", "there is no partition 4; the cluster has 4"),
        ("get -p 4 0", "there is no partition 4; the cluster has 4"),
        ("get -p 2 100000", "partition 2 has no transaction 100000: the last one is "),
        ("tail -p 2 --after 100000", "partition 2 has no transaction 100000: the last one is "),
        ("append -p 9 text", "there is no partition 9; the cluster has 4"),
        ("append -p 2 --file /nowhere", "No such file or directory"),
        ("status -p 4", "there is no partition 4; the cluster has 4"),
        ("client high-water-mark -p 4", "there is no partition 4; the cluster has 4"),
        ("client create-consumer -tpc 1 -ap 9", "the command needs 9 partitions, but the cluster has 4"),
        ("performance test-consumers -s 1 -t 1 -ap 9", "the command needs 9 partitions, but the cluster has 4"),
        (
            "performance test-producers -s 1 -t 1 -p 1 -i 0 -ap 9",
            "the command needs 9 partitions, but the cluster has 4",
        ),
        ("performance test-producers -s 40000000 -t 1 -p 1 -i 0", "40000000"),
    ],
)
def test_what_is_not_there_is_refused(cluster: LocalCluster, command: str, text: str) -> None:
    assert text in failed(*command.split())


@pytest.mark.parametrize(
    "command",
    [
        "get -p 0 7-5",
        "get -p 0 x",
        "tail -p 3-1",
        "append -p 0 text --write-lock nothing",
        "append -p 0 text --lines",
        "append -p 0 text --high-water-mark -2",
        "client validate -tpc 0 -nc 1 -i 0",
        "performance test-producers -s -1 -t 1 -p 1 -i 0",
        "server list -s nowhere",
        "status --interval -1",
    ],
)
def test_bad_arguments_are_wrong_usage(cluster: LocalCluster, command: str) -> None:
    result = run(*command.split())
    assert result.returncode == 2
    assert result.stderr.startswith("usage: waltz ")


def test_without_permission(cluster: LocalCluster, tmp_path: Path) -> None:
    """Servers want TLS; whoever has none does not get in, and is told so."""
    config = yaml.safe_load(cluster.layout.cli_config_path.read_text())
    path = tmp_path / "plain.yml"
    stripped = {key: value for key, value in config.items() if not key.startswith("ssl")}
    path.write_text(yaml.safe_dump(stripped | {"ssl.plaintext": True}))
    document = status("-c", str(path), "-t", "2")
    assert [each["version"] for each in document["servers"]] == [None, None]
    assert [each["answers"] for each in document["storages"]] == [False] * 3
    assert run("status", "--exit-code", "-c", str(path), "-t", "2").returncode == 1
    assert "could not be joined within 2 s" in failed("append", "-p", "0", "text", "-t", "2", "-c", str(path))
    server = cluster.layout.servers[0].connect_string
    assert "partition 0 was not added to" in failed(
        "server", "add-preferred-partition", "-s", server, "-p", "0", "-c", str(path)
    )


def test_an_operator_is_asked_before_something_is_destroyed(cluster: LocalCluster) -> None:
    operator, inside = pty.openpty()
    command = [sys.executable, "-m", "waltz.cli.main", "zookeeper", "delete", "-n", "local"]
    for answer, code, said in ((b"n\n", 1, b"Error: nothing was done"), (b"\x03", 130, b"interrupted")):
        with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True) as asking:
            screen = b""
            while b"[y/N]" not in screen:
                screen += os.read(operator, 65536)
            assert b"2 servers are running" in screen
            if answer == b"\x03":
                asking.send_signal(signal.SIGINT)
            else:
                os.write(operator, answer)
            while said not in screen:
                screen += os.read(operator, 65536)
        assert asking.returncode == code
    os.close(inside)
    os.close(operator)
    assert done("zookeeper", "list").startswith("cluster [")


def test_dead_nodes_are_named_and_the_rest_goes_on(cluster: LocalCluster) -> None:
    ours, old = cluster.layout.servers
    storage = cluster.layout.storages[0]
    done("append", "-p", "0", "before")
    cluster.kill(storage)
    cluster.kill(old)
    # It does not answer, and a moment later it is no server of the cluster any more.
    said = failed("server", "add-preferred-partition", "-s", old.connect_string, "-p", "0")
    assert (
        f"was not added to the preferences of {old.connect_string}" in said
        or f"there is no server {old.connect_string}" in said
    )
    until_owned(cluster, {ours.connect_string})
    done("append", "-p", "0", "behind")
    until(cluster, lambda: all(states(each) == ["away", "current", "current"] for each in partitions()))
    silent = {each["storage"]: each["answers"] for each in status()["storages"]}
    assert silent[storage.connect_string] is False
    result: Result = run("status", "--exit-code")
    assert result.returncode == 1
    assert f"2 of 3 current, {storage.connect_string} away" in result.stdout
    assert result.stderr.endswith("Error: 4 of 4 partitions not well; 1 node not well\n")
    directory = cluster.layout.data_directory(storage)
    control = json.loads(done("disk", "dump-control-file", "-p", "3", str(directory / "waltz-storage.ctl"), "--json"))
    assert [each["is_assigned"] for each in control["partitions"]] == ["true"]
    segment = str(next((directory / "3").glob("*.seg")))
    assert json.loads(done("disk", "verify-segment", segment, "--json"))["failed"] == 0
    count = json.loads(done("disk", "segment-statistic", segment, "--json"))["number_of_rows"]
    header, *records = map(json.loads, done("disk", "dump-segment", "-m", "-r", segment, "--json").splitlines())
    assert header["partition_id"] == "3"
    assert [each["transaction"] for each in records] == list(range(count))
    assert records[0]["data"] == "first order"
