"""Clients that may be cut off from ZooKeeper together with a server, and whatever anybody claims about the log.

A server that another one has replaced, and a client that has not heard of it either, talk to each other as before. What
the server says then must not be taken for more than it is.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from unittest import mock

from tests.simulation.checker import Checker
from tests.simulation.clients import client_environment
from tests.simulation.cluster import ROOT, Host, World
from tests.simulation.loop import Process
from tests.simulation.target import Fault, Target
from waltz.client import sharing
from waltz.client.engine.partition.mount import Mount
from waltz.client.errors import ClientAheadError
from waltz.client.plain.client import Client
from waltz.client.sharing import Membership
from waltz.common.cluster.owners import OwnerConnection
from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import HighWaterMarkRequest, MountRequest, MountResponse, PartitionState
from waltz.server.partition.partition import ServerPartition
from waltz.server.partition.sequencer import Verdict
from waltz.server.requests.pending import Pending

PATIENCE_S = 3.0

GROUP = "simulated"

AWAY_MAX_S = 20.0


class MemberHost(Host):
    """Asks for confirmed marks and for what the log must have, and shares the partitions with its like."""

    def __init__(self, world: World, number: int, checker: Checker, holders: dict[int, str]) -> None:
        super().__init__(world, f"member-{number}")
        self.answers = 0
        """Confirmed marks that it was told."""
        self._checker = checker
        self._holders = holders
        self._draw = world.random(self.name)

    def _membership_ends(self, error: BaseException) -> None:
        if not isinstance(error, GeneratorExit):  # its process is thrown away at the end, whenever garbage is collected
            self.world.fail(f"{self.name}: its membership ends: {error!r}")

    async def program(self, process: Process) -> None:
        zookeeper = await self.connect_zookeeper(process)
        partition_ids = range(self.world.options.partitions)
        for partition_id in partition_ids:
            self._lost(partition_id)
        membership = Membership(
            zookeeper,
            ROOT,
            GROUP,
            partition_ids,
            take=self._take,
            give_back=self._give_back,
            lost=self._lost,
            failed=self._membership_ends,
        )
        run = f"{self.name} run {self.runs}"
        async with Client(client_environment(self.world, run, zookeeper)) as client:
            membership.start()
            try:
                while True:
                    await asyncio.sleep(self.world.options.member_interval_s * self._draw.random())
                    await self._ask(client, self._draw.choice(partition_ids))
            finally:
                await membership.leave()

    async def _ask(self, client: Client, partition_id: int) -> None:
        """For a mark, a confirmed one, or what comes behind the last transaction that anybody knows of."""
        committed = self._checker.marks[partition_id]
        choice = self._draw.randrange(4)
        try:
            if choice == 0:
                await client.high_water_mark(partition_id, timeout_s=PATIENCE_S)
            elif choice == 1:
                mark = await client.high_water_mark(partition_id, confirmed=True, timeout_s=PATIENCE_S)
                self._checker.mark_answered(self.name, partition_id, mark, committed)
                self.answers += 1
            elif choice == 2:
                async with asyncio.timeout(PATIENCE_S), client.feed(partition_id, after=committed) as feed:
                    await feed.begin()
            else:
                async with asyncio.timeout(PATIENCE_S):
                    await self._mount(client, partition_id, committed)
        except (WaltzError, TimeoutError) as error:
            self.world.trace.line(self.name, f"learns nothing of partition {partition_id}: {error}")

    async def _mount(self, client: Client, partition_id: int, committed: int) -> None:
        """At the server that the client takes for the owner, as somebody who has applied all that there is."""
        assert client._engine is not None
        partition = client._engine.rpc.partitions[partition_id]
        if partition.link is None:
            return
        connection = await OwnerConnection.open(partition.link.endpoint, tls=None, timeout_s=PATIENCE_S)
        try:
            answer = (
                await connection.send(
                    partition_id, partition.generation, lambda req_id: MountRequest(req_id, committed, 0)
                )
            ).decode()
        finally:
            await connection.close()
        if isinstance(answer, MountResponse) and answer.state is PartitionState.CLIENT_AHEAD:
            _check_shorter(self._checker, self.world.fail, partition_id, committed)

    # What it shares

    async def _take(self, partition_id: int) -> None:
        holder = self._holders.get(partition_id)
        if holder is not None:
            self.world.fail(f"{self.name} takes partition {partition_id}, which {holder} still holds")
        self._holders[partition_id] = self.name

    async def _give_back(self, partition_id: int) -> None:
        self._lost(partition_id)

    def _lost(self, partition_id: int) -> None:
        if self._holders.get(partition_id) == self.name:
            del self._holders[partition_id]


class IsolatedSide:
    """The members, and what is checked."""

    def __init__(self, world: World, checker: Checker) -> None:
        holders: dict[int, str] = {}
        self.hosts = [MemberHost(world, number, checker, holders) for number in range(world.options.members)]
        self._numbers = itertools.count()

    @property
    def silent(self) -> list[str]:
        """The readers that were never told a confirmed mark."""
        return [host.name for host in self.hosts if not host.answers]

    def start(self) -> None:
        """Let them begin."""
        for host in self.hosts:
            host.start()

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Names of members come from no other source of chance."""
        numbered = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{next(self._numbers):032x}"))
        with mock.patch.object(sharing, "uuid", numbered):
            yield


@contextlib.contextmanager
def claims_are_checked(checker: Checker, fail: Callable[[str], None]) -> Iterator[None]:
    """Whoever says that the log is shorter than what somebody knows has to be right, and marks need a store session."""
    report_ahead, claim, answer = Mount._report_ahead, ClientAheadError.__init__, ServerPartition._answer

    def reported(mount: Mount) -> None:
        _check_shorter(checker, fail, mount._partition_id, mount._feed.received)
        report_ahead(mount)

    def claimed(
        error: ClientAheadError, partition_id: int, transaction_id: int | None = None, last_id: int | None = None
    ) -> None:
        if transaction_id is not None:
            _check_shorter(checker, fail, partition_id, transaction_id)
        claim(error, partition_id, transaction_id, last_id)

    def answered(partition: ServerPartition, pending: Pending, verdict: Verdict | None) -> None:
        is_mark = verdict is Verdict.READY and type(pending.request) is HighWaterMarkRequest
        if is_mark and not partition._sequencer.session_open:
            fail(f"a mark of partition {partition.partition_id} is told without a store session")
        answer(partition, pending, verdict)

    with (
        mock.patch.object(Mount, "_report_ahead", reported),
        mock.patch.object(ClientAheadError, "__init__", claimed),
        mock.patch.object(ServerPartition, "_answer", answered),
    ):
        yield


def _check_shorter(checker: Checker, fail: Callable[[str], None], partition_id: int, transaction_id: int) -> None:
    if transaction_id <= checker.marks[partition_id]:
        fail(
            f"somebody is told that partition {partition_id} has no transaction {transaction_id}; it is committed up "
            f"to {checker.marks[partition_id]}"
        )


async def isolate_side(target: Target, fault: Fault) -> None:
    """A server and some clients lose ZooKeeper, and nothing else; others take the partitions over. Later it is back."""
    draw = random.Random(fault.other)
    server = target.server(fault)
    sides = [server, *(host for host in target.others if draw.random() < 0.6)]
    sides += [client for client in target.clients if client.running and draw.random() < 0.4]
    away = [host.zookeeper for host in sides if host.running and host.zookeeper is not None]
    target.say(fault, ", ".join(host.name for host in sides), "do not reach ZooKeeper")
    for zookeeper in away:
        zookeeper.disconnect()
    if draw.random() < 0.5 and server.running and server.zookeeper is not None:
        server.zookeeper.expire()
    await asyncio.sleep(min(target.world.options.session_timeout_s * draw.random() + fault.duration_s, AWAY_MAX_S))
    for zookeeper in away:
        zookeeper.reconnect()
