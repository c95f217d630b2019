"""Levels of reads in all faces of tables, beside the table of the definition and a model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import waltz
from tests.consistency_table import ACCEPTED_READS, FRESH, WORDS
from tests.unit.client.application import QUICK
from tests.unit.table.model import Model
from tests.unit.table.strategies import near_envelopes
from waltz.client.mock import MockDriver
from waltz.common.errors import DeadlineExceededError
from waltz.table import Answer, AsOf, AtLeast, PartitionedTable, PartitionProperties, PrefixedTable, TypedTable
from waltz.table.codecs import Codec
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES, Batch, Envelope, Row, encode
from waltz.table.face.follower import Follower
from waltz.table.face.levels import ReadConsistency
from waltz.table.face.table import Table
from waltz.table.rows import TableRow
from waltz.table.view import KeyRange

pytestmark = pytest.mark.timeout(120)

TABLE = PartitionProperties(format="table")
LATE_S = 0.2
"""A deadline that passes."""

Face = Callable[[waltz.Client, PartitionProperties, str], Awaitable[object]]


def of(word: str, *, require: bool = True) -> PartitionProperties:
    return PartitionProperties.model_validate(
        {"format": "table", "consistency": word, "require_consistency": require}, by_name=True
    )


async def get(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with Table(client, 0, properties) as table:
        return [row is not None and row.value for row in await table.get([b"k"], consistency=level)]


async def get_slice(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with Table(client, 0, properties) as table:
        return [await table.get_slice(b"k", 0, 9, consistency=level)]


async def scan(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with Table(client, 0, properties) as table:
        return [row.value async for row in table.scan(prefix=b"", consistency=level)]


async def scan_keys(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with Table(client, 0, properties) as table:
        return [b"v" async for _ in table.scan_keys(prefix=b"", consistency=level)]


async def prefixed_get(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with Table(client, 0, properties) as table:
        rows = await PrefixedTable(table, b"p").get([b"k"], consistency=level)
        return [row is not None and row.value for row in rows]


async def prefixed_scan(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with Table(client, 0, properties) as table:
        return [row.value async for row in PrefixedTable(table, b"p").scan(consistency=level)]


async def typed_get(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with Table(client, 0, properties) as table:
        return await TypedTable(table, waltz.BytesSerializer()).get([b"k"], consistency=level)


async def typed_scan(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with Table(client, 0, properties) as table:
        scan = TypedTable(table, waltz.BytesSerializer(), b"p").scan(consistency=level)
        return [value async for _, value in scan]


async def several_get(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with PartitionedTable(client, [0], properties) as table:
        return [row is not None and row.value for row in await table.get([b"k"], consistency=level)]


async def several_scan(client: waltz.Client, properties: PartitionProperties, level: str) -> object:
    async with PartitionedTable(client, [0], properties) as table:
        return [row.value async for row in table.scan(prefix=b"p", consistency=level)]


FACES = {
    face.__name__: face
    for face in (
        get,
        get_slice,
        scan,
        scan_keys,
        prefixed_get,
        prefixed_scan,
        typed_get,
        typed_scan,
        several_get,
        several_scan,
    )
}


@pytest.fixture
async def client() -> AsyncIterator[waltz.Client]:
    async with waltz.connect(MockDriver(1)) as client:
        async with client.table(0, properties=TABLE) as table:
            await table.batch([Row(b"", b"k", b"v"), Row(b"p", b"k", b"v")])
        yield client


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set at first; while it is not, views stand still."""
    moving = asyncio.Event()
    moving.set()
    write = Follower._write

    async def gated(follower: Follower, transactions: object, records: object) -> None:
        await moving.wait()
        await write(follower, transactions, records)  # type: ignore[arg-type]

    monkeypatch.setattr(Follower, "_write", gated)
    return moving


async def until_waiting(table: Table, count: int) -> None:
    """Return when so many reads wait for the view."""
    async with asyncio.timeout(60):
        while len(table._partition.follower._waiting) < count:
            await asyncio.sleep(0)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("demanded", WORDS)
async def test_all_64_pairs(client: waltz.Client, face: str, demanded: str) -> None:
    for level in WORDS:
        if level not in ACCEPTED_READS[demanded]:
            with pytest.raises(
                waltz.ConsistencyRefusedError, match=f"consistency={demanded} .* {level}; nothing was read"
            ) as refused:
                await FACES[face](client, of(demanded), level)
            assert (refused.value.partition_id, refused.value.level) == (0, level)
        elif level in FRESH:
            assert await FACES[face](client, of(demanded), level) == [b"v"]
        else:
            await FACES[face](client, of(demanded), level)
        await FACES[face](client, of(demanded, require=False), level)


@pytest.mark.parametrize("demanded", WORDS)
def test_all_64_pairs_for_threads(demanded: str) -> None:
    with (
        waltz.blocking.connect(MockDriver(1)) as client,
        client.table(0, properties=of(demanded)) as table,
        client.table(0, properties=of(demanded, require=False)) as lenient,
        client.partitioned_table([0], properties=of(demanded)) as several,
    ):
        table.batch([Row(b"", b"k", b"v"), Row(b"p", b"k", b"v")])
        prefixed, typed = table.prefixed(b"p"), table.typed(waltz.BytesSerializer(), b"p")

        def reads(level: str) -> list[Callable[[], object]]:
            return [
                lambda: table.get([b"k"], consistency=level),
                lambda: table.get_slice(b"k", 0, 9, consistency=level),
                lambda: list(table.scan(consistency=level)),
                lambda: list(table.scan_keys(consistency=level)),
                lambda: prefixed.get([b"k"], consistency=level),
                lambda: list(prefixed.scan(consistency=level)),
                lambda: typed.get([b"k"], consistency=level),
                lambda: list(typed.scan(consistency=level)),
                lambda: several.get([b"k"], consistency=level),
                lambda: list(several.scan(consistency=level)),
            ]

        for level in WORDS:
            for read in reads(level):
                if level in ACCEPTED_READS[demanded]:
                    read()
                else:
                    with pytest.raises(waltz.ConsistencyRefusedError, match="nothing was read"):
                        read()
            lenient.get([b"k"], consistency=level)
        answer = table.get([b"k"], consistency=AtLeast(0))
        assert answer.applied == 0
        assert list(table.scan(consistency=AsOf(-1))) == []


async def test_what_an_answer_has(client: waltz.Client, held: asyncio.Event) -> None:
    async with client.table(0, properties=of("none")) as table, client.table(0, properties=TABLE) as other:
        await table.get([b"k"], fresh=True)
        held.clear()
        assert await other.put(b"k", b"new") == 1
        for level in ("any", "none", "leader_all", "write_all_read_one", None):
            (row,) = answer = await table.get([b"k"], consistency=level)
            assert isinstance(answer, Answer)
            assert row is not None
            assert (row.value, answer.applied) == (b"v", 0), "nothing is waited for"
        waited: list[ReadConsistency] = ["fresh", *sorted(FRESH), AtLeast(1)]
        waiting = [asyncio.create_task(table.get([b"k"], consistency=level)) for level in waited]
        await until_waiting(table, len(waiting))
        (row,) = await table.get([b"k"], consistency=AsOf(1))
        assert row is not None
        assert row.value == b"new", "the log has it"
        held.set()
        for answer in await asyncio.gather(*waiting):
            (row,) = answer
            assert row is not None
            assert (row.value, answer.applied) == (b"new", 1)


async def test_any_does_not_wait_even_for_own_writes(client: waltz.Client, held: asyncio.Event) -> None:
    async with client.table(0, properties=TABLE) as table:
        await table.get([b"k"], fresh=True)
        held.clear()
        assert await table.put(b"k", b"new") == 1
        assert (await table.get([b"k"], consistency="any")).applied == 0
        own = asyncio.create_task(table.get([b"k"], consistency=AtLeast(0)))
        await until_waiting(table, 1)
        held.set()
        assert (await own).applied == 1


@pytest.mark.parametrize("consistency", [AtLeast(1, LATE_S), AsOf(1, LATE_S)])
async def test_a_transaction_that_does_not_come_in_time(client: waltz.Client, consistency: ReadConsistency) -> None:
    async with client.table(0, properties=TABLE) as table:
        await table.get([b"k"], fresh=True)
        with pytest.raises(
            DeadlineExceededError, match="transaction 1 of partition 0 has not come within 0.2 s: .* 0$"
        ):
            await table.get([b"k"], consistency=consistency)
        assert (await table.get([b"k"])).applied == 0


async def test_wrong_arguments(client: waltz.Client) -> None:
    async with client.table(0, properties=TABLE) as table, PartitionedTable(client, [0], TABLE) as several:
        with pytest.raises(ValueError, match="'most' is no level of consistency"):
            await table.get([b"k"], consistency="most")
        with pytest.raises(ValueError, match="either fresh=True or a consistency"):
            await table.get([b"k"], fresh=True, consistency="fresh")
        with pytest.raises(ValueError, match="at least -1, not -2"):
            await table.get([b"k"], consistency=AsOf(-2))
        with pytest.raises(TypeError, match="name of a level, AtLeast or AsOf, not 3"):
            await table.get([b"k"], consistency=3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="ids are of one partition"):
            await several.get([b"k"], consistency=AsOf(0))  # type: ignore[arg-type]


async def test_a_view_that_was_closed_answers_nothing(client: waltz.Client) -> None:
    table = client.table(0, properties=TABLE)
    async with table:
        pass
    with pytest.raises(waltz.table.TableError, match="has stopped"):
        await table.get([b"k"], consistency="any")


async def test_writes_have_a_level() -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    async with waltz.connect(driver, options=QUICK) as client, client.table(0, properties=TABLE) as table:
        with pytest.raises(ValueError, match="leader is not possible here"):
            await table.put(b"k", b"v", consistency="leader")
        with pytest.raises(waltz.ConsistencyRefusedError, match="nothing was appended"):
            await table.delete(b"k", consistency="quorum")
        partition.hold_storage()
        waiting = asyncio.create_task(table.batch([Row(b"", b"k", b"v")], consistency="leader_all"))
        async for _ in table.follow(-1, until=0):
            pass
        assert not waiting.done()
        partition.release_storage()
        assert await waiting == 0
        assert await table.put(b"k", b"w") == 1


NEVER = 1 << 40


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.none() | near_envelopes(), min_size=1, max_size=12),
    st.data(),
)
def test_past_states_are_those_of_a_model(history: list[Envelope | None], data: st.DataObject) -> None:
    at = data.draw(st.integers(-1, len(history) - 1))
    raw = data.draw(st.booleans())
    start, end = sorted((data.draw(st.sampled_from((b"", b"a", b"b"))), data.draw(st.sampled_from((b"", b"a", b"z")))))
    driver = MockDriver(1)
    for envelope in history:
        driver.partitions[0].add(
            b"no envelope" if envelope is None else encode(envelope, Codec.NONE, DEFAULT_MAX_BODY_BYTES)
        )
    model = Model()
    model.apply_all(history[: at + 1])

    async def read() -> tuple[list[TableRow], list[TableRow], Answer]:
        async with waltz.connect(driver) as client, Table(client, 0, TABLE, clock=lambda: NEVER) as table:
            everything = [row async for row in table.scan(raw=raw, consistency=AsOf(at))]
            some = [
                row
                async for row in table.scan(KeyRange(start=start, end=end), raw=raw, consistency=AsOf(at), reverse=True)
            ]
            return everything, some, await table.get([b"a", b"none", b""], raw=raw, consistency=AsOf(at))

    everything, some, answer = asyncio.run(read())
    rows = model.scan(raw=raw)
    assert everything == rows
    assert some == [row for row in reversed(rows) if row.prefix == b"" and start <= row.key < end]
    by_key = {row.key: row for row in rows if row.prefix == b""}
    assert answer == [by_key.get(b"a"), None, by_key.get(b"")]
    assert answer.applied == at


async def test_past_rows_are_hidden_by_the_time_of_the_newest_then() -> None:
    driver = MockDriver(1)
    ages = PartitionProperties(format="table", ttl_timestamp_age_ms=100)
    for written_at_ms, key in ((1000, b"a"), (1050, b"b"), (1120, b"c"), (9000, b"d")):
        driver.partitions[0].add(
            encode(Batch(written_at_ms, [Row(b"", key, b"v")]), Codec.NONE, DEFAULT_MAX_BODY_BYTES)
        )
    async with waltz.connect(driver) as client, Table(client, 0, ages, clock=lambda: 9_050) as table:
        for at, keys in ((-1, []), (0, [b"a"]), (1, [b"a", b"b"]), (2, [b"b", b"c"]), (3, [b"d"])):
            assert [row.key async for row in table.scan(consistency=AsOf(at))] == keys
        assert [row.key async for row in table.scan()] == [b"d"]


async def test_a_table_without_rows_reads_the_past(client: waltz.Client) -> None:
    async with Table(client, 0, TABLE, store="noop") as table:
        assert await table.get([b"k"]) == [None]
        (row,) = await table.get([b"k"], consistency=AsOf(0))
        assert row is not None
        assert row.value == b"v"


async def test_a_write_that_is_committed_below_its_level_is_an_earlier_write(held: asyncio.Event) -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    partition.consistency = "leader_all"
    partition.hold_storage()
    async with waltz.connect(driver, options=QUICK) as client, client.table(0, properties=TABLE) as table:
        held.clear()
        with pytest.raises(waltz.NotGuaranteedError):
            await table.put_if(b"k", b"v", None, timeout_s=0.4)
        reading = asyncio.create_task(table.get([b"k"]))
        await until_waiting(table, 1)
        held.set()
        (row,) = await reading
        assert row is not None
        assert row.value == b"v"
