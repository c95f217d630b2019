"""One suite for both faces of a table: with a view in the process, and over a view node."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import waltz
from tests.unit.view.node import view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table import (
    EnvelopeError,
    KeyRange,
    KeyTooLongError,
    Row,
    Table,
    TableRow,
    TimestampError,
    Version,
    VersionConflict,
)
from waltz.table.served.table import ServedTable

pytestmark = pytest.mark.timeout(60)

Face = Table | ServedTable

BYTES = [b"", b"a", "ä\0\n".encode(), b"\xff\x00\xfe", b'"}{', b"\x00"]


@pytest.fixture(params=["local", "served"])
async def table(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Face]:
    cluster = MockServerPartition.create(1)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(waltz.connect(MockDriver(cluster)))
        await waltz.table.configure(client, 0, {"format": "table", "maxKeySizeInBytes": 100})
        if request.param == "local":
            yield await stack.enter_async_context(client.table(0))
            return
        node = await stack.enter_async_context(view_node(cluster, tmp_path))
        await node.served()
        yield await stack.enter_async_context(client.table(0, view="served"))


def values(rows: list[TableRow | None]) -> list[bytes | None]:
    return [None if row is None else row.value for row in rows]


async def keys(table: Face, *arguments: KeyRange, prefix: bytes | None = None, reverse: bool = False) -> list[bytes]:
    return [row.key async for row in table.scan(arguments or None, prefix=prefix, reverse=reverse)]


async def test_writes_are_read_at_once(table: Face) -> None:
    assert await table.put(b"a", b"1") == 0
    assert await table.put(b"a", b"2", prefix=b"p") == 1
    assert await table.put(b"null", None) == 2
    assert values(await table.get([b"a", b"none", b"null"])) == [b"1", None, None]
    assert (await table.get([b"null"]))[0] is not None
    assert values(await table.get([b"a"], prefix=b"p")) == [b"2"]
    assert await table.batch([Row(b"", b"b", b"3"), Row(b"", b"a", None, tombstone=True)]) == 3
    assert values(await table.get([b"a", b"b"])) == [None, b"3"]
    (deleted,) = await table.get([b"a"], raw=True)
    assert deleted is not None
    assert (deleted.tombstone, deleted.version) == (True, Version(3, 1))
    assert table.applied == 3
    assert await table.high_water_mark() == 3


async def test_all_bytes_are_possible(table: Face) -> None:
    rows = [Row(prefix, key, value) for prefix in BYTES for key in BYTES for value in [prefix + key]]
    await table.batch(rows)
    for prefix in BYTES:
        assert values(await table.get(BYTES, prefix=prefix)) == [prefix + key for key in BYTES]
        assert await keys(table, prefix=prefix) == sorted(BYTES)
    found = [(row.prefix, row.key) async for row in table.scan()]
    assert found == sorted((row.prefix, row.key) for row in rows)
    assert [pair async for pair in table.scan_keys(reverse=True)] == found[::-1]


async def test_scans_have_ranges_limits_and_directions(table: Face) -> None:
    await table.batch([Row(prefix, b"%03d" % number, b"v") for prefix in (b"", b"p") for number in range(400)])
    assert await keys(table, KeyRange(start=b"010", end=b"013")) == [b"010", b"011", b"012"]
    assert await keys(table, KeyRange(b"p", b"398"), KeyRange(b"p", b"000", b"002")) == [b"398", b"399", b"000", b"001"]
    assert await keys(table, KeyRange(b"p", b"398"), KeyRange(b"p", b"000", b"002"), reverse=True) == [
        *(b"399", b"398", b"001", b"000"),
    ]
    assert len(await keys(table)) == 800
    limited = [row.key async for row in table.scan(prefix=b"p", limit=300)]
    assert limited == [b"%03d" % number for number in range(300)]
    assert [row.key async for row in table.scan(limit=0)] == []
    assert await table.approximate_count() == 800


async def test_a_scan_that_is_given_up_costs_nothing_later(table: Face) -> None:
    await table.batch([Row(b"", b"%04d" % number, b"v" * 2000) for number in range(2000)])
    for _ in range(3):
        scan = table.scan()
        assert (await anext(scan)).key == b"0000"
        await scan.aclose()
    assert len(await keys(table)) == 2000


async def test_a_condition_holds_or_nothing_is_written(table: Face) -> None:
    first = await table.put_if(b"k", b"1", None)
    with pytest.raises(VersionConflict):
        await table.put_if(b"k", b"2", None)
    with pytest.raises(VersionConflict):
        await table.put_if(b"k", b"2", Version(first, 1))
    second = await table.put_if(b"k", b"2", Version(first, 0))
    assert second > first
    await table.delete(b"k")
    await table.put_if(b"k", b"3", None)
    assert values(await table.get([b"k"])) == [b"3"]


async def test_slices(table: Face) -> None:
    await table.put(b"k", b"0123456789")
    await table.put(b"null", None)
    assert await table.get_slice(b"k", 2, 3) == b"234"
    assert await table.get_slice(b"k", 8, 5) == b"89"
    assert await table.get_slice(b"null", 0, 1) is None
    assert await table.get_slice(b"none", 0, 1) is None
    with pytest.raises(ValueError, match="negative"):
        await table.get_slice(b"k", -1, 1)


async def test_fresh_reads(table: Face) -> None:
    await table.put(b"k", b"1")
    await table.refresh()
    assert values(await table.get([b"k"], fresh=True)) == [b"1"]
    assert [row.value async for row in table.scan(fresh=True)] == [b"1"]


async def test_refusals_have_the_same_names(table: Face) -> None:
    with pytest.raises(ValueError, match="no rows"):
        await table.batch([])
    with pytest.raises(KeyTooLongError):
        await table.put(bytes(200), b"v")
    with pytest.raises(TimestampError):
        await table.put(b"k", b"v", timestamp_ms=1 << 60)
    with pytest.raises(EnvelopeError):
        await table.batch([Row(b"", b"k", b"v", tombstone=True)])
    assert await table.high_water_mark() == -1


async def test_a_timestamp_decides(table: Face) -> None:
    await table.put(b"k", b"new", timestamp_ms=2000)
    await table.put(b"k", b"old", timestamp_ms=1000)
    assert values(await table.get([b"k"])) == [b"new"]
    await table.batch([Row(b"", b"k", b"far", 1 << 60)], any_timestamp=True)
    assert values(await table.get([b"k"])) == [b"far"]


async def test_follow_tells_all_rows_in_order(table: Face) -> None:
    last = -1
    for number in range(20):
        last = await table.put(b"k", b"%d" % number, prefix=b"p" if number % 2 else b"q")
    rows: list[TableRow] = []
    async for taken in table.follow(-1, prefix=b"p", until=last):
        rows += taken.rows
    assert [row.value for row in rows] == [b"%d" % number for number in range(1, 20, 2)]
    rest = [row.value async for taken in table.follow(17, until=last) for row in taken.rows]
    assert rest == [b"18", b"19"]
    with pytest.raises(waltz.ClientAheadError):
        async for _ in table.follow(100, until=200):
            pass
