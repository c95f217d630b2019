"""The sink's promise, under crashes at every step, runs that do not know of each other, and late appends."""

import asyncio
import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.spark.model_log import FOREIGN_CLIENT, Crash, ModelCluster, ModelLog
from waltz.client.locks import PartitionLocalLock
from waltz.spark import exactly_once, staging
from waltz.spark.errors import SinkError, SinkFencedError
from waltz.spark.exactly_once import Contents, EpochAppender, Guard, locks_of, whole
from waltz.spark.rows import Row
from waltz.spark.staging import Manifest, StagedFile, StagingArea, partitions_of

APP = "app"
PARTITIONS = 2


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "_FIRST_DELAY_S", 1e-6)
    monkeypatch.setattr(exactly_once, "_LONGEST_DELAY_S", 1e-6)
    monkeypatch.setattr(exactly_once, "SLICE_ROWS", 3)
    monkeypatch.setattr(staging, "_sync", lambda path: None)


def stage(area: StagingArea, rows: list[tuple[int, Row]]) -> list[StagedFile]:
    """Two tasks' files."""
    files = []
    for part in (rows[::2], rows[1::2]):
        stager = area.writer()
        for partition_id, row in part:
            stager.add(partition_id, row)
        file = stager.finish()
        if file is not None:
            files.append(file)
    return files


def make_rows(count: int, label: bytes = b"") -> list[tuple[int, Row]]:
    """Every third row equals another one."""
    return [(index % PARTITIONS, Row(index // 3 % 5, b"%s%d" % (label, index // 3))) for index in range(count)]


def appender(
    area: StagingArea, log: ModelLog, epoch: int = 0, timeout_s: float = 30.0, contents: Contents | None = None
) -> EpochAppender:
    """By default of a query that is known to be the same."""
    return EpochAppender(area, APP, epoch, log, timeout_s=timeout_s, jitter=random.Random(0), contents=contents)


def in_log(cluster: ModelCluster) -> list[Counter[Row]]:
    return [partition.rows_of_sinks() for partition in cluster.partitions]


def wanted(rows: list[tuple[int, Row]]) -> list[Counter[Row]]:
    return [Counter(row for partition_id, row in rows if partition_id == wanted) for wanted in range(PARTITIONS)]


async def test_an_epoch_without_trouble_looks_at_nothing(tmp_path: Path) -> None:
    cluster, area = ModelCluster(PARTITIONS, random.Random(0)), StagingArea(str(tmp_path), APP)
    log = ModelLog(cluster, 1)
    rows = make_rows(20)
    await appender(area, log).run(stage(area, rows))
    assert in_log(cluster) == wanted(rows)
    assert log.searched == 0
    assert area.is_done(0)


async def test_rows_of_a_partition_keep_their_order(tmp_path: Path) -> None:
    cluster, area = ModelCluster(1, random.Random(0)), StagingArea(str(tmp_path), APP)
    rows = [(0, Row(0, b"%d" % index)) for index in range(50)]
    stager = area.writer()
    for partition_id, row in rows:
        stager.add(partition_id, row)
    file = stager.finish()
    assert file is not None
    await appender(area, ModelLog(cluster, 1)).run([file])
    assert [row for _, row in cluster.partitions[0].log] == [row for _, row in rows]


async def test_an_epoch_without_rows(tmp_path: Path) -> None:
    area = StagingArea(str(tmp_path), APP)
    await appender(area, ModelLog(ModelCluster(1, random.Random(0)), 1)).run([])
    assert area.is_done(0)


async def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    cluster, area = ModelCluster(PARTITIONS, random.Random(0)), StagingArea(str(tmp_path), APP)
    for epoch in range(3):
        await appender(area, ModelLog(cluster, epoch), epoch).run(stage(area, make_rows(6, b"%d-" % epoch)))
    before = in_log(cluster)
    for epoch in range(3):
        log = ModelLog(cluster, 7)
        await appender(area, log, epoch).run(stage(area, make_rows(9, b"other")))
        assert log.searched == 0
    assert in_log(cluster) == before
    root = tmp_path / APP
    assert [path.name for path in (root / "epochs").iterdir()] == ["2"]
    assert [path.name for path in (root / "done").iterdir()] == ["2"]
    assert len(list((root / "rows").iterdir())) == 2


async def test_what_is_passed_over_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster, area = ModelCluster(PARTITIONS, random.Random(0)), StagingArea(str(tmp_path), APP)
    for _ in range(2):
        await appender(area, ModelLog(cluster, 1)).run(stage(area, make_rows(6)))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "epoch 0 was already completed; its rows are not appended again")
    ]


async def test_the_epochs_of_a_query_that_began_anew_are_not_lost_silently(tmp_path: Path) -> None:
    """Its checkpoint was thrown away, and its name was kept. It may be a query that is not known to be another one."""
    cluster, area = ModelCluster(PARTITIONS, random.Random(0)), StagingArea(str(tmp_path), APP)
    for epoch in range(3):
        await appender(area, ModelLog(cluster, epoch), epoch).run(stage(area, make_rows(6, b"old %d" % epoch)))
    before = in_log(cluster)
    for epoch in range(3):
        files = stage(area, make_rows(6, b"new %d" % epoch))
        with pytest.raises(SinkError, match=f"epoch {epoch} was completed before, .* needs another txnAppId"):
            await appender(area, ModelLog(cluster, 7), epoch, contents=whole).run(files)
    await appender(area, ModelLog(cluster, 8), 1, contents=whole).run([])
    again = make_rows(6, b"old 2")
    await appender(area, ModelLog(cluster, 9), 2, contents=whole).run(stage(area, again[::-1]))
    assert in_log(cluster) == before


@pytest.mark.parametrize("steps", range(40))
async def test_a_crash_at_any_step_is_repaired_by_another_run(tmp_path: Path, steps: int) -> None:
    """The second run has staged other rows, as a query without a fixed order may; those of the first are appended."""
    cluster, area = ModelCluster(PARTITIONS, random.Random(steps)), StagingArea(str(tmp_path), APP)
    first, second = make_rows(12), make_rows(15, b"second")
    with contextlib.suppress(Crash):
        await appender(area, ModelLog(cluster, 1, steps)).run(stage(area, first))
    settled = area.manifest(0) is not None
    await appender(area, ModelLog(cluster, 2)).run(stage(area, second))
    assert in_log(cluster) == wanted(first if settled else second)


async def test_a_replay_searches_from_the_mark_of_the_manifest(tmp_path: Path) -> None:
    cluster, area = ModelCluster(1, random.Random(0)), StagingArea(str(tmp_path), APP)
    for _ in range(1000):
        cluster.partitions[0].admit(7, Row(0, b"before"), None)
    rows = [(0, Row(0, b"%d" % index)) for index in range(10)]
    with pytest.raises(Crash):
        await appender(area, ModelLog(cluster, 1, 15)).run(stage(area, rows))
    appended = len(cluster.partitions[0].log) - 1000
    assert 0 < appended < 10
    log = ModelLog(cluster, 2)
    await appender(area, log).run([])
    assert log.searched == appended
    assert len(cluster.partitions[0].log) == 1010


async def test_a_run_that_was_replaced_stops(tmp_path: Path) -> None:
    cluster, area = ModelCluster(1, random.Random(0)), StagingArea(str(tmp_path), APP)
    rows = [(0, Row(0, b"%d" % index)) for index in range(10)]
    slow = ModelLog(cluster, 1)
    task = asyncio.create_task(appender(area, slow).run(stage(area, rows)))
    while len(cluster.partitions[0].log) < 3:
        await asyncio.sleep(0)
    slow.gate.clear()
    await appender(area, ModelLog(cluster, 2)).run([])
    slow.gate.set()
    with pytest.raises(SinkFencedError, match="another run of this query"):
        await task
    assert in_log(cluster)[0] == Counter(row for _, row in rows)


class Scripted(ModelLog):
    """Does something before it tells a mark for the n-th time, and may tell another one."""

    def __init__(self, cluster: ModelCluster, client_id: int, script: dict[int, Callable[[], Awaitable[int | None]]]):
        super().__init__(cluster, client_id)
        self._script = script
        self._asked = 0

    async def high_water_mark(self, partition_id: int) -> int:
        self._asked += 1
        if self._asked in self._script:
            mark = await self._script[self._asked]()
            if mark is not None:
                return mark
        return await super().high_water_mark(partition_id)


def propose(area: StagingArea, rows: list[tuple[int, Row]]) -> None:
    """Settle the manifest of epoch 0 on an empty log."""
    files = stage(area, rows)
    assert area.propose(0, Manifest(tuple(files), dict.fromkeys(partitions_of(files), -1)))


async def test_a_claim_comes_after_the_mark(tmp_path: Path) -> None:
    """Else a run that claimed between would have appended below the mark without being known."""
    cluster, area = ModelCluster(1, random.Random(0)), StagingArea(str(tmp_path), APP)
    rows = [(0, Row(0, b"%d" % index)) for index in range(4)]
    propose(area, rows)

    async def other_run() -> None:
        with pytest.raises(Crash):
            await appender(area, ModelLog(cluster, 2, 11)).run([])
        assert cluster.partitions[0].log

    await appender(area, Scripted(cluster, 1, {1: other_run})).run([])
    assert in_log(cluster)[0] == Counter(row for _, row in rows)


async def test_another_claim_comes_after_another_mark(tmp_path: Path) -> None:
    cluster, area = ModelCluster(1, random.Random(0)), StagingArea(str(tmp_path), APP)
    rows = [(0, Row(0, b"%d" % index)) for index in range(4)]
    propose(area, rows)

    async def refuse() -> int:
        cluster.partitions[0].admit(7, Row(0, b"foreign"), None)
        cluster.partitions[0].table.reset(0)
        return -1

    async def other_run() -> None:
        await appender(area, ModelLog(cluster, 2)).run([])

    with pytest.raises(SinkFencedError):
        await appender(area, Scripted(cluster, 1, {1: refuse, 2: other_run})).run([])
    assert in_log(cluster)[0] == Counter(row for _, row in rows) + Counter([Row(0, b"foreign")])


async def test_a_mark_that_is_older_than_what_was_seen_counts_nothing_twice(tmp_path: Path) -> None:
    """A server that was replaced may not know it yet."""
    cluster, area = ModelCluster(1, random.Random(0)), StagingArea(str(tmp_path), APP)
    rows = [(0, Row(0, b"same")) for _ in range(6)]
    propose(area, rows)
    with pytest.raises(Crash):
        await appender(area, ModelLog(cluster, 2, 15)).run([])
    assert 0 < len(cluster.partitions[0].log) < 6

    async def reset() -> int:
        mark = len(cluster.partitions[0].log) - 1
        cluster.partitions[0].admit(FOREIGN_CLIENT, Row(0, b"foreign"), None)
        cluster.partitions[0].table.reset(mark + 1)
        return mark

    async def stale() -> int:
        return 0

    await appender(area, Scripted(cluster, 1, {1: reset, 2: stale})).run([])
    assert in_log(cluster)[0] == Counter(row for _, row in rows)


async def test_nothing_goes_on_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, area = ModelCluster(PARTITIONS, random.Random(0)), StagingArea(str(tmp_path), APP)
    cluster.trouble = 1.0
    monkeypatch.setattr(cluster, "happen", lambda: None)
    with pytest.raises(SinkError, match="nothing was appended for 0.05 s: got lost"):
        await appender(area, ModelLog(cluster, 1), timeout_s=0.05).run(stage(area, make_rows(4)))


class Slow(ModelLog):
    """Each row takes a second by the clock of the loop; at the end of the epoch a new server comes."""

    def __init__(self, cluster: ModelCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(cluster, 1)
        loop = asyncio.get_running_loop()
        time = loop.time
        self._late_s = 0.0
        self._reset = False
        monkeypatch.setattr(loop, "time", lambda: time() + self._late_s)

    async def append(self, partition_id: int, rows: Sequence[Row], guard: Guard | None) -> int:
        partition = self.cluster.partitions[partition_id]
        self._late_s += len(rows)
        if len(partition.log) > 90 and not self._reset:
            self._reset = True
            partition.admit(FOREIGN_CLIENT, Row(0, b"foreign"), None)
            partition.table.reset(len(partition.log) - 1)
        return await super().append(partition_id, rows, guard)


async def test_an_epoch_may_take_as_long_as_it_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, area = ModelCluster(1, random.Random(0)), StagingArea(str(tmp_path), APP)
    rows = [(0, Row(0, b"%d" % index)) for index in range(100)]
    log = Slow(cluster, monkeypatch)
    await appender(area, log, timeout_s=30.0).run(stage(area, rows))
    assert log.searched > 90
    assert in_log(cluster)[0] == Counter(row for _, row in rows)


class Wearing(ModelLog):
    """Beside the guard's, each row raises locks of its own, as rows of tables do."""

    async def append(self, partition_id: int, rows: Sequence[Row], guard: Guard | None) -> int:
        assert guard is not None
        for row in rows:
            own = tuple(PartitionLocalLock("row", self.cluster.dice.randrange(1 << 30)) for _ in range(4))
            last = await super().append(partition_id, [row], guard._replace(append=(*guard.append, *own)))
        return last


async def test_locks_that_share_places_with_those_of_the_run_do_not_stop_it(tmp_path: Path) -> None:
    """A hundred rows raise each of the 500 places more than twice."""
    cluster, area = ModelCluster(1, random.Random(0), table_size=500), StagingArea(str(tmp_path), APP)
    rows = [(0, Row(0, b"%d" % index)) for index in range(100)]
    log = Wearing(cluster, 1)
    await appender(area, log).run(stage(area, rows))
    assert in_log(cluster)[0] == Counter(row for _, row in rows)
    assert log.searched == 0


async def test_rows_that_nobody_staged_are_noticed(tmp_path: Path) -> None:
    cluster, area = ModelCluster(1, random.Random(0)), StagingArea(str(tmp_path), APP)
    with pytest.raises(Crash):
        await appender(area, ModelLog(cluster, 1, 9)).run(stage(area, [(0, Row(0, b"a")), (0, Row(0, b"b"))]))
    cluster.partitions[0].admit(1, Row(0, b"stranger"), None)
    with pytest.raises(SinkError, match="1 transactions of this sink that the staged rows do not explain"):
        await appender(area, ModelLog(cluster, 2)).run([])


async def test_lost_decisions_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    area = StagingArea(str(tmp_path), APP)
    monkeypatch.setattr(StagingArea, "propose", lambda *_: False)
    with pytest.raises(SinkError, match="the decisions on epoch 0 are gone"):
        await appender(area, ModelLog(ModelCluster(1, random.Random(0)), 1)).run([])


def test_the_two_locks_differ() -> None:
    for app_id in ("", "a", "query", "\u30ed\u30c3\u30af", "x" * 1000):
        first, second = locks_of(app_id)
        assert (first.hash ^ second.hash) & 0x3FFFFFFF


async def run_many(seed: int, directory: str) -> None:
    """Runs of epochs 0 to 2, some of which crash, some of which go on while others have taken over."""
    dice = random.Random(seed)
    cluster, area = ModelCluster(PARTITIONS, dice, table_size=dice.choice([8, 64, 1000])), StagingArea(directory, APP)
    client_ids = iter(range(1, 1000))
    expected = [Counter[Row]() for _ in range(PARTITIONS)]
    tasks: list[asyncio.Task[None]] = []
    for epoch in range(3):
        proposals = []
        for attempt in range(dice.randrange(1, 5)):
            rows = make_rows(dice.randrange(12), b"%d/%d-" % (epoch, attempt))
            proposals.append(rows)
            log = ModelLog(cluster, next(client_ids), dice.randrange(60))
            cluster.trouble = dice.choice([0.0, 0.05, 0.2])
            task = asyncio.create_task(appender(area, log, epoch).run(stage(area, rows)))
            tasks.append(task)
            if dice.random() < 0.6:
                await asyncio.wait((task,))
        last = make_rows(dice.randrange(12), b"%d-last-" % epoch)
        cluster.trouble = 0.02
        await run_to_the_end(area, cluster, client_ids, epoch, last)
        present = in_log(cluster)
        candidates = [
            [before + counts for before, counts in zip(expected, wanted(rows), strict=True)]
            for rows in (*proposals, last)
        ]
        assert present in candidates
        expected = present
    await asyncio.wait(tasks)
    for task in tasks:
        task.exception()
    while cluster.late:
        cluster.happen()
    assert in_log(cluster) == expected


async def run_to_the_end(
    area: StagingArea, cluster: ModelCluster, client_ids: Iterator[int], epoch: int, rows: list[tuple[int, Row]]
) -> None:
    for _ in range(50):
        try:
            await appender(area, ModelLog(cluster, next(client_ids)), epoch).run(stage(area, rows))
        except SinkFencedError:
            continue
        return
    raise AssertionError("it never ends")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_row_is_there_once_whatever_happens(seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run_many(seed, directory))
