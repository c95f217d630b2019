"""Checks the clock of this process against the newest rows of the log and against ZooKeeper.

A row of a clock that is ahead wins over all later writes until that time, and a sweep by such a clock removes young
rows. So a time has to be near a time that another process has told, plus the time since then. Rows of other writers
cost no question. If they are too old, as in a partition without writes, ZooKeeper is asked, which tells the time at
which a node was written.
"""

import asyncio
import logging

from waltz.client.plain.client import Client
from waltz.common.ids import LONG_MIN
from waltz.common.zk.client import NodeExistsError, NoNodeError, ZooKeeperError
from waltz.common.zk.paths import ClusterPaths
from waltz.table.errors import TimestampError

logger = logging.getLogger(__name__)

LEAST_TOLERANCE_MS = 60_000
"""Least tolerance between clocks, whatever skew the properties allow to timestamps."""

_ASK_S = 5.0
_ASK_AGAIN_S = 1.0


class Told:
    """The latest of the told times, each advanced by the time since it was told."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None

    def tell(self, time_ms: int, now_s: float) -> None:
        """Take a told time: it was that time, or later, at ``now_s`` of a monotonic clock."""
        if time_ms != LONG_MIN:
            offset_ms = time_ms - 1000 * now_s
            self._offset_ms = offset_ms if self._offset_ms is None else max(self._offset_ms, offset_ms)

    def at(self, now_s: float) -> int | None:
        """A lower bound of the present time; ``None`` without any told time."""
        return None if self._offset_ms is None else int(self._offset_ms + 1000 * now_s)


class ClockCheck:
    """Compares the time of this process with told times."""

    def __init__(self, client: Client, partition_id: int, log: Told) -> None:
        """``log`` gets the times of the rows that a view applies."""
        self._client = client
        self._partition_id = partition_id
        self._log = log
        self._zookeeper = Told()
        self._asked_at_s = float("-inf")

    async def check_write(self, time_ms: int, skew_ms: int) -> None:
        """Return unless a row's time is too far ahead.

        Raises:
            TimestampError: The time is ahead of the newest row and of ZooKeeper.
        """
        tolerance_ms = max(skew_ms, LEAST_TOLERANCE_MS)
        now_s = asyncio.get_running_loop().time()
        for told in (self._log, self._zookeeper):
            told_ms = told.at(now_s)
            if told_ms is not None and time_ms <= told_ms + tolerance_ms:
                return
        self._check(time_ms, await self._ask(now_s), tolerance_ms)

    async def sweep_ms(self, time_ms: int, skew_ms: int, newest_ms: int) -> int:
        """The time by which a sweep may remove rows: at most the own time and that of ZooKeeper.

        When ZooKeeper cannot be asked, it is at most ``newest_ms``, the time of the newest row.

        Raises:
            TimestampError: The own time is ahead of ZooKeeper, whatever the rows' times are.
        """
        told_ms = await self._ask(asyncio.get_running_loop().time())
        self._check(time_ms, told_ms, max(skew_ms, LEAST_TOLERANCE_MS))
        return max(0, min(time_ms, newest_ms if told_ms is None else told_ms))

    def _check(self, time_ms: int, told_ms: int | None, tolerance_ms: int) -> None:
        if told_ms is not None and time_ms > told_ms + tolerance_ms:
            raise TimestampError(
                f"partition {self._partition_id}: the clock of this process is {(time_ms - told_ms) // 1000:,} s ahead "
                "of that of ZooKeeper; nothing was written: its rows would win over what is written until then, and "
                "its sweeps would remove young ones. Set the clock; `maxTimestampSkewInMillis` says how far ahead it "
                "may be"
            )

    async def _ask(self, now_s: float) -> int | None:
        """The time of ZooKeeper, or ``None``; asked at most once a second."""
        if now_s - self._asked_at_s >= _ASK_AGAIN_S:
            self._asked_at_s = now_s
            try:
                async with asyncio.timeout(_ASK_S):
                    time_ms = await _zookeeper_ms(self._client)
            except (ZooKeeperError, TimeoutError) as error:
                logger.warning(
                    "partition %d: the clock of this process is not compared with that of ZooKeeper: %s",
                    self._partition_id,
                    str(error) or f"no answer within {_ASK_S:g} s",
                )
                return None
            if time_ms:
                self._zookeeper = Told()
                self._zookeeper.tell(time_ms, asyncio.get_running_loop().time())
        return self._zookeeper.at(asyncio.get_running_loop().time())


async def _zookeeper_ms(client: Client) -> int:
    """The time that ZooKeeper records for a write made now."""
    nodes, root = client.directory
    path = ClusterPaths.of(root).clock
    while True:
        try:
            return (await nodes.set(path, b"")).mtime_ms
        except NoNodeError:
            try:
                await nodes.create(path, b"", make_path=True)
            except NodeExistsError:
                continue
