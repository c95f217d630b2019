"""The loop over all partitions of a cluster: each round archives the partitions that are due."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from waltz.archive.chain import Place, add_object, newest_page
from waltz.archive.errors import ArchiveConflictError, ArchiveDamagedError, StoreUnavailableError
from waltz.archive.manifest import Page
from waltz.archive.process.archive_metrics import ArchiveMetrics
from waltz.archive.process.copying import gather_object
from waltz.archive.process.due import Backlog, Policy, is_due, is_old
from waltz.archive.process.source import RecordSource
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.quiet_log import OutageLog
from waltz.operations.copying import Pace

logger = logging.getLogger(__name__)

RETRY_INITIAL_S = 1.0
RETRY_MAXIMUM_S = 60.0
"""Maximum pause between attempts while the object store or the cluster is unavailable."""


class LoggedCluster(Protocol):
    """The cluster as the archiver uses it."""

    async def committed_marks(self) -> Mapping[int, int]:
        """The high-water marks by partition, as far as servers answer.

        Raises:
            WaltzError: No server answered.
        """

    async def commit_times(self, wanted: Mapping[int, int]) -> Mapping[int, int]:
        """The times at which transactions were committed, as far as they are known.

        Args:
            wanted: One transaction id of each partition.

        Returns:
            Milliseconds since the epoch, by partition.
        """

    async def alone(self, partition_id: int, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work as the only archiver of the partition.

        Raises:
            DeadlineExceededError: Another archiver is at work on the partition.
        """

    async def trim_point(self, partition_id: int) -> int:
        """The first transaction of the partition that was not trimmed.

        Raises:
            WaltzError: ZooKeeper failed.
        """

    async def source(self, partition_id: int) -> RecordSource:
        """Replicas that may be read up to a mark of an earlier ``committed_marks``.

        Raises:
            WaltzError: There are none, or ZooKeeper failed.
        """


class Archiver:
    """Archives committed transactions until cancelled. Several archivers may work on one cluster."""

    def __init__(
        self,
        cluster: LoggedCluster,
        place_of: Callable[[int], Place],
        policy: Policy,
        metrics: ArchiveMetrics,
        *,
        rate_bytes: int,
        at_once: int,
        interval_s: float,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        """Make an archiver.

        Args:
            cluster: The source of the transactions.
            place_of: Returns the place of a partition in the store.
            policy: When partitions are due, and how large objects are.
            metrics: The metrics to set.
            rate_bytes: Maximum bytes read per second.
            at_once: Maximum number of partitions that are archived concurrently.
            interval_s: Pause between rounds.
            wall_clock_ms: Milliseconds since the epoch.
        """
        self._cluster = cluster
        self._place_of = place_of
        self._policy = policy
        self._metrics = metrics
        self._rate_bytes = rate_bytes
        self._at_once = at_once
        self._interval_s = interval_s
        self._wall_clock_ms = wall_clock_ms
        self._pages: dict[int, Page] = {}
        self._record_bytes: dict[int, float] = {}
        self._first_seen_ms: dict[int, tuple[int, int]] = {}
        self._pace: Pace | None = None
        self._store_outage = OutageLog(logger)
        self._cluster_outage = OutageLog(logger)
        self.damaged: dict[int, str] = {}
        """The damage of an archive, by partition. The archiver leaves such a partition alone until its repair."""
        self.trimmed: dict[int, str] = {}
        """Partitions that cannot be archived, since the next transactions are trimmed, with an explanation."""

    async def run(self) -> None:
        """Run rounds forever. Pauses grow while the store or the cluster is unavailable."""
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random())
        while True:
            if await self.round():
                backoff.reset()
                await asyncio.sleep(self._interval_s)
            else:
                await asyncio.sleep(backoff.next_delay_s())

    async def round(self) -> bool:
        """Archive the partitions that are due now.

        Returns:
            Whether all requests to store and cluster succeeded.
        """
        try:
            marks = await self._cluster.committed_marks()
            await self._find_pages(marks)
            backlogs = await self._look(marks)
        except StoreUnavailableError as error:
            return self._store_failed(error)
        except WaltzError as error:
            return self._cluster_failed(error)
        self._metrics.is_cluster_available = True
        due = [each for each, backlog in backlogs.items() if is_due(backlog, self._policy) and each not in self.damaged]
        due.sort(key=lambda each: -backlogs[each].age_ms)
        done = await self._archive_all(due, marks)
        if done:
            self._store_outage.over()
            self._cluster_outage.over()
            self._metrics.is_store_available = True
        return done

    async def _find_pages(self, partition_ids: Iterable[int]) -> None:
        """Read the last entries of manifests that are not known yet, or were damaged."""
        for partition_id in partition_ids:
            if partition_id not in self._pages or partition_id in self.damaged:
                await self._refresh(partition_id)

    async def _refresh(self, partition_id: int) -> None:
        try:
            known = self._pages.get(partition_id)
            self._pages[partition_id] = await newest_page(self._place_of(partition_id), known)
        except ArchiveDamagedError as error:
            self._set_damaged(partition_id, error)
        else:
            self.damaged.pop(partition_id, None)

    async def _look(self, marks: Mapping[int, int]) -> Mapping[int, Backlog]:
        """The backlog of each partition behind its known page."""
        firsts = {each: page.end for each, page in self._pages.items() if each in marks and page.end <= marks[each]}
        times = await self._cluster.commit_times(firsts)
        now_ms = self._wall_clock_ms()
        backlogs = {}
        for partition_id in self._pages.keys() & marks.keys():
            end, count = self._pages[partition_id].end, marks[partition_id] + 1 - self._pages[partition_id].end
            age_ms = 0
            if count > 0:
                age_ms = now_ms - times.get(partition_id, self._seen_ms(partition_id, end, now_ms))
            size = self._record_bytes.get(partition_id)
            backlogs[partition_id] = Backlog(end, max(count, 0), max(age_ms, 0), size)
        self._metrics.backlogs = backlogs
        return backlogs

    def _seen_ms(self, partition_id: int, first: int, now_ms: int) -> int:
        """When this process first saw that a transaction was waiting; replaces an unknown time of commit."""
        if self._first_seen_ms.get(partition_id, (None, 0))[0] != first:
            self._first_seen_ms[partition_id] = (first, now_ms)
        return self._first_seen_ms[partition_id][1]

    async def _archive_all(self, due: list[int], marks: Mapping[int, int]) -> bool:
        """Archive partitions, several at once; returns whether all succeeded."""
        waiting = iter(due)
        outcomes: list[bool] = []

        async def work() -> None:
            for partition_id in waiting:
                outcomes.append(await self._archive(partition_id, marks[partition_id]))
                if not self._metrics.is_store_available:
                    return  # the other partitions would fail, too

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._at_once, len(due))):
                group.create_task(work())
        return all(outcomes)

    async def _archive(self, partition_id: int, mark: int) -> bool:
        """Archive one partition as its only archiver; returns whether store and cluster answered."""
        try:
            await self._cluster.alone(partition_id, lambda: self._archive_alone(partition_id, mark))
        except (DeadlineExceededError, ArchiveConflictError) as error:
            logger.debug("partition %d is left to another archiver: %s", partition_id, error)
        except ArchiveDamagedError as error:
            self._set_damaged(partition_id, error)
        except StoreUnavailableError as error:
            return self._store_failed(error)
        except WaltzError as error:
            return self._cluster_failed(error)
        return True

    async def _archive_alone(self, partition_id: int, mark: int) -> None:
        await self._refresh(partition_id)
        if partition_id in self.damaged:
            return
        if await self._is_trimmed(partition_id):
            return
        place = self._place_of(partition_id)
        source = await self._cluster.source(partition_id)
        try:
            while await self._archive_object(place, source, mark):
                pass
        finally:
            await source.close()

    async def _is_trimmed(self, partition_id: int) -> bool:
        """Whether the archive would have to continue with transactions that are trimmed. An archive has no gap."""
        end, point = self._pages[partition_id].end, await self._cluster.trim_point(partition_id)
        if end >= point:
            self.trimmed.pop(partition_id, None)
            return False
        text = (
            f"partition {partition_id} cannot be archived: its transactions {end} to {point - 1} are trimmed and in no "
            "archive, and an archive has no gap. "
            + (f"What it has, up to {end - 1}, stays readable. " if end else "")
            + "Only a log that is whole can be archived: let the application go on in a fresh partition, or do without"
        )
        if self.trimmed.get(partition_id) != text:
            logger.error("%s", text)
        self.trimmed[partition_id] = text
        return True

    async def _archive_object(self, place: Place, source: RecordSource, mark: int) -> bool:
        """Archive one object; returns whether another one may be due."""
        partition_id, page = place.partition_id, self._pages[place.partition_id]
        backlog = await self._backlog(partition_id, page, mark)
        if not is_due(backlog, self._policy):
            return False
        gathered = await gather_object(
            place,
            source,
            page.end,
            mark + 1,
            self._policy.limit,
            self._wait_for_rate,
            with_rest=is_old(backlog, self._policy),
        )
        self._record_bytes[partition_id] = gathered.record_bytes
        sealed = gathered.sealed
        if sealed is None:
            return False
        first_ms = (await self._cluster.commit_times({partition_id: sealed.name.first})).get(partition_id)
        last_ms = (await self._cluster.commit_times({partition_id: sealed.name.last})).get(partition_id)
        if last_ms is None and first_ms is not None:  # servers know times, but the newest one only after a second
            last_ms = self._wall_clock_ms()
        self._pages[partition_id] = await add_object(place, page, sealed, first_ms, last_ms)
        self._metrics.objects += 1
        self._metrics.bytes += len(sealed.data)
        logger.info(
            "partition %d: transactions %d to %d are archived, %d bytes",
            partition_id,
            sealed.name.first,
            sealed.name.last,
            len(sealed.data),
        )
        return sealed.name.last < mark

    async def _backlog(self, partition_id: int, page: Page, mark: int) -> Backlog:
        count = mark + 1 - page.end
        size = self._record_bytes.get(partition_id)
        if count <= 0:
            return Backlog(page.end, 0, 0, size)
        now_ms = self._wall_clock_ms()
        times = await self._cluster.commit_times({partition_id: page.end})
        age_ms = now_ms - times.get(partition_id, self._seen_ms(partition_id, page.end, now_ms))
        return Backlog(page.end, count, max(age_ms, 0), size)

    async def _wait_for_rate(self, size_bytes: int) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._pace is None:
            self._pace = Pace(self._rate_bytes, now_s)
        await asyncio.sleep(self._pace.pause_s(size_bytes, now_s))

    def _set_damaged(self, partition_id: int, error: ArchiveDamagedError) -> None:
        if self.damaged.get(partition_id) != str(error):
            logger.error("partition %d is not archived until its archive is repaired: %s", partition_id, error)
        self.damaged[partition_id] = str(error)

    def _store_failed(self, error: StoreUnavailableError) -> bool:
        self._metrics.is_store_available = False
        self._metrics.store_failures += 1
        self._store_outage.failed(str(error))
        return False

    def _cluster_failed(self, error: WaltzError) -> bool:
        self._metrics.is_cluster_available = False
        self._cluster_outage.failed(str(error))
        return False
