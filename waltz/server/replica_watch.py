"""Which storages hold which partitions, followed in ZooKeeper."""

import asyncio
import logging
import random
from collections.abc import Callable

from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import owned, restarting
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import read_replica_assignments
from waltz.common.zk.znodes import ReplicaAssignments

logger = logging.getLogger(__name__)

RETRY_INITIAL_S = 0.1
RETRY_MAXIMUM_S = 8.0


class ReplicaWatch:
    """Keeps :attr:`assignments` up to date and calls ``on_change`` when it has become another value.

    A watch also fires when the connection is lost; reading is then repeated until it succeeds, which installs the
    watch again. So no change is missed for longer than ZooKeeper is away.
    """

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
        self._random = random_source
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the assignments and follow them from now on; ``on_change`` is not called for the first value.

        Raises ``WaltzError`` when they cannot be read.
        """
        self.assignments = await self._read()
        self._task = owned(restarting(self._follow, "the watch of the replica assignments"), "replica assignments")

    async def close(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _read(self) -> ReplicaAssignments:
        return await read_replica_assignments(self._zookeeper, self._root, self._changed.set)

    async def _follow(self) -> None:
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, self._random)
        outage = OutageLog(logger, asyncio.get_running_loop().time)
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                assignments = await self._read()
            except ProtocolError as error:
                logger.error("the replica assignments are not usable, the old ones stay in force: %s", error)
            except WaltzError as error:
                outage.failed(f"cannot read the replica assignments: {error}")
                self._changed.set()
                await asyncio.sleep(backoff.next_delay_s())
            else:
                backoff.reset()
                outage.over()
                try:
                    self._apply(assignments)
                except Exception:
                    self._changed.set()  # to be applied again
                    raise

    def _apply(self, assignments: ReplicaAssignments) -> None:
        if self.assignments != assignments:
            logger.info("the replica assignments have changed")
            self._on_change(assignments)
            self.assignments = assignments
