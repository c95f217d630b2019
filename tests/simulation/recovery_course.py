"""An operator copies a partition from one storage to another (``waltz storage recover-partition``)."""

import asyncio
import random

from tests.simulation.checker import Entry
from tests.simulation.cluster import ADMIN_PORT, ROOT, STORAGE_PORT, StorageHost
from tests.simulation.courses import around_storage, end_servers
from tests.simulation.faults import operate
from tests.simulation.loop import Process
from tests.simulation.target import Fault, Target
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.operations.storages import PartitionCopy, connection
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

BATCH_SIZE = 20


async def recover_partition(target: Target, fault: Fault) -> None:
    """Either a partition moves to a storage that has been filled from another one first, perhaps over what it has left
    of earlier times; or the destination is a replica, and one of the two that have the latest transactions: then it has
    to be refused, and the other one of these two leaves."""
    async with target.world.disk_course:
        draw = random.Random(fault.other)
        partition_id = fault.victim % target.world.options.partitions
        if draw.random() < 0.5:
            await _move(target, fault, draw, partition_id)
        else:
            await _overwrite_replica(target, fault, draw, partition_id)


async def _move(target: Target, fault: Fault, draw: random.Random, partition_id: int) -> None:
    cluster = target.cluster
    replicas = cluster.replicas[partition_id]
    leaving, source = draw.sample(replicas, 2)
    group_id = cluster.storages.index(leaving) % target.world.options.replicas
    spare = [storage for storage in cluster.group(group_id) if storage not in replicas]
    if not spare:
        return
    coming = draw.choice(spare)
    target.say(fault, f"partition {partition_id}", f"moves to {coming.name}, which is filled from {source.name} first")
    around = around_storage(target, source) if draw.random() < 0.5 else []
    await _leave_alone(target, source, around)
    if await operate(target, lambda process: _switch_off(target, partition_id, coming)):
        await _recover(target, source, coming, partition_id, truncate=draw.random() < 0.5)
    target.reconnect(around)
    while not await operate(target, lambda process: cluster.add_replica(process, partition_id, coming)):
        await asyncio.sleep(1.0)
    await asyncio.sleep(min(fault.duration_s, 5.0))
    while not await operate(target, lambda process: cluster.remove_replica(process, partition_id, leaving)):
        await asyncio.sleep(1.0)


async def _leave_alone(target: Target, storage: StorageHost, around: list[tuple[str, str]]) -> None:
    """Have a storage hold something that only it was given, if it is to be cut off (``around``)."""
    if not around:
        return
    others = [
        (server.name, other.name)
        for server in target.cluster.servers
        for other in target.cluster.storages
        if other is not storage
    ]
    target.cut_off(others)
    await asyncio.sleep(0.3)
    target.cut_off(around)
    target.reconnect(others)
    await asyncio.sleep(2.0)


async def _overwrite_replica(target: Target, fault: Fault, draw: random.Random, partition_id: int) -> None:
    replicas = target.cluster.replicas[partition_id]
    source, destination, *others = draw.sample(replicas, len(replicas))
    behind = others[: (len(replicas) - 1) // 2]
    leaving = [source, *others[len(behind) :]]
    names = " and ".join(storage.name for storage in behind)
    target.say(fault, destination.name, f"is to be filled from {source.name}, while {names} miss what is appended")
    around = [way for storage in behind for way in around_storage(target, storage)]
    target.cut_off(around)
    await asyncio.sleep(3.0)
    try:
        if await operate(target, lambda process: _switch_off(target, partition_id, destination)):
            await _recover(target, source, destination, partition_id, truncate=True)
            for storage in leaving:
                storage.kept_away = True
                storage.crash(power_loss=False)
    finally:
        while not await operate(target, lambda process: _switch_on(target, partition_id, destination)):
            await asyncio.sleep(1.0)
    target.reconnect(around)
    end_servers(target)
    await asyncio.sleep(6.0)
    for storage in leaving:
        storage.kept_away = False
        storage.start()


async def _switch_off(target: Target, partition_id: int, storage: StorageHost) -> None:
    async with target.cluster.admin(storage) as admin:
        await admin.set_assigned([partition_id], True)
        await admin.set_available([partition_id], False)


async def _switch_on(target: Target, partition_id: int, storage: StorageHost) -> None:
    async with target.cluster.admin(storage) as admin:
        await admin.set_available([partition_id], True)


async def _recover(
    target: Target, source: StorageHost, destination: StorageHost, partition_id: int, *, truncate: bool
) -> None:
    """Run the command. All that the destination holds when it has succeeded is certain to be in the log."""
    world = target.world

    async def work(process: Process) -> None:
        zookeeper = await world.ensemble.connect(process, 30.0)
        cluster = ClusterHandle(zookeeper, ROOT, None)
        from_port, to_port = (Endpoint(storage.name, ADMIN_PORT) for storage in (source, destination))
        try:
            async with (
                connection(StorageAdminClient, cluster, from_port) as source_admin,
                connection(StorageAdminClient, cluster, to_port) as destination_admin,
                connection(StorageClient, cluster, Endpoint(destination.name, STORAGE_PORT)) as data,
            ):
                recovery = PartitionCopy(
                    cluster,
                    source_admin,
                    destination_admin,
                    data,
                    partition_id,
                    lambda line: world.trace.line("operator", line),
                )
                reached = await recovery.run(BATCH_SIZE, truncate=truncate)
                world.trace.line("operator", f"{destination.name} reaches up to {reached} of partition {partition_id}")
                if reached > NO_TRANSACTION:
                    for record in await destination_admin.records(partition_id, 0, reached + 1):
                        entry = Entry(bytes(record.req_id), record.header)
                        target.checker.certain("an operator", partition_id, record.transaction_id, entry)
        finally:
            await zookeeper.close()

    await operate(target, work)
