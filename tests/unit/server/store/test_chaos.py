"""Random failures of everything: nothing committed is ever lost, changed or committed twice, nothing failed appears."""

import asyncio
import random

import pytest

from tests.unit.server.store.fakes import FakeNetwork
from tests.unit.server.store.lines import LineNetwork
from tests.unit.server.store.world import Server, World, wait_until
from waltz.common.zk.znodes import UNRESOLVED
from waltz.server.store.interface import Append, StoreOptions
from waltz.storage.remote.owed_answers import MIN_BYTES_PER_S

USUALLY_HIDDEN_BYTES = 256 << 10
"""What kernels hold by themselves."""


class Chaos:
    """One run: two servers fight for the partition while storages, connections and ZooKeeper sessions fail."""

    network_type = FakeNetwork
    patience_s = 120.0
    """How long it may take to recover and to converge at the end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        replica_count = self.random.choice((3, 3, 3, 5, 2))
        names = [f"s{index}:1" for index in range(replica_count)]
        options = StoreOptions(
            max_batch_size=self.random.choice((1, 3, 10)),
            max_retry_interval_s=2.0,
            checkpoint_interval=self.random.choice((20, 100, 10_000)),
            rpc_timeout_s=2.0,
            window_size_bytes=self.random.choice((300, 3000)),
            ring_size_bytes=self.random.choice((1000, 20_000)),
            copy_size_bytes=1000,
            random_source=random.Random(seed + 1),
        )
        network = self.network_type(names, seed, remembers_fence=self.random.random() < 0.5)
        self.world = World(names, seed, options=options, network=network)
        self.world.network.latency_s = self.latency_s
        self.world.network.late_execution = self.random.choice((0.0, 0.8))
        self.slow = self.random.random() < 0.3
        self.generation = 1
        self.committed: dict[int, bytes] = {}
        self.seen = 0

    def latency_s(self) -> float:
        if self.slow and self.random.random() < 0.01:
            return self.random.uniform(0.05, 1.5)
        return self.random.uniform(0.0002, 0.004)

    async def run(self) -> None:
        async with self.world:
            servers = [await self.world.server(1), await self.world.server(1)]
            for _ in range(self.random.randrange(15, 40)):
                self.disturb(servers)
                for _ in range(self.random.randrange(1, 30)):
                    self.append(servers)
                    await asyncio.sleep(self.random.choice((0.001, 0.003, 0.02, 0.2)))
                self.check(servers)
            await self.heal(servers)

    def append(self, servers: list[Server]) -> None:
        for server in servers:
            if server.log.takes_more and self.random.random() < 0.7:
                server.give(self.random.randrange(1, 5), self.size_bytes())

    def size_bytes(self) -> int:
        return 10

    def disturb(self, servers: list[Server]) -> None:
        storage = self.random.choice(list(self.world.storages.values()))
        server = self.random.choice(servers)
        match self.random.randrange(12):
            case 0 | 1:
                storage.stop()
            case 2 | 3:
                storage.start()
            case 4:
                storage.pause()
            case 5:
                storage.resume()
            case 6:
                storage.break_connections()
            case 7:
                self.generation += 1
                server.log.set_generation(self.generation)
            case 8:
                server.cut_off.add(storage.name)
                for client in list(storage.connections):
                    client.break_now()
            case 9:
                server.cut_off.clear()
            case 10:
                storage.stop()
                storage.start()
            case _:
                getattr(server.zookeeper, self.random.choice(("lose_answer", "lose_request")))("set")

    def check(self, servers: list[Server]) -> None:
        """What any server reports as committed is the same for all, for ever."""
        for server in servers:
            for append in server.listener.committed_appends:
                known = self.committed.setdefault(append.transaction_id, append.req_id)
                assert known == append.req_id, f"two transactions are committed at {append.transaction_id}"

    async def heal(self, servers: list[Server]) -> None:
        world = self.world
        for storage in world.storages.values():
            storage.start()
        for server in servers:
            server.cut_off.clear()
        self.generation += 1
        last = servers[0]
        last.log.set_generation(self.generation)
        await last.wait(
            lambda: last.log.open and last.log._session is not None and last.log._session.generation == self.generation,
            self.patience_s,
        )
        last.give(3)
        await last.wait(lambda: last.listener.decided_count >= len(last.given), self.patience_s)
        self.check(servers)
        assert last.listener.decided_count == len(last.given), "everything of the last owner is settled"
        await wait_until(self.is_converged, self.patience_s)
        log = world.stored(next(iter(world.assigned)))
        assert len(log) == (last.log.high_water_mark or 0) + 1
        assert len(set(log)) == len(log), "a transaction stands twice in the log"
        for transaction_id, req_id in self.committed.items():
            assert log[transaction_id] == req_id, f"the committed transaction {transaction_id} is lost"
        self.check_failed(servers, set(log))

    def is_converged(self) -> bool:
        states = self.world.states()
        session_id = self.world.metadata.session_id
        return len({tuple(self.world.stored(name)) for name in self.world.assigned}) == 1 and all(
            state[1:] == (session_id, UNRESOLVED) for state in states.values()
        )

    @staticmethod
    def check_failed(servers: list[Server], log: set[bytes]) -> None:
        failed: list[Append] = [
            append
            for server in servers
            for append in [*server.listener.failed_appends, *server.listener.unwritten_appends]
        ]
        for append in failed:
            assert append.req_id not in log, f"{append} was reported as failed, but is in the log"


class LineChaos(Chaos):
    """Chaos over slow and long lines, with large transactions and connections that die silently."""

    network_type = LineNetwork
    patience_s = 600.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.network.latency_s = lambda: 0.001
        self.max_size_bytes = self.random.choice((1000, 300_000, 3_000_000))

    @property
    def network(self) -> LineNetwork:
        assert isinstance(self.world.network, LineNetwork)
        return self.world.network

    def size_bytes(self) -> int:
        return self.random.randrange(self.max_size_bytes) if self.random.random() < 0.05 else 10

    def disturb(self, servers: list[Server]) -> None:
        line = self.random.choice(list(self.network.lines.values()))
        match self.random.randrange(6):
            case 0:
                line.bytes_per_s = self.random.choice((1e5, 1e6, 1e9))
            case 1:
                line.round_trip_s = self.random.choice((0.001, 0.1, 0.5))
            case 2:
                line.hidden_bytes = self.random.choice((0, 256 << 10, 4 << 20))
            case 3 if self.network.opened:
                self.random.choice(self.network.opened[-8:]).blackhole()
            case _:
                super().disturb(servers)

    async def heal(self, servers: list[Server]) -> None:
        # What a relay holds is waited for at this rate, and not at a lower one.
        for line in self.network.lines.values():
            if line.hidden_bytes > USUALLY_HIDDEN_BYTES:
                line.bytes_per_s = max(line.bytes_per_s, MIN_BYTES_PER_S)
        await super().heal(servers)


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 12))]


@pytest.mark.parametrize("seed", SEEDS)
async def test_chaos_on_lines(seed: int) -> None:
    await LineChaos(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
async def test_chaos(seed: int) -> None:
    await Chaos(seed).run()
