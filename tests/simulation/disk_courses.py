"""Courses of events around disks: what comes back after a restart is not the disk that went."""

import asyncio
import functools
import random
from collections.abc import Callable, Mapping, Sequence

from tests.simulation.cluster import CLUSTER_KEY, DIRECTORY, ROOT, ServerHost, StorageHost
from tests.simulation.courses import around_storage, end_servers
from tests.simulation.disk import SimulatedDisk, SimulatedFiles
from tests.simulation.target import Fault, Target
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import PartitionMetadata, ReplicaId
from waltz.server.store.log.log import ReplicatedLog
from waltz.server.store.recovery.replica_states import NO_SESSION
from waltz.storage.disk.control_file import ControlFile, PartitionInfo


async def roll_back_disk(target: Target, fault: Fault) -> None:
    """A storage gets back a disk as it was when all were in the sessions before. In two of three cases those that share
    with it what was committed since are off when it returns, and the others have missed all of it."""
    async with target.world.disk_course:
        await _roll_back_disk(target, fault)


async def roll_back_disk_within_session(target: Target, fault: Fault) -> None:
    """A storage gets back a disk as it was earlier in the same session, and the owner lives on. In two of three cases
    those that share with it what was committed since are off when it returns, and the others have missed all of it;
    then, in half of these, the owner ends as soon as the recovery has heard of the storage (rule S10)."""
    async with target.world.disk_course:
        await _roll_back_disk_within_session(target, fault)


async def restore_backup(target: Target, fault: Fault) -> None:
    """A storage gets back a backup of its directory, with its journal if it had one, from up to four sessions ago. All
    others have everything. In half of the cases one of them is off when it returns. Owners may end at that moment if
    the backup is of another session, else only when the recovery has heard of it (rule S10)."""
    async with target.world.disk_course:
        await _restore_backup(target, fault)


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


async def _roll_back_disk_within_session(target: Target, fault: Fault) -> None:
    draw = random.Random(fault.other)
    partition_id = fault.victim % target.world.options.partitions
    replicas = target.cluster.replicas[partition_id]
    storage, *others = draw.sample(replicas, len(replicas))
    if not await _until(target, lambda: _is_settled(target, target.cluster.storages)):
        return
    assert storage.node is not None
    partitions = storage.node.manager.partitions
    session_ids = {number: partition.info.session_id for number, partition in partitions.items()}
    session_id, before = session_ids[partition_id], partitions[partition_id].max_transaction_id
    snapshot = storage.disk.durable_copy()
    behind = others[: len(replicas) - len(replicas) // 2 - 1] if draw.random() < 0.7 else []
    ways = [way for other in behind for way in around_storage(target, other)]
    target.cut_off(ways)
    if not await _until(target, lambda: _has_more_of_the_same_session(storage, partition_id, session_id, before)):
        target.reconnect(ways)
        return
    target.say(fault, storage.name, "gets back its disk as it was earlier in the session")
    target.checker.disk_of_the_same_session()
    storage.crash(power_loss=True)
    storage.disk.replace(snapshot)
    target.world.storage_checks.disk_replaced(storage.name)
    away = [other for other in others if other not in behind] if behind else []
    for other in away:
        other.crash(power_loss=False)
    target.reconnect(ways)
    storage.start_in(0.1)
    if away and draw.random() < 0.5:
        if await _until(target, lambda: _is_heard(target, storage, session_ids), 15.0):
            end_servers(target)
            await asyncio.sleep(8.0)
    else:
        await asyncio.sleep(4.0)
    for other in away:
        other.start_in(0.0)


async def _restore_backup(target: Target, fault: Fault) -> None:
    draw = random.Random(fault.other)
    partition_id = fault.victim % target.world.options.partitions
    replicas = target.cluster.replicas[partition_id]
    storage, *others = draw.sample(replicas, len(replicas))
    if not await _until(target, lambda: _is_settled(target, target.cluster.storages)):
        return
    backup = storage.disk.durable_copy()
    assert storage.node is not None
    session_ids = {number: partition.info.session_id for number, partition in storage.node.manager.partitions.items()}
    for _ in range(draw.randrange(5)):
        end_servers(target)
        await asyncio.sleep(draw.choice((1.0, 2.0, 4.0)))
    await asyncio.sleep(draw.choice((0.1, 1.0, 5.0)))
    others_have_all = functools.partial(_have_all, target, others)
    if not await _until(target, lambda: _is_settled(target, target.cluster.storages) and others_have_all()):
        return
    present = {number: _session_id(storage, number) for number in session_ids}
    other_session = all(present[number] > session_id for number, session_id in session_ids.items())
    target.say(fault, storage.name, f"gets back its backup of sessions {session_ids}; they are {present}")
    target.checker.disk_of_the_same_session()
    storage.crash(power_loss=True)
    storage.disk.replace(backup)
    target.world.storage_checks.disk_replaced(storage.name)
    away = draw.sample(others, 1) if draw.random() < 0.5 else []
    for other in away:
        other.crash(power_loss=draw.random() < 0.5)
    if other_session and draw.random() < 0.5:
        end_servers(target)
    storage.start_in(0.1)
    if not other_session and await _until(target, lambda: _is_heard(target, storage, present), 15.0):
        end_servers(target)
    await asyncio.sleep(4.0)
    for other in away:
        other.start_in(0.0)


def _have_all(target: Target, storages: Sequence[StorageHost]) -> bool:
    """Whether each of these storages has everything that is committed in each of its partitions."""
    for partition_id, replicas in enumerate(target.cluster.replicas):
        for storage in set(replicas) & set(storages):
            partition = storage.node.manager.partitions.get(partition_id) if storage.running and storage.node else None
            if partition is None or partition.max_transaction_id < len(target.checker.log[partition_id]) - 1:
                return False
    return True


def _session_id(storage: StorageHost, partition_id: int) -> int:
    info = _info(storage, partition_id)
    return NO_SESSION if info is None else info.session_id


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


def _has_more_of_the_same_session(storage: StorageHost, partition_id: int, session_id: int, before: int) -> bool:
    partition = storage.node.manager.partitions.get(partition_id) if storage.running and storage.node else None
    return (
        partition is not None and partition.info.session_id == session_id and partition.max_transaction_id > before + 5
    )


def _is_heard(target: Target, storage: StorageHost, session_ids: Mapping[int, int]) -> bool:
    """Whether the metadata say of each partition of a storage that it has no vote, or an owner holds out without it."""
    nodes = target.world.ensemble.server.dump()
    for partition_id, session_id in session_ids.items():
        path = ClusterPaths(ROOT).partition(partition_id)
        states = PartitionMetadata.decode(nodes[path], path).replicas
        state = states.get(ReplicaId(partition_id, storage.connect_string))
        may_vote = state is not None and state.is_member_of(session_id)
        if may_vote and not any(_holds_out(server, partition_id) for server in target.cluster.servers):
            return False
    return True


def _holds_out(server: ServerHost, partition_id: int) -> bool:
    partition = server.server.partitions.get(partition_id) if server.running and server.server else None
    opening = partition._log._opening if partition and isinstance(partition._log, ReplicatedLog) else None
    return opening is not None and opening.machine.below_floor is not None


async def _until(target: Target, condition: Callable[[], bool], limit_s: float = 8.0) -> bool:
    deadline_s = target.world.loop.now_s + limit_s
    while not condition():
        if target.world.loop.now_s > deadline_s:
            return False
        await asyncio.sleep(0.05)
    return True
