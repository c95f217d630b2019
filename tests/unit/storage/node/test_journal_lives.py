"""A node with a journal dies again and again: what it has acknowledged is there at the next start."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.storage.crash_files import CrashNow, Directory
from tests.unit.storage.node.journal_support import (
    DIRECTORY,
    KEY,
    PARTITIONS,
    SMALL,
    Client,
    break_journal,
    new_files,
    open_manager,
    stored,
)
from tests.unit.storage.node_support import record
from waltz.common.records import Record
from waltz.common.wire import storage as wire
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.draining import drain
from waltz.storage.node import checkpoints
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.manager import StorageManager

DISKS = ["/one"]
"""So each disk has two partitions, which share turns."""
THRESHOLD = 3000
"""Of segments: several of them are begun, and removed by truncations."""

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("frequent_checkpoints")]


class Model:
    """One partition as a server knows it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.after: list[Record] | None = None
        """The records, should the request in flight have been carried out."""
        self.session_id = 1
        self.mark = -1
        self.acknowledged_mark = -1
        self.acknowledged_session_id = -1
        self.seq_num: int | None = None
        self.kind = ""

    def check(self, found: list[Record], info: object, seed: int) -> None:
        whole = self.records if self.after is None else self.after
        shorter, longer = sorted((self.records, whole), key=len)
        told = (seed, self.kind, len(found), len(self.records), len(whole))
        assert found[: len(shorter)] == shorter, told
        assert found == longer[: len(found)], told  # neither an append nor a truncation is one step of the disk
        self.records, self.after, self.seq_num = found, None, None


class Life:
    """Requests to a node that dies again and again."""

    def __init__(self, seed: int, *, journal_fails: bool = False, further: Sequence[str] = ()) -> None:
        self.seed = seed
        self.journal_fails = journal_fails
        self.further = further
        self.choices = random.Random(seed)
        self.files = new_files()
        self.disks = {path: Directory() for path in further}
        self.mount(further)
        self.models = [Model() for _ in range(PARTITIONS)]
        self.dead = False
        self.left = 0
        self.written = 0
        self.rounds = 3000

    def on_operation(self, operation: str) -> None:
        self.left -= 1
        if self.left <= 0:
            self.dead = True
            raise CrashNow

    def mount(self, paths: Sequence[str]) -> None:
        """Have these further disks, and an empty directory in place of each other one."""
        for path, disk in self.disks.items():
            mounted = disk if path in paths else Directory()
            self.files.root.names[path[1:]] = self.files.root.durable[path[1:]] = mounted

    async def open(self, sizes: JournalSizes | None, threshold: int) -> StorageManager:
        """A node with the partitions that are not on a disk that is missing."""
        manager = await open_manager(self.files, sizes, threshold, self.further)
        await manager.assign(self.there(manager))
        return manager

    def there(self, manager: StorageManager) -> list[int]:
        return [each for each in range(PARTITIONS) if manager._directory.volumes.absence(each) is None]

    async def live(self) -> None:
        """Die four times, anywhere."""
        choices = self.choices
        threshold = choices.choice([3000, 1_000_000])
        for number in range(4):
            left = choices.randint(1, 900)
            sizes = SMALL if choices.random() < 0.8 else None
            if number and self.further and choices.random() < 0.3:  # a disk is missing for a life
                self.mount(())
            await self.one_life(sizes, threshold, left)
            self.mount(self.further)
            if choices.random() < 0.1 and self.is_guarded():
                drain(self.files, DIRECTORY)
                assert not self.is_guarded(), self.seed
            await self.check(SMALL if choices.random() < 0.8 else None, threshold)

    async def one_life(self, sizes: JournalSizes | None, threshold: int, left: int) -> None:
        """A node starts, and dies after this number of calls of files, unless it stops in order before."""
        files, choices = self.files, self.choices
        self.dead, self.left = False, left
        files.on_operation = self.on_operation
        try:
            await self.until_death(sizes, threshold)
        except CrashNow:
            pass
        except BaseExceptionGroup:
            assert self.dead
        files.on_operation = None
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        files.crash(choices)

    def is_guarded(self) -> bool:
        control_file = ControlFile.open(self.files, DIRECTORY, KEY, PARTITIONS)
        control_file.close()
        return control_file.guarded

    async def check(self, sizes: JournalSizes | None, threshold: int) -> None:
        manager = await self.open(sizes, threshold)
        assert manager.out_of_service() == {}, self.seed
        assert len(manager.partitions) == PARTITIONS, self.seed
        for partition_id, model in enumerate(self.models):
            info = manager.last_session_info(partition_id)
            assert info.low_water_mark >= model.acknowledged_mark, self.seed
            assert manager.partitions[partition_id]._session_id >= model.acknowledged_session_id, self.seed
            model.mark = model.acknowledged_mark = info.low_water_mark
            model.session_id = max(model.session_id, manager.partitions[partition_id]._session_id)
            model.check(stored(manager, partition_id), info, self.seed)
        await manager.close()
        assert not self.is_guarded(), self.seed

    async def until_death(self, sizes: JournalSizes | None, threshold: int) -> None:
        manager = await self.open(sizes, threshold)
        there = self.there(manager)
        client = Client(manager)
        for _ in range(self.rounds):
            if self.dead:
                return
            for partition_id, model in enumerate(self.models):
                if model.seq_num is not None and model.seq_num in client.asker.answers:
                    self.answered(model, client.asker.answers[model.seq_num])
                if model.seq_num is None and partition_id in there and self.choices.random() < 0.3:
                    self.begin(client, partition_id, model)
            if self.journal_fails and sizes is not None and self.choices.random() < 0.03:
                break_journal(manager, self.choices.choice(list(manager._disks._disks.values())))
            await asyncio.sleep(0 if self.choices.random() < 0.9 else 0.002)
        while self.rounds and not self.dead and any(model.seq_num is not None for model in self.models):
            for model in self.models:
                if model.seq_num is not None and model.seq_num in client.asker.answers:
                    self.answered(model, client.asker.answers[model.seq_num])
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(manager.close())
        while not (self.dead or closing.done()):  # who dies in a task leaves waiting who waits for it
            await asyncio.sleep(0)
        if closing.done():
            closing.result()

    def answered(self, model: Model, answer: wire.Message) -> None:
        model.seq_num = None
        if isinstance(answer, wire.FailureResponse):
            assert self.dead, (self.seed, answer)
            return
        if model.kind == "mark":
            model.acknowledged_mark = model.mark
        model.acknowledged_session_id = model.session_id
        model.records = model.records if model.after is None else model.after
        model.after = None

    def begin(self, client: Client, partition_id: int, model: Model) -> None:
        choice = self.choices.random()
        if choice < 0.1:
            model.session_id += 1
        if choice < 0.8:
            model.kind = "append"
            count = self.choices.choice([1, 1, 2, 5])
            batch = []
            for at in range(count):
                self.written += 1
                data = self.written.to_bytes(4, "big") * self.choices.choice([1, 30, 200])
                batch.append(record(len(model.records) + at, data))
            model.after = [*model.records, *batch]
            model.seq_num = client.append(partition_id, model.session_id, batch)
        elif choice < 0.9:
            model.kind = "mark"
            model.mark = len(model.records) - 1
            mark = (model.mark, False)
            model.seq_num = client.send(partition_id, wire.SetLowWaterMarkRequest, model.session_id, *mark)
        else:
            model.kind = "truncate"
            last = self.choices.randint(min(max(model.mark, -1), len(model.records) - 1), len(model.records) - 1)
            model.after = model.records[: last + 1]
            model.seq_num = client.send(partition_id, wire.TruncateRequest, model.session_id, last, False)


def some_of(count: int, *, by_day: int) -> list[Any]:
    """Seeds, of which most are left to the long tests."""
    return [*range(by_day), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(by_day, count))]


@pytest.mark.parametrize("seed", some_of(30, by_day=8))
async def test_nothing_acknowledged_is_lost_by_any_crash(seed: int) -> None:
    await Life(seed).live()


@pytest.mark.parametrize("seed", some_of(10, by_day=3))
async def test_nothing_acknowledged_is_lost_when_journals_fail(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(checkpoints, "RENEWALS_S", (0.0,) * 1000)
    await Life(1000 + seed, journal_fails=True).live()


@pytest.mark.parametrize("seed", range(20))
async def test_nothing_acknowledged_is_lost_on_several_disks(seed: int) -> None:
    await Life(2000 + seed, further=DISKS).live()


@pytest.mark.parametrize("seed", range(10))
async def test_nothing_acknowledged_is_lost_when_one_of_several_journals_fails(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(checkpoints, "RENEWALS_S", (0.0,) * 1000)
    await Life(3000 + seed, journal_fails=True, further=DISKS).live()


@pytest.mark.deep
async def test_a_crash_at_any_call_of_a_file_loses_nothing_on_several_disks() -> None:
    """From the start of a node to the end of its stop in order."""
    for left in itertools.count(1):
        life = Life(4000, further=DISKS)
        life.rounds = 60
        await life.one_life(SMALL, THRESHOLD, left)
        stopped = not life.dead
        assert not stopped or not life.is_guarded()
        await life.check(SMALL if left % 2 else None, THRESHOLD)
        if stopped:
            break


@pytest.mark.deep
@pytest.mark.parametrize("sizes", [SMALL, None], ids=["journal", "no journal"])
async def test_a_crash_at_any_call_of_a_file_of_a_start_loses_nothing_on_several_disks(
    sizes: JournalSizes | None,
) -> None:
    """A node has died; the next one dies at each place of its start, and of its stop without any request."""
    for left in itertools.count(1):
        life = Life(4001, further=DISKS)
        await life.one_life(SMALL, THRESHOLD, 300)
        assert life.dead
        assert life.is_guarded()
        life.rounds = 0
        await life.one_life(sizes, THRESHOLD, left)
        stopped = not life.dead
        assert not stopped or not life.is_guarded()
        await life.check(SMALL if left % 2 else None, THRESHOLD)
        if stopped:
            break
