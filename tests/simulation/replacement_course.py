"""A storage dies, and the one that is to replace it dies as well: who could commit before can go on (rule L7)."""

import asyncio

from tests.simulation.cluster import ROOT, StorageHost
from tests.simulation.faults import operate
from tests.simulation.loop import Process
from tests.simulation.target import Fault, Target
from waltz.common.zk.store_admin import assign_partitions
from waltz.server.store.log.log import ReplicatedLog

GOES_ON_WITHIN_S = 20.0


async def replace_dead(target: Target, fault: Fault) -> None:
    """A storage dies, and a new one is assigned beside it in the moment in which that dies, too. Later it is taken out
    again."""
    cluster = target.cluster
    partition_id = fault.victim % target.world.options.partitions
    replicas = cluster.replicas[partition_id]
    dead = replicas[fault.other % len(replicas)]
    spare = next((storage for storage in cluster.storages if storage not in replicas), None)
    if spare is None:
        return
    target.say(fault, dead.name, f"dies; so does {spare.name}, as soon as it is assigned beside it")
    keep_away(dead)
    await asyncio.sleep(3.0)

    async def assign_dead(process: Process) -> None:
        async with cluster.admin(spare) as admin:
            await admin.set_assigned([partition_id], True)
            await admin.set_available([partition_id], True)
        keep_away(spare)
        zookeeper = await target.world.ensemble.connect(process, 30.0)
        await assign_partitions(zookeeper, ROOT, spare.connect_string, [partition_id])
        replicas.append(spare)
        await zookeeper.close()

    if await operate(target, assign_dead):
        await asyncio.sleep(GOES_ON_WITHIN_S)
        if not takes_appends(target, partition_id):
            target.checker.unavailable(
                partition_id, f"though {len(replicas) - 2} of its {len(replicas) - 1} replicas live"
            )
        while not await operate(target, lambda process: cluster.remove_replica(process, partition_id, spare)):
            await asyncio.sleep(1.0)
    for storage in (dead, spare):
        storage.kept_away = False
        storage.start()


def keep_away(storage: StorageHost) -> None:
    """SIGKILL, and nobody starts it again."""
    storage.kept_away = True
    storage.crash(power_loss=False)


def takes_appends(target: Target, partition_id: int) -> bool:
    """Whether an owner has a session open in which something was committed or confirmed lately."""
    for host in target.cluster.servers:
        partition = None if host.server is None or not host.running else host.server.partitions.get(partition_id)
        log = None if partition is None else partition._log
        if isinstance(log, ReplicatedLog) and log.open and log.healthy:
            return True
    return False
