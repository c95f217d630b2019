"""Tables that two clusters write, merged by the real code over clusters in memory, with faults."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import pytest

import waltz
from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.client.errors import TrimmedError
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.records import Record
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.mirror import attempts
from waltz.mirror.attempts import Target
from waltz.mirror.claims import Claim, Claims
from waltz.mirror.mirror_metrics import MirrorState, PartitionState, Stage
from waltz.mirror.origins import PREFIX, origins_in
from waltz.mirror.source_log import ClientLog
from waltz.mirror.table_mirror import TableMirror
from waltz.mirror.window import WindowLimit
from waltz.table.envelope import Batch, Row, envelope_of

pytestmark = pytest.mark.timeout(60)

ROOT = "/waltz"
KEYS = ("key of one", "key of two")
Rows = dict[bytes, tuple[int, bytes | None]]


class Side(NamedTuple):
    """One of the clusters."""

    key: str
    driver: MockDriver
    client: waltz.Client
    zookeeper: ZooKeeper


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "RETRY_INITIAL_S", 0.001)
    monkeypatch.setattr(attempts, "RETRY_MAXIMUM_S", 0.01)


@pytest.fixture
async def sides() -> AsyncIterator[list[Side]]:
    async with contextlib.AsyncExitStack() as stack:
        found: list[Side] = []
        for key in KEYS:
            driver = MockDriver(MockServerPartition.create(1), random_source=random.Random(7))
            client = await stack.enter_async_context(waltz.connect(driver))
            zookeeper = await lone_zookeeper()
            await waltz.table.configure(client, 0, {"format": "table", "rowType": "zlib"})
            found.append(Side(key, driver, client, zookeeper))
        yield found


async def lone_zookeeper() -> ZooKeeper:
    """One in which nobody else holds a lock."""
    zookeeper = await MemoryZooKeeperServer().connect()
    await zookeeper.create(ClusterPaths.of(ROOT).mirrors, None, make_path=True)
    return zookeeper


@contextlib.asynccontextmanager
async def mirroring(source: Side, target: Side, *, most: int = 2) -> AsyncIterator[PartitionState]:
    """A process that mirrors in one direction, and reads so many transactions ahead."""
    state = MirrorState()
    zookeeper = target.zookeeper
    mirror = TableMirror(
        0,
        source.client,
        source.key,
        target.client,
        target.key,
        Target(zookeeper, ROOT, None, target.client.client_id),
        WindowLimit(most, 1 << 20),
        state,
        now_ms=lambda: 5,
    )
    working = asyncio.create_task(mirror.run())
    try:
        yield state.partitions[0]
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def until(what: Callable[[], Awaitable[bool] | bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            found = what()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.002)


async def write(side: Side, rows: Iterable[tuple[str, int, str | None]]) -> None:
    """Each of these (key, timestamp, value) is a transaction; no value deletes the key."""
    async with side.client.table(0) as table:
        for key, timestamp_ms, value in rows:
            data = None if value is None else value.encode()
            await table.batch([Row(b"", key.encode(), data, timestamp_ms, tombstone=data is None)])


async def rows_of(side: Side) -> Rows:
    async with side.client.table(0) as table:
        await table.refresh()
        return {row.key: (row.timestamp_ms, row.value) async for row in table.scan() if row.prefix != PREFIX}


Written = list[tuple[bytes, int | None, bytes | None]]


def rows_in(side: Side, *, copied: bool) -> Written:
    """The rows in a log that applications have written, or those of the other cluster, without those that were appended
    again to win."""
    found: Written = []
    position = -1
    for transaction in side.driver.partitions[0].transactions:
        batch = envelope_of(transaction.transaction_id, bytes(transaction.data))
        assert isinstance(batch, Batch)
        origins = origins_in(batch)
        if (origins is not None) == copied and (origins is None or origins.position > position):
            position = position if origins is None else origins.position
            found += [(row.key, row.timestamp_ms, row.value) for row in batch.rows if row.prefix != PREFIX]
    return found


def is_copied(source: Side, target: Side) -> bool:
    """Whether all that applications have written is in the target: once, and in order."""
    return rows_in(target, copied=True) == rows_in(source, copied=False)


async def test_both_have_the_newest_rows_and_nothing_goes_back(sides: list[Side]) -> None:
    one, two = sides
    await write(one, [("a", 1, "one"), ("b", 5, "one"), ("tie", 3, "one"), ("tie", 3, "one again"), ("dead", 1, "one")])
    await write(two, [("a", 2, "two"), ("b", 4, "two"), ("tie", 3, "two"), ("dead", 2, None)])
    expected = {b"a": (2, b"two"), b"b": (5, b"one"), b"tie": (3, b"one again")}

    async def equal() -> bool:
        return await rows_of(one) == await rows_of(two) == expected

    async with mirroring(one, two) as there, mirroring(two, one) as back:
        await until(equal)
        await until(lambda: there.mirrored_id is not None and there.mirrored_id >= 4)
        assert there.stage is back.stage is Stage.WORKING
    assert len(rows_in(two, copied=True)) == 5
    assert is_copied(one, two)
    assert is_copied(two, one)
    async with one.client.table(0) as table:
        await table.refresh()
        marks = [row.key async for row in table.scan() if row.prefix == PREFIX]
    assert marks == [two.key.encode()], "one row for each source"


async def test_a_cut_and_deaths_and_two_processes_that_think_they_are_alone(sides: list[Side]) -> None:
    one, two = sides
    draw = random.Random(3)
    lonely = [side._replace(zookeeper=await lone_zookeeper()) for side in sides]

    async def equal() -> bool:
        return await rows_of(one) == await rows_of(two)

    for round_number in range(6):
        async with contextlib.AsyncExitStack() as stack:
            if round_number % 3:  # else the line is cut
                await stack.enter_async_context(mirroring(one, two, most=3))
                await stack.enter_async_context(mirroring(two, one))
                await stack.enter_async_context(mirroring(one, lonely[1], most=100))
            for side in sides:
                side.driver.max_delay_s = 0.001
                side.driver.force_next_append_fail()
                side.driver.force_next_lock_fail()
                count = draw.randint(1, 12)
                rows = [
                    (f"key {draw.randrange(4)}", draw.randint(1, 3), draw.choice(("x", "y", None)))
                    for _ in range(count)
                ]
                with contextlib.suppress(waltz.LockConflict):
                    await write(side, rows)
                side.driver.disconnect()
    async with mirroring(one, two), mirroring(two, one), mirroring(one, lonely[1]):
        await until(lambda: is_copied(one, two) and is_copied(two, one))
        await until(equal)


async def test_an_exact_mirror_is_left_alone(sides: list[Side]) -> None:
    one, two = sides
    await two.zookeeper.create(ClusterPaths.of(ROOT).mirror(0), Claim("another").encode(), make_path=True)
    async with mirroring(one, two) as state:
        await until(lambda: state.stage is Stage.STOPPED)
        assert "exact mirror of the cluster with the key another" in state.reason
    await Claims(two.zookeeper, ROOT).promote(0)
    async with mirroring(one, two) as state:
        await until(lambda: state.stage is Stage.WORKING)


@pytest.mark.parametrize(("side", "stage"), [(0, Stage.WAITING_FOR_SOURCE), (1, Stage.WAITING)])
async def test_both_have_to_be_tables(sides: list[Side], side: int, stage: Stage) -> None:
    driver = MockDriver(MockServerPartition.create(1))
    async with waltz.connect(driver) as client:
        sides[side] = sides[side]._replace(client=client, driver=driver)
        async with mirroring(sides[0], sides[1]) as state:
            await until(lambda: state.stage is stage and "is not a table" in state.reason)


async def test_a_row_that_no_mirror_has_written_stops_the_copying_and_says_so(sides: list[Side]) -> None:
    one, two = sides
    async with one.client.table(0) as table:
        await table.put(b"key", b"value", prefix=PREFIX)
    async with mirroring(one, two) as state:
        await until(lambda: state.stage is Stage.WAITING_FOR_SOURCE and "cannot be read" in state.reason)
    assert not two.driver.partitions[0].transactions


@pytest.mark.parametrize("trimmed", ["source", "target"])
async def test_a_trimmed_log_stops_the_mirror_with_what_it_lacks(
    sides: list[Side], monkeypatch: pytest.MonkeyPatch, trimmed: str
) -> None:
    source, target = sides
    concerned = source if trimmed == "source" else target
    following = ClientLog.following

    async def only_the_rest(log: ClientLog, last_id: int) -> AsyncGenerator[Sequence[Record], None]:
        if log._client is concerned.client:
            raise TrimmedError(0, 7)
        async with contextlib.aclosing(following(log, last_id)) as batches:
            async for records in batches:
                yield records

    monkeypatch.setattr(ClientLog, "following", only_the_rest)
    async with mirroring(source, target) as state:
        await until(lambda: state.stage is Stage.STOPPED)
        assert f"needs transactions of the {trimmed} from 0 on, and those from 0 to 6 are trimmed" in state.reason
