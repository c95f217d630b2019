"""Courses of events: several faults in an order that a rule of the design has to withstand."""

import asyncio
import functools
import random

from tests.simulation.cluster import BULK_READER, ServerHost, StorageHost
from tests.simulation.faults import kill, operate, power_off, prefer_partitions
from tests.simulation.target import Fault, Pair, Target


async def depose(target: Target, fault: Fault) -> None:
    """A server loses ZooKeeper but nothing else, and perhaps some storages: others take its partitions over, and it
    does not know. Later it comes back."""
    server = target.server(fault)
    zookeeper = server.zookeeper
    if zookeeper is None or not server.running:
        return
    draw = random.Random(fault.other)
    target.say(fault, server.name, "is deposed")
    zookeeper.disconnect()
    if draw.random() < 0.5:
        zookeeper.expire()
    names = [storage.name for storage in target.cluster.storages if draw.random() < 0.4]
    await asyncio.sleep(draw.random() * min(fault.duration_s, 1.0))
    pairs = [pair for name in names for pair in ((server.name, name), (name, server.name)) if draw.random() < 0.8]
    target.cut_off(pairs)
    await asyncio.sleep(draw.random() * fault.duration_s)
    first, second = zookeeper.reconnect, functools.partial(target.reconnect, pairs)
    if draw.random() < 0.5:
        first, second = second, first
    first()
    await asyncio.sleep(draw.random() * draw.choice((0.01, 0.1, 1.0, fault.duration_s)))
    second()


async def flap(target: Target, fault: Fault) -> None:
    """A server loses its session and gets another at once, others are slow to notice, and it hears late of what they
    do: it may lose partitions and get them back without knowing. Perhaps what it writes meanwhile is stuck."""
    draw = random.Random(fault.other)
    server = target.server(fault)
    if server.zookeeper is None or not server.running:
        return
    target.say(fault, server.name, "loses its ZooKeeper session and hears late of everything")
    deafness_s = target.world.ensemble.deafness_s
    reached = draw.choice(target.cluster.storages)
    cut_off = [storage.name for storage in target.cluster.storages if storage is not reached or draw.random() < 0.2]
    pairs = [(server.name, name) for name in cut_off] if draw.random() < 0.7 else []
    target.cut_off(pairs)
    await asyncio.sleep(draw.choice((0.0, 0.02, 0.1, 0.4)))
    others = [other.name for other in target.cluster.servers if other is not server]
    deafness_s.update(dict.fromkeys(others, draw.choice((0.02, 0.1, 0.3))))
    if server.running:
        server.zookeeper.expire()
    await asyncio.sleep(draw.choice((0.02, 0.05, 0.2)) * target.world.options.zookeeper_delay_factor**0.5)
    deafness_s[server.name] = draw.choice((0.1, 0.5, 2.0))
    await asyncio.sleep(draw.random() * min(fault.duration_s, 4.0))
    for name in (server.name, *others):
        deafness_s.pop(name, None)
    target.reconnect(pairs)


async def strand_minority(target: Target, fault: Fault) -> None:
    """For a moment a server reaches one storage only; then the server ends, and that storage is cut off with what
    only it holds. Others go on without it, and later it returns."""
    draw = random.Random(fault.other)
    server = target.server(fault)
    storage = draw.choice(target.cluster.storages)
    target.say(fault, server.name, f"reaches only {storage.name}")
    others = [(server.name, other.name) for other in target.cluster.storages if other is not storage]
    target.cut_off(others)
    await asyncio.sleep(draw.choice((0.05, 0.3, 0.9)))
    around = [(other.name, storage.name) for other in target.cluster.servers]
    around += [(destination, source) for source, destination in around]
    target.cut_off(around)
    _end_server(target, fault, draw, server)
    target.reconnect(others)
    await asyncio.sleep(min(fault.duration_s, 8.0))
    if draw.random() < 0.3:
        kill(fault, storage)
    target.reconnect(around)


def _end_server(target: Target, fault: Fault, draw: random.Random, server: ServerHost) -> None:
    """In one of several ways, and not for long."""
    way = draw.randrange(4)
    short = fault._replace(duration_s=min(fault.duration_s, 5.0) * draw.random())
    if way == 0:
        kill(short, server)
    elif way == 1:
        power_off(short, server)
    elif server.running and server.zookeeper is not None:
        target.say(fault, server.name, "loses its ZooKeeper session")
        server.zookeeper.expire()


async def rotate_minority(target: Target, fault: Fault) -> None:
    """One storage after the other is out of reach of all servers, and each time the owner's session ends, perhaps in
    the middle of a recovery."""
    draw = random.Random(fault.other)
    target.say(fault, "storages", "are out of reach one after the other")
    away: list[Pair] = []
    for _ in range(draw.randint(3, 6)):
        gone = draw.choice(target.cluster.storages)
        target.reconnect(away)
        away = around_storage(target, gone)
        target.cut_off(away)
        await asyncio.sleep(draw.choice((0.01, 0.1, 0.5, 3.0)) * draw.random())
        for server in target.cluster.servers:
            _end_server(target, fault._replace(duration_s=0.2), draw, server)
        await asyncio.sleep(draw.choice((0.1, 1.0, 3.0)) * draw.random())
    target.reconnect(away)


async def re_add_stranded(target: Target, fault: Fault) -> None:
    """A storage is left alone with what only it was given, is replaced by another, and is assigned again, with its old
    files, while no server reaches it. Then it is reached again (hazard H3). Needs two storages in its group."""
    cluster = target.cluster
    partition_id = fault.victim % target.world.options.partitions
    replicas = cluster.replicas[partition_id]
    storage = replicas[fault.other % len(replicas)]
    group = cluster.group(cluster.storages.index(storage) % target.world.options.replicas)
    spare = [other for other in group if other not in replicas]
    if not spare:
        return
    target.say(fault, f"partition {partition_id}", f"is on {storage.name} only; that is replaced, and comes back")
    servers = [server.name for server in cluster.servers]
    others = [(server, other.name) for server in servers for other in cluster.storages if other is not storage]
    around = around_storage(target, storage)
    target.cut_off(others)
    await asyncio.sleep(0.3)
    target.cut_off(around)
    target.reconnect(others)
    for step in (
        lambda process: cluster.add_replica(process, partition_id, spare[0]),
        lambda process: cluster.remove_replica(process, partition_id, storage),
        lambda process: cluster.add_replica(process, partition_id, storage),
    ):
        await asyncio.sleep(3.0)
        while not await operate(target, step):
            await asyncio.sleep(1.0)
    await asyncio.sleep(3.0)
    target.reconnect(around)
    await asyncio.sleep(5.0)
    await operate(target, lambda process: cluster.remove_replica(process, partition_id, spare[0]))


async def boomerang(target: Target, fault: Fault) -> None:
    """A server loses its partitions and gets some back without hearing of either. What the owner in between writes is
    stored, but the owner does not learn that."""
    draw = random.Random(fault.other)
    server = target.server(fault)
    if server.zookeeper is None or not server.running:
        return
    target.say(fault, server.name, "loses its partitions and gets them back, and does not hear of it")
    deafness_s = target.world.ensemble.deafness_s
    deafness_s[server.name] = draw.choice((0.05, 0.1, 0.3))
    server.zookeeper.expire()
    await asyncio.sleep(draw.choice((0.05, 0.1, 0.2, 0.4)) * (0.5 + draw.random()))
    others = [other.name for other in target.cluster.servers if other is not server]
    answers = [(storage.name, other) for storage in target.cluster.storages for other in others]
    target.cut_off(answers)
    await asyncio.sleep(draw.uniform(0.3, 1.5))
    target.reconnect(answers)
    await asyncio.sleep(draw.random())
    deafness_s.pop(server.name, None)


def around_storage(target: Target, storage: StorageHost) -> list[Pair]:
    """Both directions between a storage and all servers."""
    servers = target.cluster.servers
    return [pair for server in servers for pair in ((server.name, storage.name), (storage.name, server.name))]


def end_servers(target: Target, *, power_loss: bool = False) -> None:
    """All servers, for a moment; their ZooKeeper sessions end at once."""
    for server in target.cluster.servers:
        if server.running and server.zookeeper is not None:
            server.zookeeper.expire()
        server.crash(power_loss=power_loss)
        server.start_in(0.1)


async def recover_twice(target: Target, fault: Fault) -> None:
    """One storage misses a session, and another the end of that session. The storage that has it all recovers with the
    first, and all servers end when that has got its low-water mark; then the other two recover without it (rule S7)."""
    draw = random.Random(fault.other)
    partition_id = fault.victim % target.world.options.partitions
    storages = draw.sample(target.cluster.replicas[partition_id], 3)
    behind, short, whole = (around_storage(target, storage) for storage in storages)
    names = [storage.name for storage in storages]
    target.say(fault, names[0], f"misses a session, {names[1]} its end; {names[2]} leaves in the recovery after that")
    target.cut_off(behind)
    end_servers(target)
    await asyncio.sleep(6.0)
    target.cut_off(short)
    await asyncio.sleep(0.3)
    end_servers(target)
    target.reconnect(behind)
    await _wait_for_mark(target, storages[0], partition_id)
    end_servers(target)
    target.cut_off(whole)
    target.reconnect(short)
    await asyncio.sleep(4.0)
    target.reconnect(whole)


async def crash_at_opening(target: Target, fault: Fault) -> None:
    """A storage is left alone with what only it was given. The others open a session without it, and in that moment all
    servers end; then it is back (hazard H4)."""
    draw = random.Random(fault.other)
    partition_id = fault.victim % target.world.options.partitions
    alone, other = draw.sample(target.cluster.replicas[partition_id], 2)
    target.say(fault, alone.name, "is left alone, and servers end when the next session opens")
    around = around_storage(target, alone)
    to_others = [
        (server.name, storage.name)
        for server in target.cluster.servers
        for storage in target.cluster.storages
        if storage is not alone
    ]
    target.cut_off(to_others)
    await asyncio.sleep(0.3)
    end_servers(target, power_loss=True)
    target.cut_off(around)
    target.reconnect(to_others)
    await _wait_for_mark(target, other, partition_id)
    await asyncio.sleep(0.1 * draw.random())
    end_servers(target)
    target.reconnect(around)
    await asyncio.sleep(3.0)


async def stale_reader(target: Target, fault: Fault) -> None:
    """A storage is left alone with what only it was given; the others go on without it, and write something else under
    the same ids. A bulk reader that is told the new mark hears late of all this (rule S6)."""
    partition_id = fault.victim % target.world.options.partitions
    replicas = target.cluster.replicas[partition_id]
    alone = replicas[fault.other % len(replicas)]
    target.say(fault, alone.name, f"is left alone with what only it has of partition {partition_id}")
    lags_s = target.world.ensemble.lags_s
    lags_s[BULK_READER] = 8.0
    around = around_storage(target, alone)
    to_others = [
        (server.name, storage.name)
        for server in target.cluster.servers
        for storage in target.cluster.storages
        if storage is not alone
    ]
    target.cut_off(to_others)
    await asyncio.sleep(0.3)
    target.cut_off(around)
    end_servers(target)
    target.reconnect(to_others)
    await asyncio.sleep(6.0)
    lags_s.pop(BULK_READER, None)
    target.reconnect(around)
    await asyncio.sleep(3.0)


async def _wait_for_mark(target: Target, storage: StorageHost, partition_id: int) -> None:
    """Until a storage has got its next low-water mark, for a few seconds at most."""

    def mark() -> int | None:
        partition = None if storage.node is None else storage.node.manager.partitions.get(partition_id)
        return None if partition is None else partition.info.low_water_mark

    before, deadline_s = mark(), target.world.loop.now_s + 8.0
    while mark() == before and target.world.loop.now_s < deadline_s:
        await asyncio.sleep(0.002)


async def begin_in_the_dark(target: Target, fault: Fault) -> None:
    """An operator moves a partition away from a server that is between two sessions and hears late of everything."""
    draw = random.Random(fault.other)
    cluster, deafness_s = target.cluster, target.world.ensemble.deafness_s
    server = target.server(fault)
    others = [other for other in cluster.servers if other is not server]
    if not server.running or server.zookeeper is None:
        return
    target.say(fault, server.name, "reaches no storage, hears late of everything, and is to lose its partitions")
    deafness_s[server.name] = draw.choice((0.1, 0.3, 0.6))
    around = [(server.name, storage.name) for storage in cluster.storages]
    around += [(destination, source) for source, destination in around]
    target.cut_off(around)
    await asyncio.sleep(1.0 + draw.random())
    target.reconnect(around)
    other = cluster.servers.index(others[fault.other % len(others)])
    wanted = range(target.world.options.partitions)
    async with asyncio.TaskGroup() as group:
        for partition_id in wanted:
            moved = fault._replace(victim=other, other=partition_id)
            group.create_task(prefer_partitions(target, moved))
    await asyncio.sleep(2.0)
    deafness_s.pop(server.name, None)
    await asyncio.sleep(1.0)
    for partition_id in wanted:
        await prefer_partitions(target, fault._replace(other=partition_id))
