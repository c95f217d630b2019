"""Scans the segments of all partitions in the background.

A segment is scanned after its partition was opened, a week after the last whole scan of the partition, and immediately
after a read has met damage.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from waltz.common.errors import WaltzError
from waltz.common.tasks import owned, restarting
from waltz.storage.disk.segment.segment import Segment
from waltz.storage.node.partition import StoragePartition

logger = logging.getLogger(__name__)

PAUSE_S = 0.01
"""Pause after each step of a scan: 256 KiB every 10 ms leave the disk and the processor to other work."""

INTERVAL_S = 7 * 24 * 3600.0
"""The time between the end of a whole scan of a partition and the next scan."""


class Scrubber:
    """One task for all partitions of a node; one segment after the other."""

    def __init__(self, partitions: Mapping[int, StoragePartition], pause_s: float = PAUSE_S) -> None:
        """``partitions`` is updated by the owner, and always has the open partitions."""
        self._partitions = partitions
        self._pause_s = pause_s
        self._due: dict[int, bool] = {}
        self._scanned_s: dict[int, float] = {}
        """The time when the last whole scan of a partition ended, or when the partition was first seen."""
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.scanned_bytes = 0
        """Bytes of records checked so far."""

    def start(self) -> None:
        """Begin to scan in the background."""
        self._task = owned(restarting(self._run, "the storage scrubber"), "the storage scrubber")

    def request(self, partition_id: int, *, suspicious: bool = False) -> None:
        """Ask for a scan of a partition soon: of all segments, or only of the segments in which a read has met
        damage."""
        self._due[partition_id] = suspicious and self._due.get(partition_id, True)
        self._wake.set()

    async def close(self) -> None:
        """End after the present step."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now_s = loop.time()
            again_s = {each: self._scanned_s.setdefault(each, now_s) + INTERVAL_S for each in self._partitions}
            self._due.update((each, False) for each, due_s in again_s.items() if due_s <= now_s)
            if self._due:
                await self._scan_next()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(again_s.values(), default=None)):
                    await self._wake.wait()

    async def _scan_next(self) -> None:
        partition_id = next(iter(self._due))
        suspicious = self._due.pop(partition_id)
        partition = self._partitions.get(partition_id)
        if partition is None:
            return
        try:
            await self.scan(partition, suspicious=suspicious)
        finally:
            if not suspicious:
                self._scanned_s[partition_id] = asyncio.get_running_loop().time()

    async def scan(self, partition: StoragePartition, *, suspicious: bool = False) -> None:
        """Scan a partition now. A partition that cannot be scanned is left out, and reports the reason itself."""
        try:
            for segment in partition.log.damage.segments_to_scan(suspicious=suspicious):
                await self._scan_segment(partition, segment)
        except (WaltzError, OSError) as error:
            logger.warning("the scan of partition %d ended: %s", partition.partition_id, error)
        except Exception:
            logger.exception("the scan of partition %d failed for an unforeseen reason", partition.partition_id)

    async def _scan_segment(self, partition: StoragePartition, segment: Segment) -> None:
        async with self._one_at_a_time:
            await self._scan_to_end(partition, segment)

    async def _scan_to_end(self, partition: StoragePartition, segment: Segment) -> None:
        scan = partition.log.damage.begin_scan(segment)
        while not await partition.scan_step(scan):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(self._pause_s)
        if await partition.finish_scan(scan):
            self.scanned_bytes += scan.visible.end_offset
