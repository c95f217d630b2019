"""The partitions that a view node serves: which they are, and their tables, opened again after a failure."""

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from waltz.asynchronous import Client
from waltz.client.errors import ClientClosedError
from waltz.common.errors import WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import owned, restarting
from waltz.table.errors import PropertiesError, StoreError
from waltz.table.face.configured import properties_of
from waltz.table.face.leasing import Leasing
from waltz.table.face.partition import TablePartition
from waltz.table.served.answers import Served
from waltz.table.served.problems import refused, refused_now
from waltz.view.view_metrics import PartitionState

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Pause between two looks at a view, whether it goes on."""
SEARCH_S = 10.0
"""Pause between two looks for partitions that have become tables."""
RETRY_INITIAL_S, RETRY_MAXIMUM_S = 1.0, 30.0


class Partitions:
    """The partitions of a view node, from :meth:`start` to :meth:`close`."""

    def __init__(
        self, client: Client, given: Sequence[int] | None, store: str, directory: Path, snapshots: str | None = None
    ) -> None:
        """``given`` partitions, or all that are tables, with stores of the name ``store`` below ``directory``.

        Empty stores begin with the saved snapshots at the address ``snapshots``, if there is one.
        """
        self.client = client
        self.changed = asyncio.Event()
        """Set when a partition begins or ceases to be served."""
        self.problems: dict[int, str] = {}
        """By partition why it is not served."""
        self._given = given
        self._store = store
        self._directory = directory
        self._snapshots = snapshots
        self._log = ""
        self._served: dict[int, Served] = {}
        self._keeping: dict[int, asyncio.Task[None]] = {}
        self._searching: asyncio.Task[None] | None = None
        self._outage = OutageLog(logger)

    async def start(self) -> None:
        """Begin to serve. Raises ``WaltzError`` if the cluster cannot be asked, or lacks a given partition."""
        self._log = await self.client.cluster_key()
        for partition_id in self._given or ():
            if partition_id >= self.client.partition_count:
                raise PropertiesError(
                    f"view.partitions: there is no partition {partition_id}; the cluster has "
                    f"{self.client.partition_count}"
                )
        if self._given is not None:
            self._keep_all(self._given)
            return
        what = "the search for tables"
        self._searching = owned(restarting(self._search, what), what)

    async def close(self) -> None:
        """Close all tables."""
        tasks = [*self._keeping.values(), *([] if self._searching is None else [self._searching])]
        for task in tasks:
            if not task.cancelling():  # a second time would break off the closing of its table
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def of(self, partition_id: int) -> Served:
        """A partition that is served. Raises :class:`~waltz.table.served.problems.Refused`."""
        served = self._served.get(partition_id)
        if served is not None:
            return served
        if partition_id in self._keeping:
            reason = self.problems.get(partition_id, "its view is being opened")
            raise refused_now(503, "view-stopped", f"partition {partition_id} is not served at present: {reason}")
        raise refused(
            404, "not-served", f"partition {partition_id} is not served here; GET /v1/tables lists those that are"
        )

    def all(self) -> dict[int, Served]:
        """The partitions that are served now, in the order of their ids."""
        return dict(sorted(self._served.items()))

    def states(self) -> Iterator[PartitionState]:
        """What metrics show of all partitions."""
        for partition_id in sorted(self._keeping):
            served = self._served.get(partition_id)
            if served is None:
                yield PartitionState(partition_id, -1, 0, served=False)
            else:
                progress = served.view.store.progress
                yield PartitionState(partition_id, progress.applied, progress.rows - progress.tombstones, served=True)

    def _keep_all(self, partition_ids: Sequence[int]) -> None:
        for partition_id in partition_ids:
            if partition_id not in self._keeping:
                what = f"the view of partition {partition_id}"
                self._keeping[partition_id] = owned(restarting(lambda each=partition_id: self._keep(each), what), what)  # type: ignore[misc]

    async def _search(self) -> None:
        """Serve what becomes a table, and forget what is one no longer."""
        while True:
            try:
                tables = [each for each in range(self.client.partition_count) if await self._is_table(each)]
            except ClientClosedError:
                return
            except WaltzError as error:
                self._outage.failed(f"the properties of partitions cannot be read: {error}")
            else:
                self._outage.over()
                self._keep_all(tables)
                gone = {each: task for each, task in self._keeping.items() if each not in tables}
                for task in gone.values():
                    task.cancel()
                if gone:
                    await asyncio.wait(gone.values())
                for partition_id in gone:  # not before: close() waits for all that are kept
                    del self._keeping[partition_id]
                self.problems = {each: text for each, text in self.problems.items() if each in self._keeping}
            await asyncio.sleep(SEARCH_S)

    async def _is_table(self, partition_id: int) -> bool:
        try:
            return (await properties_of(self.client, partition_id)).format == "table"
        except PropertiesError as error:
            logger.warning("partition %d is passed over: %s", partition_id, error)
            return False

    async def _keep(self, partition_id: int) -> None:
        """Serve a partition; after a failure again, with growing pauses."""
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random())
        outage = OutageLog(logger)
        directory = self._directory / str(partition_id)
        while True:
            try:
                opening = self.client.table(
                    partition_id, store=self._store, directory=directory, snapshots=self._snapshots
                )
                async with opening as table:
                    if not table.partition.store.finds_rows:
                        raise StoreError(f"view.store: {self._store} keeps no rows; use rocksdb, lmdb or sqlite")
                    self._served[partition_id] = Served(table, table.partition, self._log, Leasing(table.partition))
                    self.problems.pop(partition_id, None)
                    self.changed.set()
                    outage.over()
                    backoff.reset()
                    logger.info("partition %d is served from transaction %d on", partition_id, table.applied)
                    await self._until_stopped(table.partition)
            except ClientClosedError:
                return
            except (WaltzError, OSError) as error:
                self.problems[partition_id] = str(error)
                outage.failed(f"partition {partition_id} is not served: {error}")
            finally:
                if self._served.pop(partition_id, None) is not None:
                    self.changed.set()
            await asyncio.sleep(backoff.next_delay_s())

    async def _until_stopped(self, view: TablePartition) -> None:
        """Raise ``TableError`` when the view cannot go on."""
        while True:
            await view.catch_up_to(-1)
            await asyncio.sleep(LOOK_S)
