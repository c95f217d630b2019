"""The note of an orderly stop: what it makes certain, and when it does not count."""

import logging
import random
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.log_testing import KEY
from tests.unit.storage.node_support import TIMEOUT_S, ObservedFiles, records, running_node
from waltz.storage.disk.clean_stop import FILE_NAME, CleanPartition, take_clean_stop, write_clean_stop
from waltz.storage.disk.control_file import PartitionInfo
from waltz.storage.disk.log.group_encoder import LogEnd

NOTED = {
    0: CleanPartition(PartitionInfo(3, 5, 4, 5, 7), LogEnd(12, 0, 600)),
    7: CleanPartition(PartitionInfo(-1, -1, -1, 5, 1), LogEnd(0, 0, 128)),
}


@pytest.fixture
def files() -> CrashFiles:
    return CrashFiles()


def test_the_note_is_durable_and_taken_once(files: CrashFiles) -> None:
    write_clean_stop(files, "/", KEY, NOTED)
    files.crash(random.Random(1))
    assert take_clean_stop(files, "/", KEY) == NOTED
    files.crash(random.Random(2))
    assert take_clean_stop(files, "/", KEY) is None
    assert files.list_directory("/") == []


def test_a_damaged_note_does_not_count(files: CrashFiles, caplog: pytest.LogCaptureFixture) -> None:
    write_clean_stop(files, "/", KEY, NOTED)
    content = files.contents("/" + FILE_NAME)
    for bit in range(0, 8 * len(content), 5):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        files.open("/" + FILE_NAME, create=True).close()
        files.overwrite("/" + FILE_NAME, bytes(damaged))
        assert take_clean_stop(files, "/", KEY) == {}
    assert "recovering as after a crash" in caplog.text


def test_the_note_of_another_cluster_does_not_count(files: CrashFiles) -> None:
    write_clean_stop(files, "/", KEY, NOTED)
    assert take_clean_stop(files, "/", UUID(int=5)) == {}


def _flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


async def _fill(directory: Path) -> None:
    async with running_node(directory) as node:
        client = await node.client()
        await client.set_low_water_mark(1, 0, -1, timeout_s=TIMEOUT_S)
        await client.append(1, 0, records(0, 9), timeout_s=TIMEOUT_S)


async def test_a_damaged_last_record_is_damage_after_an_orderly_stop(tmp_path: Path) -> None:
    await _fill(tmp_path)
    _flip(tmp_path / "0" / f"{0:019d}.seg", -1)
    async with running_node(tmp_path) as node:
        assert not (tmp_path / FILE_NAME).exists()
        partition = node.node.manager.partitions[0]
        assert partition.max_transaction_id == 8
        assert partition.damaged_ranges == ((8, 8),)
        assert not node.node.health()[0]


async def test_a_damaged_last_record_stops_the_partition_after_a_crash(tmp_path: Path) -> None:
    """It may be of a write that was acknowledged, and how far the log should reach is not known."""
    await _fill(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    _flip(tmp_path / "0" / f"{0:019d}.seg", -1)
    async with running_node(tmp_path, assign=()) as node:
        assert "transaction 8" in node.node.manager.out_of_service()[0]
        assert not node.node.health()[0]


async def test_an_incomplete_last_record_is_a_torn_write_after_a_crash(tmp_path: Path) -> None:
    await _fill(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    path = tmp_path / "0" / f"{0:019d}.seg"
    path.write_bytes(path.read_bytes()[:-1])
    async with running_node(tmp_path) as node:
        partition = node.node.manager.partitions[0]
        assert partition.max_transaction_id == 7
        assert partition.damaged_ranges == ()
        healthy, body = node.node.health()
        assert healthy
        assert '\\"tornWriteCut\\":[0]' in str(body).replace('"', '\\"')


async def test_a_control_file_entry_is_restored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await _fill(tmp_path)
    path = tmp_path / "waltz-storage.ctl"
    whole = path.read_bytes()
    for slot in (0, 1):
        _flip(path, 128 + 4 + 36 * slot + 7)
    async with running_node(tmp_path) as node:
        info = node.node.manager.partitions[0].info
        assert (info.session_id, info.low_water_mark) == (1, -1)
        assert node.node.health()[0]
    assert "is as at the last stop again" in caplog.text
    assert whole[:128] == path.read_bytes()[:128]


async def test_a_partition_that_another_program_has_changed_is_recovered_without_the_note(tmp_path: Path) -> None:
    """The original knows no note: its records, its truncations and its sessions count."""
    await _fill(tmp_path)
    note = (tmp_path / FILE_NAME).read_bytes()
    async with running_node(tmp_path) as node:
        client = await node.client()
        await client.set_low_water_mark(2, 0, 8, timeout_s=TIMEOUT_S)
        await client.truncate(2, 0, 3, timeout_s=TIMEOUT_S)
    (tmp_path / FILE_NAME).write_bytes(note)
    async with running_node(tmp_path) as node:
        partition = node.node.manager.partitions[0]
        assert partition.max_transaction_id == 3
        assert partition.damaged_ranges == ()


async def test_a_partition_out_of_service_is_not_noted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        client = await node.client()
        await client.append(1, 1, records(0, 9), timeout_s=TIMEOUT_S)
        node.files.failing.add("/0/0000000000000000000.seg")
        with pytest.raises(Exception, match="Input/output error"):
            await client.append(1, 0, records(0, 9), timeout_s=TIMEOUT_S)
    files = CrashFiles()
    files.open("/" + FILE_NAME, create=True).close()
    files.overwrite("/" + FILE_NAME, (tmp_path / FILE_NAME).read_bytes())
    found = take_clean_stop(files, "/", KEY)
    assert found is not None
    assert set(found) == {1}


async def test_a_stop_without_room_for_the_note_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = ObservedFiles()
    async with running_node(tmp_path, files=files):
        files.failing.add(FILE_NAME + ".new")
    assert "will recover as after a crash" in caplog.text
    with caplog.at_level(logging.INFO):
        async with running_node(tmp_path) as node:
            assert node.node.health()[0]
    assert "was not left by an orderly stop" in caplog.text
    files.close()
