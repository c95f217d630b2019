"""Follows the storages of all partitions in ZooKeeper."""

import logging
import random
from collections.abc import Callable

from waltz.common.cluster.following import Follower
from waltz.common.errors import ProtocolError
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import read_replica_assignments
from waltz.common.zk.znodes import ReplicaAssignments

logger = logging.getLogger(__name__)


class ReplicaWatch:
    """Keeps :attr:`assignments` up to date and calls ``on_change`` after a change."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        root: str,
        on_change: Callable[[ReplicaAssignments], None],
        random_source: random.Random,
    ) -> None:
        self.assignments = ReplicaAssignments({})
        self._zookeeper = zookeeper
        self._root = root
        self._on_change = on_change
        self._follower = Follower("the replica assignments", self._catch_up, random_source)

    async def start(self) -> None:
        """Read the assignments and follow them from now on; ``on_change`` is not called for the first value.

        Raises ``WaltzError`` when they cannot be read.
        """
        self.assignments = await self._read()
        self._follower.start()

    async def close(self) -> None:
        """Stop following."""
        await self._follower.close()

    async def _read(self) -> ReplicaAssignments:
        return await read_replica_assignments(self._zookeeper, self._root, self._follower.changed)

    async def _catch_up(self) -> None:
        try:
            assignments = await self._read()
        except ProtocolError as error:
            logger.error("the replica assignments are not usable, the old ones stay in force: %s", error)
            return
        if self.assignments != assignments:
            logger.info("the replica assignments have changed")
            self._on_change(assignments)
            self.assignments = assignments
