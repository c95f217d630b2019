"""Elections in all faces of the client, in front of servers and ZooKeeper in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import waltz
from tests.unit.client.application import Callbacks
from tests.unit.client.fake_server import until
from waltz.client.election import leader_of
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.nodes import MockNodes
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import LockFailure
from waltz.common.wire.write_sessions import NO_WRITE_SESSION, SessionFenced
from waltz.common.zk.client import ConnectionLossError, NoNodeError, State, Watch
from waltz.common.zk.client import Stat as NodeStat

pytestmark = pytest.mark.timeout(60)

NODE = "/mock/ext/election/0"


def connected(partitions: list[MockServerPartition]) -> waltz.Client:
    return waltz.connect(MockDriver(partitions), session_write=True)


@asynccontextmanager
async def two_clients() -> AsyncIterator[tuple[MockServerPartition, waltz.Client, waltz.Client]]:
    partitions = MockServerPartition.create(2)
    async with connected(partitions) as one, connected(partitions) as two:
        yield partitions[0], one, two


async def end_session_of_leader(partition: MockServerPartition) -> None:
    """What the ensemble does with a client that is silent. The client knows nothing of it."""
    stat = await partition.nodes.exists(NODE)
    assert stat is not None
    partition.nodes.end_session(stat.owner)


def is_over(leadership: waltz.Leadership) -> bool:
    """Now; type checkers take an attribute for what it was a moment ago."""
    return leadership.over


async def lead(client: waltz.Client, name: str, resign: asyncio.Event, terms: list[int]) -> None:
    async with client.election(0, name).campaign() as leadership:
        terms.append(leadership.term)
        await client.append(0, name.encode())
        await resign.wait()


async def test_one_candidate_leads_at_a_time_and_terms_grow() -> None:
    async with two_clients() as (partition, one, two):
        resign, terms = asyncio.Event(), list[int]()
        first = asyncio.create_task(lead(one, "one", resign, terms))
        await until(lambda: len(terms) == 1)
        second = asyncio.create_task(lead(two, "two", resign, terms))
        await until(lambda: len(partition.nodes._watches.get(NODE, ())) == 1)  # it waits for the end of the first
        assert (len(terms), partition.session_holder) == (1, one.client_id)
        resign.set()
        await asyncio.gather(first, second)
        assert terms == sorted(terms)
        assert len(set(terms)) == 2
        assert [record.data for record in partition.transactions] == [b"one", b"two"]
        assert partition.session_holder is None
        with pytest.raises(NoNodeError):
            await partition.nodes.get(NODE)


async def test_the_leader_knows_its_term_and_where_it_begins() -> None:
    async with two_clients() as (partition, one, two):
        await two.append(0, b"before")
        async with one.election(0).campaign() as leadership:
            assert (leadership.partition_id, leadership.transaction_id) == (0, 0)
            assert leadership.term == one.write_session(0) == partition.write_session
            assert not is_over(leadership)
            with pytest.raises(waltz.SessionFencedError):
                await two.append(0, b"of another one")
            async for leader in two.election(0).observe():
                assert leader == waltz.Leader(f"client {one.client_id}", leadership.term)
                break
        assert is_over(leadership)
        await two.renew_session(0)
        assert await two.append(0, b"after") == 1


async def test_the_appends_of_a_leader_that_was_replaced_while_it_stood_still_are_refused() -> None:
    async with two_clients() as (partition, one, two):
        with pytest.raises(waltz.SessionFencedError):
            async with one.election(0).campaign() as old:
                await one.append(0, b"old")
                await end_session_of_leader(partition)
                async with two.election(0).campaign() as new:
                    assert (new.term > old.term, new.transaction_id) == (True, 0)
                    await two.append(0, b"new")
                    await one.append(0, b"late")
                    raise AssertionError("the append of the former leader was taken")
        assert old.over
        assert [record.data for record in partition.transactions] == [b"old", b"new"]


async def test_a_former_leader_leaves_its_successor_alone_and_may_campaign_again() -> None:
    async with two_clients() as (partition, one, two):
        campaign = one.election(0).campaign()
        old = await campaign.__aenter__()
        await end_session_of_leader(partition)
        async with two.election(0, "two").campaign() as new:
            with pytest.raises(waltz.SessionFencedError):
                await one.append(0, b"late")
            assert old.over
            await campaign.__aexit__(None, None, None)
            assert (partition.write_session, partition.session_holder) == (new.term, two.client_id)
            data, _ = await partition.nodes.get(NODE)
            assert leader_of(data) == ("two", new.term)
        async with one.election(0).campaign() as again:
            assert again.term > new.term
            await one.append(0, b"again")
        assert [record.data for record in partition.transactions] == [b"again"]


@pytest.mark.parametrize("at", ["before the present session is asked", "after"])
async def test_a_candidate_whose_node_is_gone_deposes_nobody(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """It stands still between winning its node and beginning its session, and another one is elected meanwhile."""
    async with two_clients() as (partition, one, two):
        assert one._engine is not None
        sessions = one._engine.sessions
        stopped, go_on, real = asyncio.Event(), asyncio.Event(), sessions.present

        async def present(partition_id: int) -> int:
            number = NO_WRITE_SESSION
            if at == "after":
                number = await real(partition_id)
            if not stopped.is_set():
                stopped.set()
                await go_on.wait()
            return number if at == "after" else await real(partition_id)

        monkeypatch.setattr(sessions, "present", present)
        resign, terms = asyncio.Event(), list[int]()
        slow = asyncio.create_task(lead(one, "slow", resign, terms))
        await stopped.wait()
        await end_session_of_leader(partition)
        async with two.election(0, "two").campaign() as leadership:
            go_on.set()
            await until(lambda: len(partition.nodes._watches.get(NODE, ())) == 1)  # it is a candidate again
            assert (partition.write_session, partition.session_holder) == (leadership.term, two.client_id)
            assert not is_over(leadership)
            await two.append(0, b"two")
        resign.set()
        await slow
        assert terms[0] > leadership.term


async def test_a_session_that_begins_in_between_is_not_ended_by_a_candidate_that_did_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_clients() as (partition, one, _):
        assert one._engine is not None
        sessions = one._engine.sessions
        asked, real = list[int](), sessions.present

        async def present(partition_id: int) -> int:
            asked.append(await real(partition_id))
            if len(asked) == 1:
                partition.fence(holder=7)
            return asked[-1]

        monkeypatch.setattr(sessions, "present", present)
        async with one.election(0).campaign() as leadership:
            assert asked == [1, 2]
            assert leadership.term == 3


async def test_observers_see_leaders_come_and_go() -> None:
    async with two_clients() as (partition, one, two):
        observation = two.election(0).observe()
        assert await anext(observation) is None
        async with one.election(0, "one").campaign() as leadership:
            assert await anext(observation) == waltz.Leader("one", leadership.term)
            await partition.nodes.set(NODE, json.dumps({"name": "one", "term": leadership.term, "more": 1}).encode())
            await end_session_of_leader(partition)
            assert await anext(observation) is None
        await observation.aclose()


async def test_a_candidate_that_has_not_begun_its_term_is_no_leader() -> None:
    for data in (None, b"", b"0f" * 16, b"[]", b"{}", b'{"name": "a"}', b'{"name": "a", "term": null}', b"\xff"):
        assert leader_of(data) is None
    assert leader_of(b'{"name": "a", "term": 7, "token": "b"}') == ("a", 7)


async def test_two_partitions_are_two_elections() -> None:
    async with two_clients() as (_, one, two), one.election(0).campaign(), two.election(1).campaign():
        await asyncio.gather(one.append(0, b"a"), two.append(1, b"b"))


async def test_closing_ends_campaigns_and_observations() -> None:
    async with two_clients() as (_, one, two), one.election(0).campaign():
        campaign = asyncio.create_task(two.election(0).campaign().__aenter__())
        observation = two.election(0).observe()
        await anext(observation)
        observing = asyncio.create_task(anext(observation))
        await asyncio.sleep(0)
        engine = two._engine
        assert engine is not None

        async def close_again(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await engine.close()

        await asyncio.gather(two.close(), *(close_again(turns) for turns in range(8)))
        for task in (campaign, observing):
            with pytest.raises(waltz.ClientClosedError):
                await task
        with pytest.raises(waltz.ClientClosedError):
            two.election(0)
        assert await one.append(0, b"a") == 0


async def test_a_cancelled_candidate_leaves_nothing_behind() -> None:
    """At whatever moment."""
    async with two_clients() as (partition, one, two):
        await one.append(0, b"a")
        for turns in range(40):
            resign = asyncio.Event()
            task = asyncio.create_task(lead(one, "one", resign, []))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: partition.session_holder is None)
            assert await partition.nodes.exists(NODE) is None
        async with two.election(0).campaign():
            await two.append(0, b"b")


async def test_the_campaign_goes_on_when_zookeeper_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz.client.election.RETRY_S", 0.01)
    async with two_clients() as (partition, one, two):
        lost, real_set, real_exists = list[str](), MockNodes.set, MockNodes.exists

        async def lose(nodes: MockNodes, path: str, data: bytes | None, version: int = -1) -> NodeStat:
            await real_set(nodes, path, data, version)
            if len(lost) < 2:
                lost.append("set")
                raise ConnectionLossError("the answer got lost")
            return await real_set(nodes, path, data, version)

        async def lose_look(nodes: MockNodes, path: str, watch: Watch | None = None) -> NodeStat | None:
            if lost.count("exists") < 2:
                lost.append("exists")
                raise ConnectionLossError("the connection is lost")
            return await real_exists(nodes, path, watch)

        monkeypatch.setattr(MockNodes, "set", lose)
        async with one.election(0, "one").campaign() as leadership:
            monkeypatch.setattr(MockNodes, "exists", lose_look)
            async for leader in two.election(0).observe():
                assert leader == ("one", leadership.term)
                break
        assert lost == ["set"] * 2 + ["exists"] * 2
        assert partition.session_holder is None


async def test_a_node_that_cannot_be_deleted_at_the_resignation_goes_when_zookeeper_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its session lives on: without that nobody could ever lead."""
    monkeypatch.setattr("waltz.client.election.RETRY_S", 0.01)
    monkeypatch.setattr("waltz.common.zk.mutex._RELEASE_TIMEOUT_S", 0.05)
    async with two_clients() as (partition, one, two):
        lost, real = list[str](), MockNodes.delete

        def lose(nodes: MockNodes, path: str, version: int) -> None:
            lost.append(path)
            raise ConnectionLossError("the connection is lost")

        async with one.election(0, "one").campaign() as leadership:
            monkeypatch.setattr(MockNodes, "delete", lose)
        assert await anext(two.election(0).observe()) == ("one", leadership.term)
        assert len(lost) >= 2
        monkeypatch.setattr(MockNodes, "delete", real)
        async with two.election(0).campaign():
            await two.append(0, b"two")
        assert partition.session_holder is None


async def test_a_leader_whose_zookeeper_session_has_ended_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_clients() as (_, one, _), one.election(0).campaign() as leadership:
        assert not is_over(leadership)
        with monkeypatch.context() as lost:
            lost.setattr(type(one.directory.nodes), "state", State.LOST)
            assert is_over(leadership)


async def test_what_cannot_be_is_said() -> None:
    driver = MockDriver()
    async with waltz.connect(driver) as client:
        with pytest.raises(waltz.InvalidOperationError, match="session_write=True"):
            async with client.election(0).campaign():
                pass
        with pytest.raises(waltz.PartitionNotFoundError):
            client.election(1)
        with pytest.raises(TypeError, match="partition_id"):
            client.election("0")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the name of a candidate is a text, not 7"):
            client.election(0, 7)  # type: ignore[arg-type]
    async with waltz.connect(MockDriver(versions=(0, 1, 2, 3, 4)), session_write=True) as client:
        with pytest.raises(waltz.SessionNotSupportedError):
            async with client.election(0).campaign():
                pass
    async with waltz.connect(MockDriver(), session_write=True) as client, client.exclusive(0):
        with pytest.raises(waltz.InvalidOperationError, match="leave it first"):
            async with client.election(0).campaign():
                pass


async def test_clients_with_callbacks_have_the_same() -> None:
    partitions = MockServerPartition.create(1)
    client = await waltz.open_client(Callbacks(), MockDriver(partitions), session_write=True, auto_mount=False)
    async with client, connected(partitions) as other:
        await client.set_partitions([0])
        async with client.election(0).campaign() as leadership:
            assert leadership.term == client.write_session(0)
            with pytest.raises(waltz.SessionFencedError):
                await other.append(0, b"refused")
        await client.set_partitions([])
        with pytest.raises(waltz.PartitionInactiveError):
            await client.election(0).campaign().__aenter__()


async def test_a_fenced_append_never_reaches_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every append of a leader carries its term."""
    async with two_clients() as (partition, one, _):
        carried, real = list[int](), partition.append

        def noting(request: AppendRequest) -> LockFailure | SessionFenced | None:
            carried.append(request.write_session)
            return real(request)

        monkeypatch.setattr(partition, "append", noting)
        async with one.election(0).campaign() as leadership:
            await one.append_many(0, [b"a", b"b"])
        assert carried == [leadership.term] * 2
