from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.common.cluster.fakes import make_metadata
from tests.unit.common.zk.lagging import LaggingZooKeeper
from waltz.common.cluster.replicas import Replicas, Source, choose_replicas, read_replicas
from waltz.common.ids import Endpoint
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import StoreAdminError, add_storage_node, assign_partitions, create_cluster
from waltz.common.zk.znodes import UNRESOLVED, ConnectionMetadata, ReplicaAssignments

A, B, C = "a:6000", "b:6000", "c:6000"
ASSIGNED = ReplicaAssignments({A: (0, 1), B: (0,), C: (0,)})
CONNECTIONS = ConnectionMetadata({A: 6100, B: 6200, C: 6300})


def test_replicas_of_the_current_session_may_serve() -> None:
    metadata = make_metadata(0, {A: (7, UNRESOLVED), B: (7, UNRESOLVED), C: (7, UNRESOLVED)})
    choice = choose_replicas(0, metadata, ASSIGNED, CONNECTIONS)
    assert choice.sources == (
        Source(A, Endpoint("a", 6100)),
        Source(B, Endpoint("b", 6200)),
        Source(C, Endpoint("c", 6300)),
    )
    assert not choice.refused


def test_whoever_may_have_a_dirty_tail_may_not() -> None:
    metadata = make_metadata(0, {A: (6, UNRESOLVED), B: (6, 41), C: (7, 41)})
    choice = choose_replicas(0, metadata, ASSIGNED, CONNECTIONS)
    assert choice.sources == ()
    assert choice.refused == {
        A: "it was left behind in session 6, session 7 is current",
        B: "it was left behind in session 6, session 7 is current",
        C: "it was left behind in the current session",
    }


def test_replicas_that_are_not_assigned_any_more_are_not_asked() -> None:
    metadata = make_metadata(1, {A: (7, UNRESOLVED), B: (7, UNRESOLVED)})
    choice = choose_replicas(1, metadata, ASSIGNED, CONNECTIONS)
    assert [source.storage for source in choice.sources] == [A]


def test_new_replicas_and_unknown_ports_are_explained() -> None:
    metadata = make_metadata(0, {B: (7, UNRESOLVED), "nonsense": (7, UNRESOLVED)})
    assigned = ReplicaAssignments({A: (0,), B: (0,), "nonsense": (0,)})
    choice = choose_replicas(0, metadata, assigned, ConnectionMetadata({A: 6100, "nonsense": 1}))
    assert choice.sources == ()
    assert choice.refused == {
        A: "it takes no part in the current session",
        B: "no admin port is registered for it",
        "nonsense": "not of the form host:port: 'nonsense'",
    }


def test_a_partition_without_metadata_has_no_replicas() -> None:
    assert choose_replicas(0, None, ASSIGNED, CONNECTIONS).sources == ()


def replicas(states: dict[str, tuple[int, int]]) -> Replicas:
    return Replicas(ASSIGNED, CONNECTIONS, {0: make_metadata(0, states), 1: None})


def test_whoever_is_unresolved_may_vote() -> None:
    """A member of an earlier session may vote, too: the recovery of the current session may not have recorded its
    members yet."""
    found = replicas({A: (6, UNRESOLVED), B: (7, UNRESOLVED), C: (6, 41)})
    assert [found.may_vote(0, storage) for storage in (A, B, C, "d:6000")] == [True, True, False, False]
    assert not found.may_vote(1, A)


def test_names_of_admin_ports() -> None:
    found = replicas({})
    assert found.name_of(Endpoint("b", 6200)) == B
    assert found.name_of(Endpoint("b", 6100)) is None
    assert found.name_of(Endpoint("d", 6100)) is None


ROOT = "/waltz"
PATH = ClusterPaths.of(ROOT).partition(0)


class TestReading:
    @pytest.fixture
    def server(self) -> MemoryZooKeeperServer:
        return MemoryZooKeeperServer()

    @pytest_asyncio.fixture
    async def owner(self, server: MemoryZooKeeperServer) -> MemoryZooKeeper:
        owner = await server.connect()
        await create_cluster(owner, ROOT, "test", 1)
        for storage, port in CONNECTIONS.admin_ports.items():
            await add_storage_node(owner, ROOT, storage, 0, port)
            await assign_partitions(owner, ROOT, storage, [0])
        await owner.create(PATH, make_metadata(0, dict.fromkeys((A, B, C), (7, UNRESOLVED))).encode())
        return owner

    @pytest_asyncio.fixture
    async def reader(self, server: MemoryZooKeeperServer) -> AsyncIterator[LaggingZooKeeper]:
        yield LaggingZooKeeper(server, await server.connect())

    async def leave_one_behind(self, owner: MemoryZooKeeper) -> None:
        states = {A: (8, UNRESOLVED), B: (8, UNRESOLVED), C: (7, 41)}
        await owner.set(PATH, make_metadata(0, states, session_id=8).encode())

    async def test_a_member_of_the_ensemble_that_lags_is_not_believed(
        self, owner: MemoryZooKeeper, reader: LaggingZooKeeper
    ) -> None:
        reader.fall_behind()
        await self.leave_one_behind(owner)
        choice = (await read_replicas(reader, ROOT, [0])).choose(0)
        assert [source.storage for source in choice.sources] == [A, B]

    async def test_what_was_read_in_two_sessions_is_read_again(
        self, server: MemoryZooKeeperServer, owner: MemoryZooKeeper
    ) -> None:
        """The second session may be one with another member of the ensemble, which may lag."""
        inner = await server.connect()
        reader = LaggingZooKeeper(server, inner)
        reader.fall_behind()
        await self.leave_one_behind(owner)
        past = dict(server.dump())
        past[PATH] = make_metadata(0, dict.fromkeys((A, B, C), (7, UNRESOLVED))).encode()

        def expire(path: str) -> None:
            if path == PATH:
                reader.before_read = None
                server.expire(inner)
                reader._past = past

        reader.before_read = expire
        choice = (await read_replicas(reader, ROOT, [0])).choose(0)
        assert [source.storage for source in choice.sources] == [A, B]

    async def test_no_cluster(self, server: MemoryZooKeeperServer) -> None:
        with pytest.raises(StoreAdminError, match="there is no cluster at /waltz; check cluster.root"):
            await read_replicas(await server.connect(), ROOT, [0])
