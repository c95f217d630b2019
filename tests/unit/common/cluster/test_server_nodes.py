"""Nodes of servers are read once for each change, and never missed."""

from collections.abc import Callable

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.cluster.server_nodes import ServerNodes
from waltz.common.ids import Endpoint
from waltz.common.zk.client import Stat, Watch
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import create_cluster
from waltz.common.zk.znodes import ServerDescriptor

ROOT = "/waltz"
PATHS = ClusterPaths.of(ROOT)


class World:
    """A cluster, and what one process reads of it."""

    def __init__(self, server: MemoryZooKeeperServer, own: MemoryZooKeeper, other: MemoryZooKeeper) -> None:
        self.server = server
        self.own = own
        self.other = other
        self.reads: list[str] = []
        self.changes = 0
        self.before_answer: Callable[[], None] = lambda: None
        self._get = own.get
        own.get = self._counted  # type: ignore[method-assign]  # it is counted
        self.nodes = ServerNodes(own, PATHS, "demo", self._changed)

    @classmethod
    async def open(cls) -> "World":
        server = MemoryZooKeeperServer()
        other = await server.connect()
        await create_cluster(other, ROOT, "demo", 2)
        return cls(server, await server.connect(), other)

    def _changed(self) -> None:
        self.changes += 1

    async def _counted(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        self.reads.append(path.rpartition("/")[2])
        answer = await self._get(path, watch)
        self.before_answer()
        return answer

    async def add(self, server_id: int, name: str) -> None:
        await self.other.create(PATHS.server_descriptor(name), _descriptor(server_id), ephemeral=True)

    async def prefer(self, server_id: int, name: str, *partition_ids: int) -> None:
        await self.other.set(PATHS.server_descriptor(name), _descriptor(server_id, *partition_ids))

    async def read(self, *names: str) -> dict[str, tuple[int, ...] | None]:
        return {
            node.name: None if node.descriptor is None else node.descriptor.preferred_partitions
            for node in await self.nodes.read(set(names))
        }

    def reads_since(self) -> list[str]:
        reads, self.reads = sorted(self.reads), []
        return reads


def _descriptor(server_id: int, *partition_ids: int) -> bytes:
    return ServerDescriptor(server_id, Endpoint("host", server_id), partition_ids).encode()


async def test_a_node_is_read_once() -> None:
    world = await World.open()
    for server_id, name in enumerate(("s_0", "s_1", "s_2")):
        await world.add(server_id, name)
    assert await world.read("s_0", "s_1") == {"s_0": (), "s_1": ()}
    assert world.reads_since() == ["s_0", "s_1"]
    assert await world.read("s_0", "s_1", "s_2") == {"s_0": (), "s_1": (), "s_2": ()}
    assert world.reads_since() == ["s_2"]
    assert await world.read("s_2") == {"s_2": ()}
    assert world.reads_since() == []
    assert world.changes == 0


async def test_a_changed_node_is_read_again_and_no_other() -> None:
    world = await World.open()
    await world.add(0, "s_0")
    await world.add(1, "s_1")
    await world.read("s_0", "s_1")
    for preferred in (5, 6):
        world.reads_since()
        await world.prefer(1, "s_1", preferred)
        await world.own.sync("/")  # the watch is called
        assert await world.read("s_0", "s_1") == {"s_0": (), "s_1": (preferred,)}
        assert world.reads_since() == ["s_1"]
    assert world.changes == 2


async def test_a_node_that_goes_is_forgotten_even_if_its_name_comes_back() -> None:
    world = await World.open()
    await world.add(0, "s_0")
    await world.read("s_0")
    await world.other.delete(PATHS.server_descriptor("s_0"))
    await world.own.sync("/")
    assert world.changes == 1
    assert await world.read("s_0") == {}
    await world.add(7, "s_0")
    (node,) = await world.nodes.read({"s_0"})
    assert node.descriptor is not None
    assert node.descriptor.server_id == 7


async def test_a_watch_that_fires_before_the_answer_comes_is_not_overlooked() -> None:
    world = await World.open()
    await world.add(0, "s_0")
    changed = PATHS.server_descriptor("s_0"), _descriptor(0, 3), -1

    def change() -> None:
        world.before_answer = lambda: None
        world.server.set(*changed)

    def call_at_once(watches: dict[Watch, None]) -> None:
        for watch in watches:
            watch()

    world.own.call_watches = call_at_once  # type: ignore[method-assign]  # not a turn of the loop later
    world.before_answer = change
    assert await world.read("s_0") == {"s_0": ()}
    assert world.changes == 1
    assert await world.read("s_0") == {"s_0": (3,)}


async def test_nothing_is_remembered_over_a_lost_connection() -> None:
    world = await World.open()
    await world.add(0, "s_0")
    await world.add(1, "s_1")
    await world.read("s_0", "s_1")
    world.reads_since()
    world.server.disconnect(world.own)
    world.server.reconnect(world.own)
    await world.prefer(1, "s_1", 4)
    assert await world.own.exists("/") is not None
    assert await world.read("s_0", "s_1") == {"s_0": (), "s_1": (4,)}
    assert world.reads_since() == ["s_0", "s_1"]


async def test_reading_again_asks_for_everything_and_adds_no_watches() -> None:
    world = await World.open()
    await world.add(0, "s_0")
    await world.add(1, "s_1")
    await world.read("s_0", "s_1")
    world.own.call_watches = lambda watches: None  # type: ignore[method-assign]  # they are on their way
    await world.prefer(1, "s_1", 4)
    again = await world.nodes.read_again()
    assert [node.descriptor and node.descriptor.preferred_partitions for node in again] == [(), (4,)]
    clients = world.server._data_watches._by_path[PATHS.server_descriptor("s_0")]
    assert [len(callables) for callables in clients.values()] == [1]


async def test_reading_again_includes_what_has_just_changed_and_not_what_has_gone() -> None:
    world = await World.open()
    for server_id, name in enumerate(("s_0", "s_1", "s_2")):
        await world.add(server_id, name)
    await world.read("s_0", "s_1", "s_2")
    await world.prefer(1, "s_1", 4)
    await world.other.delete(PATHS.server_descriptor("s_2"))
    await world.own.sync("/")
    again = await world.nodes.read_again()
    assert [(node.name, node.descriptor and node.descriptor.preferred_partitions) for node in again] == [
        ("s_0", ()),
        ("s_1", (4,)),
    ]
