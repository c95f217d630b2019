"""The face over a cluster in memory: reads after writes, conditions, transactions, takes, and views that stop."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

import waltz
from tests.unit.table.stores.cases import KEEPING
from waltz.client.errors import NotAppendedError
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.plain import feed as feed_module
from waltz.client.plain.feed import BatchFeed
from waltz.common.errors import DeadlineExceededError
from waltz.table import codecs
from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Row, encode
from waltz.table.errors import (
    CodecUnavailableError,
    KeyTooLongError,
    PropertiesError,
    StoreError,
    TableError,
    VersionConflict,
)
from waltz.table.face.sweeping import SweepCheck
from waltz.table.face.table import Table
from waltz.table.face.transaction import TableTransaction
from waltz.table.properties import PartitionProperties, changed
from waltz.table.rows import TableRow, Version
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.ordered import OrderedStore
from waltz.table.view import KeyRange
from waltz.telemetry import document

pytestmark = pytest.mark.timeout(60)

TABLE = PartitionProperties(format="table")


class Clock:
    """Milliseconds on command."""

    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def partitions() -> list[MockServerPartition]:
    return MockServerPartition.create(1)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def client(partitions: list[MockServerPartition], stack: AsyncExitStack) -> waltz.Client:
    return await stack.enter_async_context(waltz.connect(MockDriver(partitions)))


@pytest.fixture
async def table(client: waltz.Client, clock: Clock, stack: AsyncExitStack) -> Table:
    return await stack.enter_async_context(Table(client, 0, TABLE, clock=clock))


def values(rows: list[TableRow | None]) -> list[bytes | None]:
    return [None if row is None else row.value for row in rows]


async def test_writes_are_read_at_once(table: Table) -> None:
    assert await table.put(b"a", b"1") == 0
    assert await table.put(b"a", b"2", prefix=b"p") == 1
    assert values(await table.get([b"a", b"none"])) == [b"1", None]
    assert values(await table.get([b"a"], prefix=b"p")) == [b"2"]
    assert await table.batch([Row(b"", b"b", b"3"), Row(b"", b"a", None, tombstone=True)]) == 2
    assert values(await table.get([b"a", b"b"])) == [None, b"3"]
    (dead,) = await table.get([b"a"], raw=True)
    assert dead is not None
    assert (dead.tombstone, dead.version) == (True, Version(2, 1))
    assert await table.delete(b"b") == 3
    assert await table.approximate_count() == 1
    assert await table.approximate_count(raw=True) == 3
    assert await table.get_slice(b"a", 0, 5, prefix=b"p") == b"2"
    await table.put(b"long", b"0123456789")
    assert await table.get_slice(b"long", 3, 4) == b"3456"
    assert await table.get_slice(b"none", 0, 4) is None


@pytest.mark.parametrize("store", KEEPING)
async def test_a_table_goes_on_from_its_store(client: waltz.Client, store: str, tmp_path: Path) -> None:
    for round_ in range(3):
        async with Table(client, 0, TABLE, store=store, directory=tmp_path) as table:
            await table.put(b"%d" % round_, b"v")
            assert [row.key async for row in table.scan(fresh=True)] == [b"%d" % number for number in range(round_ + 1)]


async def test_scans_are_of_one_state(table: Table) -> None:
    await table.batch([Row(b"", b"%04d" % number, b"") for number in range(1000)])
    seen: list[bytes] = []
    async for row in table.scan():
        if len(seen) == 100:
            await table.truncate()
            await table.get([b""])
        seen.append(row.key)
    assert seen == [b"%04d" % number for number in range(1000)]
    assert [row async for row in table.scan()] == []
    await table.batch([Row(b"", b"a", b""), Row(b"", b"b", b""), Row(b"", b"c", b"")])
    assert [row.key async for row in table.scan(reverse=True, limit=2)] == [b"c", b"b"]
    assert [row.key async for row in table.scan([KeyRange(start=b"b", end=b"c")])] == [b"b"]
    assert [pair async for pair in table.scan_keys(limit=2)] == [(b"", b"a"), (b"", b"b")]


async def test_following_up_to_a_transaction_ends_there(table: Table) -> None:
    for number in range(10):
        await table.put(b"%d" % number, b"v", prefix=b"even" if number % 2 == 0 else b"odd")
    taken = [each async for each in table.follow(1, prefix=b"even", until=6)]
    assert [row.key for each in taken for row in each.rows] == [b"2", b"4", b"6"]
    assert taken[-1].cursor == 6


async def test_fresh_reads_see_what_others_have_written(
    table: Table, partitions: list[MockServerPartition], stack: AsyncExitStack
) -> None:
    other = await stack.enter_async_context(waltz.connect(MockDriver(partitions)))
    other_table = await stack.enter_async_context(Table(other, 0, TABLE))
    for number in range(20):
        await other_table.put(b"k", b"%d" % number)
        assert values(await table.get([b"k"], fresh=True)) == [b"%d" % number]


async def test_rows_are_hidden_at_their_age_and_swept(client: waltz.Client, clock: Clock) -> None:
    properties = PartitionProperties(format="table", ttl_timestamp_age_ms=10_000)
    async with Table(client, 0, properties, clock=clock) as table:
        await table.put(b"k", b"v")
        clock.now_ms += 9_999
        assert values(await table.get([b"k"])) == [b"v"]
        clock.now_ms += 1
        assert values(await table.get([b"k"])) == [None]
        await table.sweep()
        assert values(await table.get([b"k"], raw=True)) == [b"v"]
        clock.now_ms += 1000
        await table.sweep()
        assert values(await table.get([b"k"], raw=True)) == [None]


@pytest.mark.parametrize("store", KEEPING)
async def test_others_have_their_turn_between_the_pages_of_a_removal(
    client: waltz.Client, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are answered as if it was done. One that is interrupted is gone on with when the table is opened again."""
    monkeypatch.setattr(OrderedStore, "zone_rows", 10)
    pages = 0
    remove_page = OrderedStore.remove_page

    def counted(store: OrderedStore) -> None:
        nonlocal pages
        pages += 1
        remove_page(store)

    monkeypatch.setattr(OrderedStore, "remove_page", counted)
    async with Table(client, 0, TABLE, store=store, directory=tmp_path) as table:
        await table.batch([Row(b"", b"%04d" % number, b"old") for number in range(1000)])
        await table.truncate()
        await table.put(b"0500", b"new")
        assert values(await table.get([b"0000", b"0500", b"0999"])) == [None, b"new", None]
        assert [row.key async for row in table.scan()] == [b"0500"]
        assert await table.approximate_count() == 1
        assert table._partition.store.removing
        assert pages < 100
    async with Table(client, 0, TABLE, store=store, directory=tmp_path) as table:
        assert [row.key async for row in table.scan(fresh=True)] == [b"0500"]
        removing = table._partition.store
        while removing.removing:
            turn = pages
            await asyncio.sleep(0)
            assert pages <= turn + 1
        assert pages >= 100
        assert await table.approximate_count() == 1
        await table.truncate()
        await table.sweep()
        assert [row async for row in table.scan()] == []


async def test_a_sweep_is_due_an_interval_after_the_age(client: waltz.Client, clock: Clock) -> None:
    properties = changed(TABLE, {"ttlVersionAgeInMillis": 10_000, "ttlVersionIntervalMillis": 5_000})
    async with Table(client, 0, properties, clock=clock) as table:
        await table.put(b"k", b"v")
        clock.now_ms += 15_999
        assert await table.sweep_if_due() is None
        clock.now_ms += 1
        await table.put(b"young", b"v")
        assert await table.sweep_if_due() == 2
        assert [row.key async for row in table.scan(raw=True)] == [b"young"]
        assert await table.sweep_if_due() is None


async def test_of_many_that_find_a_sweep_due_one_appends_a_mark(
    partitions: list[MockServerPartition], clock: Clock, stack: AsyncExitStack
) -> None:
    properties = changed(TABLE, {"ttlVersionAgeInMillis": 10_000, "ttlVersionIntervalMillis": 5_000})
    clients = [await stack.enter_async_context(waltz.connect(MockDriver(partitions))) for _ in range(4)]
    tables = [await stack.enter_async_context(Table(client, 0, properties, clock=clock)) for client in clients]
    await tables[0].batch([Row(b"", b"a", b""), Row(b"", b"b", b"", tombstone=False)])
    for table in tables:
        await table.refresh()
    assert await tables[1].check_sweep() == SweepCheck(0, due=False)
    clock.now_ms += 11_000
    assert await tables[1].check_sweep() == SweepCheck(2, due=False)
    clock.now_ms += 5_000
    assert await tables[1].check_sweep() == SweepCheck(2, due=True)
    swept = await asyncio.gather(*(table.sweep_if_due() for table in tables))
    assert sorted(swept, key=str) == [1, None, None, None]
    assert await clients[0].high_water_mark(0) == 1
    assert await tables[2].check_sweep() == SweepCheck(0, due=False)


async def test_conditions(table: Table, clock: Clock) -> None:
    first = await table.put_if(b"k", b"1", None)
    with pytest.raises(VersionConflict, match=r"has the version Version\(transaction_id=0"):
        await table.put_if(b"k", b"2", None)
    clock.now_ms -= 500
    await table.put_if(b"k", b"2", Version(first, 0))
    assert values(await table.get([b"k"])) == [b"2"]
    with pytest.raises(VersionConflict):
        await table.put_if(b"k", b"3", Version(first, 0))
    await table.delete(b"k", timestamp_ms=clock.now_ms + 600)
    await table.put_if(b"k", b"4", None)
    assert values(await table.get([b"k"])) == [b"4"]


async def test_a_condition_is_decided_in_its_time(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view may be behind, and the server that is asked how far does not answer."""

    async def silence(*, strict: bool) -> int:
        await asyncio.Event().wait()
        return -1

    await table.put(b"k", b"1")
    monkeypatch.setattr(table._partition, "high_water_mark", silence)
    with pytest.raises(NotAppendedError):
        await table.put_if(b"k", b"2", None, timeout_s=0.1)
    assert values(await table.get([b"k"])) == [b"1"]


async def test_writes_through_one_object_win_in_their_order_whatever_the_clock_does(table: Table, clock: Clock) -> None:
    async def put_in_transaction() -> int | None:
        return await table.transaction(lambda transaction: transaction.put(b"k", b"t"))

    for write, value in (
        (lambda: table.put(b"k", b"1"), b"1"),
        (lambda: table.put(b"k", b"2"), b"2"),
        (lambda: table.delete(b"k"), None),
        (lambda: table.put_if(b"k", b"3", None), b"3"),
        (lambda: table.batch([Row(b"", b"k", b"lost"), Row(b"", b"k", b"4")]), b"4"),
        (put_in_transaction, b"t"),
        (lambda: table.delete(b"k"), None),
        (lambda: table.put(b"k", b"5"), b"5"),
    ):
        await write()
        assert values(await table.get([b"k"])) == [value]
        clock.now_ms -= 50

    def set_back(transaction: TableTransaction) -> None:
        clock.now_ms -= 5000
        transaction.put(b"k", b"6")

    clock.now_ms += 4000
    await table.transaction(set_back)
    assert values(await table.get([b"k"])) == [b"6"]
    clock.now_ms += 10_000
    await table.put(b"later", b"")
    (row,) = await table.get([b"later"])
    assert row is not None
    assert row.timestamp_ms == clock.now_ms


async def test_no_update_of_a_counter_is_lost(partitions: list[MockServerPartition], stack: AsyncExitStack) -> None:
    """Eight writers, whose clocks differ and whose appends get lost now and then."""

    async def writer(number: int) -> None:
        driver = MockDriver(partitions)
        driver.fault_rate = 0.1
        clock = Clock()
        clock.now_ms += 1000 * number
        async with waltz.connect(driver) as client, Table(client, 0, TABLE, clock=clock) as table:

            async def add_one(transaction: TableTransaction) -> None:
                row = transaction.get(b"counter")
                await asyncio.sleep(0)
                transaction.put(b"counter", b"%d" % (int(row.value or b"0") + 1 if row is not None else 1))

            for _ in range(10):
                await table.transaction(add_one)

    await asyncio.gather(*map(writer, range(8)))
    client = await stack.enter_async_context(waltz.connect(MockDriver(partitions)))
    async with Table(client, 0, TABLE) as table:
        assert values(await table.get([b"counter"], fresh=True)) == [b"80"]


async def test_a_transaction_notices_plain_writes_and_truncates(table: Table) -> None:
    attempts: list[int] = []

    async def move(transaction: TableTransaction) -> None:
        row = transaction.get(b"from")
        attempts.append(0)
        if len(attempts) == 1:
            await table.put(b"from", b"changed")
        elif len(attempts) == 2:
            await table.truncate()
        elif len(attempts) == 3:
            await table.batch([Row(b"", b"%d" % number, b"") for number in range(2000)])
        transaction.put(b"to", row.value if row is not None else b"nothing")

    await table.put(b"from", b"first")
    await table.transaction(move)
    assert len(attempts) == 4
    assert values(await table.get([b"to"])) == [b"nothing"]
    with pytest.raises(ZeroDivisionError):
        await table.transaction(lambda transaction: print(1 // 0))
    assert await table.transaction(lambda transaction: None) is None


async def test_takes_are_the_log(table: Table) -> None:
    for number in range(30):
        prefix = b"p" if number % 3 == 0 else b""
        await table.batch([Row(prefix, b"k", b"%d" % number), Row(b"other", b"k", b"")])
    rows: list[TableRow] = []
    taken, cursor = None, -1
    while taken is None or not taken.at_end:
        taken = await table.take(cursor, 7)
        assert len(taken.rows) in (8, 60 - len(rows))
        rows += taken.rows
        cursor = taken.cursor
    assert cursor == 29
    assert [row.value for row in rows if row.prefix != b"other"] == [b"%d" % number for number in range(30)]
    assert await table.take(29) == ([], 29, True)
    for limit in (1, 3, 100):
        found: list[TableRow] = []
        taken, cursor = None, -1
        while taken is None or not taken.at_end:
            taken = await table.take(cursor, limit, prefix=b"p")
            assert len(taken.rows) <= limit
            found += taken.rows
            cursor = taken.cursor
        assert found == [row for row in rows if row.prefix == b"p"]
    assert (await table.take(-1, 100, prefix=b"none")) == ([], 29, True)
    assert [row.prefix for row in (await table.take(-1, 3, prefix=b"")).rows] == [b"", b"", b""]
    followed: list[TableRow] = []
    async for part in table.follow(9, prefix=b"p"):
        followed += part.rows
        if part.cursor == 29:
            break
    assert followed == [row for row in rows if row.prefix == b"p" and row.version.transaction_id > 9]


async def test_what_cannot_be_written_is_refused(client: waltz.Client, clock: Clock) -> None:
    properties = PartitionProperties(format="table", max_key_bytes=10)
    async with Table(client, 0, properties, clock=clock) as table:
        with pytest.raises(ValueError, match="no rows"):
            await table.batch([])
        for timestamp_ms in (0, -5):
            with pytest.raises(ValueError, match="positive"):
                await table.put(b"k", b"v", timestamp_ms=timestamp_ms)
        with pytest.raises(ValueError, match="too far ahead"):
            await table.put(b"k", b"v", timestamp_ms=clock.now_ms + 3_600_001)
        with pytest.raises(KeyTooLongError, match="10 bytes"):
            await table.put(b"k" * 9, b"v")
        assert await table.put(b"k" * 8, b"v", timestamp_ms=clock.now_ms + 3_600_000) == 0
        assert await table.batch([Row(b"", b"k", b"v", 1 << 60)], any_timestamp=True) == 1


async def test_a_store_that_finds_no_rows_decides_nothing(client: waltz.Client, table: Table) -> None:
    properties = changed(TABLE, {"indexClassName": "noop_persistent", "ttlVersionAgeInMillis": 1})
    async with Table(client, 0, properties) as blind:
        await blind.put(b"k", b"v")
        for decide in (
            lambda: blind.put_if(b"k", b"overwritten", None),
            lambda: blind.transaction(lambda transaction: transaction.put(b"k", b"overwritten")),
            blind.sweep_if_due,
            blind.check_sweep,
        ):
            with pytest.raises(StoreError, match="need a view with its rows, and the store of this one keeps none"):
                await decide()
        assert await blind.get([b"k"], fresh=True) == [None]
        assert await blind.delete(b"other") == 1
    assert values(await table.get([b"k"], fresh=True)) == [b"v"]


async def test_an_older_server_is_asked_for_nothing_fresh(
    partitions: list[MockServerPartition], stack: AsyncExitStack
) -> None:
    client = await stack.enter_async_context(waltz.connect(MockDriver(partitions, versions=(0, 1, 2, 3, 4, 5))))
    table = await stack.enter_async_context(Table(client, 0, TABLE))
    await table.put(b"k", b"v")
    for read in (
        lambda: table.get([b"k"], fresh=True),
        lambda: anext(table.scan(fresh=True)),
        table.refresh,
        table.high_water_mark,
    ):
        with pytest.raises(waltz.ConfirmedMarkNotSupportedError):
            await read()
    assert values(await table.get([b"k"])) == [b"v"]
    assert (await table.take(-1)).cursor == await table.high_water_mark(strict=False) == 0
    await table.refresh(strict=False)
    with pytest.raises(VersionConflict):
        await table.put_if(b"k", b"w", None)


async def test_a_take_of_a_prefix_needs_no_rows(client: waltz.Client, table: Table) -> None:
    for number in range(10):
        await table.batch([Row(b"p", b"k", b"%d" % number), Row(b"other", b"k", b"")])
    async with Table(client, 0, TABLE, store="noop") as blind:
        assert await blind.take(-1, prefix=b"p") == await table.take(-1, prefix=b"p")
        assert await blind.take(2, 3, prefix=b"p") == await table.take(2, 3, prefix=b"p")
        assert await blind.take(2, prefix=b"none") == ([], 9, True)


def test_a_raw_partition_is_no_table(client: waltz.Client) -> None:
    with pytest.raises(PropertiesError, match="partition 0 is not a table"):
        Table(client, 0, PartitionProperties())


async def test_a_view_that_stops_says_why(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("no space left")

    await table.put(b"k", b"v")
    await table.get([b"k"])
    monkeypatch.setattr(MemoryEngine, "write", fail)
    await table.put(b"k", b"v2")
    for _ in range(2):
        with pytest.raises(TableError, match="has stopped: no space left"):
            await table.get([b"k"])


async def test_a_view_that_has_stopped_answers_nothing_from_before(
    client: waltz.Client, table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("no space left")

    async with Table(client, 0, TABLE, store="noop") as writer:
        await writer.put(b"k", b"v1")
        assert values(await table.get([b"k"], fresh=True)) == [b"v1"]
        monkeypatch.setattr(MemoryEngine, "write", fail)
        await writer.put(b"k", b"v2")
        with pytest.raises(TableError, match="has stopped: no space left"):
            await table.refresh()
    for read in (
        lambda: table.get([b"k"]),
        table.approximate_count,
        lambda: anext(table.scan()),
        lambda: anext(table.scan_keys()),
        table.check_sweep,
        lambda: table.transaction(lambda transaction: None),
    ):
        with pytest.raises(TableError, match="has stopped: no space left"):
            await read()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "the view of partition 0 has stopped, and is not read until the table is opened again: no space left"
    ]


@pytest.mark.parametrize("row_type", ["primary", "zlib", "snappy_primary", "zstd", "lz4"])
async def test_codecs_of_one_partition_may_differ(client: waltz.Client, row_type: str) -> None:
    async with Table(client, 0, TABLE) as plain:
        await plain.put(b"plain", b"v")
    properties = changed(TABLE, {"rowType": row_type})
    async with Table(client, 0, properties) as table:
        await table.put(b"small", b"v" * 1000)
        await table.put(b"large", b"v" * 100_000)
        found = await table.get([b"plain", b"small", b"large"], fresh=True)
        assert values(found) == [b"v", b"v" * 1000, b"v" * 100_000]


async def test_large_compressed_bodies_keep_their_place_in_the_log(
    client: waltz.Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read in threads, and what failed there is skipped like anything else."""
    large = [Row(b"", b"k", b"large" * 40_000)]
    await client.append(0, b"WT\x01\x04" + (64 << 20).to_bytes(4, "big") + b"\x00")
    await client.append(0, encode(Batch(7, [Row(b"", b"k", b"small")])))
    await client.append(0, encode(Batch(7, large), Codec.ZSTD))
    await client.append(0, b"WT\x01\x04" + (1 << 20).to_bytes(4, "big") + bytes(200_000))
    await client.append(0, encode(Batch(7, [Row(b"", b"last", b"")])))
    assert values(await table.get([b"k", b"last"], fresh=True)) == [large[0].value, b""]
    assert table._partition.store.progress[:5] == (4, 2, 0, 2, 7)
    assert [row.version for row in (await table.take(-1)).rows] == [Version(1, 0), Version(2, 0), Version(4, 0)]


def gauge(client: waltz.Client, name: str) -> object:
    gauges = document(client.metrics)["gauges"]
    assert isinstance(gauges, dict)
    return gauges[name]


async def test_what_was_skipped_is_told(client: waltz.Client) -> None:
    async with Table(client, 0, TABLE) as table:
        await client.append(0, b"no envelope")
        await table.put(b"k", b"v")
        await client.append(0, b"no envelope either")
        await table.refresh()
        assert table.skipped == 2
        metric = f"waltz-client-{client.client_id}.partition-0.table-skipped-transactions"
        assert gauge(client, metric) == {"value": 2}
    assert gauge(client, metric) == {"value": 2}
    async with Table(client, 0, TABLE, store="noop") as table:
        await table.refresh()
        assert table.skipped == 2


@pytest.mark.parametrize("prefix", [None, b"p"])
async def test_a_take_from_beyond_the_log_is_of_another_log(table: Table, prefix: bytes | None) -> None:
    await table.put(b"k", b"v", prefix=b"p")
    assert await table.take(0, prefix=prefix) == ([], 0, True)
    for after in (1, 1_000_000):
        with pytest.raises(waltz.ClientAheadError, match=f"there is no transaction {after}, the last one is 0"):
            await table.take(after, prefix=prefix)
        with pytest.raises(waltz.ClientAheadError):
            await anext(table.follow(after, prefix=prefix))


async def test_following_a_prefix_gives_cursors_where_it_has_no_rows(table: Table) -> None:
    for _ in range(3):
        await table.put(b"k", b"v", prefix=b"other")
    assert [each async for each in table.follow(-1, prefix=b"p", until=2)][-1] == ([], 2, False)


async def test_a_codec_that_a_reader_lacks_is_named(
    client: waltz.Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every call; a size that is impossible needs no library to be skipped."""
    await table.put(b"k", b"v")
    await table.refresh()
    data = encode(Batch(7, [Row(b"", b"k", b"v" * 1000)]), Codec.LZ4)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    codecs._functions.cache_clear()
    await client.append(0, b"WT\x01\x04" + (64 << 20).to_bytes(4, "big") + b"\x00")
    await table.refresh()
    await client.append(0, data)
    for read in (table.refresh, lambda: table.get([b"k"]), lambda: table.take(-1), lambda: anext(table.follow(-1))):
        with pytest.raises(CodecUnavailableError, match="transaction 2 .* the codec lz4 needs cramjam: install "):
            await read()
    with pytest.raises(CodecUnavailableError, match="zstd needs cramjam"):
        Table(client, 0, changed(TABLE, {"rowType": "zstd"}))


async def test_a_closed_table_says_so(client: waltz.Client) -> None:
    async with Table(client, 0, TABLE) as table:
        transaction_id = await table.put(b"k", b"v")
        await table.get([b"k"])
        follower = table._partition.follower
    with pytest.raises(TableError, match="has stopped: it is closed"):
        await follower.reached(transaction_id + 1)


async def test_a_view_waits_for_a_partition_that_nobody_owns(
    client: waltz.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With longer and longer pauses."""
    begin, sleep = BatchFeed.begin, asyncio.sleep
    refusals = [DeadlineExceededError("no server is known to own the partition")] * 4
    begun_with: list[list[float]] = []
    paused_s: list[float] = []

    async def begun(feed: BatchFeed) -> None:
        begun_with.append([*paused_s])
        if refusals:
            raise refusals.pop()
        await begin(feed)

    async def slept(delay_s: float) -> None:
        if delay_s:
            paused_s.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(BatchFeed, "begin", begun)
    with monkeypatch.context() as patched:
        patched.setattr(feed_module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": slept}))
        async with Table(client, 0, TABLE) as table:
            await table.put(b"alice", b"100")
            assert [row and row.value for row in await table.get([b"alice"])] == [b"100"]
    assert [len(pauses) for pauses in begun_with[:5]] == [0, 1, 2, 3, 4]
    assert paused_s == sorted(paused_s)
    assert paused_s[-1] > 4 * paused_s[0]
