"""A cluster in memory: storages, ZooKeeper, and any number of servers' replicated logs of partition 0."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Self

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.server.store.fakes import FakeNetwork
from waltz.common.checksum import checksum
from waltz.common.ids import ReqId
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import PartitionMetadata, ReplicaState
from waltz.server.store.connections import StorageConnections
from waltz.server.store.interface import Append, StoreOptions, encode_appends
from waltz.server.store.log.log import ReplicatedLog

ROOT = "/waltz"
NAMES = ("a:1", "b:1", "c:1")


class Recorder:
    """A listener that remembers what it was told, and checks the rules of the interface."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.begun: list[tuple[int, bool, int]] = []
        self.opened: list[tuple[int, bool]] = []
        self.committed_appends: list[Append] = []
        self.failed_appends: list[Append] = []
        self.unwritten_appends: list[Append] = []
        self.drained_count = 0
        self.by_all: list[tuple[int, int]] = []
        self.by_some: list[list[int]] = []
        self.is_open = False
        self.next_id = 0
        self._decided: set[int] = set()

    def session_begun(self, session_id: int, unbroken: bool, high_water_mark: int) -> None:
        assert session_id > self.begun[-1][0] if self.begun else True
        self.begun.append((session_id, unbroken, high_water_mark))

    def session_opened(self, high_water_mark: int, changed: bool) -> None:
        assert not self.is_open
        assert self.begun[-1][2] == high_water_mark
        self.is_open = True
        self.next_id = high_water_mark + 1
        self.calls.append("opened")
        self.opened.append((high_water_mark, changed))

    def session_ended(self, unwritten: Sequence[Append]) -> None:
        assert self.is_open
        self.is_open = False
        self.calls.append("ended")
        self._decide(unwritten)
        self.unwritten_appends.extend(unwritten)

    def batch_committed(self, appends: Sequence[Append], records: Sequence[bytes]) -> None:
        assert appends
        assert b"".join(records) == encode_appends(appends)
        self.calls.append("committed")
        first_id = appends[0].transaction_id
        assert [append.transaction_id for append in appends] == list(range(first_id, first_id + len(appends)))
        if self.committed_appends:
            assert first_id > self.committed_appends[-1].transaction_id
        self._decide(appends)
        self.committed_appends.extend(appends)

    def failed(self, appends: Sequence[Append]) -> None:
        assert appends
        self.calls.append("failed")
        self._decide(appends)
        self.failed_appends.extend(appends)

    def stored_by_all(self, transaction_id: int, storage_count: int) -> None:
        self.by_all.append((transaction_id, storage_count))

    def stored_by_some(self, marks: Sequence[int]) -> None:
        self.by_some.append(list(marks))

    def drained(self) -> None:
        self.drained_count += 1

    def _decide(self, appends: Sequence[Append]) -> None:
        for append in appends:
            assert id(append) not in self._decided, "decided twice"
            self._decided.add(id(append))

    @property
    def decided_count(self) -> int:
        return len(self._decided)


class Server:
    """One server's log of partition 0, with connections and a ZooKeeper session of its own."""

    def __init__(self, world: "World", generation: int, zookeeper: MemoryZooKeeper) -> None:
        self.world = world
        self.listener = Recorder()
        self.zookeeper = zookeeper
        self.cut_off: set[str] = set()
        self.connections = StorageConnections(
            world.network.connector(lambda name: name not in self.cut_off), world.network.storages
        )
        self.log = ReplicatedLog(
            0, generation, world.assigned, self.connections, zookeeper, ROOT, self.listener, world.options
        )
        self.given: list[Append] = []

    def give(self, count: int = 1, size_bytes: int = 10) -> list[Append]:
        """Append new transactions."""
        appends = [self.world.new_append(size_bytes) for _ in range(count)]
        for append in appends:
            append.transaction_id = self.listener.next_id
            self.listener.next_id += 1
        self.log.append(appends)
        self.given.extend(appends)
        return appends

    async def write(self, count: int = 1, size_bytes: int = 10) -> list[Append]:
        """Append and wait until all is decided."""
        await self.wait_open()
        appends = self.give(count, size_bytes)
        await self.wait(lambda: self.listener.decided_count >= len(self.given))
        return appends

    async def wait_open(self, timeout_s: float = 120) -> None:
        await self.wait(lambda: self.log.open, timeout_s)

    async def wait(self, condition: Callable[[], bool], timeout_s: float = 120) -> None:
        await wait_until(condition, timeout_s)

    async def close(self) -> None:
        await self.log.close()
        await self.connections.close()
        await self.zookeeper.close()


async def wait_until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    """Look every millisecond of virtual time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)


class World:
    """Use as an async context manager."""

    def __init__(
        self,
        names: Sequence[str] = NAMES,
        seed: int = 0,
        *,
        options: StoreOptions | None = None,
        remembers_fence: bool = True,
        network: FakeNetwork | None = None,
    ) -> None:
        self.network = network or FakeNetwork(names, seed, remembers_fence=remembers_fence)
        self.storages = self.network.storages
        self.assigned = frozenset(names)
        self.options = options or StoreOptions(random_source=random.Random(seed))
        self.zookeeper_server = MemoryZooKeeperServer(latency_s=lambda: 0.0005)
        self.servers: list[Server] = []
        self._seq_num = 0

    async def __aenter__(self) -> Self:
        zookeeper = await self.zookeeper_server.connect()
        await zookeeper.create(ClusterPaths(ROOT).partitions, None, make_path=True)
        await zookeeper.close()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for storage in self.storages.values():
            storage.resume()
        for server in self.servers:
            await server.close()
        await self.network.close()

    async def server(self, generation: int = 1) -> Server:
        server = Server(self, generation, await self.zookeeper_server.connect())
        self.servers.append(server)
        server.log.start()
        return server

    def new_append(self, size_bytes: int = 10) -> Append:
        self._seq_num += 1
        data = self._seq_num.to_bytes(8, "big") + bytes(max(0, size_bytes - 8))
        return Append(ReqId.of(1, 1, 0, self._seq_num), 0, Append.encode_body(0, data, checksum(data)))

    @property
    def metadata(self) -> PartitionMetadata:
        path = ClusterPaths(ROOT).partition(0)
        return PartitionMetadata.decode(self.zookeeper_server.dump()[path], path)

    def states(self) -> dict[str, ReplicaState]:
        return {replica_id.connect_string: state for replica_id, state in self.metadata.replicas.items()}

    def stored(self, name: str) -> list[bytes]:
        """Request ids on a storage, in order."""
        return [record.req_id for record in self.storages[name].partition.records]

    def check_committed_is_stored(self, server: Server) -> None:
        """Every append reported as committed stands at its id on a majority of all storages, unless it is trimmed."""
        for append in server.listener.committed_appends[server.log.first_available :]:
            copies = sum(
                1
                for storage in self.storages.values()
                if append.transaction_id <= storage.partition.maximum
                and storage.partition.records[append.transaction_id].req_id == append.req_id
            )
            assert copies > len(self.assigned) // 2, append
