"""Faults that nobody is told of: connections that go dead, followers that lag, writes that land late, stalls."""

import asyncio
import math
import random

from tests.simulation.lines import Line
from tests.simulation.target import Fault, Target


def lay_lines(target: Target) -> None:
    """Make lines between servers and other machines slow or long for good, as the options say."""
    options = target.world.options
    bytes_per_s = None if math.isinf(options.line_bytes_per_s) else options.line_bytes_per_s
    line = Line(bytes_per_s, options.line_delay_s, options.line_shared)
    draw = target.world.random("lines")
    for server in target.cluster.servers:
        for other in (*target.cluster.storages, *target.clients):
            if draw.random() < options.slow_lines:
                target.world.network.set_line(server.name, other.name, line)


async def blackhole(target: Target, fault: Fault) -> None:
    """One connection of two machines goes dead for good, in one direction or both; others between them live on."""
    one, other = target.pair(fault)
    connections = target.world.network.transports_between(one, other)
    if not connections:
        return
    draw = random.Random(fault.other)
    transport = draw.choice(connections)
    there, back = draw.choice(((True, True), (True, True), (True, False), (False, True)))
    if there:
        transport.blackhole()
    if back:
        transport.peer.blackhole()
    way = "both ways" if there and back else "from the former" if there else "from the latter"
    target.say(fault, "network:", f"{transport} is dead {way}")


async def stall(target: Target, fault: Fault) -> None:
    """Callbacks of a process take up to half a second, one after the other: it computes, or collects garbage."""
    host = target.any_host(fault)
    draw = random.Random(fault.other)
    target.say(fault, host.name, "computes for long")
    until_s = target.world.loop.now_s + fault.duration_s
    while target.world.loop.now_s < until_s:
        process = host.process
        if process is not None and host.running and not host.paused:
            process.pause()
            await asyncio.sleep(draw.uniform(0.05, 0.5))
            process.resume()
        await asyncio.sleep(draw.choice((0.0, 0.02, 0.5)))


async def lag_follower(target: Target, fault: Fault) -> None:
    """A machine reads old data from ZooKeeper."""
    host = target.any_host(fault)
    lag_s = (0.3, 1.0, 4.0)[fault.other % 3]
    target.say(fault, host.name, f"reads from a follower of ZooKeeper that is {lag_s} s behind")
    lags_s = target.world.ensemble.lags_s
    lags_s[host.name] = lag_s
    await asyncio.sleep(fault.duration_s)
    lags_s.pop(host.name, None)


async def land_late(target: Target, fault: Fault) -> None:
    """A write to ZooKeeper happens after its author was told that the connection is lost."""
    server = target.server(fault)
    if server.zookeeper is None or not server.running:
        return
    operation = ("set", "create", "delete", "set")[fault.other % 4]
    target.say(fault, server.name, f"will be given up with its next {operation}, which lands late")
    server.zookeeper.land_late(operation)
