"""What the verbs that look at a whole cluster print, and how they end."""

import argparse
import json
import logging

import pytest

from tests.unit.cli.test_server_metrics import server_registry
from tests.unit.console.fakes import cluster as fake_cluster
from tests.unit.console.fakes import in_trouble
from tests.unit.operations.survey.nodes import ORIGINAL, OURS, ROOT, STORAGES, Nodes, prefer, running
from waltz.cli import cluster
from waltz.cli.main import parser
from waltz.common.errors import WaltzError
from waltz.common.net.http import HttpServer
from waltz.common.storage_health import StorageHealth
from waltz.common.wire.client_server import HighWaterMarkRequest
from waltz.common.zk.features import TRIM, read_features, write_features
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.storage_labels import change_labels
from waltz.common.zk.store_admin import read_connections
from waltz.operations.survey import evidence
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
        assert "exists without the storage node new:1; to add the node: waltz zookeeper add-storage-node" in caplog.text
        assert capsys.readouterr().out == f"cluster fake at {ROOT}: 2 partitions, 0 storages\n"


@pytest.mark.parametrize("name", ["assignment", "connection"])
async def test_a_cluster_whose_tree_is_damaged_is_not_to_be_created(name: str) -> None:
    async with running(OURS, OURS) as nodes:
        await nodes.zookeeper.delete(f"{ROOT}/store/{name}")
        damaged = f"the tree of the cluster at {ROOT} is damaged: {ROOT}/store/{name} is missing in ZooKeeper"
        with pytest.raises(WaltzError, match=damaged):
            await cluster._create(options("create", "-n", "fake", "-p", "2", "-s", "a:1:2"), nodes.session)
        with pytest.raises(WaltzError, match=damaged):
            await verify(nodes)


async def test_a_cluster_that_passes(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        await verify(nodes)
        assert capsys.readouterr().out == f"Passed: all {2 * len(Check) + 5} checks\n"
        await verify(nodes, "-p", "1", "--exit-code")
        assert capsys.readouterr().out == f"Passed: all {len(Check) + 5} checks\n"


def test_a_reason_that_not_all_have_names_its_partitions() -> None:
    lines = cluster.failure_lines(in_trouble(fake_cluster(30, servers=2, storages=5)))
    begin = lines.index(
        "17 partitions have replicas without full part in their store session (2-4,7-9,12-14,18-19,22-24,27-29): "
        "REPLICA_RECOVERY_STATUS failed"
    )
    dead = "storage storage-5.example:55280"
    assert lines[begin + 1] == f"  partitions 2, 9, 23: {dead} was left in session 41; session 42 is the present one"
    assert f"  {dead}: " not in "".join(lines)


async def test_disabled_partitions_of_the_original_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for partition_id in (0, 1):
            await change_properties(nodes.zookeeper, ROOT, partition_id, {"disabled": True})
        await nodes.zookeeper.create(ClusterPaths.of(ROOT).partition_properties(7), b"something else")
        await verify(nodes, "--exit-code")
        warning, passed = capsys.readouterr().out.splitlines()
        assert warning.startswith("Warning: partition 0 is disabled, and its owner, server 127.0.0.1:")
        assert passed == f"Passed: all {2 * len(Check) + 5} checks"
        await verify(nodes, "-p", "1")
        assert "Warning" not in capsys.readouterr().out


async def test_nodes_of_the_original_beside_trims_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        old, _ = (server.endpoint for server in nodes.servers)
        before = await read_features(nodes.zookeeper, ROOT)
        await write_features(nodes.zookeeper, ROOT, frozenset({TRIM}), before)
        await verify(nodes, "--exit-code")
        lines = capsys.readouterr().out.splitlines()
        assert (
            f"Warning: server {old} is a node of the original, or of an older version, although the cluster has the "
            "feature trim: nothing is trimmed until it is taken out of the cluster"
        ) in lines


async def test_a_replica_that_lags(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for _ in range(3):
            nodes.logs[0].add(b"")
        for storage, last_id in zip(nodes.storages, (2, 3, 1), strict=True):
            storage.last_ids[0] = last_id
        monkeypatch.setattr(evidence, "LATE_S", 0.0)
        await verify(nodes)
        assert capsys.readouterr().out.splitlines() == [
            "partition 0 has replicas without full part in its store session: REPLICA_RECOVERY_STATUS failed",
            f"  storage {STORAGES[2]} lacks 1 committed transaction",
            "  do: wait, and see whether the lag falls (docs/runbook.md#replica-lagging)",
            "Failed: 1 of 19 checks",
        ]


async def test_a_storage_that_is_not_well_and_partitions_that_two_servers_prefer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with running(OURS, OURS) as nodes:
        nodes.storages[1].health = StorageHealth(damaged={1: "transactions 30 to 30"})
        await prefer(nodes, 1)
        with pytest.raises(WaltzError, match="1 of 19 checks failed"):
            await verify(nodes, "--exit-code")
        damage, do, warning, failed = capsys.readouterr().out.splitlines()
        assert (
            damage
            == f"storage {STORAGES[1]}: damaged records in partition 1: transactions 30 to 30: NODE_HEALTH failed"
        )
        admin = f"127.0.0.1:{nodes.storages[1].admin_port}"
        assert do == f"  do: waltz storage repair -s {admin} -p 1 (docs/runbook.md#damaged-data)"
        assert warning.startswith("Warning: several servers prefer partition 1: 127.0.0.1:")
        assert failed == "Failed: 1 of 19 checks"
        await verify(nodes, "--json")
        (failure,) = json.loads(capsys.readouterr().out)["failures"]
        assert (failure["node"], failure["check"]) == (f"storage {STORAGES[1]}", cluster.NODE_HEALTH)


async def test_partitions_with_the_same_trouble_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(OURS, OURS) as nodes:
        await nodes.storages[2].stop()
        for storage in nodes.storages[:2]:
            storage.status = {0: True, 1: False}
        await verify(nodes)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "partition 1 has no quorum of replicas online: appends wait: PARTITION_QUORUM_STATUS failed"
        assert f"storage {STORAGES[2]} does not answer, and holds 2 replicas: NODE_HEALTH failed" in lines
        assert len([line for line in lines if "has it switched off" in line]) == 2


async def test_what_is_committed_may_not_be_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        tell = nodes.servers[0].filter
        for server in nodes.servers:
            server.filter = lambda connection, message: (
                isinstance(message, HighWaterMarkRequest) or tell(connection, message)
            )
        monkeypatch.setattr(evidence, "MARK_TIMEOUT_S", 0.05)
        await verify(nodes, "--exit-code")
        *warnings, passed = capsys.readouterr().out.splitlines()
        for partition_id, warning in enumerate(warnings):
            assert warning.startswith(
                f"Warning: it is unknown whether the replicas of partition {partition_id} have all commits: "
            )
        assert (len(warnings), passed) == (2, "Passed: all 19 checks")


async def test_a_cluster_that_fails(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for storage in nodes.storages[:2]:
            storage.status[1] = False
        admins = [f"127.0.0.1:{each.admin_port}" for each in nodes.storages]
        switch_on = [f"waltz storage availability -s {admin} -p 1 -o true" for admin in admins]
        lines = [
            "partition 1 has no quorum of replicas online: appends wait: PARTITION_QUORUM_STATUS failed",
            f"  1 of 3 replicas are online: {STORAGES[2]}",
            "  do: bring storages back until more than half of the replicas are online (docs/runbook.md#no-quorum)",
            "partition 1 has replicas without full part in its store session: REPLICA_RECOVERY_STATUS failed",
            *(f"  storage {STORAGES[each]} has it switched off ({switch_on[each]})" for each in range(2)),
            f"  do: {switch_on[0]} (docs/runbook.md#under-replicated)",
            "Failed: 2 of 19 checks",
        ]
        await verify(nodes)
        assert capsys.readouterr().out.splitlines() == lines
        with pytest.raises(WaltzError, match="2 of 19 checks failed"):
            await verify(nodes, "--exit-code")
        capsys.readouterr()
        with caplog.at_level(logging.INFO):
            await verify(nodes, "-l", "-t", "5")
        assert [record.getMessage() for record in caplog.records] == lines
        assert capsys.readouterr().out == ""
        await verify(nodes, "-p", "0")
        assert capsys.readouterr().out == "Passed: all 12 checks\n"


async def test_partitions_that_do_not_exist() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for arguments in (("-p", "2"), ("--session-partitions", "0-2")):
            with pytest.raises(WaltzError, match="there is no partition 2; the cluster has 2"):
                await verify(nodes, *arguments)


async def test_partitions_with_session_clients_where_a_server_knows_none(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        await verify(nodes, "--session-partitions", "0,1")
        at_owner, may_move, banner = capsys.readouterr().out.splitlines()
        assert at_owner.startswith(
            "Warning: partition 0 has clients with write sessions, and its owner, server 127.0.0.1:"
        )
        assert may_move.startswith("Warning: partition 1 has clients with write sessions, and may move to servers")
        assert banner.startswith("Passed")
        await verify(nodes, "-p", "1", "--session-partitions", "0", "--exit-code")
        assert capsys.readouterr().out == "Passed: all 12 checks\n"


async def test_session_clients_are_seen_in_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        registry, sessions, _ = server_registry(str(nodes.servers[1].endpoint))
        http = await HttpServer.open("127.0.0.1", 0, registry)
        where = ("--http", f"127.0.0.1:{http.port}")
        await verify(nodes, *where)
        assert capsys.readouterr().out.splitlines() == ["Passed: all 19 checks"]
        sessions[0].session.begin(6, holder=3)
        await verify(nodes, *where)
        assert "Warning: partition 0 has clients with write sessions" in capsys.readouterr().out
        await http.close()
        await verify(nodes, *where)
        assert f"Warning: the metrics at 127.0.0.1:{http.port} cannot be read: " in capsys.readouterr().out


async def test_partitions_that_one_zone_would_stop_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for storage, rack in zip(STORAGES, "aab", strict=True):
            await change_labels(nodes.zookeeper, ROOT, storage, {"rack": rack})
        await verify(nodes, "--exit-code")
        assert capsys.readouterr().out.splitlines()[0] == (
            "Warning: the death of rack=a would stop partitions 0-1: add storages in another rack, then waltz cluster "
            "rebalance --replicas --apply (docs/runbook.md#zones)"
        )
        await nodes.zookeeper.set(ClusterPaths.of(ROOT).storage_labels(STORAGES[0]), b"[]")
        await verify(nodes, "--exit-code")
        assert f"{STORAGES[0]} does not hold a JSON object of labels" in capsys.readouterr().out
