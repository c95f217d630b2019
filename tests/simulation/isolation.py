"""A partition that is dead beside others that are not: its trouble is its own (rule L4)."""

import asyncio

from tests.simulation.target import Fault, Target


async def dead_partition(target: Target, fault: Fault) -> None:
    """A partition has no quorum for half a minute."""
    cluster, world = target.cluster, target.world
    partition_id = fault.victim % world.options.partitions
    others = {storage for number, hosts in enumerate(cluster.replicas) if number != partition_id for storage in hosts}
    storages = [storage for storage in cluster.replicas[partition_id] if storage not in others]
    away = storages[: len(cluster.replicas[partition_id]) // 2 + 1]
    target.say(fault, f"partition {partition_id}", f"loses {len(away)} of its storages")
    world.excused.add(partition_id)
    for storage in away:
        storage.kept_away = True
        storage.crash(power_loss=False)
    await asyncio.sleep(max(min(45.0, world.options.duration_s - 8.0 - world.loop.now_s), 5.0))
    for storage in away:
        storage.kept_away = False
        storage.start()
