"""The archiver over a store that fails and a cluster that is simulated."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

import pytest

from tests.unit.archive.records import KEY, MemoryStore, fail, stored
from waltz.archive.chain import Place, add_object, newest_page, read_ranges
from waltz.archive.object_format import Limit, ObjectWriter, Records, SealedObject, decode_object
from waltz.archive.process.archive_metrics import ArchiveMetrics
from waltz.archive.process.archiver import Archiver
from waltz.archive.process.daemon import health
from waltz.archive.process.due import Policy
from waltz.archive.process.source import RecordSource, SourceError
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.metrics.exposition import prometheus_pieces
from waltz.common.metrics.registry import Registry

OLD_MS = 1000


class Source:
    """Delivers at most ``portion`` records at once; counts what was asked for."""

    def __init__(self, log: list[bytes], portion: int = 3) -> None:
        self.log = log
        self.portion = portion
        self.highest = -1
        self.closed = 0
        self.rejected: list[str] = []
        self.damage: bytes | None = None

    async def read(self, first: int, max_count: int) -> Records:
        pieces = self.log[first : first + min(max_count, self.portion)]
        self.highest = max(self.highest, first + len(pieces) - 1)
        if not pieces:
            raise SourceError(f"nothing at {first}")
        data = b"".join(pieces)
        if self.damage is not None:
            data = data[:-1] + bytes([data[-1] ^ 1])
        return Records(data, [*map(len, pieces)])

    async def reject(self, reason: str) -> None:
        self.rejected.append(reason)
        self.damage = None

    async def close(self) -> None:
        self.closed += 1


class Cluster:
    """Implements ``LoggedCluster``."""

    def __init__(self, logs: Mapping[int, list[bytes]]) -> None:
        self.logs = logs
        self.trim_points: dict[int, int] = {}
        self.marks = {each: len(log) - 1 for each, log in logs.items()}
        self.times: Callable[[int, int], int | None] = lambda partition_id, transaction_id: 0
        self.sources = {each: Source(log) for each, log in logs.items()}
        self.taken: set[int] = set()
        self.trouble: WaltzError | None = None

    async def committed_marks(self) -> Mapping[int, int]:
        if self.trouble is not None:
            raise self.trouble
        return self.marks

    async def commit_times(self, wanted: Mapping[int, int]) -> Mapping[int, int]:
        found = {each: self.times(each, transaction_id) for each, transaction_id in wanted.items()}
        return {each: time_ms for each, time_ms in found.items() if time_ms is not None}

    async def alone(self, partition_id: int, work: Callable[[], Awaitable[None]]) -> None:
        if partition_id in self.taken:
            raise DeadlineExceededError("another one")
        await work()

    async def trim_point(self, partition_id: int) -> int:
        return self.trim_points.get(partition_id, 0)

    async def source(self, partition_id: int) -> RecordSource:
        return self.sources[partition_id]


LIMIT = Limit(5, 10_000)


class Setting:
    def __init__(self, sizes: Mapping[int, int], limit: Limit = LIMIT) -> None:
        logs = {each: stored(0, [b"data %d" % place for place in range(count)]) for each, count in sizes.items()}
        self.cluster = Cluster(logs)
        self.store = MemoryStore()
        self.now_ms = 0
        self.registry = Registry()
        self.metrics = ArchiveMetrics(self.registry)
        self.archiver = self.make(limit)

    def make(self, limit: Limit) -> Archiver:
        return Archiver(
            self.cluster,
            self.place,
            Policy(limit, OLD_MS),
            self.metrics,
            rate_bytes=10**9,
            at_once=2,
            interval_s=5,
            wall_clock_ms=lambda: self.now_ms,
        )

    def place(self, partition_id: int) -> Place:
        return Place(self.store, KEY, partition_id)

    async def archived(self, partition_id: int) -> list[tuple[int, int]]:
        """The ranges that count; their records are compared with the log."""
        ranges = await read_ranges(self.place(partition_id))
        for each in ranges:
            data = self.store.objects[self.place(partition_id).object_path(each)]
            _, blocks = decode_object(data, KEY, partition_id, each.name, "it")
            assert b"".join(block.data for block in blocks) == b"".join(
                self.cluster.logs[partition_id][each.first : each.end]
            )
        return [(each.first, each.end) for each in ranges]


async def test_full_objects_are_archived_and_the_rest_when_it_is_old() -> None:
    setting = Setting({0: 12, 1: 3, 2: 0})
    assert await setting.archiver.round()
    assert await setting.archived(0) == [(0, 5), (5, 10)]
    assert await setting.archived(1) == []
    setting.now_ms = OLD_MS
    assert await setting.archiver.round()
    assert await setting.archived(0) == [(0, 5), (5, 10), (10, 12)]
    assert await setting.archived(1) == [(0, 3)]
    assert await setting.archived(2) == []
    assert all(source.closed for partition_id, source in setting.cluster.sources.items() if partition_id < 2)
    assert setting.metrics.objects == 4
    assert setting.metrics.bytes == sum(
        len(data) for path, data in setting.store.objects.items() if "manifest" not in path
    )


async def test_objects_end_by_size_wherever_answers_end() -> None:
    for portion in (1, 3, 50):
        setting = Setting({0: 40}, Limit(1000, 5 * 50))
        setting.cluster.sources[0].portion = portion
        setting.now_ms = OLD_MS
        assert await setting.archiver.round()
        size = len(setting.cluster.logs[0][0])
        ranges = await setting.archived(0)
        assert {end - first for first, end in ranges[:-1]} <= {250 // size, 250 // (size + 1)}
        assert ranges[-1][1] == 40


async def test_nothing_above_the_mark_is_archived() -> None:
    setting = Setting({0: 30})
    setting.cluster.marks[0] = 12
    setting.now_ms = OLD_MS
    await setting.archiver.round()
    assert await setting.archived(0) == [(0, 5), (5, 10), (10, 13)]
    assert setting.cluster.sources[0].highest == 12


async def test_records_that_do_not_fill_an_object_are_read_only_once_to_learn_their_size() -> None:
    setting = Setting({0: 3})
    await setting.archiver.round()
    assert setting.cluster.sources[0].highest == 2
    setting.cluster.sources[0].highest = -1
    await setting.archiver.round()
    assert setting.cluster.sources[0].highest == -1


async def test_killed_at_any_call_another_archiver_goes_on_without_gap() -> None:
    chance = random.Random(5)
    for _ in range(60):
        setting = Setting({0: 17})
        setting.now_ms = OLD_MS

        def perhaps(verb: str, path: str) -> None:
            if chance.random() < 0.25:
                fail(verb, path)

        setting.store.before = setting.store.after = perhaps
        for _ in range(30):
            await setting.make(LIMIT).round()  # a new process, which knows nothing
        setting.store.before = setting.store.after = lambda verb, path: None
        assert await setting.make(LIMIT).round()
        assert await setting.archived(0) == [(0, 5), (5, 10), (10, 15), (15, 17)]


async def test_many_archivers_without_any_lock_make_one_archive() -> None:
    setting = Setting({0: 33, 1: 21})
    setting.now_ms = OLD_MS
    for portion in (1, 2, 7):
        setting.cluster.sources[0].portion = portion
        await asyncio.gather(*(setting.make(Limit(portion + 2, 10_000)).round() for _ in range(4)))
    for partition_id, end in ((0, 33), (1, 21)):
        ranges = await setting.archived(partition_id)
        assert ranges[0][0] == 0
        assert ranges[-1][1] == end


async def test_a_partition_that_another_archiver_has_is_left_alone() -> None:
    setting = Setting({0: 12, 1: 12})
    setting.cluster.taken = {0}
    assert await setting.archiver.round()
    assert await setting.archived(0) == []
    assert await setting.archived(1) == [(0, 5), (5, 10)]
    other = await add_object(
        setting.place(0), await newest_page(setting.place(0)), _sealed(setting, 0, 0, 9), None, None
    )
    assert other.end == 9
    setting.cluster.taken = set()
    setting.now_ms = OLD_MS
    await setting.archiver.round()
    assert await setting.archived(0) == [(0, 9), (9, 12)]


def _sealed(setting: Setting, partition_id: int, first: int, end: int) -> SealedObject:
    writer = ObjectWriter(KEY, partition_id, first)
    pieces = setting.cluster.logs[partition_id][first:end]
    writer.add(b"".join(pieces), [*map(len, pieces)])
    return writer.finish()


async def test_a_store_that_is_away_is_told_once_and_resumed(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting({0: 12})
    setting.store.before = fail
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert not await setting.archiver.round()
    assert len(caplog.records) == 1
    assert "away" in caplog.text
    assert setting.metrics.store_failures == 5
    healthy, _ = health(setting.archiver, setting.metrics)
    assert not healthy
    setting.store.before = lambda verb, path: None
    assert await setting.archiver.round()
    assert await setting.archived(0) == [(0, 5), (5, 10)]
    assert health(setting.archiver, setting.metrics)[0]


async def test_a_cluster_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting({0: 12})
    setting.cluster.trouble = WaltzError("no ZooKeeper")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert not await setting.archiver.round()
    assert len(caplog.records) == 1
    assert not setting.metrics.is_cluster_available
    setting.cluster.trouble = None
    assert await setting.archiver.round()
    assert setting.metrics.is_cluster_available


async def test_damaged_records_are_read_elsewhere() -> None:
    setting = Setting({0: 12})
    setting.cluster.sources[0].damage = b"x"
    assert await setting.archiver.round()
    assert len(setting.cluster.sources[0].rejected) == 1
    assert await setting.archived(0) == [(0, 5), (5, 10)]


async def test_an_archive_that_would_have_a_gap_is_told_once_and_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setting = Setting({0: 12, 1: 12})
    setting.cluster.trim_points[0] = 7
    for _ in range(3):
        assert await setting.archiver.round(), "store and cluster are well"
    assert await setting.archived(0) == []
    assert await setting.archived(1) == [(0, 5), (5, 10)]
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line == (
        "partition 0 cannot be archived: its transactions 0 to 6 are trimmed and in no archive, and an archive has no "
        "gap. Only a log that is whole can be archived: let the application go on in a fresh partition, or do without"
    )
    is_healthy, body = health(setting.archiver, setting.metrics)
    assert not is_healthy
    assert isinstance(body, dict)
    assert body["archive-health-check"]["trimmed"] == {"0": line}


async def test_an_archive_that_has_all_before_the_trim_point_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting({0: 8})
    await setting.archiver.round()
    assert await setting.archived(0) == [(0, 5)]
    setting.cluster.logs[0].extend(stored(8, [b"x"] * 8))
    setting.cluster.marks[0] = 15
    setting.cluster.trim_points[0] = 5
    await setting.archiver.round()
    assert await setting.archived(0) == [(0, 5), (5, 10), (10, 15)]
    setting.cluster.logs[0].extend(stored(16, [b"x"] * 8))
    setting.cluster.marks[0] = 23
    setting.cluster.trim_points[0] = 18
    await setting.archiver.round()
    assert await setting.archived(0) == [(0, 5), (5, 10), (10, 15)]
    assert "transactions 15 to 17 are trimmed" in caplog.text
    assert "What it has, up to 14, stays readable." in caplog.text


async def test_a_damaged_manifest_stops_its_partition_only(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting({0: 12, 1: 12})
    path = setting.place(0).entry_path(0)
    setting.store.objects[path] = b"waltz-archive 1 nonsense"
    for _ in range(3):
        assert await setting.archiver.round()
    assert await setting.archived(1) == [(0, 5), (5, 10)]
    assert caplog.text.count("is not archived until its archive is repaired") == 1
    healthy, body = health(setting.archiver, setting.metrics)
    assert not healthy
    assert "damaged" in str(body)
    del setting.store.objects[path]
    await setting.archiver.round()
    assert await setting.archived(0) == [(0, 5), (5, 10)]
    assert health(setting.archiver, setting.metrics)[0]


async def test_times_of_objects_are_upper_bounds() -> None:
    setting = Setting({0: 10, 1: 5})
    setting.now_ms = 900
    setting.cluster.times = lambda partition_id, transaction_id: (
        None if partition_id == 1 or transaction_id == 9 else 100 + transaction_id
    )
    await setting.archiver.round()
    found = await read_ranges(setting.place(0))
    assert [(each.first_time_ms, each.last_time_ms) for each in found] == [(100, 104), (105, 900)]
    (untold,) = await read_ranges(setting.place(1))
    assert (untold.first_time_ms, untold.last_time_ms) == (None, None)


async def test_lag_is_shown_in_transactions_bytes_and_seconds() -> None:
    setting = Setting({0: 12, 1: 4})
    await setting.archiver.round()
    setting.now_ms = 900
    setting.cluster.times = lambda partition_id, transaction_id: 400 if partition_id == 0 else None
    await setting.archiver.round()
    text = "".join(prometheus_pieces(setting.registry))
    assert 'waltz_archive_lag_transactions{partition="0"} 2' in text
    assert 'waltz_archive_lag_seconds{partition="0"} 0.5' in text
    assert 'waltz_archive_lag_seconds{partition="1"} 0.9' in text
    size = setting.metrics.backlogs[0].size_bytes
    assert abs(size - 2 * len(setting.cluster.logs[0][0])) < 3
    assert "waltz_archive_objects_total 2" in text


@pytest.mark.virtual_time
async def test_it_runs_with_pauses_at_the_rate_that_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting({0: 10})
    total = sum(map(len, setting.cluster.logs[0]))
    setting.archiver._rate_bytes = total // 4
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await setting.archiver.round()
    assert 4 <= loop.time() - began_s < 6
    running = asyncio.create_task(setting.archiver.run())
    setting.store.before = fail
    setting.cluster.logs[0].extend(stored(10, [b"x"] * 10))
    setting.cluster.marks[0] = 19
    await asyncio.sleep(300)
    assert 5 < setting.metrics.store_failures < 20
    setting.store.before = lambda verb, path: None
    await asyncio.sleep(100)
    assert (await setting.archived(0))[-1] == (15, 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
