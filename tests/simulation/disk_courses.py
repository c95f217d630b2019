"""Courses of events around disks: what comes back after a restart is not the disk that went."""

import asyncio
import random
from collections.abc import Callable, Sequence

from tests.simulation.cluster import CLUSTER_KEY, DIRECTORY, StorageHost
from tests.simulation.courses import around_storage, end_servers
from tests.simulation.disk import SimulatedDisk, SimulatedFiles
from tests.simulation.target import Fault, Target
from waltz.storage.disk.control_file import ControlFile, PartitionInfo


async def roll_back_disk(target: Target, fault: Fault) -> None:
    """A storage gets back a disk as it was when all were in the sessions before. In two of three cases those that share
    with it what was committed since are off when it returns, and the others have missed all of it."""
    async with target.world.disk_course:
        await _roll_back_disk(target, fault)


async def exchange_disks(target: Target, fault: Fault) -> None:
    """Two storages of the same partitions are off, and each is started with the disk of the other. All but one of them,
    at least, have been in the current sessions.

    With other partitions nothing would follow that could go wrong: a storage serves those that its control file names,
    so it would refuse what it is asked for until an operator assigns that to it anew, empty.
    """
    async with target.world.disk_course:
        await _exchange_disks(target, fault)


async def _roll_back_disk(target: Target, fault: Fault) -> None:
    draw = random.Random(fault.other)
    partition_id = fault.victim % target.world.options.partitions
    replicas = target.cluster.replicas[partition_id]
    storage, *others = draw.sample(replicas, len(replicas))
    if not await _until(target, lambda: _is_settled(target, target.cluster.storages)):
        return
    snapshot = storage.disk.durable_copy()
    target.say(fault, storage.name, "will get back its disk as it is")
    behind = others[: len(replicas) - len(replicas) // 2 - 1] if draw.random() < 0.7 else []
    ways = [way for other in behind for way in around_storage(target, other)]
    target.cut_off(ways)
    end_servers(target)
    if not await _until(target, lambda: _has_appends_of_newer_sessions(storage, snapshot)):
        target.world.trace.line("FAULT", f"{storage.name} keeps its disk: nothing was appended in a newer session")
        target.reconnect(ways)
        return
    storage.crash(power_loss=True)
    storage.disk.replace(snapshot)
    target.world.storage_checks.disk_replaced(storage.name)
    away = [other for other in others if other not in behind] if behind else []
    for other in away:
        other.crash(power_loss=draw.random() < 0.5)
    target.reconnect(ways)
    end_servers(target)
    storage.start_in(0.1)
    await asyncio.sleep(min(fault.duration_s, 4.0))
    for other in away:
        other.start_in(0.0)


async def _exchange_disks(target: Target, fault: Fault) -> None:
    draw = random.Random(fault.other)
    partition_id = fault.victim % target.world.options.partitions
    cluster = target.cluster
    one, other = draw.sample(cluster.replicas[partition_id], 2)
    if any((one in replicas) != (other in replicas) for replicas in cluster.replicas):
        return
    staying = [storage for storage in cluster.storages if storage is not other]
    if not await _until(target, lambda: _is_settled(target, staying)):
        return
    target.say(fault, one.name, f"gets the disk of {other.name}, and the other way round")
    for storage in (one, other):
        storage.crash(power_loss=True)
    await asyncio.sleep(draw.choice((0.0, 1.0, 3.0)))
    for storage in (one, other):
        storage.crash(power_loss=True)  # another fault may have started it meanwhile
    one.disk.exchange(other.disk)
    target.world.storage_checks.disks_exchanged(one.name, other.name)
    for storage in (one, other):
        storage.start_in(draw.random())


def _is_settled(target: Target, storages: Sequence[StorageHost]) -> bool:
    """Whether each of these storages has been let into the newest session of each of its partitions."""
    for partition_id, replicas in enumerate(target.cluster.replicas):
        infos = {storage.name: _info(storage, partition_id) for storage in replicas}
        newest = max((info.session_id for info in infos.values() if info is not None), default=0)
        for storage in replicas:
            info = infos[storage.name]
            if storage in storages and (info is None or info.session_id < newest):
                return False
    return True


def _info(storage: StorageHost, partition_id: int) -> PartitionInfo | None:
    partition = storage.node.manager.partitions.get(partition_id) if storage.running and storage.node else None
    return None if partition is None else partition.info


def _has_appends_of_newer_sessions(storage: StorageHost, snapshot: SimulatedDisk) -> bool:
    """Whether every partition of a storage holds records of a session that its disk did not know."""
    if not storage.running or storage.node is None:
        return False
    control_file = ControlFile.open(SimulatedFiles(snapshot.durable_copy(), None), DIRECTORY, CLUSTER_KEY)
    return all(
        partition.info.session_id > control_file.partition(partition_id).session_id
        and partition.max_transaction_id > partition.info.low_water_mark
        for partition_id, partition in storage.node.manager.partitions.items()
    )


async def _until(target: Target, condition: Callable[[], bool], limit_s: float = 8.0) -> bool:
    deadline_s = target.world.loop.time() + limit_s
    while not condition():
        if target.world.loop.time() > deadline_s:
            return False
        await asyncio.sleep(0.05)
    return True
