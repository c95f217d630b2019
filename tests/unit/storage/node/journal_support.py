"""A storage node with a journal and what tests ask of it."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.node.test_partition import SUCCESS, Asker
from waltz.common.metrics.registry import Registry
from waltz.common.records import Record
from waltz.common.wire import storage as wire
from waltz.storage.disk.files.files import File
from waltz.storage.node.disks import Disk
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.request_queue import PartitionRequest
from waltz.storage.node.session_rule import StorageRequest

T = TypeVar("T")

KEY = UUID(int=7)
PARTITIONS = 4
DIRECTORY = "/store"
SMALL = JournalSizes(file_size_bytes=16 << 12, max_files=3)


async def open_manager(
    files: CrashFiles,
    sizes: JournalSizes | None = SMALL,
    threshold: int = 1_000_000,
    further: Sequence[str] = (),
    registry: Registry | None = None,
) -> StorageManager:
    return await StorageManager.open(
        files,
        DIRECTORY,
        KEY,
        PARTITIONS,
        registry or Registry(),
        segment_size_threshold_bytes=threshold,
        segment_cache_capacity=2,
        journal=sizes,
        further_directories=further,
    )


def new_files() -> CrashFiles:
    files = CrashFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


class Client:
    """Speaks to the partitions of a node."""

    def __init__(self, manager: StorageManager) -> None:
        self.manager = manager
        self.asker = Asker()
        self._seq_num = 0

    def send(self, partition_id: int, kind: type, session_id: int, *rest: object, size_bytes: int = 100) -> int:
        self._seq_num += 1
        message: StorageRequest = kind(session_id, self._seq_num, partition_id, *rest)
        request = PartitionRequest(message, 0, size_bytes, self.asker)
        self.manager.partitions[partition_id].receive(request)
        return self._seq_num

    def append(self, partition_id: int, session_id: int, batch: list[Record]) -> int:
        size_bytes = sum(40 + len(each.data) for each in batch)
        return self.send(partition_id, wire.AppendRequest, session_id, batch, False, size_bytes=size_bytes)

    async def outcome(self, seq_num: int) -> object:
        answer = await self.asker.until_answered(seq_num)
        if isinstance(answer, wire.FailureResponse):
            return answer.error.message
        return SUCCESS if isinstance(answer, wire.SuccessResponse) else answer[3]


class FailingSync:
    """A file of which no sync succeeds."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.write, self.close = file.write, file.close

    def datasync(self) -> None:
        raise OSError(errno.EIO, "planted")


def break_journal(manager: StorageManager, disk: Disk | None = None) -> None:
    """The next group is written, and its sync fails; of a given disk, or of the first one."""
    journaled = (disk or manager._disks.first).journaled
    assert journaled is not None
    file = journaled.state.journal._file
    if file is not None and not isinstance(file, FailingSync):
        journaled.state.journal._file = FailingSync(file)  # type: ignore[assignment]


def lose_segment(manager: StorageManager, files: CrashFiles, partition_id: int) -> None:
    """The next sync of the partition's segment fails, and what was written since the last one is only in the cache."""
    log = manager.partitions[partition_id].log

    def fail() -> None:
        for end in ("seg", "idx"):
            files.node(f"{DIRECTORY}/{partition_id}/{0:019}.{end}").pending.clear()
        log.read_only_reason = "flush failed: planted"
        raise OSError(errno.EIO, "planted")

    log.flush = fail  # type: ignore[method-assign]


def stored(manager: StorageManager, partition_id: int) -> list[Record]:
    return manager.partitions[partition_id].log.read(0, 100_000)


def syncs(files: CrashFiles) -> int:
    return Counter(files.operations)["datasync"] + Counter(files.operations)["sync"]


class HeldFiles(CrashFiles):
    """Calls wait as long as they are held."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()
        self.waiting = 0

    async def run(self, function: Callable[[], T]) -> T:
        self.waiting += 1
        await self.free.wait()
        self.waiting -= 1
        return await super().run(function)

    async def until_waiting(self) -> None:
        async with asyncio.timeout(10):
            while not self.waiting:
                await asyncio.sleep(0)

    async def stay_waiting(self) -> None:
        """Give everybody else a chance to do what has to wait."""
        for _ in range(10):
            await asyncio.sleep(0)


class Held(NamedTuple):
    """A node of which the calls of files can be held; nothing happens in the background."""

    files: HeldFiles
    manager: StorageManager
    client: Client
