"""Single faults: what each of them does to the cluster, and how it ends."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tests.simulation.application import ApplicationHost
from tests.simulation.cluster import Host, ServerHost
from tests.simulation.liveness import check_nothing_left
from tests.simulation.loop import Process
from tests.simulation.target import Fault, Pair, Target
from waltz.client.options import ClientOptions
from waltz.common.errors import WaltzError


def kill(fault: Fault, host: Host) -> None:
    """SIGKILL of one machine's process, and a restart when the fault ends."""
    host.crash(power_loss=False)
    host.start_in(fault.duration_s)


def power_off(fault: Fault, host: Host) -> None:
    """A loss of power of one machine, which comes back when the fault ends."""
    host.crash(power_loss=True)
    host.start_in(fault.duration_s)


async def kill_storage(target: Target, fault: Fault) -> None:
    """SIGKILL, and a restart."""
    kill(fault, target.storage(fault))


async def kill_server(target: Target, fault: Fault) -> None:
    """SIGKILL, and a restart."""
    kill(fault, target.server(fault))


async def kill_client(target: Target, fault: Fault) -> None:
    """SIGKILL, and a restart."""
    kill(fault, target.client(fault))


async def power_off_storage(target: Target, fault: Fault) -> None:
    """A loss of power: unsynced writes are lost or torn."""
    power_off(fault, target.storage(fault))


async def power_off_server(target: Target, fault: Fault) -> None:
    """A loss of power: nobody closes the connections."""
    power_off(fault, target.server(fault))


async def power_off_all_storages(target: Target, fault: Fault) -> None:
    """A loss of power of the whole room."""
    for storage in target.cluster.storages:
        storage.crash(power_loss=True)
        storage.start_in(fault.duration_s * (0.5 + 0.1 * (fault.other % 5)))


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
    whole = host.wanted and host.up  # neither on its way up nor down already
    host.wanted = False
    task = process.run(host.stop())
    await asyncio.wait([task], timeout=30.0)
    if process.alive and not task.done():
        target.world.trace.line("FAULT", f"{host.name} has not ended within 30 s")
    elif process.alive and task.exception() is not None:
        target.world.fail(f"{host.name} failed while it ended: {task.exception()!r}")
    elif whole and process.alive and not host.paused:
        asked_at_s = target.world.loop.now_s
        await asyncio.sleep(0.5)
        if process.alive and process.resumed_at_s < asked_at_s and not host.paused:
            check_nothing_left(target.world, host, process)
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


async def _cut(target: Target, fault: Fault, pairs: list[Pair], what: str) -> None:
    target.say(fault, "network:", what)
    target.cut_off(pairs)
    await asyncio.sleep(fault.duration_s)
    target.reconnect(pairs)


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


async def jump_clock(target: Target, fault: Fault) -> None:
    """The wall clock of a machine jumps, back or forth, by seconds, hours or a month; it is never right again."""
    draw = random.Random(fault.other)
    storages = target.cluster.storages
    host = target.storage(fault) if draw.random() < 0.7 else target.any_host(fault)
    hosts = [host] if draw.random() < 0.8 else storages
    jump_s = draw.choice((1, -1)) * draw.choice((2.0, 3600.0, 30 * 86400.0)) * (0.5 + draw.random())
    for each in hosts:
        target.say(fault, each.name, f"has a clock that jumps by {jump_s:.1f} s")
        each.clock_error_s += jump_s


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


async def move_to_idle_connections(target: Target, fault: Fault) -> None:
    """A partition moves to a server to which the connections were made anew after it had lost the partition. So long
    that clients have asked for signs of life, nothing was to be said over them."""
    client = target.client(fault)
    first, second = target.cluster.servers[:2]
    for idle, busy in ((first, second), (second, first)):
        target.say(fault, busy.name, "is to own partition 0")
        if not await _move(client, idle, busy):
            return
        await asyncio.sleep(5.0)
        for each in target.clients:
            for transport in target.world.network.transports_between(idle.name, each.name):
                transport.break_off()
                transport.peer.break_off()
        await asyncio.sleep(ClientOptions().silence_limit_s / 2 + 5.0)


async def _move(host: ApplicationHost, source: ServerHost, destination: ServerHost) -> bool:
    """Have an operator move partition 0; whether that could be tried."""
    for server, preferred in ((source, False), (destination, True)):
        client = host.client
        if not host.running or host.process is None or client is None or server.server is None:
            return False
        ask = client.add_preferred_partitions if preferred else client.remove_preferred_partitions
        task = host.process.run(_whatever_becomes_of_it(ask(server.server.endpoint, [0])))
        await asyncio.wait([task], timeout=20.0)
    return True


async def _whatever_becomes_of_it(work: Awaitable[object]) -> None:
    with contextlib.suppress(WaltzError):
        await work


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
    if await operate(target, lambda process: cluster.add_replica(process, partition_id, coming)):
        await asyncio.sleep(min(fault.duration_s, 5.0))
        while not await operate(target, lambda process: cluster.remove_replica(process, partition_id, leaving)):
            await asyncio.sleep(1.0)


async def operate(target: Target, work: Callable[[Process], Coroutine[Any, Any, None]]) -> bool:
    """An operator does something; whether it worked."""
    try:
        await target.cluster.as_operator(work)
    except WaltzError as error:
        target.world.trace.line("operator", f"fails: {error}")
        return False
    return True
