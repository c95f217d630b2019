"""Follows which appends the partitions take by their properties in ZooKeeper."""

import asyncio
import json
import logging
import random
from collections.abc import Callable, Mapping
from functools import partial

from waltz.common.cluster.following import Follower
from waltz.common.zk.client import NoNodeError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.server.partition.append_rule import DEFAULT_RULE, AppendRule, append_rule

logger = logging.getLogger(__name__)


class PropertyWatch:
    """Keeps :attr:`rules` up to date and calls ``on_change`` when they have changed.

    A node without valid properties leaves its partition unchanged.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        root: str,
        on_change: Callable[[Mapping[int, AppendRule]], None],
        random_source: random.Random,
    ) -> None:
        self.rules: Mapping[int, AppendRule] = {}
        """Those that differ from the default, by partition."""
        self._zookeeper = zookeeper
        self._paths = ClusterPaths.of(root)
        self._on_change = on_change
        self._follower = Follower("the properties of partitions", self._catch_up, random_source)
        self._found: dict[int, AppendRule] = {}  # the last read value; becomes `rules` at the call of `on_change`
        self._list_is_old = True
        self._old: set[int] = set()  # partitions whose nodes have changed since the last read
        self._watched: set[int] = set()

    async def start(self) -> None:
        """Read the properties and follow them from now on. Raises ``WaltzError`` when they cannot be read."""
        await self._catch_up()
        self._follower.start()

    async def close(self) -> None:
        """Stop following."""
        await self._follower.close()

    async def _catch_up(self) -> None:
        """Read changed nodes; nodes that cannot be read are read again later."""
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
        failure: BaseException | None = None
        for partition_id, outcome in zip(old, found, strict=True):
            if isinstance(outcome, BaseException):
                self._old.add(partition_id)
                failure = outcome
            elif outcome != DEFAULT_RULE:
                self._found[partition_id] = outcome
            else:
                self._found.pop(partition_id, None)
        if self._found != self.rules:
            rules = dict(self._found)
            self._on_change(rules)
            self.rules = rules
        if failure is not None:
            raise failure

    async def _partitions(self) -> set[int]:
        """The partitions that have properties."""
        path = self._paths.all_partition_properties
        while True:
            try:
                names = await self._zookeeper.children(path, self._list_changed)
            except NoNodeError:
                if await self._zookeeper.exists(path, self._list_changed) is None:
                    return set()
            else:
                return {int(name) for name in names if name.isascii() and name.isdigit()}

    async def _read(self, partition_id: int) -> AppendRule:
        """The rule of a partition; without properties the default."""
        path = self._paths.partition_properties(partition_id)
        self._watched.add(partition_id)
        try:
            data, _ = await self._zookeeper.get(path, partial(self._node_changed, partition_id))
        except NoNodeError:
            self._watched.discard(partition_id)
            return DEFAULT_RULE
        except BaseException:
            self._watched.discard(partition_id)
            raise
        try:
            return append_rule(json.loads(data or b""))
        except (ValueError, RecursionError) as error:
            logger.error("%s does not hold properties of a partition; what held before holds on: %s", path, error)
            return self._found.get(partition_id, DEFAULT_RULE)

    def _list_changed(self) -> None:
        self._list_is_old = True
        self._follower.changed()

    def _node_changed(self, partition_id: int) -> None:
        self._watched.discard(partition_id)
        self._old.add(partition_id)
        self._follower.changed()
