"""Which partitions take no appends, by their properties in ZooKeeper."""

import asyncio
import json
import logging
import random
from collections.abc import Callable
from functools import partial

from waltz.common.errors import WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import owned, restarting
from waltz.common.zk.client import NoNodeError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths

logger = logging.getLogger(__name__)

RETRY_INITIAL_S = 0.1
RETRY_MAXIMUM_S = 8.0

_PROPERTY = "disabled"


class DisabledWatch:
    """Keeps :attr:`disabled` up to date and calls ``on_change`` when it has become another value.

    Of the properties of a partition servers look at this one only; all others are for clients. Nodes that do not hold
    properties leave their partition as it was. A watch also fires when the connection is lost, so no change is missed
    for longer than ZooKeeper is away.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        root: str,
        on_change: Callable[[frozenset[int]], None],
        random_source: random.Random,
    ) -> None:
        self.disabled: frozenset[int] = frozenset()
        self._zookeeper = zookeeper
        self._paths = ClusterPaths.of(root)
        self._on_change = on_change
        self._random = random_source
        self._changed = asyncio.Event()
        self._list_is_old = True
        self._old: set[int] = set()  # partitions whose nodes have changed since they were read
        self._watched: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the properties and follow them from now on. Raises ``WaltzError`` when they cannot be read."""
        await self._catch_up()
        self._task = owned(restarting(self._follow, "the watch of disabled partitions"), "disabled partitions")

    async def close(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow(self) -> None:
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, self._random)
        outage = OutageLog(logger, asyncio.get_running_loop().time)
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._catch_up()
            except WaltzError as error:
                outage.failed(f"cannot read the properties of partitions: {error}")
                self._changed.set()
                await asyncio.sleep(backoff.next_delay_s())
            else:
                backoff.reset()
                outage.over()

    async def _catch_up(self) -> None:
        """Read what has changed; what cannot be read stays to be read."""
        if self._list_is_old:
            self._list_is_old = False
            try:
                present = await self._partitions()
            except BaseException:
                self._list_is_old = True
                raise
            self._old |= present - self._watched
        old, self._old = self._old, set()
        found = await asyncio.gather(*(self._read(partition_id) for partition_id in old), return_exceptions=True)
        disabled = set(self.disabled)
        failure: BaseException | None = None
        for partition_id, outcome in zip(old, found, strict=True):
            if isinstance(outcome, BaseException):
                self._old.add(partition_id)
                failure = outcome
            elif outcome:
                disabled.add(partition_id)
            else:
                disabled.discard(partition_id)
        if disabled != self.disabled:
            self.disabled = frozenset(disabled)
            self._on_change(self.disabled)
        if failure is not None:
            raise failure

    async def _partitions(self) -> set[int]:
        """Those that have properties."""
        path = self._paths.all_partition_properties
        while True:
            try:
                names = await self._zookeeper.children(path, self._list_changed)
            except NoNodeError:
                if await self._zookeeper.exists(path, self._list_changed) is None:
                    return set()
            else:
                return {int(name) for name in names if name.isascii() and name.isdigit()}

    async def _read(self, partition_id: int) -> bool:
        """Whether a partition is disabled; one that has no properties any more is not."""
        path = self._paths.partition_properties(partition_id)
        self._watched.add(partition_id)
        try:
            data, _ = await self._zookeeper.get(path, partial(self._node_changed, partition_id))
        except NoNodeError:
            self._watched.discard(partition_id)
            return False
        except BaseException:
            self._watched.discard(partition_id)
            raise
        try:
            fields = json.loads(data or b"")
            disabled = fields.get(_PROPERTY, False)
        except (ValueError, AttributeError, RecursionError):
            disabled = None
        if not isinstance(disabled, bool):
            logger.error("%s does not hold properties of a partition; what held before holds on", path)
            return partition_id in self.disabled
        return disabled

    def _list_changed(self) -> None:
        self._list_is_old = True
        self._changed.set()

    def _node_changed(self, partition_id: int) -> None:
        self._watched.discard(partition_id)
        self._old.add(partition_id)
        self._changed.set()
