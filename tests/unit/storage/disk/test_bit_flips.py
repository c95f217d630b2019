"""One flipped bit anywhere in the files of a node: always detected, and never a wrong byte served."""

import logging
import random
from functools import partial

import pytest

from tests.unit.storage.crash_files import CrashFiles, Directory
from tests.unit.storage.log_testing import KEY
from tests.unit.storage.node_support import decoded, records
from waltz.common.metrics.registry import Registry
from waltz.common.records import Record
from waltz.common.wire import storage as wire
from waltz.storage.disk import clean_stop, control_file, fence
from waltz.storage.disk.segment.segment_format import encode_record
from waltz.storage.errors import CorruptionError, StorageError
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.partition import StoragePartition
from waltz.storage.node.replies import read_encoded, read_stored

PARTITIONS = 3
LOG = [record._replace(data=random.Random(record.transaction_id).randbytes(50)) for record in records(0, 30)]
FLIPS = 500

State = dict[str, bytes]


async def open_manager(files: CrashFiles) -> StorageManager:
    return await StorageManager.open(
        files,
        "/",
        KEY,
        PARTITIONS,
        Registry(),
        segment_size_threshold_bytes=900,
        segment_cache_capacity=2,
    )


async def make_state() -> State:
    """A node with two partitions, stopped in order."""
    files = CrashFiles()
    manager = await open_manager(files)
    await manager.assign([0, 2])
    for partition_id in (0, 2):
        log = manager.partitions[partition_id].log
        prepared = log.prepare([LOG])
        log.write_and_sync(prepared)
        log.publish(prepared)
        manager._directory.fence_file.raise_to(partition_id, 4)
        manager._control_file.set_low_water_mark(partition_id, 4, 29, 29)
        manager._directory.fence_file.raise_to(partition_id, 5)
    await manager.close()
    state = {}
    for name, node in files.root.names.items():
        if isinstance(node, Directory):
            state.update({f"/{name}/{inner}": files.contents(f"/{name}/{inner}") for inner in node.names})
        else:
            state[f"/{name}"] = files.contents(f"/{name}")
    return state


def restore(state: State) -> CrashFiles:
    files = CrashFiles()
    for path, content in state.items():
        if path.count("/") == 2 and not files.exists(path.rpartition("/")[0]):
            files.make_directory(path.rpartition("/")[0])
        files.open(path, create=True).close()
        files.overwrite(path, content)
    return files


def counted_bytes(path: str, size: int) -> list[int]:
    """Positions that a checksum covers or that follow from others: no times of creation, no reserved bytes."""
    if path.endswith((".seg", ".idx")):
        return [*range(4), *range(12, 40), *range(128, size)]
    if path.endswith((control_file.FILE_NAME, fence.FILE_NAME)):
        return [*range(4), *range(12, 32), *range(128, size)]
    return list(range(size))


async def assert_detected_and_harmless(files: CrashFiles, caplog: pytest.LogCaptureFixture, where: str) -> None:
    caplog.clear()
    try:
        manager = await open_manager(files)
    except StorageError:
        return  # the whole node refuses
    manager.scrubber._pause_s = 0
    try:
        for partition in manager.partitions.values():
            await manager.scrubber.scan(partition)
        reported = [*manager.out_of_service(), *manager.findings.damaged(), *manager.findings.notes(), *caplog.records]
        assert reported, where
        damaged = manager.findings.damaged()
        for partition_id in (0, 2):
            if partition_id not in manager.partitions:
                assert partition_id in manager.out_of_service(), where
                continue
            served = manager.partitions[partition_id]
            assert served.max_transaction_id >= 28, where
            await assert_serves_the_truth(served, partition_id in damaged, where)
            info = served.info
            assert info.assigned, where
            assert (info.session_id, info.low_water_mark) in ((4, 29), (-1, -1)), where
            assert manager._directory.fence_file.get(partition_id) == 5, where
    finally:
        await manager.close()


async def read(partition: StoragePartition, first: int, count: int) -> list[Record]:
    """In both ways in which records leave a node in bulk, which have to agree."""
    try:
        blocks = await partition.read_log(partial(read_stored, first=first, max_count=count))
    except CorruptionError:
        with pytest.raises(CorruptionError):
            await partition.read_log(partial(read_encoded, first=first, max_count=count))
        raise
    records = decoded(await partition.read_log(partial(read_encoded, first=first, max_count=count)))
    assert b"".join(block.data for block in blocks) == b"".join(map(encode_record, records))
    return records


async def assert_serves_the_truth(partition: StoragePartition, damaged: bool, where: str) -> None:
    """Everything or, where that fails, record by record: the right one or none."""
    expected = LOG[: partition.max_transaction_id + 1]
    try:
        assert await read(partition, 0, 100) == expected, where
    except CorruptionError:
        assert damaged, where
    else:
        return
    for record in expected:
        try:
            assert await read(partition, record.transaction_id, 1) == [record], where
        except CorruptionError:
            continue


@pytest.mark.parametrize("after_a_crash", [False, True])
async def test_any_flipped_bit_is_detected(after_a_crash: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    state = await make_state()
    if after_a_crash:
        del state["/" + clean_stop.FILE_NAME]
    choices = random.Random(7)
    positions = [(path, at) for path, content in state.items() for at in counted_bytes(path, len(content))]
    for _ in range(FLIPS):
        path, at = choices.choice(positions)
        content = bytearray(state[path])
        content[at] ^= 1 << choices.randrange(8)
        await assert_detected_and_harmless(
            restore({**state, path: bytes(content)}), caplog, f"{path} byte {at}, crash: {after_a_crash}"
        )


async def test_the_small_files(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    state = await make_state()
    for path, content in state.items():
        if path.endswith((".ctl", ".fence", ".clean")):
            for at in counted_bytes(path, len(content))[::3]:
                damaged = bytearray(content)
                damaged[at] ^= 1 << at % 8
                await assert_detected_and_harmless(
                    restore({**state, path: bytes(damaged)}), caplog, f"{path} byte {at}"
                )


async def test_nothing_is_reported_of_whole_files(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    manager = await open_manager(restore(await make_state()))
    for partition in manager.partitions.values():
        await manager.scrubber.scan(partition)
    assert sorted(manager.partitions) == [0, 2]
    assert manager.findings.damaged() == {}
    assert manager.findings.notes() == {}
    assert caplog.records == []
    assert manager.partitions[0].info.session_id == 4
    await manager.close()


def test_reads_are_the_only_way_out() -> None:
    """The list of requests that carry records, so that a new one is not forgotten in these tests."""
    carrying = {name for name in dir(wire) if name.endswith("Response") and "Record" in name}
    assert carrying == {"RecordHeaderResponse", "RecordResponse", "RecordHeaderListResponse", "RecordListResponse"}
