"""What the tests of the log share."""

import random
from collections.abc import Sequence
from uuid import UUID

from waltz.common.checksum import checksum
from waltz.common.ids import ReqId
from waltz.common.records import Record
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.log import PartitionLog, Prepared

KEY = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
PARTITION = 3
DIRECTORY = "/3"


def record(transaction_id: int, data: bytes | None = None) -> Record:
    """A record that can be told from every other."""
    if data is None:
        data = random.Random(transaction_id).randbytes(transaction_id % 60)
    low = transaction_id & 0x7FFFFFFF
    return Record(transaction_id, ReqId.of(1, 2, PARTITION, low), 7 - low, data, checksum(data))


def records(first: int, count: int) -> list[Record]:
    """Consecutive records."""
    return [record(transaction_id) for transaction_id in range(first, first + count)]


def open_log(
    files: Files,
    directory: str = DIRECTORY,
    *,
    low_water_mark: int = -1,
    threshold: int = 1_000_000_000,
    capacity: int = 5,
    partition_id: int = PARTITION,
    key: UUID = KEY,
) -> PartitionLog:
    """Open a log with what matters to a test."""
    return PartitionLog.open(
        files,
        directory,
        key,
        partition_id,
        local_low_water_mark=low_water_mark,
        segment_size_threshold_bytes=threshold,
        segment_cache_capacity=capacity,
    )


def segment_count(log: PartitionLog) -> int:
    """Number of segments."""
    return len(log._view.segments)


def open_segment_count(log: PartitionLog) -> int:
    """Number of segments with open descriptors."""
    return log._descriptors.open_count


def append(log: PartitionLog, *batches: Sequence[Record]) -> Prepared:
    """One group, from preparation to publication."""
    prepared = log.prepare(batches)
    log.write_and_sync(prepared)
    log.publish(prepared)
    return prepared


def scan(log: PartitionLog) -> None:
    """What the scrubber does."""
    for segment in log.damage.segments_to_scan(suspicious=False):
        found = log.damage.begin_scan(segment)
        while not log.damage.scan_step(found):
            pass
        assert log.damage.finish_scan(found)


def read_all(log: PartitionLog) -> list[Record]:
    """Everything."""
    return log.read(log.first_transaction_id, 1 << 31)
