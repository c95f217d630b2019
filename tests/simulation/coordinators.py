"""Two coordinators at once: more than one server believes that it is the one that assigns partitions.

Views of the cluster that are out of date do that, for a moment; here it lasts.
"""

import asyncio
import contextlib
import random
from collections.abc import Collection, Iterator
from unittest import mock

from tests.simulation.cluster import World
from tests.simulation.target import Fault, Target
from waltz.common.cluster import manager
from waltz.common.cluster.decisions import ClusterAction, ClusterSnapshot, decide


@contextlib.contextmanager
def as_many_as_the_fault_says(world: World) -> Iterator[None]:
    """While ``world.everybody_coordinates``, nobody leaves the assignment to another server."""

    def decided(applied_version: int, snapshot: ClusterSnapshot, own_server_ids: Collection[int]) -> ClusterAction:
        action = decide(applied_version, snapshot, own_server_ids)
        return (
            ClusterAction.WRITE
            if action is ClusterAction.WAIT and world.everybody_coordinates and own_server_ids
            else action
        )

    with mock.patch.object(manager, "decide", decided):
        yield


async def two_coordinators(target: Target, fault: Fault) -> None:
    """All servers coordinate, and servers leave and come back meanwhile."""
    draw, world = random.Random(fault.other), target.world
    target.say(fault, "all servers", "take themselves for the coordinator")
    world.everybody_coordinates = True
    deadline_s = world.loop.now_s + fault.duration_s
    try:
        while world.loop.now_s < deadline_s:
            server = draw.choice(target.cluster.servers)
            if server.running and not server.paused and server.zookeeper is not None:
                server.zookeeper.expire()
            await asyncio.sleep(draw.choice((0.05, 0.3, 1.0, 3.0)) * draw.random())
    finally:
        world.everybody_coordinates = False
