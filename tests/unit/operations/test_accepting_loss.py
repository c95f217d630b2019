"""Two of four replicas are lost for good, between real logs of servers and storages in memory."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from tests.unit.server.store.fakes import FakeClient
from tests.unit.server.store.virtual_time import run
from tests.unit.server.store.world import ROOT, Server, World, wait_until
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.zk import store_admin
from waltz.common.zk.paths import ClusterPaths
from waltz.operations.accepting_loss import LossAcceptance
from waltz.operations.lost_replicas import LossRefused
from waltz.operations.replica_moves import ReplicaMove

A, B, C, D = NAMES = ("a:1", "b:1", "c:1", "d:1")


def in_virtual_time(test: Callable[[], Coroutine[object, object, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def running() -> None:
        run(test())

    return running


class Disaster:
    """A cluster of four storages."""

    def __init__(self, world: World, cluster: ClusterHandle) -> None:
        self.world = world
        self.cluster = cluster

    def loss(self, *lost: str) -> LossAcceptance:
        return LossAcceptance(self.cluster, 0, lost, self._connect)

    @asynccontextmanager
    async def _connect(self, storage: str) -> AsyncIterator[FakeClient]:
        client = await self.world.network.connector()(storage)
        try:
            yield client
        finally:
            await client.close()

    async def assigned(self) -> frozenset[str]:
        assignments = await store_admin.read_replica_assignments(self.cluster.zookeeper, ROOT)
        return assignments.storages_of(0)

    async def tell_assignment(self, server: Server) -> None:
        """What the watch of a server does."""
        self.world.assigned = await self.assigned()
        server.connections.update(self.world.assigned)
        server.log.set_replicas(self.world.assigned)


@asynccontextmanager
async def disaster() -> AsyncIterator[Disaster]:
    async with World(NAMES) as world:
        zookeeper = await world.zookeeper_server.connect()
        await store_admin.create_cluster(zookeeper, ROOT, "lost", 1)
        for group, storage in enumerate(NAMES):
            await store_admin.add_storage_node(zookeeper, ROOT, storage, group, 1)
            await store_admin.assign_partitions(zookeeper, ROOT, storage, [0])
        yield Disaster(world, ClusterHandle(zookeeper, ROOT, None))
        await zookeeper.close()


async def two_are_lost(made: Disaster) -> Server:
    """A server that waits for A and D: 50 transactions are on all, 10 more on A, B and D."""
    server = await made.world.server()
    await server.write(50)
    await wait_until(lambda: all(len(made.world.stored(name)) == 50 for name in NAMES))
    made.world.storages[C].stop()
    await server.write(10)
    for name in (A, D):
        made.world.storages[name].stop()
    made.world.storages[C].start()
    server.give(1)
    await server.wait(lambda: not server.log.open)
    return server


@in_virtual_time
async def test_a_partition_goes_on_with_what_is_left() -> None:
    async with disaster() as made:
        world, server = made.world, await two_are_lost(made)
        await world.server(2)
        await asyncio.sleep(600)
        assert not any(each.log.open for each in world.servers)
        path = ClusterPaths.of(ROOT).replica_move(0)
        await made.cluster.zookeeper.create(path, ReplicaMove(A, D).encode(), make_path=True)
        before = world.metadata
        found = await made.loss(A, D).find()
        assert world.metadata == before
        assert 59 <= found.acceptance.mark <= 60
        await made.loss(A, D).apply(found.acceptance)
        assert {each.connect_string for each in world.metadata.replicas} == {B, C} == await made.assigned()
        assert world.metadata.generation == 2
        assert world.metadata.session_id == before.session_id + 1
        assert await made.cluster.zookeeper.exists(path) is None
        await made.tell_assignment(server)
        other = world.servers[1]
        await made.tell_assignment(other)
        await other.wait_open(30)
        assert other.log.high_water_mark == found.acceptance.mark
        await other.write(10)
        assert world.stored(B) == world.stored(C)
        kept = world.stored(B)[:60]
        assert [append.req_id for append in server.given][:60] == kept, "nothing that was committed is lost here"

        for name in (A, D):  # they come back, and are no voters
            world.storages[name].start()
        await other.write(5)
        world.storages[C].stop()
        other.give(1)
        await asyncio.sleep(60)
        assert len(other.listener.committed_appends) == 15, "two of two are needed"
        world.storages[C].start()
        await other.wait_open()

        await store_admin.assign_partitions(made.cluster.zookeeper, ROOT, A, [0])
        await made.tell_assignment(other)
        await wait_until(lambda: set(world.states()) == {A, B, C})
        await other.write(5)
        await wait_until(lambda: world.stored(A) == world.stored(B) == world.stored(C))


@in_virtual_time
async def test_a_lost_storage_that_holds_more_is_refused_when_it_comes_back() -> None:
    async with disaster() as made:
        world = made.world
        server = await world.server()
        await server.write(50)
        for name in (B, C):
            world.storages[name].break_connections()
            world.storages[name].partition.fence = -1
        await asyncio.sleep(5)
        lost = world.storages[A].partition
        lost.low_water_mark = 80
        lost.records = lost.records + lost.records[:40]
        for name in (A, D):
            world.storages[name].stop()
        server.give(1)
        await server.wait(lambda: not server.log.open)
        await asyncio.sleep(10)
        found = await made.loss(A, D).find()
        await made.loss(A, D).apply(found.acceptance)
        await made.tell_assignment(server)
        await server.wait_open(30)
        world.storages[A].start()
        await store_admin.assign_partitions(made.cluster.zookeeper, ROOT, A, [0])
        await made.tell_assignment(server)
        await server.write(5)
        await asyncio.sleep(60)
        assert not world.states()[A].is_member_of(world.metadata.session_id)
        assert world.stored(B) == world.stored(C), "the others go on without it"
        assert server.listener.committed_appends[-1].req_id == world.stored(B)[-1]


@in_virtual_time
async def test_an_owner_that_comes_between_keeps_the_partition() -> None:
    async with disaster() as made:
        server = await two_are_lost(made)
        found = await made.loss(A, D).find()
        writes = 0
        write = made.cluster.zookeeper.set

        async def begin_first(path: str, data: bytes, version: int) -> object:
            nonlocal writes
            writes += 1
            if writes == 2:
                server.log.set_generation(2)
                before = made.world.metadata.session_id
                await wait_until(lambda: made.world.metadata.session_id > before)
            return await write(path, data, version)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(made.cluster.zookeeper, "set", begin_first)
            with pytest.raises(LossRefused, match="a server has begun a store session meanwhile"):
                await made.loss(A, D).apply(found.acceptance)
        assert set(made.world.states()) == set(NAMES) == await made.assigned()


@in_virtual_time
async def test_what_has_changed_since_it_was_agreed_is_looked_at_again() -> None:
    async with disaster() as made:
        await two_are_lost(made)
        found = await made.loss(A, D).find()
        made.world.storages[B].partition.truncate(55)
        with pytest.raises(LossRefused, match="its replicas or the metadata have changed"):
            await made.loss(A, D).apply(found.acceptance)
        made.world.storages[A].start()
        with pytest.raises(LossRefused, match="not lost, as they answer: a:1"):
            await made.loss(A, D).find()


@in_virtual_time
async def test_a_partition_that_never_had_a_session_has_lost_nothing() -> None:
    async with disaster() as made:
        with pytest.raises(LossRefused, match="never had a store session"):
            await made.loss(A, D).find()
