"""Faults: a schedule that is drawn from the seed beforehand, and what each of them does to the cluster."""

import asyncio
import contextlib
import errno
import functools
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, cast

from tests.simulation.application import ClientHost
from tests.simulation.cluster import Host, ServerHost, SimulatedCluster, StorageHost, World
from tests.simulation.loop import Process
from waltz.common.errors import WaltzError


class Fault(NamedTuple):
    """One fault. ``victim`` and ``other`` are numbers that choose among what there is."""

    at_s: float
    kind: str
    victim: int
    other: int
    duration_s: float

    def __str__(self) -> str:
        return f"{self.at_s:.2f} s {self.kind} ({self.victim}, {self.other}) for {self.duration_s:.2f} s"


class Target(NamedTuple):
    """What faults are done to."""

    world: World
    cluster: SimulatedCluster
    clients: Sequence[ClientHost]

    @property
    def hosts(self) -> list[Host]:
        """All machines."""
        return [*self.cluster.storages, *self.cluster.servers, *self.clients]

    def storage(self, fault: Fault) -> StorageHost:
        """The storage that the fault means."""
        return self.cluster.storages[fault.victim % len(self.cluster.storages)]

    def server(self, fault: Fault) -> ServerHost:
        """The server that the fault means."""
        return self.cluster.servers[fault.victim % len(self.cluster.servers)]

    def client(self, fault: Fault) -> ClientHost:
        """The application that the fault means."""
        return self.clients[fault.victim % len(self.clients)]

    def any_host(self, fault: Fault) -> Host:
        """The machine that the fault means."""
        return self.hosts[fault.victim % len(self.hosts)]

    def pair(self, fault: Fault) -> tuple[str, str]:
        """Two machines that talk to each other; one of them is a server."""
        server = self.server(fault)
        others = [*self.cluster.storages, *self.clients]
        return server.name, others[fault.other % len(others)].name

    def say(self, fault: Fault, who: str, what: str) -> None:
        """One line of the trace."""
        self.world.trace.line("FAULT", f"{who} {what} ({fault.duration_s:.2f} s)")


async def _kill(target: Target, fault: Fault, host: Host) -> None:
    host.crash(power_loss=False)
    host.start_in(fault.duration_s)


async def _power_off(target: Target, fault: Fault, host: Host) -> None:
    host.crash(power_loss=True)
    host.start_in(fault.duration_s)


async def kill_storage(target: Target, fault: Fault) -> None:
    """SIGKILL, and a restart."""
    await _kill(target, fault, target.storage(fault))


async def kill_server(target: Target, fault: Fault) -> None:
    """SIGKILL, and a restart."""
    await _kill(target, fault, target.server(fault))


async def kill_client(target: Target, fault: Fault) -> None:
    """SIGKILL, and a restart."""
    await _kill(target, fault, target.client(fault))


async def power_off_storage(target: Target, fault: Fault) -> None:
    """A loss of power: unsynced writes are lost or torn."""
    await _power_off(target, fault, target.storage(fault))


async def power_off_server(target: Target, fault: Fault) -> None:
    """A loss of power: nobody closes the connections."""
    await _power_off(target, fault, target.server(fault))


async def power_off_all_storages(target: Target, fault: Fault) -> None:
    """A loss of power of the whole room."""
    for storage in target.cluster.storages:
        storage.crash(power_loss=True)
        storage.start_in(fault.duration_s * (0.5 + 0.1 * (fault.other % 5)))


async def crash_while_writing(target: Target, fault: Fault) -> None:
    """A loss of power between two of the next writes and syncs."""
    storage = target.storage(fault)
    target.say(fault, storage.name, "will lose power while it writes")
    storage.disk.operations_until_crash = 1 + fault.other % 7
    await asyncio.sleep(fault.duration_s / 2)
    storage.disk.operations_until_crash = None
    if not storage.running:
        storage.start_in(fault.duration_s / 2)


async def pause(target: Target, fault: Fault) -> None:
    """SIGSTOP, and SIGCONT."""
    await _pause(target, fault, target.any_host(fault))


async def pause_server(target: Target, fault: Fault) -> None:
    """SIGSTOP, and SIGCONT, of a server."""
    await _pause(target, fault, target.server(fault))


async def _pause(target: Target, fault: Fault, host: Host) -> None:
    process, zookeeper = host.process, host.zookeeper
    if process is None or not host.running or host.paused:
        return
    target.say(fault, host.name, "is stopped")
    process.pause()
    if zookeeper is not None:
        zookeeper.disconnect()  # no heartbeats
    await asyncio.sleep(fault.duration_s)
    if process.alive:
        target.world.trace.line("FAULT", f"{host.name} continues")
        process.resume()
        if zookeeper is not None:
            zookeeper.reconnect()


async def stop_in_order(target: Target, fault: Fault) -> None:
    """SIGTERM, and a restart."""
    host = target.any_host(fault)
    process = host.process
    if process is None or not host.running or host.paused:
        return
    target.say(fault, host.name, "is asked to end")
    host.wanted = False
    task = process.run(host.stop())
    await asyncio.wait([task], timeout=30.0)
    if process.alive and not task.done():
        target.world.trace.line("FAULT", f"{host.name} has not ended within 30 s")
    elif process.alive and task.exception() is not None:
        target.world.fail(f"{host.name} failed while it ended: {task.exception()!r}")
    if process is host.process:
        host.crash(power_loss=False)
        host.start_in(fault.duration_s / 4)


async def cut(target: Target, fault: Fault) -> None:
    """Two machines do not reach each other."""
    one, other = target.pair(fault)
    await _cut(target, fault, [(one, other), (other, one)], f"{one} and {other} are cut off from each other")


async def cut_one_way(target: Target, fault: Fault) -> None:
    """One machine does not reach another, but is reached by it."""
    one, other = target.pair(fault)
    if fault.other % 3:
        one, other = other, one
    await _cut(target, fault, [(one, other)], f"nothing gets from {one} to {other}")


async def isolate(target: Target, fault: Fault) -> None:
    """A machine is cut off from all others, and perhaps from ZooKeeper."""
    host = target.any_host(fault)
    others = [other.name for other in target.hosts if other is not host]
    pairs = [pair for other in others for pair in ((host.name, other), (other, host.name))]
    zookeeper = host.zookeeper if fault.other % 2 else None
    if zookeeper is not None and host.running:
        zookeeper.disconnect()
    await _cut(target, fault, pairs, f"{host.name} is isolated")
    if zookeeper is not None:
        zookeeper.reconnect()


async def _cut(target: Target, fault: Fault, pairs: list[tuple[str, str]], what: str) -> None:
    target.say(fault, "network:", what)
    for source, destination in pairs:
        target.world.network.set_cut(source, destination, True)
    await asyncio.sleep(fault.duration_s)
    for source, destination in pairs:
        target.world.network.set_cut(source, destination, False)


async def slow_link(target: Target, fault: Fault) -> None:
    """Everything between two machines takes long."""
    one, other = target.pair(fault)
    delay_s = (0.02, 0.2, 1.5)[fault.other % 3]
    target.say(fault, "network:", f"{one} and {other} are {delay_s} s apart")
    conditions = [target.world.network.condition(one, other), target.world.network.condition(other, one)]
    for condition in conditions:
        condition.extra_delay_s = delay_s
        condition.bytes_per_s = 200_000.0
    await asyncio.sleep(fault.duration_s)
    for condition in conditions:
        condition.extra_delay_s = 0.0
        condition.bytes_per_s = None


async def break_connections(target: Target, fault: Fault) -> None:
    """Connections between two machines break; perhaps just one side learns it."""
    one, other = target.pair(fault)
    half_open = fault.other % 3 == 0
    target.say(fault, "network:", f"connections of {one} and {other} {'are half-open' if half_open else 'break'}")
    for transport in target.world.network.transports_between(one, other):
        transport.break_off()
        if not half_open:
            transport.peer.break_off()


async def slow_disk(target: Target, fault: Fault) -> None:
    """Every write and sync takes long."""
    storage = target.storage(fault)
    factor = (10.0, 100.0, 1000.0)[fault.other % 3]
    target.say(fault, storage.name, f"has a disk {factor:g} times slower")
    storage.disk.slowness = factor
    await asyncio.sleep(fault.duration_s)
    storage.disk.slowness = 1.0


async def full_disk(target: Target, fault: Fault) -> None:
    """No space is left."""
    storage = target.storage(fault)
    target.say(fault, storage.name, "has no space left on its disk")
    storage.disk.write_error = errno.ENOSPC
    await asyncio.sleep(fault.duration_s)
    storage.disk.write_error = None
    await _replace_process(target, storage)


async def failing_write(target: Target, fault: Fault) -> None:
    """A write fails; an operator restarts the node."""
    storage = target.storage(fault)
    target.say(fault, storage.name, "will fail to write")
    storage.disk.write_errors_to_come = 1
    await asyncio.sleep(fault.duration_s)
    storage.disk.write_errors_to_come = 0
    await _replace_process(target, storage)


async def failing_sync(target: Target, fault: Fault) -> None:
    """A sync fails; an operator restarts the node."""
    storage = target.storage(fault)
    target.say(fault, storage.name, "will fail to sync")
    storage.disk.sync_errors_to_come = 1
    await asyncio.sleep(fault.duration_s)
    storage.disk.sync_errors_to_come = 0
    await _replace_process(target, storage)


async def _replace_process(target: Target, storage: StorageHost) -> None:
    if storage.running and not storage.paused:
        storage.crash(power_loss=False)
        storage.start_in(0.2)


async def expire_session(target: Target, fault: Fault) -> None:
    """ZooKeeper ends the session of a process that lives."""
    host = target.any_host(fault)
    if host.running and host.zookeeper is not None:
        target.say(fault, host.name, "loses its ZooKeeper session")
        host.zookeeper.expire()


async def disconnect_zookeeper(target: Target, fault: Fault) -> None:
    """A process does not reach ZooKeeper; its session survives if that does not last."""
    host = target.any_host(fault)
    zookeeper = host.zookeeper
    if not host.running or zookeeper is None:
        return
    target.say(fault, host.name, "does not reach ZooKeeper")
    zookeeper.disconnect()
    await asyncio.sleep(fault.duration_s)
    zookeeper.reconnect()


async def slow_zookeeper(target: Target, fault: Fault) -> None:
    """ZooKeeper answers late."""
    target.say(fault, "zookeeper", "is slow")
    target.world.ensemble.slowness_s = (0.05, 0.5, 3.0)[fault.other % 3]
    await asyncio.sleep(fault.duration_s)
    target.world.ensemble.slowness_s = 0.0


async def slow_watches(target: Target, fault: Fault) -> None:
    """Watches come late."""
    target.say(fault, "zookeeper", "calls watches late")
    target.world.ensemble.watch_delay_s = (0.2, 2.0)[fault.other % 2]
    await asyncio.sleep(fault.duration_s)
    target.world.ensemble.watch_delay_s = 0.0


async def lose_answer(target: Target, fault: Fault) -> None:
    """A write to ZooKeeper happens, and its author does not learn it; or it is lost."""
    server = target.server(fault)
    if server.zookeeper is None or not server.running:
        return
    operation = ("set", "create", "delete")[fault.other % 3]
    if fault.other % 2:
        target.say(fault, server.name, f"will not learn of its next {operation}")
        server.zookeeper.lose_answer(operation)
    else:
        target.say(fault, server.name, f"will lose its next {operation}")
        server.zookeeper.lose_request(operation)


async def prefer_partitions(target: Target, fault: Fault) -> None:
    """An operator moves a partition to another server."""
    server = target.server(fault)
    client = target.clients[fault.other % len(target.clients)]
    if not client.running or client.paused or client.client is None or client.process is None:
        return
    partition_id = fault.other % target.world.options.partitions
    target.say(fault, server.name, f"is to own partition {partition_id}")
    if server.server is not None:
        work = client.client.add_preferred_partitions(server.server.endpoint, [partition_id])
        task = client.process.run(_whatever_becomes_of_it(work))
        await asyncio.wait([task], timeout=20.0)


async def _whatever_becomes_of_it(work: Awaitable[object]) -> None:
    with contextlib.suppress(WaltzError):
        await work


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
    network = target.world.network
    await asyncio.sleep(draw.random() * min(fault.duration_s, 1.0))
    pairs = [pair for name in names for pair in ((server.name, name), (name, server.name)) if draw.random() < 0.8]
    for source, destination in pairs:
        network.set_cut(source, destination, True)
    await asyncio.sleep(draw.random() * fault.duration_s)
    first, second = zookeeper.reconnect, functools.partial(_reconnect, target, pairs)
    if draw.random() < 0.5:
        first, second = second, first
    first()
    await asyncio.sleep(draw.random() * draw.choice((0.01, 0.1, 1.0, fault.duration_s)))
    second()


def _reconnect(target: Target, pairs: Sequence[tuple[str, str]]) -> None:
    for source, destination in pairs:
        target.world.network.set_cut(source, destination, False)


async def flap(target: Target, fault: Fault) -> None:
    """A server loses its session and gets another at once, others are slow to notice, and it hears late of what they
    do: it may lose partitions and get them back without knowing. Perhaps what it writes meanwhile is stuck."""
    draw = random.Random(fault.other)
    server = target.server(fault)
    if server.zookeeper is None or not server.running:
        return
    target.say(fault, server.name, "loses its ZooKeeper session and hears late of everything")
    deafness_s, network = target.world.ensemble.deafness_s, target.world.network
    reached = draw.choice(target.cluster.storages)
    cut_off = [storage.name for storage in target.cluster.storages if storage is not reached or draw.random() < 0.2]
    pairs = [(server.name, name) for name in cut_off] if draw.random() < 0.7 else []
    for source, destination in pairs:
        network.set_cut(source, destination, True)
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
    _reconnect(target, pairs)


async def strand_minority(target: Target, fault: Fault) -> None:
    """For a moment a server reaches one storage only; then the server ends, and that storage is cut off with what
    only it holds. Others go on without it, and later it returns."""
    draw = random.Random(fault.other)
    server = target.server(fault)
    storage = draw.choice(target.cluster.storages)
    target.say(fault, server.name, f"reaches only {storage.name}")
    network = target.world.network
    others = [(server.name, other.name) for other in target.cluster.storages if other is not storage]
    for source, destination in others:
        network.set_cut(source, destination, True)
    await asyncio.sleep(draw.choice((0.05, 0.3, 0.9)))
    around = [(other.name, storage.name) for other in target.cluster.servers]
    around += [(destination, source) for source, destination in around]
    for source, destination in around:
        network.set_cut(source, destination, True)
    await _end_server(target, fault, draw, server)
    _reconnect(target, others)
    await asyncio.sleep(min(fault.duration_s, 8.0))
    if draw.random() < 0.3:
        await _kill(target, fault, storage)
    _reconnect(target, around)


async def _end_server(target: Target, fault: Fault, draw: random.Random, server: ServerHost) -> None:
    """In one of several ways, and not for long."""
    way = draw.randrange(4)
    short = fault._replace(duration_s=min(fault.duration_s, 5.0) * draw.random())
    if way == 0:
        await _kill(target, short, server)
    elif way == 1:
        await _power_off(target, short, server)
    elif server.running and server.zookeeper is not None:
        target.say(fault, server.name, "loses its ZooKeeper session")
        server.zookeeper.expire()


async def rotate_minority(target: Target, fault: Fault) -> None:
    """One storage after the other is out of reach of all servers, and each time the owner's session ends, perhaps in
    the middle of a recovery."""
    draw = random.Random(fault.other)
    target.say(fault, "storages", "are out of reach one after the other")
    network, storages = target.world.network, target.cluster.storages
    servers = [server.name for server in target.cluster.servers]
    away: list[tuple[str, str]] = []
    for _ in range(draw.randint(3, 6)):
        gone = draw.choice(storages).name
        _reconnect(target, away)
        away = [pair for server in servers for pair in ((server, gone), (gone, server))]
        for source, destination in away:
            network.set_cut(source, destination, True)
        await asyncio.sleep(draw.choice((0.01, 0.1, 0.5, 3.0)) * draw.random())
        for server in target.cluster.servers:
            await _end_server(target, fault._replace(duration_s=0.2), draw, server)
        await asyncio.sleep(draw.choice((0.1, 1.0, 3.0)) * draw.random())
    _reconnect(target, away)


async def storm(target: Target, fault: Fault) -> None:
    """Many short faults in a short time."""
    draw = random.Random(fault.other)
    target.say(fault, "a storm", "begins")
    async with asyncio.TaskGroup() as group:
        for _ in range(draw.randint(6, 20)):
            kind = draw.choice(_STORM)
            duration_s = draw.choice((0.02, 0.1, 0.5, 2.0)) * draw.random()
            short = Fault(target.world.loop.time(), kind, draw.randrange(1 << 16), draw.randrange(1 << 16), duration_s)
            group.create_task(cast("Coroutine[Any, Any, None]", FAULTS[kind][1](target, short)))
            await asyncio.sleep(draw.choice((0.0, 0.01, 0.1, 0.7)) * draw.random())


_STORM = (
    "kill-storage",
    "kill-server",
    "power-off-storage",
    "crash-while-writing",
    "pause-server",
    "cut",
    "cut-one-way",
    "break-connections",
    "expire-session",
    "lose-answer",
    "prefer-partitions",
    "depose",
    "strand-minority",
    "flap",
)


async def move_replica(target: Target, fault: Fault) -> None:
    """An operator moves a replica of a partition to another storage of its group, and perhaps back later."""
    cluster = target.cluster
    partition_id = fault.victim % target.world.options.partitions
    leaving = cluster.replicas[partition_id][fault.other % len(cluster.replicas[partition_id])]
    group_id = cluster.storages.index(leaving) % target.world.options.replicas
    candidates = [storage for storage in cluster.group(group_id) if storage not in cluster.replicas[partition_id]]
    if not candidates:
        return
    coming = candidates[fault.other % len(candidates)]
    target.say(fault, f"partition {partition_id}", f"moves from {leaving.name} to {coming.name}")
    if await _operate(target, lambda process: cluster.add_replica(process, partition_id, coming)):
        await asyncio.sleep(min(fault.duration_s, 5.0))
        while not await _operate(target, lambda process: cluster.remove_replica(process, partition_id, leaving)):
            await asyncio.sleep(1.0)


async def _operate(target: Target, work: Callable[[Process], Coroutine[Any, Any, None]]) -> bool:
    try:
        await target.cluster.as_operator(work)
    except WaltzError as error:
        target.world.trace.line("operator", f"fails: {error}")
        return False
    return True


async def re_add_stranded(target: Target, fault: Fault) -> None:
    """A storage is left alone with what only it was given, is replaced by another, and is assigned again, with its old
    files, while no server reaches it. Then it is reached again (hazard H3). Needs two storages in its group."""
    cluster, network = target.cluster, target.world.network
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
    around = [pair for server in servers for pair in ((server, storage.name), (storage.name, server))]
    for source, destination in others:
        network.set_cut(source, destination, True)
    await asyncio.sleep(0.3)
    for source, destination in around:
        network.set_cut(source, destination, True)
    _reconnect(target, others)
    for step in (
        lambda process: cluster.add_replica(process, partition_id, spare[0]),
        lambda process: cluster.remove_replica(process, partition_id, storage),
        lambda process: cluster.add_replica(process, partition_id, storage),
    ):
        await asyncio.sleep(3.0)
        while not await _operate(target, step):
            await asyncio.sleep(1.0)
    await asyncio.sleep(3.0)
    _reconnect(target, around)
    await asyncio.sleep(5.0)
    await _operate(target, lambda process: cluster.remove_replica(process, partition_id, spare[0]))


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
    for source, destination in answers:
        target.world.network.set_cut(source, destination, True)
    await asyncio.sleep(draw.uniform(0.3, 1.5))
    _reconnect(target, answers)
    await asyncio.sleep(draw.random())
    deafness_s.pop(server.name, None)


def _around(target: Target, storage: StorageHost) -> list[tuple[str, str]]:
    """Both directions between a storage and all servers."""
    servers = target.cluster.servers
    return [pair for server in servers for pair in ((server.name, storage.name), (storage.name, server.name))]


def _cut_off(target: Target, pairs: Sequence[tuple[str, str]]) -> None:
    for source, destination in pairs:
        target.world.network.set_cut(source, destination, True)


def _end_servers(target: Target, *, power_loss: bool = False) -> None:
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
    behind, short, whole = (_around(target, storage) for storage in storages)
    names = [storage.name for storage in storages]
    target.say(fault, names[0], f"misses a session, {names[1]} its end; {names[2]} leaves in the recovery after that")
    _cut_off(target, behind)
    _end_servers(target)
    await asyncio.sleep(6.0)
    _cut_off(target, short)
    await asyncio.sleep(0.3)
    _end_servers(target)
    _reconnect(target, behind)
    await _wait_for_mark(target, storages[0], partition_id)
    _end_servers(target)
    _cut_off(target, whole)
    _reconnect(target, short)
    await asyncio.sleep(4.0)
    _reconnect(target, whole)


async def crash_at_opening(target: Target, fault: Fault) -> None:
    """A storage is left alone with what only it was given. The others open a session without it, and in that moment all
    servers end; then it is back (hazard H4)."""
    draw = random.Random(fault.other)
    partition_id = fault.victim % target.world.options.partitions
    alone, other = draw.sample(target.cluster.replicas[partition_id], 2)
    target.say(fault, alone.name, "is left alone, and servers end when the next session opens")
    around = _around(target, alone)
    to_others = [
        (server.name, storage.name)
        for server in target.cluster.servers
        for storage in target.cluster.storages
        if storage is not alone
    ]
    _cut_off(target, to_others)
    await asyncio.sleep(0.3)
    _end_servers(target, power_loss=True)
    _cut_off(target, around)
    _reconnect(target, to_others)
    await _wait_for_mark(target, other, partition_id)
    await asyncio.sleep(0.1 * draw.random())
    _end_servers(target)
    _reconnect(target, around)
    await asyncio.sleep(3.0)


async def _wait_for_mark(target: Target, storage: StorageHost, partition_id: int) -> None:
    """Until a storage has got its next low-water mark, for a few seconds at most."""

    def mark() -> int | None:
        partition = None if storage.node is None else storage.node.manager.partitions.get(partition_id)
        return None if partition is None else partition.info.low_water_mark

    before, deadline_s = mark(), target.world.loop.time() + 8.0
    while mark() == before and target.world.loop.time() < deadline_s:
        await asyncio.sleep(0.002)


async def begin_in_the_dark(target: Target, fault: Fault) -> None:
    """An operator moves a partition away from a server that is between two sessions and hears late of everything."""
    draw = random.Random(fault.other)
    cluster, network, deafness_s = target.cluster, target.world.network, target.world.ensemble.deafness_s
    server = target.server(fault)
    others = [other for other in cluster.servers if other is not server]
    if not server.running or server.zookeeper is None:
        return
    target.say(fault, server.name, "reaches no storage, hears late of everything, and is to lose its partitions")
    deafness_s[server.name] = draw.choice((0.1, 0.3, 0.6))
    around = [(server.name, storage.name) for storage in cluster.storages]
    around += [(destination, source) for source, destination in around]
    for source, destination in around:
        network.set_cut(source, destination, True)
    await asyncio.sleep(1.0 + draw.random())
    _reconnect(target, around)
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


FAULTS: dict[str, tuple[int, Callable[[Target, Fault], object]]] = {
    "kill-storage": (3, kill_storage),
    "kill-server": (4, kill_server),
    "kill-client": (2, kill_client),
    "power-off-storage": (3, power_off_storage),
    "power-off-server": (2, power_off_server),
    "power-off-all-storages": (1, power_off_all_storages),
    "crash-while-writing": (3, crash_while_writing),
    "pause": (4, pause),
    "pause-server": (3, pause_server),
    "stop-in-order": (2, stop_in_order),
    "cut": (4, cut),
    "cut-one-way": (3, cut_one_way),
    "isolate": (3, isolate),
    "slow-link": (3, slow_link),
    "break-connections": (4, break_connections),
    "slow-disk": (2, slow_disk),
    "full-disk": (1, full_disk),
    "failing-write": (1, failing_write),
    "failing-sync": (1, failing_sync),
    "expire-session": (3, expire_session),
    "disconnect-zookeeper": (3, disconnect_zookeeper),
    "slow-zookeeper": (1, slow_zookeeper),
    "slow-watches": (2, slow_watches),
    "lose-answer": (2, lose_answer),
    "prefer-partitions": (2, prefer_partitions),
    "depose": (5, depose),
    "flap": (6, flap),
    "strand-minority": (5, strand_minority),
    "rotate-minority": (3, rotate_minority),
    "storm": (2, storm),
    "move-replica": (3, move_replica),
}
"""The kinds of faults that seeds draw from, with their weights."""

TARGETED_FAULTS: dict[str, tuple[int, Callable[[Target, Fault], object]]] = {
    "re-add-stranded": (1, re_add_stranded),
    "boomerang": (1, boomerang),
    "recover-twice": (1, recover_twice),
    "crash-at-opening": (1, crash_at_opening),
    "begin-in-the-dark": (1, begin_in_the_dark),
}
"""Kinds that happen only where they are asked for: whole courses of events for one rule."""

ALL_FAULTS = FAULTS | TARGETED_FAULTS
"""Every kind of fault."""


def draw_faults(seed: int, count: int, duration_s: float, only: Sequence[str] = ()) -> list[Fault]:
    """The schedule of a seed, in order of time: single faults and bursts.

    Every seed has a selection of kinds of its own (``only`` replaces it): what comes often comes together.
    """
    draw = random.Random(f"{seed}/faults")
    kinds = list(only) or draw.sample(list(FAULTS), draw.choice((2, 4, 6, 10, len(FAULTS))))
    weights = [ALL_FAULTS[kind][0] for kind in kinds]
    faults: list[Fault] = []
    while len(faults) < count:
        at_s = draw.uniform(3.0, duration_s - 4.0)
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            kind = draw.choices(kinds, weights)[0]
            longest_s = duration_s - at_s
            fault_s = min(draw.choice((0.3, 1.0, 3.0, 8.0, 20.0)) * (0.5 + draw.random()), longest_s)
            faults.append(Fault(at_s, kind, draw.randrange(1 << 16), draw.randrange(1 << 16), fault_s))
            at_s = min(at_s + draw.choice((0.0, 0.001, 0.01, 0.1, 1.0)) * draw.random(), duration_s - 2.0)
    return sorted(faults)


def heal(target: Target) -> None:
    """End of all faults: everything runs, everything is connected, no disk fails."""
    world = target.world
    world.trace.line("FAULT", "everything heals")
    names = [host.name for host in target.hosts]
    for one in names:
        for other in names:
            condition = world.network.condition(one, other)
            condition.extra_delay_s, condition.bytes_per_s = 0.0, None
            if condition.cut:
                world.network.set_cut(one, other, False)
    world.ensemble.deafness_s.clear()
    world.ensemble.slowness_s = world.ensemble.watch_delay_s = 0.0
    for storage in target.cluster.storages:
        disk = storage.disk
        disk.slowness, disk.write_error, disk.operations_until_crash = 1.0, None, None
        disk.write_errors_to_come = disk.sync_errors_to_come = 0
        if storage.running and storage.node is not None and storage.node.manager.out_of_service():
            storage.crash(power_loss=False)  # an operator looks after what a failing disk put out of service
    for host in target.hosts:
        if host.process is not None and host.paused:
            host.process.resume()
        if host.running and not host.wanted:
            host.crash(power_loss=False)  # asked to end, by a fault that does not wait for that any more
        if not host.running:
            host.start()
        elif host.zookeeper is not None:
            host.zookeeper.reconnect()
