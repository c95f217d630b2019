"""Replicas move to other zones and emptier storages, over storages and a server of the test's own."""

import argparse
import json

import pytest

from tests.unit.operations.test_replica_moving import DESTINATION, OTHERS, ROOT, SOURCE, World, world
from waltz.cli import replica_rebalancing as command
from waltz.cli.cluster import _rebalance
from waltz.cli.main import parser
from waltz.cli.session import Session
from waltz.common.cluster.placement import Move
from waltz.common.errors import WaltzError
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.storage_labels import add_to_ring, change_labels, write_ring
from waltz.operations import placing, replica_rebalancing
from waltz.operations.replica_moves import ReplicaMove
from waltz.operations.replica_rebalancing import RebalancePlan, outcome, plan_replicas, rebalance_replicas

ONE, TWO = OTHERS


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_cluster: object, storages: list[str], _timeout_s: float) -> dict[str, str]:
        return dict.fromkeys(storages, "silent")

    monkeypatch.setattr(placing, "ask_storages", ask)
    monkeypatch.setattr(replica_rebalancing, "LOOK_AGAIN_S", 0.002)


async def label(made: World, **zones: str) -> None:
    for name, zone in zones.items():
        await change_labels(made.zookeeper, ROOT, f"{name}:1", {"rack": zone})


async def carry_out(made: World, plan: RebalancePlan, timeout_s: float = 5.0) -> dict[str, list[int]]:
    return await rebalance_replicas(
        made.cluster,
        plan,
        copy_bytes_per_s=1000,
        timeout_s=timeout_s,
        report=made.lines.append,
        progress=lambda *_: pytest.fail("shown"),
    )


async def test_an_empty_storage_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        plan = await plan_replicas(made.cluster, None)
        assert (plan.begun, plan.moves) == ([], [Move(0, SOURCE, DESTINATION)])
        assert plan.lines() == [f"partition 0: a replica moves from {SOURCE} to {DESTINATION}"]
        assert await carry_out(made, plan) == {}
        assert await made.assigned(0) == {DESTINATION, *OTHERS}
        assert await made.assigned(1) == {SOURCE, *OTHERS}
        assert made.files[SOURCE] == {1}
        assert made.lines[-1] == f"partition 0 has moved from {SOURCE} to {DESTINATION}: 1 of 1"
        assert [each.bytes_per_s for *_, each in made.filled] == [1000]
        assert await plan_replicas(made.cluster, None) == ([], [])


async def test_replicas_in_one_zone_are_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        await label(made, s0="x", s1="x", s2="y", d="z")
        await carry_out(made, await plan_replicas(made.cluster, None))
        for partition_id in (0, 1):
            held = await made.assigned(partition_id)
            assert {DESTINATION, TWO} < held
            assert len(held) == 3
        assert await plan_replicas(made.cluster, ("rack",)) == ([], [])


async def test_a_storage_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        plan = await plan_replicas(made.cluster, None, [ONE])
        assert [(each.source, each.destination) for each in plan.moves] == [(ONE, DESTINATION)] * 2
        await carry_out(made, plan)
        assert made.files[ONE] == set()
        with pytest.raises(WaltzError, match="no storage node can take partition 0 from"):
            await plan_replicas(made.cluster, None, [ONE, TWO])
        with pytest.raises(WaltzError, match="there is no storage node e:1 in the cluster; there are: d:1, s0:1"):
            await plan_replicas(made.cluster, None, ["e:1"])


async def test_a_replica_that_is_on_its_way_arrives_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        await made.zookeeper.create(
            ClusterPaths.of(ROOT).replica_move(1), ReplicaMove(TWO, DESTINATION).encode(), make_path=True
        )
        plan = await plan_replicas(made.cluster, None)
        assert (plan.begun, plan.moves) == ([Move(1, TWO, DESTINATION)], [])
        assert plan.lines() == [f"partition 1: a replica arrives that is on its way from {TWO} to {DESTINATION}"]
        await carry_out(made, plan)
        assert await made.assigned(1) == {SOURCE, ONE, DESTINATION}
        assert await made.moves() == []


async def test_nothing_moves_while_another_replica_is_not_current(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.offline.add((TWO, 0))
        plan = await plan_replicas(made.cluster, None)
        with pytest.raises(WaltzError, match=rf"partition 0: for 0.05 s the replicas on {TWO} have not been current"):
            await carry_out(made, plan, timeout_s=0.05)
        assert await made.assigned(0) == {SOURCE, *OTHERS}
        assert made.filled == []
        made.offline.clear()
        await carry_out(made, plan)
        assert await made.assigned(0) == {DESTINATION, *OTHERS}


async def test_a_dead_storage_is_emptied_and_its_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.down.add(SOURCE)
        left = await carry_out(made, await plan_replicas(made.cluster, None, [SOURCE]))
        assert left == {SOURCE: [0, 1]}
        assert outcome(left) == [
            (
                f"{SOURCE} does not answer: when it is back, delete its files of partitions 0-1 (waltz storage "
                "remove-partition -d)"
            )
        ]
        assert await made.assigned(0) == {DESTINATION, *OTHERS}


async def test_single_replicas_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch, 1) as made:
        assert await plan_replicas(made.cluster, None) == ([], [])
        with pytest.raises(WaltzError, match="partitions 0-1 would have to leave with a single replica"):
            await plan_replicas(made.cluster, None, [SOURCE])


async def test_partitions_stay_in_their_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        await write_ring(made.zookeeper, ROOT, "gold", [SOURCE, *OTHERS])
        await add_to_ring(made.zookeeper, ROOT, "gold", [0, 1])
        assert await plan_replicas(made.cluster, None) == ([], [])


async def test_what_cannot_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        await label(made, s0="x")
        with pytest.raises(WaltzError, match="storage d:1 has no label rack: waltz storage label d:1 rack="):
            await plan_replicas(made.cluster, None)
        assert len((await plan_replicas(made.cluster, ())).moves) == 1
        await made.zookeeper.create(f"{ClusterPaths.of(ROOT).replica_moves}/notes", None)
        with pytest.raises(WaltzError, match="notes is not named for a partition"):
            await plan_replicas(made.cluster, ())


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["cluster", "rebalance", "-c", "unused.yml", *arguments])


async def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async with world(monkeypatch) as made:
        session = Session(made.zookeeper, ROOT, None)
        with pytest.raises(WaltzError, match="add --replicas"):
            await _rebalance(options("--plan", "--rate", "5"), session)
        await _rebalance(options("--replicas", "--plan", "--json"), session)
        document = json.loads(capsys.readouterr().out)
        assert document["applied"] is False
        assert document["moves"] == [{"partition": 0, "from": SOURCE, "to": DESTINATION}]
        await command._carry_out(options("--replicas", "--apply", "--yes", "--rate", "5"), made.cluster)
        assert capsys.readouterr().out.splitlines()[-1] == command.DONE
        assert made.filled[0][2].bytes_per_s == 5_000_000
        await _rebalance(options("--replicas", "--plan"), session)
        assert capsys.readouterr().out == f"nothing is to be done: {command.DONE}\n"
