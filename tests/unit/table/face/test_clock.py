"""Clocks that are ahead write nothing and sweep nothing; those that are right always write, however idle all is."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

import waltz
from waltz.client.mock import MockDriver
from waltz.client.mock.nodes import MockNodes
from waltz.common.ids import LONG_MIN
from waltz.common.zk.client import ANY_VERSION, ConnectionLossError, Stat
from waltz.table.errors import TimestampError
from waltz.table.face import clock as clock_module
from waltz.table.face.clock import Told
from waltz.table.face.table import Table
from waltz.table.properties import PartitionProperties

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
DAY_OLD = PartitionProperties(format="table", ttl_version_age_ms=24 * HOUR_MS, max_timestamp_skew_ms=HOUR_MS)


class Clock:
    """The clock of a process, which may be wrong."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def driver() -> MockDriver:
    return MockDriver(1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was written in ZooKeeper to know the time."""
    paths: list[str] = []
    plain = MockNodes.set

    async def noted(nodes: MockNodes, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        stat = await plain(nodes, path, data, version)
        paths.append(path)
        return stat

    monkeypatch.setattr(MockNodes, "set", noted)
    return paths


async def opened(driver: MockDriver, stack: AsyncExitStack, clock: Clock) -> Table:
    client = await stack.enter_async_context(waltz.connect(driver))
    return await stack.enter_async_context(Table(client, 0, DAY_OLD, clock=clock))


def test_what_was_told_goes_on_from_when_it_was() -> None:
    told = Told()
    assert told.at(5.0) is None
    told.tell(LONG_MIN, 5.0)
    assert told.at(5.0) is None
    told.tell(100_000, 5.0)
    assert told.at(7.5) == 102_500
    told.tell(101_000, 7.5)
    assert told.at(7.5) == 102_500
    told.tell(103_000, 7.5)
    assert told.at(8.5) == 104_000


async def test_a_clock_that_is_ahead_writes_nothing(driver: MockDriver, stack: AsyncExitStack) -> None:
    right, wrong = await opened(driver, stack, Clock()), await opened(driver, stack, Clock(YEAR_MS))
    writes: tuple[Callable[[], Awaitable[int | None]], ...] = (
        lambda: wrong.put(b"k", b"from tomorrow"),
        lambda: wrong.delete(b"k"),
        lambda: wrong.transaction(lambda transaction: transaction.put(b"k", b"from tomorrow")),
        lambda: wrong.put_if(b"k", b"from tomorrow", None),
        wrong.truncate,
        wrong.sweep,
    )
    for write in writes:
        with pytest.raises(
            TimestampError, match=r"partition 0: the clock .* is 31,5\d\d,\d\d\d s ahead .* Set the clock"
        ):
            await write()
    assert await right.put(b"k", b"today's") == 0
    await right.refresh()
    await wrong.refresh()
    with pytest.raises(TimestampError):
        await wrong.put(b"k", b"with rows in the view")
    (row,) = await right.get([b"k"], fresh=True)
    assert row is not None
    assert row.value == b"today's"


async def test_a_clock_that_is_set_right_writes_again(driver: MockDriver, stack: AsyncExitStack) -> None:
    clock = Clock()
    table = await opened(driver, stack, clock)
    await table.put(b"k", b"before")
    clock.ahead_ms = YEAR_MS
    with pytest.raises(TimestampError):
        await table.put(b"k", b"ahead")
    clock.ahead_ms = 0
    await table.put(b"k", b"after")
    (row,) = await table.get([b"k"])
    assert row is not None
    assert row.value == b"after"


async def test_a_skew_that_is_allowed_is_no_reason(driver: MockDriver, stack: AsyncExitStack) -> None:
    table = await opened(driver, stack, Clock(HOUR_MS - 60_000))
    assert await table.put(b"k", b"v") == 0


async def test_clocks_that_are_right_write_where_nobody_has_written_for_long(
    driver: MockDriver, stack: AsyncExitStack, asked: list[str]
) -> None:
    """And where others write, ZooKeeper is not asked."""
    old = await opened(driver, stack, Clock(-30 * 24 * HOUR_MS))
    await old.put(b"k", b"a month ago")
    table = await opened(driver, stack, Clock())
    await table.refresh()
    before = len(asked)
    for number in range(20):
        await table.put(b"k", b"%d" % number)
        await table.refresh()
    assert len(asked) == before + 1
    another = await opened(driver, stack, Clock())
    await another.refresh()
    for _ in range(5):
        await another.put(b"k", b"")
    assert asked == [asked[0]] * (before + 1)
    assert asked[0].endswith("/ext/clock")


async def test_a_writer_with_a_wrong_clock_does_not_ask_for_every_write(
    driver: MockDriver, stack: AsyncExitStack, asked: list[str]
) -> None:
    wrong = await opened(driver, stack, Clock(YEAR_MS))
    for _ in range(20):
        with pytest.raises(TimestampError):
            await wrong.put(b"k", b"")
    assert len(asked) <= 2


async def test_without_zookeeper_writers_write_and_sweepers_believe_the_rows(
    driver: MockDriver, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def lost(*arguments: object) -> None:
        raise ConnectionLossError("no answer")

    monkeypatch.setattr(MockNodes, "set", lost)
    monkeypatch.setattr(clock_module, "_ASK_AGAIN_S", 0.0)
    old = await opened(driver, stack, Clock(-26 * HOUR_MS))
    await old.put(b"oldest", b"v")
    table = await opened(driver, stack, Clock(-HOUR_MS))
    await table.put(b"young", b"v")
    assert "the clock of this process is not compared with that of ZooKeeper: no answer" in caplog.text
    wrong = await opened(driver, stack, Clock(YEAR_MS))
    await wrong.refresh()
    assert await wrong.sweep_if_due() == 2
    assert [row.key async for row in table.scan(raw=True, fresh=True)] == [b"young"]
    assert await wrong.sweep_if_due() is None


async def test_a_sweep_believes_neither_clock_alone(
    driver: MockDriver, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is ahead, of a program that compares nothing, does not make a wrong clock right."""
    right = await opened(driver, stack, Clock())
    await right.put(b"a", b"1")
    wrong = await opened(driver, stack, Clock(YEAR_MS))
    with monkeypatch.context() as patch:
        patch.setattr(clock_module.ClockCheck, "check_write", lambda *arguments: asyncio.sleep(0))
        await wrong.put(b"b", b"2")
        await wrong.refresh()
        for sweep in (wrong.sweep, wrong.sweep_if_due):
            with pytest.raises(TimestampError):
                await sweep()
    assert await right.sweep_if_due() is None
    assert [row.key async for row in right.scan(raw=True, fresh=True)] == [b"a", b"b"]
    slightly = await opened(driver, stack, Clock(HOUR_MS // 2))
    await slightly.refresh()
    now_ms = await slightly._partition.sweep_ms()
    assert abs(now_ms - Clock()()) < 60_000
