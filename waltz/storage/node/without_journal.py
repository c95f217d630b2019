"""Carries out changes for the journal while no journal takes them. All functions block.

The journal is full, has failed just now or some time ago, or is not used because of a defect. In each case a change
becomes durable in its own files, or it fails and is not acknowledged.
"""

import logging
from collections.abc import Sequence

from waltz.storage.disk.journal.entries import Fenced, Marked, Truncated
from waltz.storage.errors import OverCapacityError
from waltz.storage.node.journal_jobs import Job
from waltz.storage.node.journal_state import JournalState

logger = logging.getLogger(__name__)


def carry_out(state: JournalState, jobs: Sequence[Job[object]]) -> None:
    """Carry out jobs without the journal, one by one. A failure is the error of its job alone.

    A group of appends or a truncation that was not begun is given back, like a job that needs another segment. A group
    that was begun is durable already. When no change is acknowledged any more, all jobs fail, and nothing blocks.
    """
    for job in jobs:
        if job.error is None:
            try:
                _carry_out(state, job)
            except Exception as error:
                job.error = error
        job.entries = []  # the entries are not in the journal
    if done := [job for job in jobs if job.begun and job.error is None]:
        _write_notes(state, done)


def _carry_out(state: JournalState, job: Job[object]) -> None:
    state.check_alive()
    if not job.begun:
        if job.take_back is not None:
            job.result.append(None)
            return
        job.begin()
    job.finish()
    if job.error is None and any(isinstance(entry, Truncated) for entry in job.entries):
        state.logs[job.partition_id].flush()


def _write_notes(state: JournalState, jobs: Sequence[Job[object]]) -> None:
    """Write fences and marks with one sync. After a failure write those of each partition alone: one may be damaged."""
    try:
        state.write_notes({job.partition_id for job in jobs})
    except Exception as error:
        if len(jobs) == 1:
            jobs[0].error = error
            return
        for job in jobs:
            _write_notes(state, [job])


def refuse(state: JournalState, jobs: Sequence[Job[object]], error: OverCapacityError) -> None:
    """The journal stays full: take back appends, carry out fences and marks, and refuse all other jobs that were
    begun."""
    for job in jobs:
        if job.error is not None:
            continue
        try:
            if job.take_back is not None:
                job.take_back()
                raise error
            if not all(isinstance(entry, Fenced | Marked) for entry in job.entries):
                raise error
        except Exception as failure:
            job.error = failure
    carry_out(state, jobs)


def outlive(state: JournalState, error: OSError, jobs: Sequence[Job[object]]) -> Exception | None:
    """After a failed write or sync of the journal: make all changes durable in their own files, then carry out the
    jobs.

    Args:
        state: What the journal holds. The locks of all partitions that owe something, or append, are held.
        error: The failure.
        jobs: The jobs of the failed turn; they were begun.

    Returns:
        The further failure, if there was one: then no change is acknowledged any more, and the next start replays the
        journal.
    """
    logger.critical("the journal has failed (%s); all partitions sync their own files", error)
    try:
        for partition_id in {*state.segments.by_age(), *changed_segments(jobs)}:
            state.logs[partition_id].flush()
        carry_out(state, jobs)
        state.write_notes(state.notes.by_age())
        state.withdraw()
    except Exception as second:
        text = "after the journal, a file of a partition has failed, too (%s): no partition takes appends any more"
        logger.critical(text, second)
        for job in jobs:
            job.error = second
        return second
    return None


def changed_segments(jobs: Sequence[Job[object]]) -> set[int]:
    """The partitions with a segment that the begun jobs change."""
    return {job.partition_id for job in jobs if job.take_back is not None and job.error is None}
