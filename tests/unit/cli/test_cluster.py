"""What the verbs that look at a whole cluster print, and how they end."""

import argparse
import asyncio
import logging

import pytest

from tests.unit.cli.test_server_metrics import server_registry
from tests.unit.common.cluster.fakes import make_log
from tests.unit.operations.survey.nodes import ORIGINAL, OURS, ROOT, STORAGES, Nodes, running
from waltz.cli import cluster
from waltz.cli.main import parser
from waltz.common.errors import WaltzError
from waltz.common.net.http import HttpServer
from waltz.common.wire.client_server import HighWaterMarkRequest
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import read_connections
from waltz.operations.survey.checks import Check
from waltz.table.properties import change_properties

REACHED = ("127.0.0.1:6000=true", "127.0.0.1:6001=false", "127.0.0.1:6002=true")


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["cluster", *arguments, "-c", "unused.yml"])


async def verify(nodes: Nodes, *arguments: str) -> None:
    await cluster._verify(options("verify", *arguments), nodes.session)


async def test_which_storages_servers_reach(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        nodes.reached[STORAGES[1]] = False
        await nodes.servers[1].close()
        await cluster._check_connectivity(options("check-connectivity"), nodes.session)
        reached, silent = (server.endpoint for server in nodes.servers)
    expected = {
        f"Connectivity status of {reached} is: {{127.0.0.1:6000=true, 127.0.0.1:6001=false, 127.0.0.1:6002=true}}",
        f"Connectivity status of {silent} is: UNREACHABLE",
    }
    assert set(capsys.readouterr().out.splitlines()) == expected
    assert str(silent) in caplog.text


async def test_a_cluster_that_has_replicas_is_not_created_again(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    create = ("create", "-n", "fake", "-p", "2", "-s", "new:1:2")
    async with running(ORIGINAL, OURS) as nodes:
        await cluster._create(options(*create), nodes.session)
        assert (await read_connections(nodes.zookeeper, ROOT)).admin_ports.keys() == set(STORAGES)
        assert "new:1 is not among its storage nodes; to add it: waltz zookeeper add-storage-node" in caplog.text
        assert capsys.readouterr().out == f"cluster fake at {ROOT}: 2 partitions, 0 storages\n"


async def test_a_cluster_that_passes(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        await verify(nodes)
        assert capsys.readouterr().out == f"Passed: all {2 * len(Check)} checks\n"
        await verify(nodes, "-p", "1", "--exit-code")
        assert capsys.readouterr().out == f"Passed: all {len(Check)} checks\n"


async def test_disabled_partitions_of_the_original_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for partition_id in (0, 1):
            await change_properties(nodes.zookeeper, ROOT, partition_id, {"disabled": True})
        await nodes.zookeeper.create(ClusterPaths.of(ROOT).partition_properties(7), b"something else")
        await verify(nodes, "--exit-code")
        warning, passed = capsys.readouterr().out.splitlines()
        assert warning.startswith("Warning: partition 0 is disabled, and its owner, server 1 (")
        assert passed == f"Passed: all {2 * len(Check)} checks"
        await verify(nodes, "-p", "1")
        assert "Warning" not in capsys.readouterr().out


async def test_replicas_that_are_behind_are_given_a_moment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for _ in range(3):
            nodes.logs[0].add(b"")
        for storage, count in zip(nodes.storages, (3, 4, 2), strict=True):
            storage.logs = {0: make_log(0, count)}
        monkeypatch.setattr(cluster, "LATE_S", 0.0)
        await verify(nodes)
        assert capsys.readouterr().out.splitlines()[1:] == [
            f"  storage {STORAGES[2]} lacks committed transactions",
            "Failed: 1 of 14 checks",
        ]

        async def catch_up(_delay_s: float) -> None:
            nodes.storages[2].logs = {0: make_log(0, 3)}

        monkeypatch.setattr(asyncio, "sleep", catch_up)
        await verify(nodes)
        assert capsys.readouterr().out == "Passed: all 14 checks\n"


async def test_what_is_committed_may_not_be_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        tell = nodes.servers[0].filter
        for server in nodes.servers:
            server.filter = lambda connection, message: (
                isinstance(message, HighWaterMarkRequest) or tell(connection, message)
            )
        monkeypatch.setattr(cluster, "MARK_TIMEOUT_S", 0.05)
        await verify(nodes, "--exit-code")
        *warnings, passed = capsys.readouterr().out.splitlines()
        for partition_id, warning in enumerate(warnings):
            assert warning.startswith(
                f"Warning: whether the replicas of partition {partition_id} have what is committed is not known: "
            )
        assert (len(warnings), passed) == (2, "Passed: all 14 checks")


async def test_a_cluster_that_fails(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for storage in nodes.storages[:2]:
            storage.status[1] = False
        lines = [
            "partition 1: PARTITION_QUORUM_STATUS failed; expected: more than half of its replicas are online",
            f"  1 of 3 replicas are online: {STORAGES[2]}",
            f"partition 1: REPLICA_RECOVERY_STATUS failed; expected: {Check.REPLICA_RECOVERY_STATUS.value}",
            *(f"  storage {each} has it switched off (waltz storage availability)" for each in STORAGES[:2]),
            "Failed: 2 of 14 checks",
        ]
        await verify(nodes)
        assert capsys.readouterr().out.splitlines() == lines
        with pytest.raises(WaltzError, match="2 of 14 checks failed"):
            await verify(nodes, "--exit-code")
        capsys.readouterr()
        with caplog.at_level(logging.INFO):
            await verify(nodes, "-l", "-t", "5")
        assert [record.getMessage() for record in caplog.records] == lines
        assert capsys.readouterr().out == ""
        await verify(nodes, "-p", "0")
        assert capsys.readouterr().out == "Passed: all 7 checks\n"


async def test_partitions_that_do_not_exist() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for arguments in (("-p", "2"), ("--session-partitions", "0-2")):
            with pytest.raises(WaltzError, match="there is no partition 2; the cluster has 2"):
                await verify(nodes, *arguments)


async def test_partitions_with_session_clients_where_a_server_knows_none(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        await verify(nodes, "--session-partitions", "0,1")
        at_owner, may_move, banner = capsys.readouterr().out.splitlines()
        assert at_owner.startswith("Warning: partition 0 has clients with write sessions, and its owner, server 1 (")
        assert may_move.startswith("Warning: partition 1 has clients with write sessions, and may move to servers")
        assert banner.startswith("Passed")
        await verify(nodes, "-p", "1", "--session-partitions", "0", "--exit-code")
        assert capsys.readouterr().out == "Passed: all 7 checks\n"


async def test_session_clients_are_seen_in_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        registry, sessions, _ = server_registry(str(nodes.servers[1].endpoint))
        http = await HttpServer.open("127.0.0.1", 0, registry)
        where = ("--http", f"127.0.0.1:{http.port}")
        await verify(nodes, *where)
        assert capsys.readouterr().out.splitlines() == ["Passed: all 14 checks"]
        sessions[0].session.begin(6, holder=3)
        await verify(nodes, *where)
        assert "Warning: partition 0 has clients with write sessions" in capsys.readouterr().out
        await http.close()
        await verify(nodes, *where)
        assert f"Warning: the metrics at 127.0.0.1:{http.port} cannot be read: " in capsys.readouterr().out
