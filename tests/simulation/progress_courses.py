"""Courses of events around replicas that make no progress: they are no votes to come, and bar nobody (rule L2)."""

import asyncio
import contextlib
import errno
import random

from tests.simulation.cluster import StorageHost
from tests.simulation.courses import around_storage, end_servers
from tests.simulation.disk import Trouble
from tests.simulation.disk_faults import in_trouble
from tests.simulation.target import Fault, Target
from waltz.server.store.log.log import ReplicatedLog
from waltz.server.store.replica.replica import Replica

STANDSTILL_S = 40.0
SILENCE_S = 60.0
"""Longer than a partition may call itself healthy that has proved nothing."""


def _unreadable() -> Trouble:
    return Trouble(frozenset(("read",)), errno.EIO, lambda path: path.endswith(".seg"))


def _sample(target: Target, fault: Fault) -> tuple[int, list[StorageHost]]:
    partition_id = fault.victim % target.world.options.partitions
    replicas = target.cluster.replicas[partition_id]
    return partition_id, random.Random(fault.other).sample(replicas, len(replicas))


async def lag_without_source(target: Target, fault: Fault) -> None:
    """A storage stands still until it has fallen out of the ring, and what it lacks cannot be read anywhere. Then only
    one of the others is left: a quorum is live, and cannot commit anything."""
    _, (source, lagging, *others) = _sample(target, fault)
    process = lagging.process
    if process is None or not lagging.running or lagging.paused:
        return
    target.say(fault, lagging.name, f"falls behind, and what it lacks cannot be read from {source.name}")
    with contextlib.ExitStack() as unreadable:
        for storage in (source, *others):
            unreadable.enter_context(in_trouble(storage.disk, _unreadable()))
        process.pause()
        await asyncio.sleep(3.0)
        process.resume()
        await asyncio.sleep(0.5)
        for other in others:
            other.kept_away = True
            other.crash(power_loss=False)
        await asyncio.sleep(STANDSTILL_S)
    for other in others:
        other.kept_away = False
        other.start()


async def silent_quorum(target: Target, fault: Fault) -> None:
    """A quorum of a partition's storages stands still where nothing is appended, and nobody is told (rule L5)."""
    partition_id, replicas = _sample(target, fault)
    silent = [storage for storage in replicas[: len(replicas) // 2 + 1] if storage.running and not storage.paused]
    target.say(fault, f"partition {partition_id}", f"loses {len(silent)} of its storages, which stand still")
    for storage in silent:
        if storage.process is not None:
            storage.process.pause()
    await asyncio.sleep(max(min(SILENCE_S, target.world.options.duration_s - 6.0 - target.world.loop.now_s), 0.0))
    for storage in silent:
        if storage.process is not None and storage.process.alive:
            storage.process.resume()


async def barred_beside_a_copy(target: Target, fault: Fault) -> None:
    """A storage lacks what cannot be read from another one. The third one breaks away from the recovery in the middle
    of a change, so that only the next session may take it in, and can be reached again at once."""
    partition_id, (source, behind, third, *_) = _sample(target, fault)
    target.say(fault, third.name, f"breaks away from a recovery in which {behind.name} can copy nothing")
    around = around_storage(target, behind)
    target.cut_off(around)
    await asyncio.sleep(8.0)
    third.disk.slowness = 50.0
    with in_trouble(source.disk, _unreadable()):
        end_servers(target)
        target.reconnect(around)
        if await _changing(target, partition_id, third):
            for server in target.cluster.servers:
                for transport in target.world.network.transports_between(server.name, third.name):
                    transport.break_off()
                    transport.peer.break_off()
        third.disk.slowness = 1.0
        await asyncio.sleep(STANDSTILL_S)


async def _changing(target: Target, partition_id: int, storage: StorageHost) -> bool:
    """Wait until a recovery has a storage change something; whether that happens within a few seconds."""
    deadline_s = target.world.loop.now_s + 10.0
    while target.world.loop.now_s < deadline_s:
        if any(replica._change_unanswered for replica in _in_recovery(target, partition_id, storage)):
            return True
        await asyncio.sleep(0.001)
    return False


def _in_recovery(target: Target, partition_id: int, storage: StorageHost) -> list[Replica]:
    found = []
    for host in target.cluster.servers:
        partition = None if host.server is None or not host.running else host.server.partitions.get(partition_id)
        log = None if partition is None else partition._log
        if isinstance(log, ReplicatedLog) and log._opening is not None:
            found += [each for each in log._opening._members if each.storage == storage.connect_string]
    return found
