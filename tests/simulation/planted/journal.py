"""Planted bugs of a storage's journal."""

from collections.abc import Sequence
from typing import Any

from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.journal.entries import Entry
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.node.debts import Debts
from waltz.storage.node.durability import SyncEach
from waltz.storage.node.journaled import Journaled
from waltz.storage.node.turns import Turns

_encode = Journal._encode


def acknowledge_before_the_sync(turns: Turns, _entries: object, jobs: list[Any]) -> int:
    """Write nothing to the journal, and go on as if it were there."""
    for job in jobs:
        job.finish()
    return turns._state.completed + 1


def settle_nothing(_log: object) -> list[Any]:
    """Sync a partition's own file without a word to the journal."""
    return []


def release_everything(_debts: Debts, next_number: int) -> int:
    """Let go of groups although no sync of a segment covers them."""
    return next_number


async def truncate_in_the_file_alone(journaled: Journaled, log: PartitionLog, transaction_id: int) -> int:
    """Truncate a segment, durably, without a word to the journal."""
    return await SyncEach.truncate(journaled, log, transaction_id)


def base_of_what_is_written(journal: Journal, entries: Sequence[Entry], _base: int) -> tuple[bytes, int]:
    """Tell a replay to begin with the group that is just written, whatever segments are durable."""
    return _encode(journal, entries, journal._number)


def skip_records(_partition: object, _body: bytes, _begin: int, _end: int) -> None:
    """Take everything from the journal but records."""


def guard_nothing(_control_file: ControlFile) -> None:
    """Begin the first group with the cluster key as it is."""


def replay_everything(_since: object, _kind: int, _at: object) -> bool:
    """Write records although what was synced directly came after them."""
    return True


def fence_in_memory(_journaled: Journaled, _partition_id: int, _session_id: int) -> list[Any]:
    """Let a session in, and leave nothing of it behind."""
    return []


def leave_guarded(_control_file: ControlFile) -> None:
    """Leave the cluster key inverted although the journal counts no more."""


def replay_segments_alone(_replay: object) -> None:
    """Bring segments up to date, and leave control and fence file as they are."""
