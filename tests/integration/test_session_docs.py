"""The documentation's leader, in two processes: one is paused, the other takes over, and the first wakes up."""

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


@contextmanager
def leader(program: Path, cluster: LocalCluster, name: str) -> "Iterator[subprocess.Popen[str]]":
    arguments = [sys.executable, str(program), str(cluster.layout.client_config_path), name]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
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
