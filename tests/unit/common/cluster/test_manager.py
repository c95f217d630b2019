"""The cluster manager on ZooKeeper in memory, with failures on command."""

import asyncio
import logging
from unittest import mock

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.common.cluster.manager_cases import FakeClient, FakeServer, ManagerCases
from tests.unit.common.zk.conformance import Ensemble
from tests.unit.test_memory_zookeeper import MemoryEnsemble
from waltz.common.cluster import manager as manager_module
from waltz.common.cluster.decisions import ServerNode
from waltz.common.cluster.manager import ClusterManager
from waltz.common.cluster.policy import PolicyError
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.zk.client import Stat, Watch
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import StoreAdminError, create_cluster
from waltz.common.zk.znodes import PartitionAssignment, PartitionGeneration, ServerDescriptor

ROOT = "/waltz"
PATHS = ClusterPaths.of(ROOT)


class TestManager(ManagerCases):
    @pytest.fixture
    async def ensemble(self) -> Ensemble:
        return MemoryEnsemble()


class Harness:
    """One manager on one ZooKeeper client, and another client to look and interfere."""

    def __init__(
        self, server: MemoryZooKeeperServer, zk: MemoryZooKeeper, other: MemoryZooKeeper, manager: ClusterManager
    ) -> None:
        self.server = server
        self.zk = zk
        self.other = other
        self.manager = manager

    @classmethod
    async def open(cls, partition_count: int = 2) -> "Harness":
        server = MemoryZooKeeperServer()
        zk, other = await server.connect(operation_timeout_s=1.0), await server.connect()
        await create_cluster(other, ROOT, "demo", partition_count)
        return cls(server, zk, other, await ClusterManager.open(zk, ROOT))

    async def descriptors(self) -> list[ServerDescriptor]:
        names = await self.other.children(PATHS.server_descriptors)
        return [
            ServerDescriptor.decode((await self.other.get(PATHS.server_descriptor(name)))[0]) for name in sorted(names)
        ]

    async def close(self) -> None:
        await self.manager.close()
        await self.manager.close()
        assert await self.other.children(PATHS.server_descriptors) == []


async def settle() -> None:
    """Let everything in memory that is on its way arrive."""
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.mark.parametrize("loss", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("times", [1, 2])
async def test_lost_registration_leaves_exactly_one_node(loss: str, times: int) -> None:
    harness = await Harness.open()
    getattr(harness.zk, loss)("create", times)
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    await settle()
    assert await harness.descriptors() == [ServerDescriptor(1, server.endpoint)]
    await harness.close()


async def test_second_own_node_that_appears_late_is_deleted() -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    for preferred in ((), (1,)):
        stray = ServerDescriptor(server.server_id, server.endpoint, preferred).encode()
        await harness.zk.create(PATHS.server_descriptor("s_"), stray, ephemeral=True, sequential=True)
        await server.until(lambda: len(harness.server.dump()) == 12)
        await settle()
        assert await harness.descriptors() == [ServerDescriptor(1, server.endpoint)]
    await harness.close()


async def test_own_node_that_was_deleted_is_created_again() -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    (name,) = await harness.other.children(PATHS.server_descriptors)
    await harness.other.delete(PATHS.server_descriptor(name))
    await server.until(lambda: len(server.calls) == 2)
    assert await harness.descriptors() == [ServerDescriptor(1, server.endpoint)]
    assert server.partitions == {0: 1, 1: 1}
    await harness.close()


@pytest.mark.parametrize("loss", ["lose_answer", "lose_request"])
async def test_lost_assignment_and_lost_id_are_repeated(loss: str) -> None:
    harness = await Harness.open()
    getattr(harness.zk, loss)("set", 2)
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    assert server.server_id <= 3
    getattr(harness.zk, loss)("set")
    await harness.manager.set_preferred_partitions(server, [1])
    await server.until(lambda: len(server.calls) >= 2)
    assert server.partitions == {0: 1, 1: 1}
    await harness.close()


async def test_disconnection_changes_nothing_and_what_was_missed_is_read() -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    client = FakeClient()
    await harness.manager.manage_server(server)
    await harness.manager.manage_client(client)
    await server.until_owns(2)
    harness.server.disconnect(harness.zk)
    await settle()
    descriptor = ServerDescriptor(9, Endpoint("h9", 1))
    prefix = PATHS.server_descriptor("s_")
    path = await harness.other.create(prefix, descriptor.encode(), ephemeral=True, sequential=True)
    await settle()
    assert server.partitions == {0: 1, 1: 1}
    assert client.removed == []
    harness.server.reconnect(harness.zk)
    await server.until_owns(1)
    assert len(client.endpoints[descriptor.endpoint]) == 1
    await harness.other.delete(path)
    await harness.close()


async def test_unmanage_while_disconnected_ends_and_is_done_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(manager_module, "_UNMANAGE_TIMEOUT_S", 0.01)
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    harness.server.disconnect(harness.zk)
    await harness.manager.unmanage_server(server)
    assert "could not be taken out of the cluster" in caplog.text
    assert len(await harness.descriptors()) == 1
    harness.server.reconnect(harness.zk)
    await settle()
    assert await harness.descriptors() == []
    assert len(server.calls) == 1
    await harness.close()


async def test_cancelled_registration_leaves_no_node() -> None:
    harness = await Harness.open()
    for steps in range(40):
        task = asyncio.create_task(harness.manager.manage_server(FakeServer("h1")))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            break
        await settle()
        assert await harness.descriptors() == []
    else:
        pytest.fail("registration never came to its end")
    await harness.close()


async def test_policy_error_reaches_the_caller_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    data, _ = await harness.other.get(PATHS.server_descriptors)
    await harness.other.set(PATHS.server_descriptors, PartitionAssignment(1, 5, {}).encode())
    with pytest.raises(PolicyError, match="has 5 partitions"):
        await harness.manager.set_preferred_partitions(server, [1])
    second = FakeServer("h2")
    await harness.manager.manage_server(second)
    await settle()
    assert "partitions cannot be assigned: the stored assignment has 5 partitions" in caplog.text
    await harness.other.set(PATHS.server_descriptors, data)
    await second.until_owns(1)
    await harness.close()


async def test_unusable_assignment_is_reported_and_recovered_from(caplog: pytest.LogCaptureFixture) -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    data, _ = await harness.other.get(PATHS.server_descriptors)
    await harness.other.set(PATHS.server_descriptors, b"\x09")
    await settle()
    assert (
        "no partitions can be assigned: /waltz/serverDescriptors: partition assignment: unknown version 9"
        in caplog.text
    )
    with pytest.raises(PolicyError):
        await harness.manager.set_preferred_partitions(server, [1])
    await harness.other.set(PATHS.server_descriptors, data)
    await server.until(lambda: len(server.calls) == 2)
    await harness.close()


async def test_preferences_survive_others_writing_in_between() -> None:
    harness = await Harness.open(4)
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(4)
    real_set = harness.zk.set
    interferences = 3

    async def set_after_someone_else(path: str, data: bytes | None, version: int = -1) -> object:
        nonlocal interferences
        if path == PATHS.server_descriptors and interferences:
            interferences -= 1
            stored, _ = await harness.other.get(path)
            await harness.other.set(path, stored)
        return await real_set(path, data, version)

    harness.zk.set = set_after_someone_else  # type: ignore[method-assign, assignment]  # the very moment before the write
    await harness.manager.set_preferred_partitions(server, [3])
    assert interferences == 0
    assert (await harness.descriptors())[0].preferred_partitions == (3,)
    assert (await harness.other.get(PATHS.server_descriptors))[1].version == 1 + 3 + 1
    await harness.close()


async def test_preferences_have_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "_PREFERENCE_TIMEOUT_S", 0.01)
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    harness.server.disconnect(harness.zk)
    with pytest.raises(DeadlineExceededError, match="not applied within 0.01 s"):
        await harness.manager.set_preferred_partitions(server, [1])
    harness.server.reconnect(harness.zk)
    await harness.close()


async def test_failing_callbacks_do_not_keep_others_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(FakeServer):
        def set_partitions(self, partitions: list[PartitionGeneration]) -> None:
            super().set_partitions(partitions)
            raise ZeroDivisionError

    harness = await Harness.open()
    failing, healthy, client = Failing("h1"), FakeServer("h2"), FakeClient()
    await harness.manager.manage_client(client)
    await harness.manager.manage_server(failing)
    await harness.manager.manage_server(healthy)
    await client.until_sees([failing, healthy], 2)
    assert "A cluster callback failed" in caplog.text
    caplog.clear()
    await harness.close()


async def test_client_id_can_be_given() -> None:
    harness = await Harness.open()
    client = FakeClient()
    await harness.manager.manage_client(client, -1)
    assert client.joined == [("demo", -1, 2)]
    assert (await harness.other.get(PATHS.client_ids))[0] == b"\0\0\0\0"
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    assert harness.manager.endpoints() == {server.endpoint: [PartitionGeneration(0, 1), PartitionGeneration(1, 1)]}
    await harness.close()
    with pytest.raises(WaltzError, match="is not a member of the cluster"):
        await harness.manager.unmanage_server(server)


async def test_restarted_server_at_the_same_endpoint() -> None:
    harness = await Harness.open()
    client, old, new = FakeClient(), FakeServer("h1"), FakeServer("h1")
    await harness.manager.manage_client(client)
    await harness.manager.manage_server(old)
    await harness.manager.manage_server(new)
    await new.until_owns(1)
    await client.until(lambda: client.endpoints == {new.endpoint: {0: 1, 1: 2}})
    await harness.manager.unmanage_server(old)
    await client.until(lambda: client.endpoints == {new.endpoint: {0: 2, 1: 2}})
    assert client.removed == [old.endpoint]
    await harness.close()


async def test_assignment_that_names_an_absent_server(caplog: pytest.LogCaptureFixture) -> None:
    harness = await Harness.open()
    client, server = FakeClient(), FakeServer("h1")
    await harness.manager.manage_client(client)
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    seen = client.endpoints
    assignment = PartitionAssignment(1, 2, {8: (PartitionGeneration(0, 2),), 1: (PartitionGeneration(1, 1),)})
    await harness.other.set(PATHS.server_descriptors, assignment.encode())
    await server.until_owns(1)
    assert client.endpoints is seen
    assert "names a server that does not exist" in caplog.text
    await harness.close()


async def test_reading_again_and_again_does_not_pile_up_watches() -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    await settle()
    reads = 0
    real_children = harness.zk.children

    async def counted(path: str, watch: object = None) -> list[str]:
        nonlocal reads
        reads += 1
        return await real_children(path, watch)  # type: ignore[arg-type]  # handed through

    harness.zk.children = counted  # type: ignore[method-assign]  # to count
    for _ in range(20):
        await harness.other.set(PATHS.server_ids, b"\0\0\0\1")  # concerns nobody
        await harness.other.set(PATHS.server_descriptor("s_0000000000"), ServerDescriptor(1, server.endpoint).encode())
        await settle()
    assert reads == 20
    await harness.close()


async def test_server_that_joins_between_the_two_reads_is_not_overlooked() -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    await settle()
    real_get, real_children = harness.zk.get, harness.zk.children
    joined: list[str] = []

    async def join() -> None:
        if not joined:
            prefix, descriptor = PATHS.server_descriptor("s_"), ServerDescriptor(9, Endpoint("h9", 1))
            joined.append("")
            joined[0] = await harness.other.create(prefix, descriptor.encode(), ephemeral=True, sequential=True)

    async def get_then_join(path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        result = await real_get(path, watch)
        if path == PATHS.server_descriptors:
            await join()
        return result

    async def children_then_join(path: str, watch: Watch | None = None) -> list[str]:
        result = await real_children(path, watch)
        await join()
        return result

    harness.zk.get = get_then_join  # type: ignore[method-assign]  # the very moment after the first read
    harness.zk.children = children_then_join  # type: ignore[method-assign]  # the same in the other order
    await harness.other.create(PATHS.server_descriptor("wake"), None)
    await server.until_owns(1)
    await harness.other.delete(joined[0])
    await harness.other.delete(PATHS.server_descriptor("wake"))
    await harness.close()


async def test_coordinator_never_overwrites_what_it_has_not_read() -> None:
    harness = await Harness.open()
    real_set = harness.zk.set
    interfered = False

    async def set_after_someone_else(path: str, data: bytes | None, version: int = -1) -> Stat:
        nonlocal interfered
        if path == PATHS.server_descriptors and not interfered:
            interfered = True
            owned = (PartitionGeneration(0, 41), PartitionGeneration(1, 51))
            await harness.other.set(path, PartitionAssignment(0, 2, {77: owned}).encode())
        return await real_set(path, data, version)

    harness.zk.set = set_after_someone_else  # type: ignore[method-assign]  # the very moment before the write
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    assert server.partitions == {0: 42, 1: 52}
    await harness.close()


async def test_return_of_the_connection_ends_a_long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_PAUSE_S", "_MAX_PAUSE_S"):
        monkeypatch.setattr(manager_module, name, 1000.0)
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    failed = asyncio.Event()
    monkeypatch.setattr(manager_module.logger, "warning", lambda *_: failed.set())
    harness.server.disconnect(harness.zk)
    await failed.wait()
    harness.server.expire(harness.zk)
    assert await harness.descriptors() == []
    harness.server.reconnect(harness.zk)
    await settle()
    assert await harness.descriptors() == [ServerDescriptor(1, server.endpoint)]
    await harness.close()


async def test_node_that_goes_while_it_is_read_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    await settle()
    real_get = harness.zk.get
    going = PATHS.server_descriptor("s_going")

    async def get_too_late(path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        if path == going:
            await harness.other.delete(path)
        return await real_get(path, watch)

    harness.zk.get = get_too_late  # type: ignore[method-assign]  # the very moment between list and read
    await harness.other.create(going, ServerDescriptor(9, Endpoint("h9", 1)).encode())
    await settle()
    assert await harness.other.exists(going) is None
    assert (await harness.other.get(PATHS.server_descriptors))[1].cversion == 3
    assert caplog.records == []
    assert server.partitions == {0: 1, 1: 1}
    await harness.close()


async def test_no_cluster() -> None:
    zk = await MemoryZooKeeperServer().connect()
    with pytest.raises(StoreAdminError, match="there is no cluster at /waltz"):
        await ClusterManager.open(zk, ROOT)


async def test_foreign_node_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    harness = await Harness.open()
    with caplog.at_level(logging.WARNING):
        await harness.other.create(PATHS.server_descriptor("foreign"), b"")
        server = FakeServer("h1")
        await harness.manager.manage_server(server)
        await server.until_owns(2)
    assert caplog.text.count("a node is ignored; delete it") == 1
    await harness.other.delete(PATHS.server_descriptor("foreign"))
    await harness.close()


async def test_an_assignment_is_made_of_preferences_whose_watch_is_still_on_its_way() -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    other = PATHS.server_descriptor("s_other")
    await harness.other.create(other, ServerDescriptor(7, Endpoint("h7", 1)).encode(), ephemeral=True)
    await server.until_owns(1)
    await settle()
    owned = set(server.partitions)
    call_watches = harness.zk.call_watches
    harness.zk.call_watches = lambda watches: None  # type: ignore[method-assign]  # they do not arrive
    preferring = ServerDescriptor(7, Endpoint("h7", 1), tuple(owned))
    await harness.other.set(other, preferring.encode())
    harness.zk.call_watches = call_watches  # type: ignore[method-assign]
    third = PATHS.server_descriptor("s_third")
    await harness.other.create(third, ServerDescriptor(8, Endpoint("h8", 1)).encode(), ephemeral=True)
    await settle()
    data, _ = await harness.other.get(PATHS.server_descriptors)
    assignment = PartitionAssignment.decode(data)
    assert owned <= {each.partition_id for each in assignment.servers[7]}
    await harness.other.delete(other)
    await harness.other.delete(third)
    await harness.close()


async def test_an_assignment_to_nobody_is_not_written_when_all_servers_go_while_it_is_made() -> None:
    harness = await Harness.open()
    server = FakeServer("h1")
    await harness.manager.manage_server(server)
    await server.until_owns(2)
    await settle()
    before, _ = await harness.other.get(PATHS.server_descriptors)
    nodes = harness.manager._nodes

    async def all_gone() -> list[ServerNode]:
        return []

    with mock.patch.object(nodes, "read_again", all_gone):
        await harness.other.create(PATHS.server_descriptor("s_other"), ServerDescriptor(7, Endpoint("h7", 1)).encode())
        await settle()
        assert (await harness.other.get(PATHS.server_descriptors))[0] == before
    await harness.other.delete(PATHS.server_descriptor("s_other"))
    await harness.close()
