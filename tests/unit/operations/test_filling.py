"""A new replica is filled with what is committed, from real nodes, while the partition grows."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.unit.operations.test_repair import LOG, Cluster, cluster, storage_name
from tests.unit.storage.node_support import ROOT, TIMEOUT_S, records
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.records import RECORD_OVERHEAD_BYTES, Record
from waltz.common.wire.storage_times import CommitTime
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.trim_points import raise_trim_point
from waltz.common.zk.znodes import ReplicaAssignments
from waltz.operations import filling
from waltz.operations.filling import FillOptions, ReplicaFilling
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.errors import RemoteStorageError

FAST = 1_000_000_000


class Filled:
    """Three nodes, of which the first holds nothing and is to be filled."""

    def __init__(self, made: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = made
        self.marks: Iterator[int] = iter([39])
        self.asked = 0
        self.advanced = 0
        self.before_mark: Callable[[], object] = lambda: None
        monkeypatch.setattr(filling, "read_committed_marks", self._marks)

    async def _marks(self, *_: object, **__: object) -> dict[int, int]:
        self.asked += 1
        self.before_mark()
        return {0: next(self.marks)}

    @contextmanager
    def progress(self, _what: str, _total: int, _unit: str) -> Iterator[Callable[[int], object]]:
        def advance(count: int) -> None:
            self.advanced += count

        yield advance

    async def fill(self, bytes_per_s: int = FAST, preferred: int = 1) -> None:
        zookeeper = await self.made.server.connect()
        new, *others = (storage_name(node) for node in self.made.nodes)
        assignments = ReplicaAssignments({new: (), **dict.fromkeys(others, (0,))})
        await zookeeper.set(f"{ROOT}/store/assignment", assignments.encode())
        options = FillOptions(bytes_per_s, TIMEOUT_S, storage_name(self.made.nodes[preferred]))
        report = self.made.lines.append
        try:
            await ReplicaFilling(ClusterHandle(zookeeper, ROOT, None), 0, new, options, report, self.progress).run()
        finally:
            await zookeeper.close()

    async def held(self) -> list[Record]:
        """What the new replica has, which must be certain there, and online."""
        admin = await self.made.nodes[0].admin()
        assert (await admin.assigned_partition_status())[0]
        found = await admin.records(0, 0, 1000)
        assert (await admin.last_session_info(0)).low_water_mark == len(found) - 1
        return found


@asynccontextmanager
async def filled(directory: Path, monkeypatch: pytest.MonkeyPatch, *, emptied: bool = True) -> AsyncIterator[Filled]:
    async with cluster(directory, lambda _directory: None) as made:
        await made.describe(members=(1, 2))
        if emptied:
            await (await made.nodes[0].admin()).set_assigned([0], False, delete_files=True)
        yield Filled(made, monkeypatch)


async def test_all_that_is_committed_is_copied_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        made.marks = iter([25])
        await made.fill()
        assert await made.held() == LOG[:26]
        assert made.advanced == 26
        made.marks = iter([39])
        await made.fill()  # once more: it goes on
        assert await made.held() == LOG
        assert made.advanced == 40
        assert made.made.lines[-1].startswith("partition 0: copying transactions 26 to 39 from ")


async def test_what_comes_meanwhile_is_copied_until_a_round_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        monkeypatch.setattr(filling, "SHORT_ROUND_S", 0.0)

        def be_content() -> None:
            if made.asked == 3:
                monkeypatch.setattr(filling, "SHORT_ROUND_S", TIMEOUT_S)

        made.before_mark = be_content
        made.marks = iter([9, 14, 18])
        await made.fill()
        assert made.asked == 3
        assert await made.held() == LOG[:19]


async def test_it_is_no_faster_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        monkeypatch.setattr(filling, "SHORT_ROUND_S", TIMEOUT_S)
        size_bytes = sum(RECORD_OVERHEAD_BYTES + len(each.data) for each in LOG)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await made.fill(bytes_per_s=4000)
        assert loop.time() - began_s >= size_bytes / 4000
        assert await made.held() == LOG


async def test_a_partition_that_grows_faster_than_it_is_copied_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        monkeypatch.setattr(filling, "SHORT_ROUND_S", 0.0)
        made.marks = iter([4, 9, 14, 19, 24, 29])
        with pytest.raises(WaltzError, match="grows faster than it is copied, 5 transactions are missing: .* --rate"):
            await made.fill()
        assert made.asked == 4
        made.marks = iter([39])
        monkeypatch.setattr(filling, "SHORT_ROUND_S", TIMEOUT_S)
        await made.fill()
        assert await made.held() == LOG


async def test_a_source_that_fails_is_left_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        await (await made.made.nodes[2].client()).truncate(1, 0, 9, timeout_s=TIMEOUT_S)
        await made.fill(preferred=2)
        assert await made.held() == LOG
        names = [line.rpartition(" ")[2] for line in made.made.lines]
        assert names == [storage_name(made.made.nodes[each]) for each in (2, 1)]
        made.marks = iter([40])
        with pytest.raises(WaltzError, match="no replica of partition 0 gives transaction 40: .*; .*"):
            await made.fill()


async def test_a_near_source_comes_before_the_preferred_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        zookeeper = await made.made.server.connect()
        for node, datacenter in ((0, "a"), (1, "b"), (2, "a")):
            path = ClusterPaths.of(ROOT).storage_labels(storage_name(made.made.nodes[node]))
            await zookeeper.create(path, json.dumps({"datacenter": datacenter}).encode(), make_path=True)
        await zookeeper.close()
        await made.fill(preferred=1)
        assert await made.held() == LOG
        names = [line.rpartition(" ")[2] for line in made.made.lines]
        assert names == [storage_name(made.made.nodes[2])]


async def test_above_the_low_water_mark_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled(tmp_path, monkeypatch, emptied=False) as made:  # its mark is 19
        client = await made.made.nodes[0].client()
        await client.truncate(1, 0, 24, timeout_s=TIMEOUT_S)
        await client.append(1, 0, records(25, 3, b"of nobody"), timeout_s=TIMEOUT_S)
        await made.fill()
        assert await made.held() == LOG
        assert made.advanced == 20


async def test_another_log_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        admin = await made.made.nodes[0].admin()
        await admin.set_assigned([0], True)
        client = await made.made.nodes[0].client()
        await client.append(1, 0, records(0, 10, b"of another"), timeout_s=TIMEOUT_S)
        await client.set_low_water_mark(1, 0, 9, timeout_s=TIMEOUT_S)
        with pytest.raises(WaltzError, match="has another transaction 9 of partition 0 than the replicas: delete"):
            await made.fill()
        made.marks = iter([5])
        with pytest.raises(WaltzError, match="up to 9, 4 more than are committed: delete them"):
            await made.fill()
        assert not (await admin.assigned_partition_status())[0]


def known_times(made: Cluster, number: int) -> list[tuple[int, int]]:
    times = made.nodes[number].node.manager.partitions[0].log.times
    return [(entry.transaction_id, entry.time_ms) for entry in times.entries(0, 1000)]


async def test_times_are_copied_with_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from where an earlier run has ended; the last one is as late as it may have been."""
    times = [(4, 400), (11, 1100), (20, 2000), (39, 3900)]
    async with filled(tmp_path, monkeypatch) as made:
        for number in (1, 2):
            made.made.nodes[number].node.manager.partitions[0].log.times.enter(times)
        made.marks = iter([15])
        await made.fill()
        assert known_times(made.made, 0) == [*times[:2], (15, 2000)]
        made.marks = iter([39])
        await made.fill()
        assert known_times(made.made, 0) == [*times[:2], (15, 2000), *times[2:]]
        assert not any("times" in line for line in made.made.lines)


async def test_a_replica_is_filled_although_its_times_cannot_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        made.made.nodes[1].node.manager.partitions[0].log.times.enter([(4, 400)])

        async def times(*_: object, **__: object) -> list[CommitTime]:
            raise RemoteStorageError("busy")

        monkeypatch.setattr(StorageClient, "times", times)
        made.marks = iter([39])
        await made.fill()
        assert await made.held() == LOG
        assert known_times(made.made, 0) == []
        assert "the times of its transactions were not copied: " in made.made.lines[-1]
        assert "busy" in made.made.lines[-1]


async def test_a_replica_of_a_trimmed_partition_begins_at_the_trim_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        zookeeper = await made.made.server.connect()
        await raise_trim_point(zookeeper, ROOT, 0, 30)
        await zookeeper.close()
        await made.fill()
        admin = await made.made.nodes[0].admin()
        assert await admin.records(0, 0, 1000) == []
        assert await admin.records(0, 30, 1000) == LOG[30:]
        assert (await admin.last_session_info(0)).low_water_mark == 39
        assert made.made.lines[-1].startswith("partition 0: copying transactions 30 to 39 from ")
        made.marks = iter([39])
        await made.fill()  # once more: nothing is missing
        assert await admin.records(0, 30, 1000) == LOG[30:]


async def test_a_node_that_cannot_begin_there_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled(tmp_path, monkeypatch) as made:
        zookeeper = await made.made.server.connect()
        await raise_trim_point(zookeeper, ROOT, 0, 30)
        await zookeeper.close()
        monkeypatch.setattr(StorageClient, "trims", False)
        with pytest.raises(WaltzError, match="partition 0 is trimmed before 30, and .* cannot begin there"):
            await made.fill()
