"""What must hold of every assignment that is written to ZooKeeper: a generation of a partition has one owner."""

import contextlib
from collections.abc import Callable, Iterator
from unittest import mock

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common.zk.client import Stat
from waltz.common.zk.znodes import PartitionAssignment


class AssignmentChecks:
    """Sees every assignment, and calls ``fail`` when one cannot stand beside those before it."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._owners: dict[tuple[int, int], int] = {}
        """Server ids by partition and generation."""
        self._generations: dict[int, int] = {}
        """The highest generation of each partition."""

    def written(self, assignment: PartitionAssignment) -> None:
        """An assignment is what everybody reads from now on."""
        for server_id, owned in assignment.servers.items():
            for partition_id, generation in owned:
                owner = self._owners.setdefault((partition_id, generation), server_id)
                if owner != server_id:
                    self._fail(
                        f"generation {generation} of partition {partition_id} is assigned to server {server_id}; it was"
                        f" to server {owner}"
                    )
                highest = self._generations.get(partition_id, generation)
                if generation < highest:
                    self._fail(
                        f"partition {partition_id} is assigned with generation {generation}; it was with {highest}"
                    )
                self._generations[partition_id] = max(generation, highest)

    @contextlib.contextmanager
    def observing(self, server: MemoryZooKeeperServer, path: str) -> Iterator[None]:
        """See what is written to the node of the assignment."""
        write = server.set

        def written(at: str, data: bytes | None, version: int) -> Stat:
            stat = write(at, data, version)
            if at == path:
                self.written(PartitionAssignment.decode(data, at))
            return stat

        with mock.patch.object(server, "set", written):
            yield
