"""Everything in one storage directory: control file, session fences, and the partitions assigned to the node."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.metrics.registry import GaugeForm, Registry
from waltz.common.records import Record
from waltz.common.storage_health import StorageHealth
from waltz.common.wire.structures import SessionInfo
from waltz.storage.disk.balance import DiskUse, PlannedMove, plan_moves
from waltz.storage.disk.clean_stop import CleanPartition
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.directory import StorageDirectory
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.salvage import Reported
from waltz.storage.disk.volumes import Move, Volumes
from waltz.storage.errors import PartitionNotAssignedError, StorageError
from waltz.storage.node.disks import Disks
from waltz.storage.node.findings import MOVED_PARTITIONS, Findings
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.moving import PartitionCopy
from waltz.storage.node.partition import StoragePartition
from waltz.storage.node.partition_metrics import GROUP, PartitionMetrics
from waltz.storage.node.request_queue import DEFAULT_LIMITS, QueueLimits
from waltz.storage.node.scrubber import Scrubber
from waltz.storage.node.session_rule import disabled
from waltz.storage.node.times import TimeWriter

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_COPIES = 5
"""The largest number of copies for one move to another disk. Each removal of records needs another one."""

OPENED_AT_ONCE = 4
"""The largest number of partitions that are recovered at the same time at start."""


def _open_rest(
    files: Files, directory: str, further_directories: Sequence[str], cluster_key: UUID, partition_count: int
) -> tuple[FenceFile, Volumes]:
    """The fence file and the volumes of a directory whose control file is locked. Blocking."""
    fence_file = FenceFile.open(files, directory, cluster_key, partition_count)
    try:
        return fence_file, Volumes.open(files, directory, further_directories, cluster_key)
    except BaseException:
        fence_file.close()
        raise


class StorageManager:
    """The partitions of a storage node, and the administration of them.

    An assigned partition that cannot be opened (damaged files, damaged control information) is *broken*: its requests
    are answered as those of a partition that is switched off. The other partitions are served. All methods belong to
    the event loop's thread.
    """

    def __init__(
        self,
        files: Files,
        directory: StorageDirectory,
        registry: Registry,
        limits: QueueLimits,
    ) -> None:
        """Use :meth:`open`."""
        self.partitions: dict[int, StoragePartition] = {}
        """The open partitions, by id. Only the manager changes this."""
        self._broken: dict[int, str] = {}
        self._reported: dict[int, Reported] = {}
        """The last survey of each partition for a repair."""
        self._unrepaired: dict[int, frozenset[str]] = {}
        """Partitions whose repair has failed, with the paths of damaged segments."""
        self._metrics: dict[int, PartitionMetrics] = {}
        self._files = files
        self._disks = Disks(files, directory, registry)
        self._directory = directory
        self._control_file = directory.control_file
        self._registry = registry
        self._limits = limits
        self._administration = asyncio.Lock()
        self._moving = asyncio.Lock()
        self.moved_partitions = 0
        """The number of partitions that were moved to another disk since the start."""
        self._closing = False
        self._closed = False
        self.scrubber = Scrubber(self.partitions)
        """Scans the partitions' files in the background."""
        self._times = TimeWriter(files, self.partitions)
        registry.gauge(GROUP, f"{GROUP}-num-partitions", lambda: len(self.assigned_partition_status()))
        registry.gauge(GROUP, f"{GROUP}-partition-ids", lambda: sorted(self.assigned_partition_status()))
        registry.gauge(GROUP, f"{GROUP}-out-of-service-partition-ids", lambda: sorted(self.out_of_service()))
        registry.gauge(GROUP, f"{GROUP}-num-out-of-service-partitions", lambda: len(self.out_of_service()))
        registry.reading(MOVED_PARTITIONS, lambda: [((), float(self.moved_partitions))])
        registry.gauge(GROUP, f"{GROUP}-scanned-bytes", lambda: self.scrubber.scanned_bytes, GaugeForm(counts=True))
        self.findings = Findings(self.partitions, directory, files, registry, lambda: self._disks.syncing_s)
        """The known problems of files and disk."""
        registry.gauge(GROUP, f"{GROUP}-health", lambda: {**self.health().problems()})

    @classmethod
    async def open(
        cls,
        files: Files,
        directory: str,
        cluster_key: UUID,
        partition_count: int,
        registry: Registry,
        *,
        segment_size_threshold_bytes: int,
        segment_cache_capacity: int,
        limits: QueueLimits = DEFAULT_LIMITS,
        journal: JournalSizes | None = None,
        further_directories: Sequence[str] = (),
    ) -> "StorageManager":
        """Lock the directory and open every assigned partition (which recovers its files).

        ``journal``: keep a journal for all partitions of a disk; ``None``: each syncs its own files. What the journals
        of an earlier process hold is put where it belongs first. ``further_directories``: those on other disks.

        Raises ``StorageError`` when a directory is missing, in use or belongs to another cluster; ``OSError``. A
        partition that cannot be opened is reported in the log and does not fail the node.
        """
        control_file = await files.run(partial(ControlFile.open, files, directory, cluster_key, partition_count))
        try:
            open_rest = partial(_open_rest, files, directory, further_directories, cluster_key, partition_count)
            fence_file, volumes = await files.run(open_rest)
        except BaseException:
            await files.run(control_file.close)
            raise
        opened = StorageDirectory(
            files,
            directory,
            control_file,
            fence_file,
            volumes,
            segment_size_threshold_bytes=segment_size_threshold_bytes,
            segment_cache_capacity=segment_cache_capacity,
        )
        manager = cls(files, opened, registry, limits)
        try:
            await manager._disks.open(journal)
            await files.run(opened.take_clean_stop)
            await manager._open_assigned()
            manager.scrubber.start()
            manager._times.start()
        except BaseException:
            await manager.close()
            raise
        return manager

    # Questions of the data port

    def check_cluster(self, cluster_key: UUID, partition_count: int) -> StorageError | None:
        """The reason to refuse a peer that opens a connection, or ``None``."""
        if self._closing:
            return StorageError("Control file is already closed.")
        if cluster_key != self._control_file.cluster_key:
            return StorageError("Provided cluster key is inconsistent with key in control file.")
        if partition_count != self._control_file.partition_count:
            return StorageError(
                "Provided number of partitions is inconsistent with the total number of partitions in control file."
            )
        return None

    def absence(self, partition_id: int) -> StorageError | PartitionNotAssignedError:
        """The failure of a request for a partition that is not in :attr:`partitions`."""
        if partition_id in self._broken:
            return disabled(partition_id)
        return PartitionNotAssignedError(partition_id)

    def out_of_service(self) -> dict[int, str]:
        """The assigned partitions that are not served, with the reason."""
        failed = {partition_id: each.failure for partition_id, each in self.partitions.items() if each.failure}
        return {**self._broken, **failed}

    def health(self) -> StorageHealth:
        """All problems that an operator has to solve."""
        findings = self.findings
        problem = findings.disk_problem() or self._disks.problem()
        return StorageHealth(self.out_of_service(), findings.damaged(), findings.stalled(), problem)

    # Administration

    def assigned_partition_status(self) -> dict[int, bool]:
        """The assigned partitions, with whether each is online: available and in service."""
        return {
            partition_id: partition_id not in self._broken
            and self._control_file.partition(partition_id).available
            and self.partitions[partition_id].failure is None
            for partition_id in sorted({*self.partitions, *self._broken})
        }

    def last_session_info(self, partition_id: int) -> SessionInfo:
        """The persisted session and marks. Raises ``PartitionNotAssignedError``, ``StorageError`` (damaged)."""
        if partition_id not in self.partitions and partition_id not in self._broken:
            raise PartitionNotAssignedError(partition_id)
        info = self._control_file.partition(partition_id)
        return SessionInfo(info.session_id, info.low_water_mark, info.local_low_water_mark)

    async def read_log(self, partition_id: int, read: Callable[[PartitionLog], Result]) -> Result:
        """The result of ``read``, which may block, for the log of a partition. The partition may be offline.

        Raises ``PartitionNotAssignedError``, ``StorageError``, ``OSError``.
        """
        while (partition := self.partitions.get(partition_id)) is not None:
            if not partition.suspended:
                return await partition.read_log(read)
            async with self._administration:  # until it is on another disk
                continue
        if partition_id in self._broken:
            raise StorageError(f"partition {partition_id} could not be opened: {self._broken[partition_id]}")
        raise PartitionNotAssignedError(partition_id)

    async def set_available(self, partition_ids: Iterable[int], available: bool) -> None:
        """Switch partitions, assigned or not, on or off. All ids are checked before anything is changed.

        Raises ``StorageError``, ``OSError``.
        """
        async with self._administration:
            for partition_id in self._check_ids(partition_ids):
                partition = self.partitions.get(partition_id)
                if partition is not None:
                    await partition.set_available(available)
                else:
                    change = partial(self._control_file.set_available, partition_id, available)
                    await self._disks.durability(partition_id).change(partition_id, change)

    async def assign(self, partition_ids: Iterable[int]) -> None:
        """Open partitions and record that they belong to the node. Partitions in service are left alone.

        A partition that is broken or out of service is opened anew. After a failure the changes of the ids before stay.
        Raises ``StorageError``, ``OSError``.
        """
        async with self._administration:
            for partition_id in self._check_ids(partition_ids):
                partition = self.partitions.get(partition_id)
                if partition is not None and partition.failure is None:
                    await partition.set_assigned()
                    continue
                if partition is not None:
                    await self._close_partition(partition)
                    self._broken[partition_id] = partition.failure or "closed"
                await self._assign(partition_id)

    async def unassign(self, partition_ids: Iterable[int], *, delete_files: bool) -> None:
        """Close partitions, forget their marks and flags, and delete their files on request.

        The fences are forgotten only together with the files: as long as the files exist, no older session may write to
        them. All ids are checked before anything is changed. Raises ``PartitionNotAssignedError``, ``StorageError``,
        ``OSError``.
        """
        async with self._administration:
            checked = self._check_ids(partition_ids)
            for partition_id in checked:
                if partition_id not in self.partitions and partition_id not in self._broken:
                    raise PartitionNotAssignedError(partition_id)
            for partition_id in checked:
                partition = self.partitions.get(partition_id)
                if partition is not None:
                    await self._close_partition(partition)
                    self._broken[partition_id] = "its removal from the node was not completed"
                forget = partial(self._directory.forget, partition_id, delete_files)
                await self._disks.durability(partition_id).drop(partition_id, forget)
                del self._broken[partition_id]
                self._reported.pop(partition_id, None)
                self._unrepaired.pop(partition_id, None)
                self._metrics.pop(partition_id).close()

    # Disks

    async def move_to_disk(self, partition_id: int, path: str, rate_bytes_per_s: int) -> str | None:
        """Move a partition to another directory of the node while it is served.

        Most of the files are copied first, at most at a rate in bytes per second. Then the partition is suspended:
        its requests wait until it is opened on the other disk. After a failure the partition is served where it was.

        Returns:
            The directory where it was; ``None``: it is there already.

        Raises:
            PartitionNotAssignedError: The partition is not assigned to the node.
            StorageError: The partition is out of service or was closed meanwhile, or the directory is none of the node.
            OSError: A file cannot be read or written.
        """
        async with self._moving:
            partition = self._movable(partition_id)
            volumes = self._directory.volumes
            move = await self._files.run(partial(volumes.plan_move, partition_id, path))
            if move is None:
                return None
            copy = PartitionCopy(self._disks.files_of(move.to), move, rate_bytes_per_s)
            logger.info("partition %d: moving from %s to %s", partition_id, Path(move.source).parent, path)
            try:
                for _ in range(MAX_COPIES):
                    await copy.ahead(partition.log, partial(self._check_still_served, partition))
                    async with self._administration:
                        self._check_still_served(partition)
                        if copy.is_of(partition.log) and await self._change_disk(partition, move, copy):
                            break
                else:
                    raise StorageError(f"records of partition {partition_id} were removed during each copy; repeat it")
            finally:
                if volumes.absence(partition_id) is None:
                    await self._end_move(move)
            self.moved_partitions += 1
            logger.info("partition %d is on another disk: moved to %s", partition_id, path)
            return str(Path(move.source).parent)

    async def plan_rebalance(self) -> tuple[list[DiskUse], list[PlannedMove]]:
        """The disks of the node, and the moves that even out their free space. Raises ``OSError``."""
        volumes, sizes = self._directory.volumes, {}
        for partition_id, partition in self.partitions.items():
            if partition.failure is None:
                sizes[partition_id] = sum(partition.log.lasting()[1].values())
        uses = []
        for volume_id, path in volumes.there().items():
            free_bytes = await self._disks.files_of(volume_id).run_read(partial(self._files.free_bytes, path))
            held = {each: size for each, size in sorted(sizes.items()) if volumes.volume_of(each) == volume_id}
            uses.append(DiskUse(path, free_bytes or 0, held))
        return uses, plan_moves(uses)

    def _movable(self, partition_id: int) -> StoragePartition:
        partition = self.partitions.get(partition_id)
        if partition is None or partition.failure is not None:
            reason = self.out_of_service().get(partition_id)
            if reason is None:
                raise PartitionNotAssignedError(partition_id)
            raise StorageError(f"partition {partition_id} is out of service, and cannot be moved: {reason}")
        return partition

    def _check_still_served(self, partition: StoragePartition) -> None:
        partition_id = partition.partition_id
        if self._closing or self.partitions.get(partition_id) is not partition or partition.failure is not None:
            raise StorageError(f"partition {partition_id} is not moved, since it was closed or has failed meanwhile")

    async def _change_disk(self, partition: StoragePartition, move: Move, copy: PartitionCopy) -> bool:
        """Suspend a partition, and open it on the other disk, or where it was.

        Returns false if it has to be copied again; raises if the move has failed.
        """
        partition_id, successor = partition.partition_id, None
        self._reported.pop(partition_id, None)
        try:
            try:
                await partition.suspend()
                if partition.failure is not None:
                    raise StorageError(partition.failure)
                moved = copy.is_of(partition.log)
                if moved:
                    await copy.rest()
                    await self._files.run(partial(self._directory.volumes.switch, move))
                successor = await self._open_after_stop(partition)
            except Exception as error:
                if partition.failure is not None:
                    raise
                logger.error("partition %d stays where it was, since its move has failed: %s", partition_id, error)
                await self._files.run(partial(self._directory.volumes.take_back, move))
                successor = await self._open_after_stop(partition)
                raise
        except BaseException as error:
            if successor is None:
                del self.partitions[partition_id]
                self._report_broken(partition_id, error)
            raise
        finally:
            if successor is not None:
                self._serve(successor)
            partition.hand_over(successor)
        return moved

    async def _open_after_stop(self, closed: StoragePartition) -> StoragePartition:
        self._directory.expect(closed.partition_id, CleanPartition(closed.info, closed.log.end))
        return await self._open_partition(closed.partition_id)

    async def _end_move(self, move: Move) -> None:
        try:
            await self._files.run(partial(self._directory.volumes.end_move, move))
        except OSError as error:
            logger.warning("files of a move were left behind, and the next start removes them: %s", error)

    # Repair

    async def survey(self, partition_id: int) -> tuple[tuple[tuple[int, int], ...], int, bool]:
        """The damaged or missing records (first and last ids), the last expected id, and whether all is well.

        Raises ``PartitionNotAssignedError``, ``StorageError``, ``OSError``.
        """
        async with self._administration:
            self._check_repairable(partition_id)
            await self._files.run(partial(self._directory.drop_staged, partition_id))
            partition = self.partitions.get(partition_id)
            whole = False
            if partition is not None:
                # The partition has forgotten known damage when it was opened again after a failed repair.
                await self.scrubber.scan(partition, suspicious=partition_id not in self._unrepaired)
                self._unrepaired.pop(partition_id, None)
                reported = Reported(partition.damaged_ranges, partition.max_transaction_id)
                whole = not partition.log.damage.paths
            else:
                damaged = self._unrepaired.get(partition_id, frozenset())
                reported = await self._files.run(partial(self._directory.report, partition_id, damaged))
            self._reported[partition_id] = reported
            return reported.missing, reported.last_transaction_id, whole

    async def stage(self, partition_id: int, records: list[Record]) -> None:
        """Take records for a repair, in ascending order. Raises as :meth:`survey` does."""
        async with self._administration:
            self._check_repairable(partition_id)
            await self._files.run(partial(self._directory.stage, partition_id, records))

    async def repair(self, partition_id: int, certain_up_to: int) -> None:
        """Put the staged records in their places; the partition is out of service meanwhile.

        If records above ``certain_up_to`` are still missing, the log is cut before the first of them. Records that the
        last survey has not reported as missing or damaged, and records that were appended since the partition was
        opened, are never cut. Raises as :meth:`survey` does; then the files are as before, or the repair has to be
        repeated.
        """
        async with self._administration:
            self._check_repairable(partition_id)
            last_id, damaged = NO_TRANSACTION, self._unrepaired.pop(partition_id, frozenset())
            reported = self._reported.pop(partition_id, None)
            partition = self.partitions.get(partition_id)
            if partition is not None:
                damaged |= frozenset(partition.log.damage.paths)
                await self._close_partition(partition)
                self._broken[partition_id] = "it is being repaired"
                last_id = partition.max_transaction_id
                if partition.has_grown:
                    reported = None
            self._unrepaired[partition_id] = damaged
            try:
                rebuild = partial(self._directory.rebuild, partition_id, last_id, damaged, certain_up_to, reported)
                await self._disks.durability(partition_id).replace(partition_id, rebuild)
                del self._unrepaired[partition_id]
            finally:
                await self._drop_staged(partial(self._directory.drop_staged, partition_id))
                await self._open_or_report(partition_id)
            if partition_id in self._broken:
                raise StorageError(
                    f"the records of partition {partition_id} are whole, but it cannot be opened: "
                    f"{self._broken[partition_id]}"
                )

    def _check_repairable(self, partition_id: int) -> None:
        partition = self.partitions.get(partition_id)
        if self._closing or (partition is None and partition_id not in self._broken):
            raise PartitionNotAssignedError(partition_id)
        if partition is not None and partition.failure is not None:
            raise StorageError(
                f"partition {partition_id} is out of service, not damaged ({partition.failure}); "
                "check the disk, then run waltz storage sync-partitions"
            )

    async def close(self) -> None:
        """Close all partitions, then the control file. Queued requests are answered as not assigned."""
        self._closing = True
        async with self._administration:
            if self._closed:
                return
            self._closed = True
            await self.scrubber.close()
            await self._times.close()
            await self._drop_staged(self._directory.drop_all_staged)
            partitions = list(self.partitions.values())
            in_order = await asyncio.gather(*map(self._close_partition, partitions))
            for metrics in self._metrics.values():
                metrics.close()
            self._metrics.clear()
            left = {
                partition.partition_id: CleanPartition(partition.info, partition.log.end)
                for partition, was_closed in zip(partitions, in_order, strict=True)
                if was_closed
            }
            try:
                await self._disks.close()
            finally:
                await self._files.run(partial(self._directory.close, left))

    # Internals

    def _check_ids(self, partition_ids: Iterable[int]) -> list[int]:
        if self._closing:
            raise StorageError("Control file is already closed.")
        checked = list(dict.fromkeys(partition_ids))
        count = self._control_file.partition_count
        for partition_id in checked:
            if not 0 <= partition_id < count:
                raise StorageError(f"no such partition: {partition_id} (the cluster has {count} partitions)")
        return checked

    async def _open_assigned(self) -> None:
        """Open all assigned partitions, in ascending order, a few at a time."""
        limit = asyncio.Semaphore(OPENED_AT_ONCE)

        async def open_one(partition_id: int) -> None:
            async with limit:
                await self._open_or_report(partition_id)

        async with asyncio.TaskGroup() as group:
            for partition_id in range(self._control_file.partition_count):
                if self._is_assigned_or_damaged(partition_id):
                    group.create_task(open_one(partition_id))

    def _is_assigned_or_damaged(self, partition_id: int) -> bool:
        try:
            return self._control_file.partition(partition_id).assigned
        except StorageError:
            return True

    async def _drop_staged(self, drop: Callable[[], None]) -> None:
        """Forget staged records. A file that cannot be removed takes up room until the next repair replaces it."""
        try:
            await self._files.run(drop)
        except OSError as error:
            logger.warning("records that were staged for a repair could not be removed: %s", error)

    async def _open_or_report(self, partition_id: int) -> None:
        """Open an assigned partition. After a failure the partition is broken."""
        try:
            partition = await self._open_partition(partition_id)
        except Exception as error:
            self._report_broken(partition_id, error)
        else:
            self._serve(partition)

    async def _assign(self, partition_id: int) -> None:
        """Open a partition and record that it belongs to the node. If it was not assigned before, a failure changes
        nothing."""
        was_assigned = self._control_file.partition(partition_id).assigned
        if not was_assigned:
            check = partial(self._directory.check_fence, partition_id)
            await self._disks.durability(partition_id).change(partition_id, check)
        try:
            partition = await self._open_partition(partition_id)
            try:
                await partition.set_assigned()
            except BaseException:
                await self._close_partition(partition)
                raise
        except BaseException as error:
            if was_assigned:
                self._report_broken(partition_id, error)
            else:
                self._metrics.pop(partition_id).close()
            raise
        self._serve(partition)

    async def _open_partition(self, partition_id: int) -> StoragePartition:
        if partition_id not in self._metrics:
            self._metrics[partition_id] = PartitionMetrics(self._registry, partition_id, self._control_file)
        await self._disks.durability(partition_id).make_openable(partition_id)
        self._control_file.partition(partition_id)  # damage must be noticed before anything is opened
        self._directory.fence_file.get(partition_id)
        log = await self._disks.of(partition_id).files.run(partial(self._directory.open_log, partition_id))
        disk = self._disks.of(partition_id)  # a new partition has got its place
        return StoragePartition(
            partition_id,
            log,
            self._control_file,
            self._directory.fence_file,
            disk.files,
            self._disks.durability(partition_id),
            self._metrics[partition_id],
            busy=disk.busy,
            reading=disk.reading,
            on_suspicion=partial(self.scrubber.request, partition_id, suspicious=True),
            limits=self._limits,
        )

    def _serve(self, partition: StoragePartition) -> None:
        partition.start()
        self._broken.pop(partition.partition_id, None)
        self.partitions[partition.partition_id] = partition
        self.scrubber.request(partition.partition_id)
        logger.info("partition %d is open: max transaction id %d", partition.partition_id, partition.max_transaction_id)

    def _report_broken(self, partition_id: int, error: BaseException) -> None:
        self._broken[partition_id] = str(error)
        logger.critical(
            "partition %d cannot be opened and is not served: %s; its other replicas serve it meanwhile",
            partition_id,
            error,
            exc_info=error if not isinstance(error, WaltzError | OSError) else None,
        )

    async def _close_partition(self, partition: StoragePartition) -> bool:
        """Take a partition out of service and close it. Returns whether all its changes are certainly durable."""
        self.partitions.pop(partition.partition_id, None)
        try:
            await partition.close()
        except Exception as error:
            unforeseen = None if isinstance(error, WaltzError | OSError) else error
            text = "partition %d was not closed properly: %s"
            logger.error(text, partition.partition_id, error, exc_info=unforeseen)
            return False
        return partition.failure is None
