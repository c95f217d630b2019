"""Write sessions in all faces of the client, in front of servers in memory."""

import asyncio
from typing import Any

import pytest

import waltz
from tests.unit.client.application import Callbacks, Context
from tests.unit.client.fake_server import until
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import LockFailure
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.wire.write_sessions import SessionFenced

pytestmark = pytest.mark.timeout(60)

OLD = (0, 1, 2, 3, 4)


def drivers(count: int = 2) -> tuple[MockServerPartition, list[MockDriver]]:
    """Drivers for the given number of clients of one partition."""
    partitions = MockServerPartition.create(1)
    return partitions[0], [MockDriver(partitions) for _ in range(count)]


async def append(client: waltz.Client, data: bytes) -> int:
    """Append after a connection was broken, in which case an append may get lost: the application repeats it."""
    while True:
        try:
            return await client.append(0, data)
        except waltz.NotAppendedError as error:
            if "got lost" not in str(error):
                raise


def datas(partition: MockServerPartition) -> list[bytes]:
    return [record.data for record in partition.transactions]


async def test_a_successor_knows_where_the_log_of_its_predecessor_ends() -> None:
    partition, (one, two) = drivers()
    async with waltz.connect(one, session_write=True) as old, waltz.connect(two, session_write=True) as new:
        assert await old.append(0, b"old") == 0
        assert old.write_session(0) == 1
        assert await new.last_transaction_id(0, fence=True) == 0
        assert new.write_session(0) == 2
        with pytest.raises(waltz.SessionFencedError, match="write session 1 is over"):
            await old.append(0, b"late")
        assert old.write_session(0) is None
        with pytest.raises(waltz.SessionFencedError):
            await old.append(0, b"later")
        assert await new.append(0, b"new") == 1
        assert await old.renew_session(0) == 2
        assert await old.append(0, b"shared") == 2
    assert datas(partition) == [b"old", b"new", b"shared"]


async def test_a_fenced_client_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    partition, (one, _) = drivers()
    seen: list[bytes] = []
    real = partition.append

    def noting(request: AppendRequest) -> LockFailure | SessionFenced | None:
        seen.append(request.data)
        return real(request)

    monkeypatch.setattr(partition, "append", noting)
    async with waltz.connect(one, session_write=True) as old:
        await old.append(0, b"a")
        partition.fence()
        with pytest.raises(waltz.SessionFencedError):
            await old.append(0, b"b")
        one.disconnect()
        results = await asyncio.gather(*(old.append(0, b"c") for _ in range(5)), return_exceptions=True)
        assert {type(result) for result in results} == {waltz.SessionFencedError}
    assert seen == [b"a", b"b"]


async def test_a_session_that_ended_while_there_was_no_connection_is_over() -> None:
    partition, (one, _) = drivers()
    async with waltz.connect(one, session_write=True) as client:
        await client.append(0, b"a")
        one.disconnect()
        await append(client, b"b")
        assert client.write_session(0) == 1
        partition.fence()
        one.disconnect()
        with pytest.raises(waltz.SessionFencedError):
            await append(client, b"c")


async def test_an_unexpected_session_is_not_fenced() -> None:
    _, (one, two) = drivers()
    async with waltz.connect(one, session_write=True) as client, waltz.connect(two, session_write=True) as other:
        await client.append(0, b"a")
        assert await other.last_transaction_id(0, fence=True, if_session=1) == 0
        for expected in (1, 7):  # one that is over, and one that never was
            with pytest.raises(waltz.SessionFencedError, match=f"the write session is 2, not {expected} as expected"):
                await client.last_transaction_id(0, fence=True, if_session=expected)
        assert other.write_session(0) == 2
        with pytest.raises(ValueError, match="if_session"):
            await client.last_transaction_id(0, if_session=1)
        with pytest.raises(ValueError, match="if_session"):
            await client.last_transaction_id(0, fence=True, if_session=0)


async def test_on_an_empty_partition_the_last_transaction_is_minus_one() -> None:
    _, (one, _) = drivers()
    async with waltz.connect(one, session_write=True) as client:
        assert await client.last_transaction_id(0, fence=True) == -1
        assert client.write_session(0) == 2
        assert await client.append(0, b"a") == 0
        assert await client.last_transaction_id(0) == 0


@pytest.mark.parametrize("versions", [OLD, (*OLD, 5)])
async def test_without_sessions_a_fence_has_no_effect_but_a_warning(
    versions: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    driver = MockDriver(versions=versions)
    async with waltz.connect(driver) as client:
        await client.append(0, b"a")
        assert await client.last_transaction_id(0) == 0
        assert "not fenced" not in caplog.text
        assert await client.last_transaction_id(0, fence=True) == 0
        assert "partition 0 was not fenced" in caplog.text
        assert client.write_session(0) is None
        with pytest.raises(waltz.InvalidOperationError, match="session_write=True"):
            await client.renew_session(0)
        with pytest.raises(waltz.InvalidOperationError, match="session_write=True"):
            async with client.exclusive(0):
                pass
    assert driver.partitions[0].write_session == 1


async def test_a_server_without_sessions_is_refused() -> None:
    driver = MockDriver(versions=OLD)
    async with waltz.connect(driver, session_write=True) as client:
        with pytest.raises(waltz.SessionNotSupportedError, match="sessionFallback"):
            await client.append(0, b"a")
        with pytest.raises(waltz.SessionNotSupportedError):
            await client.last_transaction_id(0, fence=True)
        with pytest.raises(waltz.SessionNotSupportedError):
            await client.renew_session(0)
        assert await client.last_transaction_id(0) == -1
    assert datas(driver.partitions[0]) == []


async def test_with_the_fallback_appends_go_without_a_session_and_fences_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = MockDriver(versions=OLD)
    environment = driver.environment(waltz.ClientOptions(), enableSessionWrite=True, sessionFallback="plain")
    client = await waltz.WaltzClient.open_in(environment, callbacks := Callbacks())
    async with client:
        for _ in range(3):
            await client.submit(Context())
            driver.disconnect()
        await until(lambda: len(callbacks.applied.get(0, [])) == 3)
        for call in (client.last_transaction_id(0, fence=True), client.renew_session(0)):
            with pytest.raises(waltz.SessionNotSupportedError):
                await call
    assert caplog.text.count("knows no write sessions") == 1


async def test_only_the_holder_of_an_exclusive_session_writes() -> None:
    partition, (one, two, three) = drivers(3)
    async with (
        waltz.connect(one, session_write=True) as holder,
        waltz.connect(two, session_write=True) as other,
        waltz.connect(three) as plain,
    ):
        await other.append(0, b"before")
        async with holder.exclusive(0) as session:
            assert session == waltz.ExclusiveSession(0, 2, 0)
            await holder.append(0, b"of the holder")
            one.disconnect()
            await append(holder, b"of the holder")
            with pytest.raises(waltz.SessionFencedError):
                await other.append(0, b"refused")
            with pytest.raises(waltz.SessionFencedError, match="another client holds"):
                await other.renew_session(0)
            with pytest.raises(waltz.SessionFencedError, match="another client holds an exclusive"):
                await plain.append(0, b"refused")
            with pytest.raises(waltz.InvalidOperationError, match="leave it first"):
                await holder.renew_session(0)
            with pytest.raises(waltz.InvalidOperationError, match="leave it first"):
                await holder.last_transaction_id(0, fence=True)
            with pytest.raises(waltz.InvalidOperationError, match="leave it first"):
                async with holder.exclusive(0):
                    pass
        assert (partition.write_session, partition.session_holder) == (3, None)
        assert await plain.append(0, b"plain") == 3
        assert holder.write_session(0) == 3
        assert await holder.append(0, b"shared") == 4


async def test_who_comes_while_another_client_holds_the_session_never_had_one(caplog: pytest.LogCaptureFixture) -> None:
    _, (one, two) = drivers()
    async with (
        waltz.connect(one, session_write=True) as holder,
        holder.exclusive(0),
        waltz.connect(two, session_write=True) as late,
    ):
        with pytest.raises(waltz.SessionFencedError, match="another client holds an exclusive write session"):
            await late.append(0, b"refused")
        assert late.write_session(0) is None
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["partition 0: another client holds an exclusive write session, so this one has none"]


async def test_an_exclusive_session_whose_block_is_never_entered_is_ended() -> None:
    partition, (one, two) = drivers()
    environment = one.environment(waltz.ClientOptions(), enableSessionWrite=True, sessionTimeout=200)
    async with waltz.Client(environment) as holder, waltz.connect(two) as other:
        await holder.append(0, b"a")
        one.suspend_feed()
        undecided = asyncio.create_task(holder.append(0, b"b"))
        await until(lambda: partition.high_water_mark == 1)
        with pytest.raises(waltz.DeadlineExceededError, match="is begun, but what came before"):
            async with holder.exclusive(0):
                pass
        assert partition.session_holder is None
        await other.append(0, b"c")
        one.resume_feed()
        assert await undecided == 1


async def test_whoever_takes_over_from_a_holder_ends_its_session() -> None:
    partition, (one, two) = drivers()
    async with waltz.connect(one, session_write=True) as old, waltz.connect(two, session_write=True) as new:
        async with old.exclusive(0) as session, new.exclusive(0) as taken:
            assert taken.number > session.number
            with pytest.raises(waltz.SessionFencedError):
                await old.append(0, b"refused")
            await new.append(0, b"a")
        assert partition.session_holder is None
    assert datas(partition) == [b"a"]


async def test_a_holder_that_was_fenced_leaves_the_session_of_its_successor_alone() -> None:
    partition, (one, two) = drivers()
    async with waltz.connect(one, session_write=True) as old, waltz.connect(two, session_write=True) as new:
        async with new.exclusive(0):
            pass
        old_session = old.exclusive(0)
        await old_session.__aenter__()
        async with new.exclusive(0) as session:
            await old_session.__aexit__(None, None, None)
            assert partition.write_session == session.number
            await new.append(0, b"a")


async def test_a_client_that_is_exclusive_by_configuration_asks_once() -> None:
    partition, (one, two) = drivers()
    async with waltz.connect(one, session_write=True, exclusive_session=True) as first:
        await first.append(0, b"a")
        assert (partition.write_session, partition.session_holder) == (2, first.client_id)
        one.disconnect()
        await append(first, b"b")
        async with waltz.connect(two, session_write=True, exclusive_session=True) as second:
            await second.append(0, b"c")
            with pytest.raises(waltz.SessionFencedError):
                await first.append(0, b"d")
            one.disconnect()
            with pytest.raises(waltz.SessionFencedError):
                await first.append(0, b"d")
            assert partition.session_holder == second.client_id
            assert await first.last_transaction_id(0, fence=True) == 2
            assert partition.session_holder == first.client_id
            assert await second.renew_session(0) == partition.write_session
            assert partition.session_holder == second.client_id
    assert datas(partition) == [b"a", b"b", b"c"]


async def test_exclusiveness_alone_means_nothing() -> None:
    driver = MockDriver()
    async with waltz.connect(driver, exclusive_session=True) as client:
        await client.append(0, b"a")
    assert driver.partitions[0].session_holder is None


@pytest.mark.parametrize("silent", [True, False])
async def test_an_append_that_got_lost_is_not_attempted_again(silent: bool) -> None:
    driver = MockDriver()
    driver.silent_faults = silent
    async with waltz.connect(driver, session_write=True) as client:
        await client.append(0, b"a")
        driver.force_next_append_fail()
        with pytest.raises(waltz.NotAppendedError, match="append it again"):
            await client.append(0, b"b")
        assert await client.append(0, b"c") == 1
    assert datas(driver.partitions[0]) == [b"a", b"c"]


async def test_what_was_submitted_before_a_fence_is_decided_and_applied_when_it_returns() -> None:
    driver = MockDriver()
    callbacks = Callbacks()
    client = await waltz.open_client(callbacks, driver, session_write=True)
    async with client:
        contexts = [Context() for _ in range(5)]
        for context in contexts:
            await client.submit(context)
        driver.suspend_feed()
        fence = asyncio.create_task(client.last_transaction_id(0, fence=True))
        await until(lambda: driver.partitions[0].write_session == 2)
        assert not fence.done()
        driver.resume_feed()
        assert await fence == 4
        assert callbacks.applied[0] == [0, 1, 2, 3, 4]
        assert all(context.done for context in contexts)


async def test_conflicts_are_attempted_again_while_the_session_is_held() -> None:
    driver = MockDriver()
    client = await waltz.open_client(Callbacks(), driver, session_write=True)
    async with client:
        driver.force_next_lock_fail()
        context = Context(write=[waltz.PartitionLocalLock("mock", 1)])
        await client.submit(context)
        await until(lambda: context.done)
        driver.partitions[0].fence()
        fenced = Context()
        await client.submit(fenced)
        await until(lambda: len(fenced.events) > 0)
        assert isinstance(fenced.events[-1], waltz.SessionFencedError)
        with pytest.raises(waltz.SessionFencedError):
            await client.submit(Context())
        async with client.exclusive(0) as session:
            assert client.write_session(0) == session.number
    assert len(driver.partitions[0].transactions) == 1


async def test_calls_of_a_closed_client_end() -> None:
    driver = MockDriver()
    async with waltz.connect(driver, session_write=True) as client:
        await client.append(0, b"a")
        driver.suspend_feed()
        fence = asyncio.create_task(client.last_transaction_id(0, fence=True))
        append = asyncio.create_task(client.append(0, b"b"))
        await until(lambda: driver.partitions[0].write_session == 2)
    with pytest.raises(waltz.ClientClosedError):
        await fence
    with pytest.raises(waltz.AppendError):
        await append
    with pytest.raises(waltz.ClientClosedError):
        await client.last_transaction_id(0)


async def test_every_call_has_a_deadline() -> None:
    driver = MockDriver()
    environment = driver.environment(waltz.ClientOptions(), enableSessionWrite=True, sessionTimeout=200)
    async with waltz.Client(environment) as client:
        await client.append(0, b"a")
        driver.suspend_feed()
        waiting = asyncio.create_task(client.append(0, b"b"))
        await until(lambda: driver.partitions[0].high_water_mark == 1)
        with pytest.raises(waltz.DeadlineExceededError, match="is begun, but what came before"):
            await client.last_transaction_id(0, fence=True)
        with pytest.raises(waltz.DeadlineExceededError, match=r"the write session was not told within 0.2 s"):
            await client.renew_session(0)
        driver.resume_feed()
        assert await waiting == 1


async def test_a_call_has_a_deadline_where_no_server_is_known() -> None:
    driver = MockDriver()
    environment = driver.environment(
        waltz.ClientOptions(rpc_timeout_s=0.05), enableSessionWrite=True, sessionTimeout=200
    )
    async with waltz.Client(environment) as client:
        engine: Any = client._engine
        engine.remove_server(next(iter(engine._stream._links._assignments._owners.values())).endpoint)
        for call in (client.last_transaction_id(0, fence=True), client.renew_session(0)):
            with pytest.raises(waltz.DeadlineExceededError, match="no server is known to own"):
                await call
        with pytest.raises(waltz.DeadlineExceededError, match="no server is known to own"):
            async with client.exclusive(0):
                pass


def test_threads_have_the_same() -> None:
    partition, (one, two) = drivers()
    with (
        waltz.blocking.connect(one, session_write=True) as old,
        waltz.blocking.connect(two, session_write=True, exclusive_session=False) as new,
    ):
        assert old.append(0, b"a") == 0
        assert new.last_transaction_id(0, fence=True, if_session=1) == 0
        with pytest.raises(waltz.SessionFencedError):
            old.append(0, b"b")
        assert old.renew_session(0) == new.write_session(0) == 2
        with new.exclusive(0) as session:
            assert session.number == new.write_session(0)
            new.append(0, b"c")
            with pytest.raises(waltz.SessionFencedError):
                old.append(0, b"d")
        assert old.last_transaction_id(0) == 1
    assert partition.session_holder is None


async def test_a_feed_of_an_old_server_takes_no_exclusive_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine of the feed is another member of the cluster: an exclusive session for it would be taken from its
    own client."""
    driver = MockDriver(1, versions=OLD)
    (partition,) = driver.partitions
    partition.add(b"a")
    connecting = waltz.connect(driver, session_write=True, exclusive_session=True, session_fallback="plain")
    async with connecting as client, client.feed(0, after=-1) as feed:
        await anext(feed)
        (reader,) = client._readers
        assert client._engine is not None
        mounts = [engine.partitions[0].mount for engine in (client._engine, reader)]
        monkeypatch.setattr(client._environment.connector, "_versions", CLIENT_SERVER.versions)
        before = partition.write_session
        driver.disconnect()
        await until(lambda: all(mount.channel and mount.channel.version > max(OLD) for mount in mounts))
        partition.add(b"b")
        assert (await anext(feed)).data == b"b"
        assert await append(client, b"c") == 2
        assert (partition.session_holder, partition.write_session) == (client.client_id, before + 1)


@pytest.mark.parametrize("turns", range(1, 14))
async def test_an_exclusive_session_that_was_given_up_is_ended(turns: int) -> None:
    """However far it has come: others write, and so does who has given it up, at the latest when it asks for it."""
    partition, (one, two) = drivers()
    async with waltz.connect(one, session_write=True) as holder, waltz.connect(two) as other:
        assert await holder.append(0, b"a") == 0

        async def lead() -> None:
            async with holder.exclusive(0):
                pass

        leading = asyncio.create_task(lead())
        for _ in range(turns):
            await asyncio.sleep(0)
        leading.cancel()
        await asyncio.wait((leading,))
        await until(lambda: partition.session_holder is None and not holder._own_engine()._tasks._tasks)
        assert await other.append(0, b"b") == 1
        if partition.write_session != holder.write_session(0):
            with pytest.raises(waltz.SessionFencedError):
                await holder.append(0, b"not under a number that nobody has asked for")
            assert await holder.renew_session(0) == partition.write_session
        assert await holder.append(0, b"c") == 2
