"""Levels of consistency in all faces of the client, over the mock driver."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

import waltz
from tests.consistency_table import ACCEPTED, BELOW_QUORUM, WORDS
from tests.unit.client.application import QUICK, Callbacks
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.connection import MockConnection
from waltz.common.wire.consistency import AppendLevelRequest

pytestmark = pytest.mark.timeout(120)

OF_ALL = ("leader_all", "write_all_read_one")
LATE_S = 0.4
"""A deadline that passes."""

Face = Callable[[MockDriver, str | None], Awaitable[int]]


class Levelled(waltz.TransactionContext):
    """A transaction at a level."""

    def __init__(self, consistency: str | None, *, guarantee_timeout_s: float = 30.0) -> None:
        self.consistency = consistency
        self.guarantee_timeout_s = guarantee_timeout_s
        self.outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.completed: list[bool] = []
        self.applied = asyncio.Event()
        self.guarantees: list[int] = []

    def partition_id(self, partition_count: int) -> int:
        return 0

    def execute(self, builder: waltz.TransactionBuilder) -> bool:
        builder.set_transaction_data(b"x", waltz.BytesSerializer())
        return True

    def on_completion(self, committed: bool) -> None:
        self.completed.append(committed)
        if not self.waits:
            self.outcome.set_result(0)

    @property
    def waits(self) -> bool:
        return self.consistency in OF_ALL

    def on_application(self) -> None:
        self.applied.set()

    async def on_guarantee(self, transaction_id: int, error: waltz.NotGuaranteedError | None) -> None:
        self.guarantees.append(transaction_id)
        if error is None:
            self.outcome.set_result(transaction_id)
        else:
            self.outcome.set_exception(error)

    def on_exception(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()


def only_error(error: waltz.AppendManyError) -> Exception:
    (outcome,) = error.outcomes
    assert isinstance(outcome, Exception)
    return outcome


async def until_committed(partition: MockServerPartition, count: int) -> None:
    async with asyncio.timeout(60):
        while partition.high_water_mark < count - 1:
            await asyncio.sleep(0)


async def plain(driver: MockDriver, level: str | None) -> int:
    async with waltz.connect(driver, options=QUICK) as client:
        return await client.append(0, b"x", consistency=level)


async def many(driver: MockDriver, level: str | None) -> int:
    async with waltz.connect(driver, options=QUICK) as client:
        try:
            return (await client.append_many(0, [b"x"], consistency=level))[0]
        except waltz.AppendManyError as error:
            raise only_error(error) from None


async def values(driver: MockDriver, level: str | None) -> int:
    async with waltz.connect(driver, options=QUICK) as client:
        return await client.with_serializer(waltz.StringSerializer()).append(0, "x", consistency=level)


async def blocking(driver: MockDriver, level: str | None) -> int:
    def append() -> int:
        with waltz.blocking.connect(driver, options=QUICK) as client:
            return client.append(0, b"x", consistency=level)

    return await asyncio.to_thread(append)


async def blocking_values(driver: MockDriver, level: str | None) -> int:
    def append() -> int:
        with waltz.blocking.connect(driver, options=QUICK) as client:
            return client.with_serializer(waltz.StringSerializer()).append_many(0, ["x"], consistency=level)[0]

    try:
        return await asyncio.to_thread(append)
    except waltz.AppendManyError as error:
        raise only_error(error) from None


async def callbacks(driver: MockDriver, level: str | None) -> int:
    client = await driver.open_client(Callbacks(), options=QUICK)
    try:
        context = Levelled(level)
        await client.submit(context)
        return await context.outcome
    finally:
        await client.close()


FROM_COMMIT = (many, blocking_values)
"""Faces without levels below the quorum."""

FACES = {face.__name__: face for face in (plain, many, values, blocking, blocking_values, callbacks)}


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    return FACES[request.param]


@pytest.mark.parametrize("demanded", WORDS)
async def test_all_64_pairs(face: Face, demanded: str) -> None:
    driver = MockDriver(1)
    driver.partitions[0].consistency = demanded
    count = 0
    for level in WORDS:
        if level in BELOW_QUORUM and face in FROM_COMMIT:
            with pytest.raises(ValueError, match=f"{level} is not possible here"):
                await face(driver, level)
        elif level in ACCEPTED[demanded]:
            await face(driver, level)
            count += 1
        else:
            with pytest.raises(waltz.ConsistencyRefusedError, match=f"demands the consistency {demanded}") as refused:
                await face(driver, level)
            assert (refused.value.partition_id, refused.value.level, refused.value.outcome_known) == (0, level, True)
        assert driver.partitions[0].high_water_mark == count - 1
    driver.partitions[0].require_consistency = False
    for level in set(WORDS) - (BELOW_QUORUM if face in FROM_COMMIT else set()):
        await face(driver, level)


@pytest.mark.parametrize("demanded", WORDS)
async def test_who_names_no_level_gets_that_of_the_partition(demanded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    set_level = MockConnection._set_level

    def watched(connection: MockConnection, request: AppendLevelRequest) -> None:
        told.append(request.level.word)
        set_level(connection, request)

    monkeypatch.setattr(MockConnection, "_set_level", watched)
    driver = MockDriver(1)
    driver.partitions[0].consistency = demanded
    for face in (plain, callbacks):
        await face(driver, None)
    expected = "leader_quorum" if demanded in BELOW_QUORUM else demanded
    assert told == [expected] * (0 if expected == "leader_quorum" else 2), "the usual level costs no message"


@pytest.mark.parametrize("level", OF_ALL)
async def test_the_call_returns_when_all_storages_have_it(level: str) -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    async with waltz.connect(driver, options=QUICK) as client:
        partition.hold_storage()
        waiting = [asyncio.create_task(client.append(0, b"%d" % number, consistency=level)) for number in range(3)]
        await until_committed(partition, 3)
        assert await client.append(0, b"committed") == 3
        assert [task.done() for task in waiting] == [False] * 3
        assert [transaction.data async for transaction in client.feed(0, after=-1, until=3)][3] == b"committed"
        partition.release_storage()
        assert await asyncio.gather(*waiting) == [0, 1, 2]


async def test_at_the_deadline_it_is_committed_and_that_is_told() -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    partition.hold_storage()
    async with waltz.connect(driver, options=QUICK) as client:
        with pytest.raises(
            waltz.NotGuaranteedError, match="0.4 s have passed: transaction 0 of partition 0 is"
        ) as late:
            await client.append(0, b"x", consistency="leader_all", timeout_s=LATE_S)
        assert (late.value.partition_id, late.value.transaction_id, late.value.outcome_known) == (0, 0, False)
        with pytest.raises(waltz.AppendManyError, match="2 committed, and perhaps not on all storages") as some:
            await client.append_many(0, [b"y", b"z"], consistency="leader_all", timeout_s=LATE_S)
        assert [type(outcome) for outcome in some.value.outcomes] == [waltz.NotGuaranteedError] * 2
        assert (some.value.not_guaranteed, some.value.unknown, some.value.not_appended) == (2, 0, 0)
        assert partition.high_water_mark == 2, "nothing is sent again"
        partition.release_storage()
        assert await client.append(0, b"later", consistency="leader_all") == 3
    with pytest.raises(waltz.NotGuaranteedError):
        partition.hold_storage()
        await asyncio.to_thread(append_late, driver)


def append_late(driver: MockDriver) -> None:
    with waltz.blocking.connect(driver, options=QUICK) as client:
        client.append(0, b"x", consistency="leader_all", timeout_s=LATE_S)


async def test_a_transaction_of_transact_has_the_level_of_the_partition() -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    partition.consistency = "leader_all"
    partition.hold_storage()
    client = await driver.open_client(Callbacks(), options=QUICK)
    async with waltz.connect(driver, options=QUICK) as other:
        with pytest.raises(waltz.NotGuaranteedError):
            await client.transact(0, lambda basis: b"x", timeout_s=LATE_S)
        with pytest.raises(waltz.NotGuaranteedError):
            await other.transact(0, lambda basis: b"x", timeout_s=LATE_S)
        partition.release_storage()
        assert await client.transact(0, lambda basis: b"x") == 2
        assert await other.transact(0, lambda basis: b"x") == 3
    await client.close()


async def test_a_context_is_told_of_the_commit_at_once_and_of_the_guarantee_later() -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    partition.hold_storage()
    client = await driver.open_client(Callbacks(), options=QUICK)
    held, late = Levelled("leader_all"), Levelled("leader_all", guarantee_timeout_s=LATE_S)
    for context in (held, late):
        await client.submit(context)
        await context.applied.wait()
        assert context.completed == [True]
    with pytest.raises(waltz.NotGuaranteedError, match="transaction 1"):
        await late.outcome
    assert held.guarantees == []
    partition.release_storage()
    assert await held.outcome == 0
    await client.submit(context := Levelled("leader_all"))
    assert await context.outcome == 2
    assert (held.guarantees, late.guarantees, context.guarantees) == ([0], [1], [2]), "each is told once"
    await client.close()


async def test_a_wrong_level_of_a_context_is_told_to_it_and_raised() -> None:
    client = await MockDriver(1).open_client(Callbacks(), options=QUICK)
    context = Levelled("most")
    with pytest.raises(ValueError, match="'most' is no level"):
        await client.submit(context)
    assert isinstance(context.outcome.exception(), ValueError)
    await client.close()


async def test_the_next_connection_is_asked_for_what_the_last_one_did_not_answer() -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    partition.hold_storage()
    async with waltz.connect(driver, options=QUICK) as client:
        waiting = asyncio.create_task(client.append(0, b"x", consistency="leader_all"))
        await until_committed(partition, 1)
        await client.append(0, b"y")
        driver.disconnect()
        await client.append(0, b"z")
        assert not waiting.done()
        partition.release_storage()
        assert await waiting == 0
        assert await client.append(0, b"again", consistency="leader_all") == 3


async def test_a_change_of_the_property_is_followed_by_those_who_name_no_level() -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    async with waltz.connect(driver, options=QUICK) as client:
        await client.append(0, b"x")
        partition.consistency = "leader_all"
        partition.hold_storage()
        with pytest.raises(waltz.NotGuaranteedError):
            await client.append(0, b"y", timeout_s=LATE_S)
        with pytest.raises(waltz.ConsistencyRefusedError):
            await client.append(0, b"z", consistency="leader_quorum")
        assert partition.high_water_mark == 1
        partition.consistency = "leader_quorum"
        partition.release_storage()
        assert await client.append(0, b"z") == 2
        partition.hold_storage()
        assert await client.append(0, b"committed") == 3


async def test_a_storage_that_is_away_refuses_the_level_at_once_and_nothing_is_appended(face: Face) -> None:
    driver = MockDriver(1)
    driver.partitions[0].storage_away = True
    with pytest.raises(waltz.ConsistencyRefusedError, match="needs all storages, and one is away"):
        await face(driver, "leader_all")
    assert driver.partitions[0].high_water_mark == -1
    await face(driver, "leader_quorum")


async def test_an_older_server_can_only_commit(face: Face) -> None:
    driver = MockDriver(1, versions=(0, 1, 2, 3, 4, 5))
    with pytest.raises(waltz.ConsistencyRefusedError, match="the server is too old for appends at leader_all"):
        await face(driver, "leader_all")
    assert driver.partitions[0].high_water_mark == -1
    await face(driver, "leader_quorum")
    await face(driver, "quorum")
    assert driver.partitions[0].high_water_mark == 1


async def test_closing_the_client_tells_who_waits() -> None:
    driver = MockDriver(1)
    driver.partitions[0].hold_storage()
    client = await waltz.connect(driver, options=QUICK)
    waiting = asyncio.create_task(client.append(0, b"x", consistency="leader_all"))
    await until_committed(driver.partitions[0], 1)
    await client.append(0, b"y")
    await client.close()
    with pytest.raises(waltz.NotGuaranteedError, match="the client was closed: transaction 0"):
        await waiting


async def test_a_cancelled_call_says_that_it_is_committed() -> None:
    driver = MockDriver(1)
    driver.partitions[0].hold_storage()
    async with waltz.connect(driver, options=QUICK) as client:
        waiting = asyncio.create_task(client.append(0, b"x", consistency="leader_all"))
        await until_committed(driver.partitions[0], 1)
        await client.append(0, b"y")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await waiting
        assert cancelled.value.__notes__ == ["The transaction is committed: 0."]


async def test_threads_wait_each_for_itself() -> None:
    driver = MockDriver(1)
    (partition,) = driver.partitions
    partition.hold_storage()
    found: list[int] = []

    def append() -> None:
        found.append(client.append(0, b"x", consistency="leader_all"))

    def both() -> None:
        threads = [threading.Thread(target=append) for _ in range(3)]
        for thread in threads:
            thread.start()
        while partition.high_water_mark < 2:
            client.append(0, b"y")
        assert found == []
        partition.release_storage()
        for thread in threads:
            thread.join(60)

    with waltz.blocking.connect(driver, options=QUICK) as client:
        await asyncio.to_thread(both)
    assert len(found) == 3
