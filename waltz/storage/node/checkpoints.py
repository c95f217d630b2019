"""Checkpoints: the changes in the journal become durable in their own files, so that the journal's files can be used
again.

After a failure of the journal the same task begins another journal.
"""

import logging
from collections.abc import Callable
from functools import partial

from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import Contents
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.errors import ReadOnlyError, StorageError
from waltz.storage.node.journal_state import JournalState, either

logger = logging.getLogger(__name__)

CHECKPOINT_S = 5.0
"""One round of syncs through all partitions is spread over this time."""
IDLE_S = 1.0
"""The pause between two rounds."""
RENEWALS_S = (10.0, 60.0, 600.0)
"""The pauses before attempts to replace a failed journal by a new one. After the last of these, a process makes no
further attempt."""


class Checkpoints:
    """The rounds of syncs, and the attempts to replace a journal that has failed."""

    def __init__(self, state: JournalState, another: Callable[[Contents], Journal]) -> None:
        """Nothing begins before :meth:`run`.

        Args:
            state: What the journal holds.
            another: Opens a journal behind the remains of a failed journal, and guards the control file. Blocks.
        """
        self._state = state
        self._another = another
        self._renewals = iter(RENEWALS_S)

    async def run(self) -> None:
        """Make rounds until the node ends."""
        state = self._state
        while not state.ending.is_set():
            await either(state.checkpoint_wanted, IDLE_S)
            # Cleared before the checkpoint: a journal that becomes full during the checkpoint needs another one.
            state.checkpoint_wanted.clear()
            if state.ending.is_set():
                return
            if state.failure is None:
                await self.checkpoint()
            elif not state.dead:
                await self._renew()

    async def checkpoint(self) -> None:
        """Sync every segment with changes that are durable in the journal only; write fences and marks; release
        groups."""
        state = self._state
        owing = state.segments.by_age()
        for partition_id in owing:
            if state.ending.is_set() or state.failure is not None:
                return
            async with state.syncing[partition_id]:
                log = state.logs.get(partition_id)
                if log is not None and log.read_only_reason is None and partition_id in state.segments:
                    await self._sync_segment(partition_id, log)
            if not state.full and 2 * state.journal.free_bytes > state.journal.size_bytes:
                await either(state.checkpoint_wanted, CHECKPOINT_S / len(owing))
        if noted := state.notes.by_age():
            await self._write_notes(noted)
        state.release()
        try:
            await state.on_disk("checkpoint", state.journal.extend)
        except OSError as error:
            logger.warning("the journal cannot have a further file: %s", error)

    async def _sync_segment(self, partition_id: int, log: PartitionLog) -> None:
        state = self._state
        covered = state.completed  # read before the sync: the sync proves nothing about later groups
        try:
            await state.on_disk(partition_id, log.flush)
        except OSError as error:
            text = "partition %d: its segment could not be synced (%s); its records stay in the journal"
            logger.critical(text, partition_id, error)
        except ReadOnlyError:
            logger.debug("partition %d has just gone out of service", partition_id)
        else:
            state.segments.paid(partition_id, covered)
            state.release()

    async def _write_notes(self, partition_ids: list[int]) -> None:
        """Write fences and marks of partitions together. After a failure write those of each partition alone: one may
        be damaged."""
        state = self._state
        covered = state.completed
        try:
            await state.on_disk("checkpoint", partial(state.write_notes, partition_ids))
        except (StorageError, OSError) as error:
            if len(partition_ids) == 1:
                logger.error("fence and marks of partition %d stay in the journal: %s", partition_ids[0], error)
                return
            for partition_id in partition_ids:
                await self._write_notes([partition_id])
        else:
            for partition_id in partition_ids:
                state.notes.paid(partition_id, covered)

    async def _renew(self) -> None:
        """After a failure, begin another journal after a pause. After the last attempt, wait for the end of the
        node."""
        state = self._state
        pause_s = next(self._renewals, None)
        await either(state.ending, pause_s)
        if state.ending.is_set():
            return
        failed = state.journal
        try:
            journal = await state.on_disk("checkpoint", partial(self._another, failed.remains()))
        except (OSError, StorageError) as error:
            logger.warning("the failed journal cannot be replaced by a new one: %s", error)
            return
        # No await from here on: the next group of every partition finds the new journal.
        state.go_on_with(journal)
        logger.warning("a new journal has replaced the failed one")
        await state.files.run(failed.close)
