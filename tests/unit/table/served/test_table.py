"""One suite for all faces of a table: with a view in the process, over a view node, and over a cluster in memory."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import waltz
from tests.unit.view.node import view_node
from waltz.client.errors import ConfirmedMarkNotSupportedError
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.errors import DeadlineExceededError
from waltz.table import (
    AsOf,
    AtLeast,
    EnvelopeError,
    JsonSerializer,
    KeyRange,
    KeyTooLongError,
    LeaseHeldError,
    LeaseLostError,
    PartitionedTable,
    PrefixedTable,
    PropertiesError,
    Row,
    Table,
    TableRow,
    TableTransaction,
    TimestampError,
    TypedTable,
    Version,
    VersionConflict,
)
from waltz.table.served.table import ServedTable

pytestmark = pytest.mark.timeout(60)

Face = Table | ServedTable

BYTES = [b"", b"a", "ä\0\n".encode(), b"\xff\x00\xfe", b'"}{', b"\x00"]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
def cluster() -> list[MockServerPartition]:
    return MockServerPartition.create(2)


@pytest.fixture
async def client(cluster: list[MockServerPartition], stack: AsyncExitStack) -> waltz.Client:
    client = await stack.enter_async_context(waltz.connect(MockDriver(cluster)))
    for partition_id in (0, 1):
        await waltz.table.configure(client, partition_id, {"format": "table", "maxKeySizeInBytes": 100})
    return client


@pytest.fixture(params=["local", "served", "in memory"])
async def made(
    request: pytest.FixtureRequest,
    client: waltz.Client,
    cluster: list[MockServerPartition],
    stack: AsyncExitStack,
    tmp_path: Path,
) -> Callable[[int], Face]:
    """Makes the table of a partition."""
    if request.param == "local":
        return client.table
    if request.param == "served":
        node = await stack.enter_async_context(view_node(cluster, tmp_path))
        await node.served()
        await node.served(1)
    return lambda partition_id: client.table(partition_id, view="served")


@pytest.fixture
async def table(made: Callable[[int], Face], stack: AsyncExitStack) -> Face:
    return await stack.enter_async_context(made(0))


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


async def test_takes_end_with_whole_transactions(table: Face) -> None:
    for number in range(10):
        prefix = b"\xff" if number % 2 else b"q"
        await table.batch([Row(prefix, b"%d" % number, b"1"), Row(prefix, b"%d" % number, b"2")])
    taken = await table.take(-1, 3)
    assert [(row.key, row.value) for row in taken.rows] == [(b"0", b"1"), (b"0", b"2"), (b"1", b"1"), (b"1", b"2")]
    assert taken[1:] == (1, False)
    taken = await table.take(taken.cursor)
    assert [row.version.transaction_id for row in taken.rows[::2]] == list(range(2, 10))
    assert taken[1:] == (9, True)
    assert await table.take(9) == ([], 9, True)
    odd = await table.take(-1, 4, prefix=b"\xff")
    assert [row.key for row in odd.rows] == [b"1", b"1", b"3", b"3"]
    odd = await table.take(odd.cursor, prefix=b"\xff")
    assert [row.key for row in odd.rows[::2]] == [b"5", b"7", b"9"]
    assert odd[1:] == (9, True)
    assert await table.take(-1, prefix=b"none") == ([], 9, True)
    with pytest.raises(ValueError, match="at least 1"):
        await table.take(-1, 0)
    with pytest.raises(waltz.ClientAheadError):
        await table.take(100)


async def test_a_take_may_be_longer_than_one_answer(table: Face) -> None:
    for _ in range(3):
        await table.batch([Row(b"", b"%d" % number, b"v") for number in range(5000)])
    taken = await table.take(-1, 12_000)
    assert (len(taken.rows), taken.cursor, taken.at_end) == (15_000, 2, True)


async def test_a_transaction_reads_and_writes(table: Face) -> None:
    await table.batch([Row(b"p", b"a", b"100"), Row(b"", b"b", b"1")])

    def move(transaction: TableTransaction) -> None:
        a = transaction.get(b"a", prefix=b"p")
        assert a is not None
        assert a.value == b"100"
        b = transaction.get(b"b")
        assert b is not None
        assert transaction.get(b"none") is None
        transaction.put(b"c", a.value)
        own = transaction.get(b"c")
        assert own is not None
        assert own.value == b"100"
        transaction.delete(b"b")
        assert transaction.get(b"b") is None
        assert transaction.keys == {b"a", b"b", b"c", b"none"}

    assert await table.transaction(move) == 1
    assert values(await table.get([b"b", b"c"])) == [None, b"100"]
    assert await table.transaction(lambda transaction: None) is None
    (row,) = await table.get([b"c"])
    seen: list[TableRow | None] = []
    assert await table.transaction(lambda transaction: seen.append(transaction.get(b"c"))) is None
    assert seen == [row]


async def test_the_work_of_a_transaction_may_be_asynchronous_and_fail(table: Face) -> None:
    await table.put(b"a", b"1")

    async def work(transaction: TableTransaction) -> None:
        await asyncio.sleep(0)
        row = transaction.get(b"a")
        assert row is not None
        transaction.put(b"b", row.value)
        raise LookupError("not today")

    with pytest.raises(LookupError, match="not today"):
        await table.transaction(work)
    assert await table.get([b"b"]) == [None]


async def test_work_that_hides_errors_gets_its_rows_all_the_same(table: Face) -> None:
    await table.put(b"a", b"1")
    found: list[bytes | None] = []

    def work(transaction: TableTransaction) -> None:
        try:
            row = transaction.get(b"a")
        except Exception:
            row = None
        found.append(None if row is None else row.value)
        transaction.put(b"b", found[-1])

    await table.transaction(work)
    assert values(await table.get([b"b"])) == [b"1"]
    assert found[-1] == b"1"


async def test_no_update_is_lost(table: Face, made: Callable[[int], Face]) -> None:
    """Several writers of one counter, each with a table of its own."""

    async def count() -> None:
        async with made(0) as own:
            for _ in range(10):

                def step(transaction: TableTransaction) -> None:
                    row = transaction.get(b"n")
                    transaction.put(b"n", b"%d" % (int((row and row.value) or b"0") + 1))

                await own.transaction(step)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(count())
    assert values(await table.get([b"n"], fresh=True)) == [b"40"]


async def test_a_transaction_has_so_many_attempts(table: Face, made: Callable[[int], Face]) -> None:
    await table.put(b"a", b"0")
    seen: list[bytes | None] = []
    async with made(0) as other:

        async def work(transaction: TableTransaction) -> None:
            row = transaction.get(b"a")
            assert row is not None
            seen.append(row.value)
            transaction.put(b"b", row.value)
            await other.put(b"a", b"%d" % len(seen))

        with pytest.raises(waltz.LockConflict):
            await table.transaction(work, max_attempts=3)
        assert seen == [b"0", b"1", b"2"]
        assert await table.get([b"b"]) == [None]
        with pytest.raises(waltz.NotAppendedError):
            await table.transaction(work, timeout_s=0.5)


async def test_a_transaction_wins_over_what_it_has_not_read(table: Face) -> None:
    far = (1 << 62) + 5
    await table.batch([Row(b"", b"k", b"far", far)], any_timestamp=True)
    await table.transaction(lambda transaction: transaction.put(b"k", b"new"))
    assert values(await table.get([b"k"])) == [b"new"]
    await table.transaction(lambda transaction: transaction.delete(b"k"))
    assert values(await table.get([b"k"])) == [None]


async def test_truncation(table: Face) -> None:
    await table.put(b"a", b"1")
    assert await table.truncate() == 1
    await table.put(b"b", b"1")
    assert await keys(table) == [b"b"]
    assert [row.key for row in (await table.take(-1)).rows] == [b"a", b"b"]


async def test_sweeps(table: Face, client: waltz.Client) -> None:
    await table.put(b"old", b"1", timestamp_ms=1000)
    await table.put(b"new", b"1")
    assert await table.sweep() is None
    assert await table.sweep_if_due() is None
    ages = {"ttlTimestampAgeInMillis": 3_600_000, "ttlTimestampIntervalMillis": 1000}
    await waltz.table.configure(client, 0, ages)
    async with asyncio.timeout(30):
        while (check := await table.check_sweep()).aged == 0:  # until the properties have come
            await asyncio.sleep(0.005)
    assert check == (1, True)
    assert await table.sweep_if_due() == 2
    await table.refresh()
    assert await table.get([b"old"], raw=True) == [None]
    assert await table.sweep_if_due() is None
    assert await table.sweep() == 3


async def test_levels_of_reads(table: Face, made: Callable[[int], Face], client: waltz.Client) -> None:
    async with made(0) as writer:
        written = await writer.put(b"k", b"1")
    answer = await table.get([b"k"], consistency=AtLeast(written))
    assert (values(answer), answer.applied) == ([b"1"], written)
    for level in ("fresh", "any", "leader_quorum", "quorum", "none"):
        assert values(await table.get([b"k"], consistency=level)) == [b"1"]
        assert [row.value async for row in table.scan(consistency=level)] == [b"1"]
        assert [key async for _, key in table.scan_keys(consistency=level)] == [b"k"]
        assert await table.get_slice(b"k", 0, 1, consistency=level) == b"1"
    for wrong in ("often", AtLeast(-2)):
        with pytest.raises(ValueError, match="level|at least -1"):
            await table.get([b"k"], consistency=wrong)
    with pytest.raises(ValueError, match="not both"):
        await table.get([b"k"], fresh=True, consistency="any")
    with pytest.raises(TypeError):
        await table.get([b"k"], consistency=5)  # type: ignore[arg-type]
    with pytest.raises(waltz.ConsistencyRefusedError) as refused:
        await table.get([b"k"], consistency="leader_all")
    assert refused.value.level == "leader_all"
    assert "nothing was read" in str(refused.value)
    assert str(refused.value).count("partition 0:") == 1


async def test_levels_of_writes(table: Face) -> None:
    await table.put(b"k", b"1", consistency="leader_quorum")
    await table.delete(b"k", consistency="leader_all")
    with pytest.raises(waltz.ConsistencyRefusedError) as refused:
        await table.put(b"k", b"2", consistency="quorum")
    assert refused.value.level == "quorum"
    for wrong in ("often", "leader"):
        with pytest.raises(ValueError, match="is no level|leader is not possible here"):
            await table.put(b"k", b"2", consistency=wrong)
    assert await table.high_water_mark(strict=False) == 1


async def test_past_states_are_of_local_views(table: Face) -> None:
    await table.put(b"k", b"1")
    await table.put(b"k", b"2")
    if isinstance(table, Table):
        assert values(await table.get([b"k"], consistency=AsOf(0))) == [b"1"]
    else:
        with pytest.raises(ValueError, match="present state only"):
            await table.get([b"k"], consistency=AsOf(0))


async def test_refresh_need_not_be_strict(table: Face, made: Callable[[int], Face]) -> None:
    async with made(0) as other:
        await other.put(b"k", b"1")
    await table.refresh(strict=False)
    assert values(await table.get([b"k"])) == [b"1"]


async def test_parts_of_tables(table: Face) -> None:
    accounts = PrefixedTable(table, b"accounts")
    await accounts.put(b"ann", b"1")
    await accounts.put_if(b"bob", b"2", None)
    assert [row.key async for row in accounts.scan()] == [b"ann", b"bob"]
    assert [row.key for row in (await accounts.take(-1)).rows] == [b"ann", b"bob"]
    typed = TypedTable(table, JsonSerializer(), b"typed")
    await typed.put(b"ann", {"n": 1})
    await typed.update(b"bob", lambda value: value or 5)
    assert await typed.get([b"ann", b"bob"]) == [{"n": 1}, 5]
    assert [key async for key, _ in typed.scan()] == [b"ann", b"bob"]


async def test_several_partitions(made: Callable[[int], Face]) -> None:
    async with PartitionedTable.of([made(0), made(1)]) as large:
        for number in range(10):
            await large.put(b"%d" % number, b"v")
        assert [row.key async for row in large.scan()] == [b"%d" % number for number in range(10)]
        assert await large.approximate_count() == 10
        await large.transaction([b"3"], lambda transaction: transaction.delete(b"3"))
        assert [row and row.key for row in await large.get([b"2", b"3"])] == [b"2", None]
    with pytest.raises(ValueError, match="one partition or in several"):
        PartitionedTable.of([])


ONLY_LOCAL = {"partition", "properties", "save_snapshot", "skipped"}
"""What is about a view in the process."""


def test_both_faces_have_the_same_calls() -> None:
    def calls(of: type) -> dict[str, list[tuple[str, object]]]:
        found: dict[str, list[tuple[str, object]]] = {}
        for name, value in inspect.getmembers(of):
            if not name.startswith("_"):
                signature = inspect.signature(value) if inspect.isfunction(value) else inspect.Signature()
                found[name] = [(each.name, each.kind) for each in signature.parameters.values()]
        return found

    local, served = calls(Table), calls(ServedTable)
    assert local.keys() - served.keys() == ONLY_LOCAL
    assert served == {name: shape for name, shape in local.items() if name not in ONLY_LOCAL}


async def test_a_lease_has_one_holder_until_it_is_released(table: Face, made: Callable[[int], Face]) -> None:
    first = await table.acquire(b"mailer", "one", duration_s=3600, prefix=b"p")
    assert (first.holder, first.duration_s) == ("one", 3600)
    assert 0 < first.left_s <= 0.9 * 3600
    async with made(0) as other:
        with pytest.raises(LeaseHeldError, match="held by 'one'") as held:
            await other.acquire(b"mailer", "two", duration_s=1, prefix=b"p", timeout_s=0.05)
        assert held.value.holder == "one"
        assert 0 < held.value.wait_s <= 3600
        await other.acquire(b"mailer", "two", duration_s=1, prefix=b"another")
        renewed = await table.renew(first)
        assert renewed.term == first.term
        assert renewed.ends_s > first.ends_s
        assert await table.release(renewed) is not None
        assert await table.release(renewed) is None
        with pytest.raises(LeaseLostError, match="has ended"):
            await table.renew(renewed)
        second = await other.acquire(b"mailer", "two", duration_s=3600, prefix=b"p")
        assert second.term > first.term
        again = await other.acquire(b"mailer", "two", duration_s=3600, prefix=b"p")
        assert again.term > second.term
        with pytest.raises(LeaseLostError):
            await other.renew(second)
        assert await other.release(second) is None
        assert (await other.renew(again)).term == again.term


async def test_a_lease_that_is_not_renewed_is_lost_before_another_has_it(
    table: Face, made: Callable[[int], Face]
) -> None:
    lease = await table.acquire(b"mailer", "one", duration_s=0.3)
    async with made(0) as other:
        later = await other.acquire(b"mailer", "two", duration_s=3600, timeout_s=30)
        assert lease.left_s == 0
        assert later.term > lease.term
    with pytest.raises(LeaseLostError, match="not renewed in time"):
        await table.renew(lease)


async def test_a_lease_fences_transactions_whatever_the_clock_of_its_holder_says(
    table: Face, made: Callable[[int], Face]
) -> None:
    lease = await table.acquire(b"mailer", "one", duration_s=3600)

    def work(transaction: TableTransaction) -> None:
        lease.check(transaction)
        transaction.put(b"sent", b"1")

    assert await table.transaction(work) is not None
    lease = await table.renew(lease)
    assert await table.transaction(work) is not None
    attempts = 0

    async def overtaken(transaction: TableTransaction) -> None:
        nonlocal attempts
        lease.check(transaction)
        transaction.put(b"sent", b"2")
        attempts += 1
        async with made(0) as other:  # when the rows are read, and before they are written
            await other.release(lease)
            await other.acquire(b"mailer", "two", duration_s=3600)

    with pytest.raises(LeaseLostError, match="has ended"):
        await table.transaction(overtaken)
    assert attempts == 1
    assert values(await table.get([b"sent"], fresh=True)) == [b"1"]


async def test_leases_that_are_refused(table: Face, client: waltz.Client) -> None:
    for duration_s in (0.01, 3601):
        with pytest.raises(ValueError, match="duration_s"):
            await table.acquire(b"k", "one", duration_s=duration_s)
    for holder in ("", 257 * "x"):
        with pytest.raises(ValueError, match="holder"):
            await table.acquire(b"k", holder, duration_s=1)
    await table.put(b"k", b"something else")
    with pytest.raises(ValueError, match="no lease"):
        await table.acquire(b"k", "one", duration_s=1)
    assert values(await table.get([b"k"])) == [b"something else"]
    await waltz.table.configure(client, 0, {"ttlTimestampAgeInMillis": 3_600_000})
    async with asyncio.timeout(30):
        while True:  # until the properties have come
            try:
                await table.acquire(b"lease", "one", duration_s=1)
            except PropertiesError as error:
                assert "rows expire here" in str(error)  # noqa: PT017 - of any attempt
                break


async def test_an_answer_says_what_it_is_of(table: Face) -> None:
    written = await table.put(b"k", b"1")
    answer = await table.get([b"k"], fresh=True, stale_ok_after_s=20)
    assert (values(answer), answer.applied, answer.stale) == ([b"1"], written, False)
    assert answer.age_s is not None
    stale = await table.get([b"k"], consistency=AtLeast(written + 5), stale_ok_after_s=0.05)
    assert (values(stale), stale.applied, stale.stale) == ([b"1"], written, True)
    assert stale.age_s is not None
    assert stale.age_s > answer.age_s
    assert not (await table.get([b"k"])).stale
    with pytest.raises(ValueError, match="AsOf"):
        await table.get([b"k"], consistency=AsOf(0), stale_ok_after_s=1)


async def test_a_read_may_take_what_is_there_where_no_owner_answers(
    table: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = await table.put(b"k", b"1")
    await table.get([b"k"], consistency=AtLeast(written))

    async def high_water_mark(*_: object, **more: bool) -> int:
        if more.get("confirmed"):
            raise ConfirmedMarkNotSupportedError(0)
        raise DeadlineExceededError("no owner")

    monkeypatch.setattr(waltz.Client, "high_water_mark", high_water_mark)
    with pytest.raises(ConfirmedMarkNotSupportedError):
        await table.get([b"k"], fresh=True)
    answer = await table.get([b"k"], fresh=True, stale_ok_after_s=5)
    assert (values(answer), answer.applied, answer.stale, answer.age_s) == ([b"1"], written, True, None)
