"""The documentation's leaders, in two processes: one is paused, the other takes over, and the first wakes up."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import waltz
from tests.unit.client.examples import PROGRAMS
from waltz.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SESSION_TIMEOUT_MS = 2000


@contextmanager
def leader(program: Path, cluster: LocalCluster, name: str) -> "Iterator[subprocess.Popen[str]]":
    arguments = [sys.executable, str(program), str(cluster.layout.client_config_path), name]
    environment = {**os.environ, "WALTZ_ZOOKEEPER_SESSION_TIMEOUT": str(SESSION_TIMEOUT_MS)}
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def led_behind(process: "subprocess.Popen[str]") -> int:
    """The transaction that a leader begins behind, once it leads."""
    assert process.stdout is not None
    return int(process.stdout.readline().split()[-1])


def test_a_leader_that_wakes_up_cannot_write(tmp_path: Path) -> None:
    program = tmp_path / "leader.py"
    program.write_text(PROGRAMS["Be the only writer"])
    with LocalCluster(tmp_path / "cluster", partitions=1) as cluster:
        client_config = cluster.layout.client_config_path
        with waltz.blocking.connect(client_config) as reader, leader(program, cluster, "one") as one:
            assert led_behind(one) == -1
            feed = iter(reader.feed(0, after=-1))
            for _ in range(20):
                next(feed)
            one.send_signal(signal.SIGSTOP)
            with leader(program, cluster, "two") as two:
                end = led_behind(two)
                next(record for record in feed if record.transaction_id > end)
                one.send_signal(signal.SIGCONT)
                output, errors = one.communicate()
                assert (one.returncode, output) == (1, "")
                assert "one leads no longer: partition 0: write session" in errors
                for _ in range(20):  # behind whatever the first had sent
                    next(feed)
            last = reader.high_water_mark(0)
            records = list(reader.feed(0, after=-1, until=last))
    steps = [record.data.decode() for record in records]
    assert [step.split(" by ")[1] for step in steps] == ["one"] * (end + 1) + ["two"] * (last - end)
    assert [step.split(" by ")[0] for step in steps] == [f"step {n}" for n in range(1, len(steps) + 1)]


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


def test_an_elected_leader_that_wakes_up_cannot_write_and_is_elected_again(tmp_path: Path) -> None:
    program = tmp_path / "candidate.py"
    program.write_text(PROGRAMS["Elect a leader"])
    with LocalCluster(tmp_path / "cluster", partitions=1, plaintext=True) as cluster:
        client_config = cluster.layout.client_config_path
        with waltz.blocking.connect(client_config) as reader, leader(program, cluster, "one") as one:
            first = int(line(one).removeprefix("one leads in term "))
            observation = reader.election(0).observe()
            assert next(observation) == ("one", first)
            feed = iter(reader.feed(0, after=-1))
            for _ in range(20):
                next(feed)
            with leader(program, cluster, "two") as two:
                one.send_signal(signal.SIGSTOP)
                second = int(line(two).removeprefix("two leads in term "))
                own = f"by two in term {second}".encode()
                next(record for record in feed if record.data == own)
                one.send_signal(signal.SIGCONT)
                assert line(one) == "one leads no longer"
                for _ in range(20):
                    assert next(feed).data == own
                two.kill()
                third = int(line(one).removeprefix("one leads in term "))
                next(record for record in feed if record.data == f"by one in term {third}".encode())
                assert next(leads for leads in observation if leads == ("one", third))
            observation.close()
            log = [record.data.decode() for record in reader.feed(0, after=-1, until=reader.high_water_mark(0))]
    assert first < second < third
    terms = [int(data.split()[-1]) for data in log]
    assert terms == sorted(terms)
    assert {(data.split()[1], term) for data, term in zip(log, terms, strict=True)} == {
        ("one", first),
        ("two", second),
        ("one", third),
    }
