"""Appends at levels of consistency, an operator who changes what partitions demand, and what must hold.

What a server says of all storages is compared with the disk of each of them; what a client says is compared
with what servers have said.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

from tests.consistency_table import ACCEPTED, WORDS
from tests.simulation.cluster import DIRECTORY, ROOT, Host, SimulatedCluster, World
from tests.simulation.loop import Process, running_process
from tests.simulation.recovered import Recovered
from waltz.common.consistency import Consistency
from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import MountRequest
from waltz.common.wire.consistency import AppendLevelRequest
from waltz.common.wire.versions import FIRST_WITH_CONSISTENCY
from waltz.common.wire.write_sessions import NO_WRITE_SESSION
from waltz.server.partition.append_rule import AppendRule
from waltz.server.partition.partition import ServerPartition
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink
from waltz.server.store.log.log import ReplicatedLog
from waltz.table.properties import change_properties

OF_ALL = ("leader_all", "write_all_read_one")
_LEVELS = (None, "leader_quorum", "quorum", "leader_all", "leader_all", "write_all_read_one")


def drawn_level(world: World, name: str) -> Callable[[], str | None]:
    """Draws the level of each append of an application."""
    share, draw = world.options.level_share, world.random(f"levels of {name}")
    return lambda: draw.choice(_LEVELS) if share and draw.random() < share else None


class OperatorHost(Host):
    """Changes what partitions demand of appends; in the end they demand the default again."""

    async def program(self, process: Process) -> None:
        zookeeper = await self.connect_zookeeper(process)
        draw, options = self.world.random("what partitions demand"), self.world.options
        while self.world.loop.now_s < options.duration_s - 5.0:
            await asyncio.sleep(6.0 * draw.random())
            partition_id = draw.randrange(options.partitions)
            await self._set(
                zookeeper,
                partition_id,
                {
                    "consistency": draw.choice((*WORDS, "leader_quorum", "leader_quorum")),
                    "requireConsistency": draw.random() < 0.8,
                },
            )
        for partition_id in range(options.partitions):
            while not await self._set(zookeeper, partition_id, {"consistency": None, "requireConsistency": None}):
                await asyncio.sleep(0.5)
        await asyncio.Event().wait()

    async def _set(self, zookeeper: object, partition_id: int, changes: dict[str, object]) -> bool:
        try:
            await change_properties(zookeeper, ROOT, partition_id, changes)  # type: ignore[arg-type]  # the host's client
        except WaltzError as error:
            self.world.trace.line(self.name, f"partition {partition_id} was not configured: {error}")
            return False
        return True


def _taken(partition: ServerPartition) -> int:
    """Appends that are under way or wait, among other requests."""
    return partition._undecided.count + partition._sequencer.waiting_count


class Levels:
    """The checks of one simulation."""

    def __init__(self, world: World, cluster: SimulatedCluster) -> None:
        self._world = world
        self._storages = {storage.connect_string: storage.name for storage in cluster.storages}
        self._told = [-1] * world.options.partitions
        """The highest mark of all storages that a server has rightly told, by partition."""
        self._rules: dict[ServerPartition, AppendRule] = {}
        self._levels: dict[tuple[ServerPartition, ClientLink], Consistency] = {}
        self.acknowledged = 0
        """Appends acknowledged as stored by all."""

    def appended(self, who: str, partition_id: int, transaction_id: int, level: str | None) -> None:
        """A call at a level has returned without an error."""
        if level not in OF_ALL:
            return
        self.acknowledged += 1
        if transaction_id > self._told[partition_id]:
            self._world.fail(
                f"{who} was told that all storages have transaction {transaction_id} of partition {partition_id}, and "
                f"no server has said so of more than {self._told[partition_id]}"
            )

    def _stored_by_all(self, partition: ServerPartition, transaction_id: int) -> None:
        """A server tells what all storages have."""
        log, checks = partition._log, self._world.storage_checks
        assert isinstance(log, ReplicatedLog)
        partition_id = partition.partition_id
        for connect_string in sorted(log.replicas):
            storage = self._storages.get(connect_string)
            if storage is None or storage in checks.replaced or (storage, partition_id) in checks.to_be_repaired:
                continue
            if transaction_id >= 0 and not self._on_disk(storage, partition_id, transaction_id):
                process = running_process()
                self._world.fail(
                    f"{'-' if process is None else process.host} says that all storages have transaction "
                    f"{transaction_id} of partition {partition_id}, and {storage} does not have it on disk"
                )
        self._told[partition_id] = max(self._told[partition_id], transaction_id)

    def _on_disk(self, storage: str, partition_id: int, transaction_id: int) -> bool:
        """Whether a storage has a transaction for certain. What it was not there to acknowledge is looked up, as the
        servers do that it joins again."""
        checks = self._world.storage_checks
        if transaction_id in checks.acknowledged_by(storage, partition_id):
            return True
        try:
            found = Recovered.of(checks.disks[storage], f"{DIRECTORY}/{partition_id}", partition_id)
        except OSError:
            return True  # a disk that does not give back anything at the moment
        except WaltzError:
            return False
        return found.log.max_transaction_id >= transaction_id

    def _refused(self, partition: ServerPartition, link: ClientLink) -> bool:
        """Whether appends of a connection have to be refused, by the table."""
        rule = self._rules.get(partition, AppendRule())
        if not rule.required or link.channel.version < FIRST_WITH_CONSISTENCY:
            return False
        level = self._levels.get((partition, link), Consistency.LEADER_QUORUM)
        return level.word not in ACCEPTED[rule.consistency.word]

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """See what servers know of levels, what they take, and what they tell."""
        tell_level, mount, append = ServerPartition.tell_level, ServerPartition.mount, ServerPartition.append
        set_rule, stored_by_all = ServerPartition.set_append_rule, ServerPartition.stored_by_all

        def told(partition: ServerPartition, link: ClientLink, message: AppendLevelRequest) -> None:
            if partition._registrations.is_valid(link):
                self._levels[partition, link] = message.level
            tell_level(partition, link, message)

        def mounted(partition: ServerPartition, link: ClientLink, request: MountRequest) -> None:
            mount(partition, link, request)
            if partition._registrations.is_valid(link):
                self._levels.pop((partition, link), None)

        def configured(partition: ServerPartition, rule: AppendRule) -> None:
            self._rules[partition] = rule
            set_rule(partition, rule)

        def appended(
            partition: ServerPartition,
            link: ClientLink,
            requests: Sequence[AppendCall],
            write_session: int = NO_WRITE_SESSION,
        ) -> None:
            before = _taken(partition)
            append(partition, link, requests, write_session)
            if self._refused(partition, link) and _taken(partition) > before:
                demanded = self._rules[partition].consistency.word
                self._world.fail(f"partition {partition.partition_id} demands {demanded}, and has taken less")

        def stored(partition: ServerPartition, transaction_id: int, storage_count: int) -> None:
            self._stored_by_all(partition, transaction_id)
            stored_by_all(partition, transaction_id, storage_count)

        with (
            mock.patch.object(ServerPartition, "tell_level", told),
            mock.patch.object(ServerPartition, "mount", mounted),
            mock.patch.object(ServerPartition, "append", appended),
            mock.patch.object(ServerPartition, "set_append_rule", configured),
            mock.patch.object(ServerPartition, "stored_by_all", stored),
        ):
            yield
