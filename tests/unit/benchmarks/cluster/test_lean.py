"""The rules of the lean pipeline's server, and the files of its storages."""

import struct
import zlib
from pathlib import Path

import pytest

from benchmarks.cluster.lean import (
    BATCH,
    FRAME,
    GATHERED_TURNS,
    RECORD,
    SEGMENT_HEADER_BYTES,
    TABLE,
    Log,
    Partition,
    Request,
    checked_slots,
)


def request(number: int) -> Request:
    return 1 << 32, number, 7, b"data", 5, [number]


def test_two_batches_are_in_flight_at_most() -> None:
    partition = Partition(3)
    frames = []
    for number in range(3):
        partition.queue.append(request(number))
        frames.append(partition.next_batch())
    assert frames[2] is None
    for sequence, frame in enumerate(frames[:2], 1):
        assert frame is not None
        assert FRAME.unpack_from(frame)[2] == len(frame) - FRAME.size
        assert BATCH.unpack_from(frame, FRAME.size) == (3, sequence, 1)
    assert partition.next_batch() is None
    partition.acknowledged(1)
    assert partition.acknowledged(1) is not None
    assert partition.next_batch() is not None


def test_a_batch_is_committed_by_the_second_acknowledgement_and_only_then_locks_are_set() -> None:
    partition = Partition(0)
    partition.queue += [request(10), request(11)]
    partition.next_batch()
    assert partition.acknowledged(1) is None
    assert set(partition.marks) == {-1}
    batch = partition.acknowledged(1)
    assert batch is not None
    assert (partition.marks[10], partition.marks[11]) == (0, 1)
    assert partition.acknowledged(1) is None, "the third storage"


def test_a_lock_has_three_places() -> None:
    slots = checked_slots([-1] * TABLE, [-5, 7])
    assert len(slots) == 6
    assert all(0 <= slot < TABLE for slot in slots)


def record(transaction_id: int, data: bytes, checksum: int) -> bytes:
    signed = struct.unpack(">i", struct.pack(">I", checksum))[0]
    return RECORD.pack(transaction_id, 1, 2, 3, len(data), signed) + data


def test_records_are_written_with_their_checksums(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    records = [record(number, b"x" * number, zlib.crc32(b"x" * number)) for number in range(3)]
    taken = log.take([(2, records[0] + records[1]), (1, records[2])])
    log.write()
    written = (tmp_path / "log").read_bytes()
    assert written == b"".join(taken) == b"".join(each + struct.pack(">I", zlib.crc32(each)) for each in records)
    assert log.next_id == 3
    assert SEGMENT_HEADER_BYTES == 128


@pytest.mark.parametrize("wrong", [record(1, b"x", zlib.crc32(b"x")), record(0, b"x", zlib.crc32(b"y"))])
def test_gaps_and_damage_are_noticed(tmp_path: Path, wrong: bytes) -> None:
    with pytest.raises(AssertionError):
        Log(str(tmp_path / "log")).take([(1, wrong)])


def test_what_was_gathered_is_written_once_and_is_due_after_some_turns(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    due = []
    for number in range(GATHERED_TURNS):
        log.take([(1, record(number, b"x", zlib.crc32(b"x")))])
        due.append(log.is_due)
    assert due == [False] * (GATHERED_TURNS - 1) + [True]
    assert not (tmp_path / "log").read_bytes()
    log.write()
    log.write()
    assert not log.is_due
    assert len((tmp_path / "log").read_bytes()) == GATHERED_TURNS * (RECORD.size + 1 + 4)
