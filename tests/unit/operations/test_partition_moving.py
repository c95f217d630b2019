"""Plans that are carried out: step by step, and stopped where the cluster does something else."""

import argparse
import asyncio
import functools
import json
from collections.abc import Iterable

import pytest

from tests.unit.client.fake_server import Connection
from tests.unit.operations.survey.nodes import ORIGINAL, Nodes, running
from waltz.cli import cluster, server
from waltz.cli.main import parser
from waltz.common.cluster.policy import assign
from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    Message,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
)
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import read_partition_assignment, read_server_descriptors
from waltz.operations import partition_moving
from waltz.operations.partition_moves import PreferenceChange


class Coordinator:
    """Makes the servers do what they are asked for, as the policy wants it."""

    def __init__(self, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
        self._nodes = nodes
        self._tasks: list[asyncio.Task[None]] = []
        self.refuses = False
        self.forgets = False
        """Answers, but nothing moves."""
        self.health: dict[int, bool] = {}
        self.served: list[int] = []
        for server_id, each in enumerate(nodes.servers, 1):
            each.filter = functools.partial(self._take, server_id)
        monkeypatch.setattr(partition_moving, "read_committed_marks", self._marks)

    async def _marks(self, _cluster: object, partition_ids: Iterable[int], **_: object) -> dict[int, int]:
        self.served += partition_ids
        return {}

    def _take(self, server_id: int, connection: Connection, message: Message) -> bool:
        if isinstance(message, ServerPartitionsHealthStatRequest):
            connection.send(ServerPartitionsHealthStatResponse(message.req_id, tuple(self.health.items())))
            return True
        if isinstance(message, AddPreferredPartitionRequest):
            step = PreferenceChange(server_id, True, tuple(message.partition_ids))
            connection.send(AddPreferredPartitionResponse(message.req_id, not self.refuses))
        elif isinstance(message, RemovePreferredPartitionRequest):
            step = PreferenceChange(server_id, False, tuple(message.partition_ids))
            connection.send(RemovePreferredPartitionResponse(message.req_id, not self.refuses))
        else:
            return False
        if not (self.refuses or self.forgets):
            self._tasks.append(asyncio.ensure_future(self._change(step)))
        return True

    async def _change(self, step: PreferenceChange) -> None:
        now = await partition_moving.read_ownership(self._nodes.session.cluster)
        after = now.after([step])
        zookeeper, paths = self._nodes.zookeeper, ClusterPaths.of(self._nodes.session.root)
        for name in await zookeeper.children(paths.server_descriptors):
            path = f"{paths.server_descriptors}/{name}"
            found = next(each for each in after.servers if f"s_{each.server_id - 1:010d}" == name)
            await zookeeper.set(path, found.encode())
        await zookeeper.set(paths.server_descriptors, after.assignment.encode())


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args([*arguments, "-c", "unused.yml"])


async def owners(nodes: Nodes) -> dict[int, int]:
    return (await partition_moving.read_ownership(nodes.session.cluster)).owners()


async def test_drained_and_balanced_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(ORIGINAL, ORIGINAL) as nodes:
        coordinator = Coordinator(nodes, monkeypatch)
        drain = ("server", "drain", "-s", str(nodes.servers[0].endpoint))
        await server._drain(options(*drain, "--plan"), nodes.session)
        assert capsys.readouterr().out.splitlines() == [
            f"server {nodes.servers[1].endpoint} prefers partition 1",
            f"server {nodes.servers[1].endpoint} prefers partition 0",
            f"partition 0 moves from server {nodes.servers[0].endpoint} to server {nodes.servers[1].endpoint}",
        ]
        assert await owners(nodes) == {0: 1, 1: 2}
        with pytest.raises(WaltzError, match="give --yes"):
            await server._drain(options(*drain), nodes.session)
        capsys.readouterr()
        await server._drain(options(*drain, "--yes", "--json"), nodes.session)
        assert json.loads(capsys.readouterr().out) == {
            "applied": True,
            "steps": [],
            "moves": [{"partition": 0, "from": 1, "to": 2}],
        }
        assert await owners(nodes) == {0: 2, 1: 2}
        assert coordinator.served == [0]
        await cluster._rebalance(options("cluster", "rebalance", "--apply", "-y"), nodes.session)
        assert sorted((await owners(nodes)).values()) == [1, 2]
        assert "served again after" in capsys.readouterr().out
        await cluster._rebalance(options("cluster", "rebalance", "--apply"), nodes.session)
        assert capsys.readouterr().out.startswith("nothing is to be done: each server has")


async def test_what_does_not_go_as_planned_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(ORIGINAL, ORIGINAL) as nodes:
        coordinator = Coordinator(nodes, monkeypatch)
        drain = options("server", "drain", "-s", str(nodes.servers[0].endpoint), "--yes", "-t", "1")
        coordinator.refuses = True
        with pytest.raises(WaltzError, match=r"server .* refused; run the command again"):
            await server._drain(drain, nodes.session)
        coordinator.refuses = False
        coordinator.forgets = True
        with pytest.raises(WaltzError, match="within 1 s the cluster has not followed"):
            await server._drain(drain, nodes.session)
        with pytest.raises(WaltzError, match="there is no server elsewhere:1 in the cluster"):
            await server._drain(options("server", "drain", "-s", "elsewhere:1"), nodes.session)


async def test_the_only_server_is_not_drained() -> None:
    async with running(ORIGINAL) as nodes:
        assert len(await read_server_descriptors(nodes.zookeeper, nodes.session.root)) == 1
        stored = await read_partition_assignment(nodes.zookeeper, nodes.session.root)
        assert assign(0, stored, 2, ()).servers == {}
        with pytest.raises(WaltzError, match="this is the only server: no other server could take its partitions"):
            await server._drain(options("server", "drain", "-s", str(nodes.servers[0].endpoint)), nodes.session)


async def test_nothing_is_begun_with_a_server_that_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(ORIGINAL, ORIGINAL) as nodes:
        coordinator = Coordinator(nodes, monkeypatch)
        drain = options("server", "drain", "-s", str(nodes.servers[0].endpoint), "--yes", "-t", "5")
        coordinator.health = {1: False}
        with pytest.raises(WaltzError, match=r"server .* calls partition 1 unhealthy; .*; nothing was done"):
            await server._drain(drain, nodes.session)
        await nodes.servers[1].close()
        with pytest.raises(WaltzError, match=r"server .* does not answer: .*; nothing was done"):
            await server._drain(drain, nodes.session)
        assert await owners(nodes) == {0: 1, 1: 2}
    async with running(ORIGINAL, (0, 1)) as nodes:
        drain = options("server", "drain", "-s", str(nodes.servers[0].endpoint), "--yes")
        with pytest.raises(WaltzError, match="speaks version 1, which has no preferred partitions; nothing was done"):
            await server._drain(drain, nodes.session)
