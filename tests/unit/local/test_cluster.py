"""Local clusters: whose end is a failure."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from waltz.common.errors import WaltzError
from waltz.local.cluster import LocalCluster
from waltz.local.processes import Children


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """A cluster whose nodes only sleep."""
    cluster = LocalCluster(tmp_path)
    cluster.layout.write()
    return cluster


def test_a_node_that_another_thread_ends_during_a_check_has_not_failed(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Children() as children:
        cluster._children = children
        first = cluster._start("first", ["sleep", "60"])
        cluster._start("second", ["sleep", "60"])
        cluster._start("third", ["sleep", "60"])
        poll = subprocess.Popen.poll
        to_end = ["second"]

        def poll_while_another_is_ended(process: subprocess.Popen[bytes]) -> int | None:
            if process is first._process and to_end:
                cluster.kill(to_end.pop())
            return poll(process)

        monkeypatch.setattr(subprocess.Popen, "poll", poll_while_another_is_ended)
        cluster.check()
        assert not to_end
        assert sorted(cluster.processes()) == ["first", "third"]


def test_a_node_that_ends_by_itself_has_failed(cluster: LocalCluster) -> None:
    with Children() as children:
        cluster._children = children
        child = cluster._start("first", ["sleep", "60"])
        os.killpg(child.process_id, signal.SIGKILL)
        child.wait(10)
        with pytest.raises(WaltzError, match="first ended with exit code -9"):
            cluster.check()
