"""Whether the clock of this process can be believed: beside the newest rows of the log, and beside ZooKeeper.

A row of a clock that is ahead wins over everything that is written until then, and a sweep by such a clock removes rows
that are young. So a time has to be near one that others have told, plus how long that is ago. Rows that others have
written cost nothing to ask. Where they are too old, as in a partition that nobody writes to, ZooKeeper is asked, which
says when a node was written.
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
"""So far apart clocks may be at least, whatever is allowed to timestamps."""

_ASK_S = 5.0
_ASK_AGAIN_S = 1.0


class Told:
    """The greatest of the times that somebody has told, each of which goes on from when it was."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None

    def tell(self, time_ms: int, now_s: float) -> None:
        """It was that time, or later, at ``now_s`` of a clock that never jumps."""
        if time_ms != LONG_MIN:
            offset_ms = time_ms - 1000 * now_s
            self._offset_ms = offset_ms if self._offset_ms is None else max(self._offset_ms, offset_ms)

    def at(self, now_s: float) -> int | None:
        """What time it is at least; ``None`` when nobody has told one."""
        return None if self._offset_ms is None else int(self._offset_ms + 1000 * now_s)


class ClockCheck:
    """Compares times of this process with those of others."""

    def __init__(self, client: Client, partition_id: int, log: Told) -> None:
        """``log`` is told the times of the rows that a view applies."""
        self._client = client
        self._partition_id = partition_id
        self._log = log
        self._zookeeper = Told()
        self._asked_at_s = float("-inf")

    async def check_write(self, time_ms: int, skew_ms: int) -> None:
        """Return unless a row of that time would be of a clock that is too far ahead.

        Raises:
            TimestampError: It is ahead of the newest row and of ZooKeeper.
        """
        tolerance_ms = max(skew_ms, LEAST_TOLERANCE_MS)
        now_s = asyncio.get_running_loop().time()
        for told in (self._log, self._zookeeper):
            told_ms = told.at(now_s)
            if told_ms is not None and time_ms <= told_ms + tolerance_ms:
                return
        self._check(time_ms, await self._ask(now_s), tolerance_ms)

    async def sweep_ms(self, time_ms: int, skew_ms: int, newest_ms: int) -> int:
        """The time by which a sweep may remove rows: no later than the own one, nor than that of ZooKeeper.

        It is no later than ``newest_ms``, the time of the newest row, when ZooKeeper cannot be asked.

        Raises:
            TimestampError: The own time is ahead of ZooKeeper, whatever rows say.
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
        """The time of ZooKeeper, ``None`` when it does not tell it; asked once a second at most."""
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
    """When ZooKeeper has written a node that is written now."""
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
