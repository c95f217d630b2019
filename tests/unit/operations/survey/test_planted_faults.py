"""Each fault that is planted in a cluster, and what ``status``, ``verify``, the console and health answers say of it.

They say the same: a fault that one of them calls trouble is called well by none.
"""

import argparse
import json
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from tests.unit.common.cluster.fakes import SESSION, make_metadata
from tests.unit.operations.survey.nodes import OURS, ROOT, STORAGES, Nodes, prefer, running
from waltz.cli import cluster, status
from waltz.cli.main import parser
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.storage_health import StorageHealth, find_ailments
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaAssignments, ServerDescriptor
from waltz.console.document import cluster_parts
from waltz.operations.survey import evidence

FULL = "[Errno 28] No space left on device"
FIRST, SECOND, THIRD = STORAGES


class Fault(NamedTuple):
    """A fault, and what is said of partition 0."""

    plant: Callable[[Nodes], Awaitable[None]]
    status: str
    """In its row, or in the line of a node."""
    verify: str
    console: str
    do: str
    """What mends it, which all say."""
    is_warning: bool = False
    """It is no trouble yet: only ``verify`` warns of it."""


async def nothing(nodes: Nodes) -> None:
    """Transactions are in flight: a storage has one more than the owner calls committed."""
    nodes.storages[0].last_ids[0] += 1


async def switch_off(nodes: Nodes) -> None:
    nodes.storages[2].status[0] = False


async def kill_one(nodes: Nodes) -> None:
    await nodes.storages[2].stop()


async def kill_spare(nodes: Nodes) -> None:
    held = ReplicaAssignments({FIRST: (0, 1), SECOND: (0, 1), THIRD: ()})
    paths = ClusterPaths.of(ROOT)
    await nodes.zookeeper.set(paths.assignment, held.encode())
    for partition_id in range(2):
        states = dict.fromkeys((FIRST, SECOND), (SESSION, UNRESOLVED))
        await nodes.zookeeper.set(paths.partition(partition_id), make_metadata(partition_id, states).encode())
    await nodes.storages[2].stop()


async def kill_idle_server(nodes: Nodes) -> None:
    paths = ClusterPaths.of(ROOT)
    gone = ServerDescriptor(3, Endpoint("127.0.0.1", 1))
    await nodes.zookeeper.create(paths.server_descriptor("s_"), gone.encode(), ephemeral=True, sequential=True)


async def kill_two(nodes: Nodes) -> None:
    await nodes.storages[1].stop()
    await nodes.storages[2].stop()


async def fall_behind(nodes: Nodes) -> None:
    nodes.storages[2].last_ids[0] -= 1500


async def fill_disk(nodes: Nodes) -> None:
    nodes.storages[2].status[0] = False
    nodes.storages[2].health = StorageHealth({0: FULL}, disk="the disk is almost full: 0 MiB are free")


async def nearly_fill_disk(nodes: Nodes) -> None:
    nodes.storages[2].health = StorageHealth(disk="the disk is almost full: 62 MiB are free, less than 64 MiB")


async def damage(nodes: Nodes) -> None:
    nodes.storages[2].health = StorageHealth(damaged={0: "transactions 30 to 30"})


async def hang(nodes: Nodes) -> None:
    nodes.storages[2].health = StorageHealth(stalled={0: "a read or write has not ended for 12 s"})


async def take_away(nodes: Nodes) -> None:
    del nodes.storages[2].status[0]


async def leave_behind(nodes: Nodes) -> None:
    path = ClusterPaths.of(ROOT).partition(0)
    stored = PartitionMetadata.decode((await nodes.zookeeper.get(path))[0])
    replicas = {
        replica_id: state._replace(session_id=state.session_id - 1, closing_high_water_mark=90)
        if replica_id.connect_string == THIRD
        else state
        for replica_id, state in stored.replicas.items()
    }
    assert all(state.closing_high_water_mark in (90, UNRESOLVED) for state in replicas.values())
    await nodes.zookeeper.set(path, stored._replace(replicas=replicas).encode())


async def lose_record(nodes: Nodes) -> None:
    await nodes.zookeeper.delete(ClusterPaths.of(ROOT).partition(0))


async def cut_line(nodes: Nodes) -> None:
    nodes.reached[THIRD] = False


async def prefer_twice(nodes: Nodes) -> None:
    await prefer(nodes, 0)


NOT_CURRENT = "has replicas without full part in its store session"
FAULTS = {
    "nothing, under load": Fault(nothing, "3 of 3 current", "Passed: all 19 checks", "", ""),
    "one replica switched off": Fault(
        switch_off,
        f"2 of 3 current, {THIRD} offline",
        f"storage {THIRD} has it switched off",
        NOT_CURRENT,
        "waltz storage availability -s ADMIN -p 0 -o true",
    ),
    "one storage killed": Fault(
        kill_one,
        f"2 of 3 current, {THIRD} away",
        f"storage {THIRD} did not report its partitions: ",
        f"storage {THIRD} does not answer, and holds 2 replicas",
        "start the storage, or mend the network to it",
    ),
    "a storage without replicas killed": Fault(
        kill_spare,
        f"{THIRD}  no answer",
        f"storage {THIRD} does not answer, and holds 0 replicas: NODE_HEALTH failed",
        f"storage {THIRD} does not answer, and holds 0 replicas",
        "start the storage, or mend the network to it",
    ),
    "a server without partitions killed": Fault(
        kill_idle_server,
        "  no answer  0",
        " does not answer: NODE_HEALTH failed",
        " does not answer",
        "start it; meanwhile the other servers take its partitions over",
    ),
    "two storages killed": Fault(
        kill_two,
        f"1 of 3 current, {SECOND} away, {THIRD} away",
        f"1 of 3 replicas are online: {FIRST}",
        "no quorum of replicas online: appends wait",
        "bring storages back until more than half of the replicas are online",
    ),
    "a replica 1,500 behind": Fault(
        fall_behind,
        f"2 of 3 current, {THIRD} lagging -1500",
        f"storage {THIRD} lacks 1500 committed transactions",
        NOT_CURRENT,
        "wait, and see whether the lag falls",
    ),
    "disk full": Fault(
        fill_disk,
        f"2 of 3 current, {THIRD} offline",
        f"storage {THIRD} has it out of service: {FULL}",
        f"storage {THIRD}: partition 0 out of service: {FULL}",
        "make room on the disk; then waltz storage sync-partitions",
    ),
    "disk almost full": Fault(
        nearly_fill_disk,
        "online; the disk is almost full: 62 MiB are free, less than 64 MiB",
        f"storage {THIRD}: the disk is almost full: 62 MiB",
        f"storage {THIRD}: the disk is almost full: 62 MiB",
        "make room on the disk, or move replicas away",
    ),
    "damaged record": Fault(
        damage,
        "online; damaged records in partition 0: transactions 30 to 30",
        f"storage {THIRD}: damaged records in partition 0",
        f"storage {THIRD}: damaged records in partition 0",
        "waltz storage repair -s ADMIN -p 0",
    ),
    "a disk that hangs": Fault(
        hang,
        "online; the disk hangs: a read or write has not ended for 12 s",
        f"storage {THIRD}: the disk hangs",
        f"storage {THIRD}: the disk hangs",
        "look at the disk, or stop the node",
    ),
    "preferred by two servers": Fault(
        prefer_twice,
        "all well",
        "Warning: several servers prefer partition 0: ",
        "",
        "waltz server remove-preferred-partition",
        is_warning=True,
    ),
    "partition missing at a storage": Fault(
        take_away,
        f"2 of 3 current, {THIRD} offline",
        f"storage {THIRD} is to hold it and does not",
        "is not known to be held by just the storages it is assigned to",
        "waltz storage sync-partitions",
    ),
    "left behind in an older session": Fault(
        leave_behind,
        f"2 of 3 current, {THIRD} behind",
        f"storage {THIRD} was left in session 6, up to transaction 90; session 7 is the present one",
        NOT_CURRENT,
        "wait a minute; then /health of the partition's server says",
    ),
    "znode store/partition/0 gone": Fault(
        lose_record,
        "3 of 3 current  record missing",
        "its record in ZooKeeper (store/partition/0) is missing, though it has had store sessions",
        "has no record in ZooKeeper any more",
        "restore the record from a backup before a node restarts",
    ),
    "the owner does not reach a storage": Fault(
        cut_line,
        f"2 of 3 current, {THIRD} away",
        f"does not reach storage {THIRD}",
        "have owners that do not reach all their storages",
        "start the storage, or mend the network to it",
    ),
}


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args([*arguments, "-c", "unused.yml"])


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_all_say_the_same_of_a_fault(
    fault: Fault, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "LATE_S", 0.0)
    async with running(OURS, OURS) as nodes:
        for _ in range(2000):
            nodes.logs[0].add(b"")
        for storage in nodes.storages:
            storage.health = StorageHealth()
            storage.last_ids[0] = 1999
        admin = f"127.0.0.1:{nodes.storages[2].admin_port}"
        await fault.plant(nodes)
        do = fault.do.replace("ADMIN", admin)
        is_well = fault.plant is nothing or fault.is_warning

        told = await ended(status._status(options("status", "--interval", "0", "--exit-code"), nodes.session))
        text = capsys.readouterr().out
        assert (told is None) == is_well
        assert fault.status in text
        assert is_well or f"  do: {do}" in text
        assert is_well == (text.splitlines()[0] == f"cluster fake at {ROOT}: 2 partitions, all well")

        told = await ended(cluster._verify(options("cluster", "verify", "--exit-code"), nodes.session))
        text = capsys.readouterr().out
        assert (told is None) == is_well
        assert fault.verify in text
        assert do in text

        state = await status.look(nodes.session, [0, 1], 10)
        document = json.loads("".join(cluster_parts(state, lambda _: None)))
        assert (not document["problems"]) == is_well
        assert is_well or any(
            (fault.console in problem["text"] and problem["do"].startswith(do)) or do in problem["detail"]
            for problem in document["problems"]
        )
        assert state.document()["healthy"] is is_well

        health = nodes.storages[2].health
        at_node = [] if health is None else find_ailments(health, admin)
        if at_node:
            assert do in [each.remedy.do for each in at_node]
            for ailment in at_node:
                assert any(ailment.text in problem["text"] for problem in document["problems"])


async def ended(command: Awaitable[None]) -> str | None:
    try:
        await command
    except WaltzError as error:
        return str(error)
    return None
