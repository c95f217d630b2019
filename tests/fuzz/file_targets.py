"""What may be found on disk and in ZooKeeper, and what an operator or a user may write into a file."""

import contextlib
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID
from zlib import crc32

from tests.fuzz import seeds
from tests.fuzz.memory_files import DIRECTORY, MemoryFiles
from tests.fuzz.target import Target
from waltz.common.config.schemas import CliConfig, ClientConfig, ServerConfig, StorageConfig, load
from waltz.common.errors import ConfigError, ProtocolError, WaltzError
from waltz.common.zk import znodes
from waltz.demo.transfers import BankTransfer, Transfers, decode, encode
from waltz.storage.disk import clean_stop, control_file, fence
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.log.group_encoder import LogEnd
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.segment.segment_format import (
    HEADER_SIZE_BYTES,
    RECORD_CRC,
    RECORD_PREFIX,
    data_file_name,
    index_path,
)
from waltz.storage.errors import CorruptionError, StorageError

KEY_TEXT, PARTITION_COUNT = seeds.storage_description()
KEY = UUID(KEY_TEXT)

_TYPES: list[Any] = [
    znodes.ClusterParams,
    znodes.PartitionAssignment,
    znodes.ServerDescriptor,
    znodes.StoreParams,
    znodes.GroupDescriptor,
    znodes.ConnectionMetadata,
    znodes.ReplicaAssignments,
    znodes.PartitionMetadata,
]


def decode_znode(data: bytes) -> None:
    """The first byte chooses the type. What is decoded can be encoded, and decoded again to the same."""
    if not data:
        return
    number = data[0] % (len(_TYPES) + 1)
    try:
        if number == len(_TYPES):
            value = znodes.decode_counter(data[1:], "/path")
            assert znodes.decode_counter(znodes.encode_counter(value)) == value
            return
        value = _TYPES[number].decode(data[1:], "/path")
    except ProtocolError:
        return
    assert _TYPES[number].decode(value.encode()) == value


def _with_checksums(content: bytes, header_size: int, size: int, skip: int = 0) -> bytes:
    """The same with every struct's checksum right: what an attacker, and not an accident, would leave behind."""
    fixed = bytearray(content)
    start = header_size + skip
    for entry in range(start, len(fixed) - size + 1, size):
        fixed[entry + size - 4 : entry + size] = struct.pack(">I", crc32(fixed[entry : entry + size - 4]))
    return bytes(fixed)


def open_control_file(data: bytes) -> None:
    """The first byte chooses between a node and an offline tool, and whether checksums are put right."""
    if not data:
        return
    content = data[1:]
    if data[0] & 2:
        content = b"".join(
            [content[:128]]
            + [
                content[entry : entry + 4] + _with_checksums(content[entry + 4 : entry + 76], 0, 36)
                for entry in range(128, len(content), 76)
            ]
        )
    files = MemoryFiles({control_file.FILE_NAME: content})
    expected = (KEY, PARTITION_COUNT) if data[0] & 1 else (None, None)
    try:
        opened = ControlFile.open(files, DIRECTORY, *expected)
    except StorageError:
        return
    for partition_id in range(opened.partition_count):
        _use_entry(opened, partition_id)
    opened.close()
    ControlFile.open(files, DIRECTORY, *expected).close()


def _use_entry(opened: ControlFile, partition_id: int) -> None:
    try:
        info = opened.partition(partition_id)
        opened.set_assigned(partition_id, True)
        assert opened.partition(partition_id).assigned
        opened.set_low_water_mark(partition_id, info.session_id, info.low_water_mark, max(info.local_low_water_mark, 7))
    except StorageError:
        opened.reset(partition_id)
        opened.partition(partition_id)


def open_fence(data: bytes) -> None:
    """The first byte tells whether checksums are put right."""
    if not data:
        return
    content = _with_checksums(data[1:], 128, 16) if data[0] & 1 else data[1:]
    files = MemoryFiles({fence.FILE_NAME: content})
    try:
        opened = FenceFile.open(files, DIRECTORY, KEY, PARTITION_COUNT)
    except StorageError:
        return
    for partition_id in range(PARTITION_COUNT):
        try:
            opened.raise_to(partition_id, min(opened.get(partition_id) + 1, 2**63 - 1))
        except CorruptionError:
            opened.reset(partition_id)
            assert opened.get(partition_id) == fence.NO_SESSION
        except StorageError:
            pass
    opened.close()


def take_clean_stop(data: bytes) -> None:
    """The first byte tells whether the checksum is put right; damage only means that nothing is known."""
    if not data:
        return
    content = data[1:]
    if data[0] & 1:
        content += b"\n%08x\n" % crc32(content)
    files = MemoryFiles({clean_stop.FILE_NAME: content})
    found = clean_stop.take_clean_stop(files, DIRECTORY, KEY)
    assert found is not None
    assert not files.exists(f"{DIRECTORY}/{clean_stop.FILE_NAME}")
    for partition_id, clean in found.items():
        assert all(type(number) is int for number in (partition_id, *clean.info, *clean.end))


def _with_record_checksums(content: bytes) -> bytes:
    fixed, start = bytearray(content), HEADER_SIZE_BYTES
    while start + RECORD_PREFIX.size <= len(fixed):
        (size,) = struct.unpack_from(">i", fixed, start + 28)
        end = start + RECORD_PREFIX.size + size
        if size < 0 or end + 4 > len(fixed):
            break
        RECORD_CRC.pack_into(fixed, end, crc32(fixed[start:end]))
        start = end + 4
    return bytes(fixed)


def open_segment(data: bytes) -> None:
    """Data file and index file of the only segment of a partition: recovery, reads, a scan of everything.

    Flags, local low-water mark (1 byte each), size of the data file (2 bytes), data file, index file.
    """
    if len(data) < 4:
        return
    flags, mark = data[0], data[1] - 1
    data_size = int.from_bytes(data[2:4], "big")
    segment, index = data[4 : 4 + data_size], data[4 + data_size :]
    if flags & 1:
        segment = _with_record_checksums(segment)
    name = data_file_name(0)
    files = MemoryFiles({name: segment, index_path(name): index})
    try:
        log = PartitionLog.open(
            files,
            DIRECTORY,
            KEY,
            0,
            local_low_water_mark=mark if flags & 2 else -1,
            segment_size_threshold_bytes=1 << 20,
            segment_cache_capacity=1,
            clean_end=LogEnd(mark + 1, 0, len(segment)) if flags & 4 else None,
        )
    except StorageError:
        return
    _use_log(log)
    log.close()


def _use_log(log: PartitionLog) -> None:
    first, last = log.first_transaction_id, log.max_transaction_id
    for position in range(max(first, last - 200), last + 1):
        try:
            records = log.read(position, 3)
            assert [record.transaction_id for record in records] == [
                position + number for number in range(min(3, last + 1 - position))
            ]
            assert log.read_encoded(position, 3)[0] == len(records)
        except CorruptionError:
            pass
    for segment in log.damage.segments_to_scan(suspicious=False):
        scan = log.damage.begin_scan(segment)
        while not log.damage.scan_step(scan):
            pass
        log.damage.finish_scan(scan)
    with contextlib.suppress(StorageError):
        log.truncate(max(first - 1, last - 1))


@cache
def _scratch() -> Path:
    """A file of this process that is written anew for every input."""
    directory = tempfile.mkdtemp(prefix="waltz-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    return Path(directory) / "input"


def load_config(data: bytes) -> None:
    """The first byte chooses the model."""
    if not data:
        return
    path = _scratch()
    path.write_bytes(data[1:])
    models = (ServerConfig, StorageConfig, ClientConfig, CliConfig)
    try:
        with patch("socket.getfqdn", return_value="host.example"):  # it asks a name server, for seconds if need be
            load(path, models[data[0] % len(models)])
    except ConfigError as error:
        text = str(error).replace(str(path), "path")
    else:
        return
    assert "\n" not in text
    assert len(text) < 1000


def read_transfers(data: bytes) -> None:
    """Rows are transfers or rejected; a file is refused for its header only."""
    path = _scratch()
    path.write_bytes(data)
    rejected: list[object] = []
    try:
        for transfer in Transfers(path, rejected.append):
            assert isinstance(transfer, BankTransfer)
            assert transfer.amount_cents > 0
            assert decode(encode(transfer)) == transfer
    except WaltzError:
        assert not rejected


def _control_seeds() -> list[bytes]:
    content = seeds.storage_directory()["waltz-storage.ctl"]
    return [bytes([flags]) + content for flags in range(4)]


def _fence_seeds() -> list[bytes]:
    files = MemoryFiles({})
    opened = FenceFile.open(files, DIRECTORY, KEY, PARTITION_COUNT)
    opened.raise_to(0, 5)
    opened.close()
    content = bytes(files.contents[f"{DIRECTORY}/{fence.FILE_NAME}"])
    return [b"\0" + content, b"\1" + content]


def _clean_stop_seeds() -> list[bytes]:
    files = MemoryFiles({})
    info = control_file.PartitionInfo(1, 2, 3, 5, 4)
    end = LogEnd(4, 0, 300)
    clean_stop.write_clean_stop(files, DIRECTORY, KEY, {0: clean_stop.CleanPartition(info, end)})
    content = bytes(files.contents[f"{DIRECTORY}/{clean_stop.FILE_NAME}"])
    return [b"\0" + content, b"\1" + content.partition(b"\n")[0]]


def _segment_seeds() -> list[bytes]:
    directory = seeds.storage_directory()
    found = []
    for flags, mark, records in ((0, 0, 3), (1, 3, 8), (3, 9, 8), (4, 6, 6), (7, 8, 8)):
        data = directory["0/0000000000000000000.seg"]
        index = directory["0/0000000000000000000.idx"][: HEADER_SIZE_BYTES + 8 * records]
        end = HEADER_SIZE_BYTES
        for _ in range(records):
            end += RECORD_PREFIX.size + struct.unpack_from(">i", data, end + 28)[0] + 4
        found.append(bytes([flags, mark]) + end.to_bytes(2, "big") + data[:end] + index)
    return found


def _znode_seeds() -> list[bytes]:
    names = {kind.__name__: number for number, kind in enumerate(_TYPES)}
    return [bytes([names[name]]) + value for name, value in seeds.znodes() if name in names] + [b"\x08\0\0\0\1"]


def _numbered(texts: list[bytes]) -> Callable[[], list[bytes]]:
    return lambda: [bytes([number]) + text for number in range(4) for text in texts]


TARGETS = {
    "znodes": Target(decode_znode, _znode_seeds),
    "control-file": Target(open_control_file, _control_seeds, 1024),
    "fence-file": Target(open_fence, _fence_seeds, 512),
    "clean-stop": Target(take_clean_stop, _clean_stop_seeds, 1024),
    "segment": Target(open_segment, _segment_seeds, 8192),
    "config": Target(load_config, _numbered(seeds.CONFIGS), 2048),
    "transfers": Target(read_transfers, lambda: seeds.TRANSFERS, 2048),
}
