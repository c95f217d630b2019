"""Says in ZooKeeper, at each partition, that this view node serves it, and how far it is."""

import asyncio
import contextlib
import logging
import random

from waltz.common.net.backoff import Backoff
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import owned, restarting
from waltz.common.zk.client import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeper,
    ZooKeeperError,
)
from waltz.common.zk.paths import ClusterPaths
from waltz.table.served.registration import ViewNode
from waltz.view.partitions import Partitions

logger = logging.getLogger(__name__)

TELL_S = 5.0
"""Least time between two values of a node; at once it tells only of partitions that come and go."""
RETRY_INITIAL_S, RETRY_MAXIMUM_S = 1.0, 5.0
"""Pauses after what ZooKeeper has refused, or not answered."""


class Registration:
    """The ephemeral nodes of a view node."""

    def __init__(
        self, zookeeper: ZooKeeper, root: str, partitions: Partitions, name: str, endpoint: str, zone: str | None
    ) -> None:
        """``name`` is ``HOST:PORT``, the same after a restart."""
        self._zookeeper = zookeeper
        self._paths = ClusterPaths.of(root)
        self._partitions = partitions
        self._name = name
        self._endpoint = endpoint
        self._zone = zone
        self._told: dict[int, tuple[int | None, ViewNode | None]] = {}
        """By partition the session and the value of the node; without a value it is being made."""
        self._outage = OutageLog(logger)
        what = "the registration of the view node"
        self._task = owned(restarting(self._run, what), what)

    async def close(self) -> None:
        """Take all nodes away, so that clients turn to others before the port closes."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for partition_id in list(self._told):
            with contextlib.suppress(ZooKeeperError):
                await self._withdraw(partition_id)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        told_s = -TELL_S
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random())
        while True:
            self._partitions.changed.clear()
            values_too = loop.time() - told_s >= TELL_S
            if values_too:
                told_s = loop.time()
            problem = await self._tell(values_too=values_too)
            if problem is not None:
                self._outage.failed(f"the view node cannot say that it is there: {problem}")
                await asyncio.sleep(backoff.next_delay_s())
                continue
            self._outage.over()
            backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(told_s + TELL_S - loop.time(), 0.0)):
                    await self._partitions.changed.wait()

    async def _tell(self, *, values_too: bool) -> ZooKeeperError | None:
        """Bring all nodes up to date; returns an error of those that are not. What is refused for one partition does
        not keep the others back.
        """
        problem: ZooKeeperError | None = None
        for partition_id in sorted(self._told.keys() | self._partitions.all().keys()):
            try:
                await self._tell_of(partition_id, values_too=values_too)
            except (ConnectionLossError, SessionExpiredError) as error:
                return error
            except ZooKeeperError as error:
                problem = error
        return problem

    async def _tell_of(self, partition_id: int, *, values_too: bool) -> None:
        partition = self._partitions.all().get(partition_id)
        if partition is None:
            await self._withdraw(partition_id)
            return
        session = self._zookeeper.session_id
        node = ViewNode(self._endpoint, partition.applied, self._zone)
        told_session, told = self._told.get(partition_id, (None, None))
        if told is None or told_session != session:
            self._told[partition_id] = session, None  # whatever comes of it, it is taken away at the end
            await self._create(partition_id, node)
        elif values_too and told != node:
            await self._set(partition_id, node)
        else:
            return
        self._told[partition_id] = session, node

    async def _create(self, partition_id: int, node: ViewNode) -> None:
        path = self._paths.view_node(partition_id, self._name)
        with contextlib.suppress(NoNodeError):
            await self._zookeeper.delete(path)  # the process or the session before may have left one
        parent = self._paths.view_nodes(partition_id)
        with contextlib.suppress(NodeExistsError):
            await self._zookeeper.create(parent, None, make_path=True)
        await self._zookeeper.create(path, node.encode(), ephemeral=True)

    async def _set(self, partition_id: int, node: ViewNode) -> None:
        try:
            await self._zookeeper.set(self._paths.view_node(partition_id, self._name), node.encode())
        except NoNodeError:  # the session has ended meanwhile, or somebody has deleted it
            await self._create(partition_id, node)

    async def _withdraw(self, partition_id: int) -> None:
        with contextlib.suppress(NoNodeError):
            await self._zookeeper.delete(self._paths.view_node(partition_id, self._name))
        self._told.pop(partition_id, None)
