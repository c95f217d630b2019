"""Requests that go on to the next view node, and writes whose outcome is unknown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiohttp import web

import waltz
from tests.unit.view.node import TIMEOUT_S, view_node
from waltz.client.errors import NotAppendedError, OutcomeUnknownError
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.zk.client import ConnectionLossError
from waltz.table import ViewUnavailableError
from waltz.table.served import calls, nodes
from waltz.table.served.registration import ViewNode, in_order_of_choice

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> list[MockServerPartition]:
    return MockServerPartition.create(1)


@pytest.fixture
async def client(cluster: list[MockServerPartition]) -> AsyncIterator[waltz.Client]:
    driver = MockDriver(cluster)
    driver.serves_tables = False
    async with waltz.connect(driver) as opened:
        await waltz.table.configure(opened, 0, {"format": "table"})
        yield opened


async def say(client: waltz.Client, name: str, endpoint: str, zone: str | None = None) -> None:
    """Say that there is a view node."""
    nodes, root = client.directory
    await nodes.create(f"{root}/ext/view/0/{name}", ViewNode(endpoint, 0, zone).encode(), make_path=True)


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def node_with(answer: Answer) -> AsyncIterator[str]:
    """The endpoint of a node that answers everything in this way."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site.name if ":0" not in site.name else f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_dead_node_is_passed_over(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    await say(client, "dead", "http://127.0.0.1:1", "here")
    async with view_node(cluster, tmp_path) as node, client.table(0, view="served", zone="here") as table:
        await node.served()
        assert await table.put(b"k", b"v") == 0
        (row,) = await table.get([b"k"])
        assert row is not None


async def test_a_client_goes_over_to_another_node(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    async with AsyncExitStack() as first, client.table(0, view="served") as table:
        node = await first.enter_async_context(view_node(cluster, tmp_path))
        await node.served()
        await table.put(b"k", b"1")
        follow = table.follow(-1)
        while not (await anext(follow)).rows:
            pass
        async with view_node(cluster, tmp_path / "second") as other:
            await other.served()
            await first.aclose()
            last = await table.put(b"k", b"2")
            (row,) = await table.get([b"k"])
            assert row is not None
            assert row.value == b"2"
            async with asyncio.timeout(TIMEOUT_S):
                while not (taken := await anext(follow)).rows:
                    pass
            assert [row.version.transaction_id for row in taken.rows] == [last]
            await follow.aclose()


async def test_a_node_that_fails_two_calls_at_once_is_given_up_once(client: waltz.Client) -> None:
    asked = asyncio.Barrier(2)
    good = 0

    async def fail(_: web.Request) -> web.StreamResponse:
        await asked.wait()
        return web.Response(status=503)

    async def answer(_: web.Request) -> web.StreamResponse:
        nonlocal good
        good += 1
        return web.json_response({"applied": 0, "rows": [None]})

    async with node_with(fail) as bad_node, node_with(answer) as good_node:
        await say(client, "bad", bad_node, "here")
        await say(client, "good", good_node)
        async with client.table(0, view="served", zone="here") as table:
            await asyncio.gather(table.get([b"k"]), table.get([b"k"]))
            assert good == 2
            await table.get([b"k"])
    assert good == 3


async def test_a_read_goes_on_after_zookeeper_was_away(client: waltz.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    look, losses = nodes.view_nodes, iter([ConnectionLossError("away")])

    async def view_nodes(*arguments: Any) -> list[ViewNode]:
        for loss in losses:
            raise loss
        return await look(*arguments)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"applied": 0, "rows": [None]})

    monkeypatch.setattr(calls, "view_nodes", view_nodes)
    async with node_with(answer) as endpoint, client.table(0, view="served") as table:
        await say(client, "good", endpoint)
        assert list(await table.get([b"k"])) == [None]
    monkeypatch.setattr(calls, "view_nodes", AsyncMock(side_effect=ConnectionLossError("away")))
    async with client.table(0, view="served", timeout_s=0.1) as table:
        with pytest.raises(ViewUnavailableError, match="away"):
            await table.get([b"k"])
        with pytest.raises(NotAppendedError, match="away"):
            await table.put(b"k", b"v")


async def test_a_read_without_proof_is_of_the_most_advanced_view(client: waltz.Client) -> None:
    def answering(applied: int) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            if "fresh" in request.query:
                return web.Response(status=503)
            return web.json_response({"applied": applied, "rows": [None], "stale": False, "age_ms": 1500})

        return answer

    zookeeper, root = client.directory
    async with node_with(answering(5)) as near, node_with(answering(9)) as far:
        for name, node in (("near", ViewNode(near, 5, "here")), ("far", ViewNode(far, 9, "there"))):
            await zookeeper.create(f"{root}/ext/view/0/{name}", node.encode(), make_path=True)
        async with client.table(0, view="served", zone="here") as table:
            assert (await table.get([b"k"], consistency="any")).applied == 5
            answer = await table.get([b"k"], fresh=True, stale_ok_after_s=0.1)
            assert (answer.applied, answer.age_s, answer.stale) == (9, 1.5, True)
            assert (await table.get([b"k"], consistency="any")).applied == 5


@asynccontextmanager
async def view_calls(client: waltz.Client) -> AsyncIterator[calls.ViewCalls]:
    """Calls that know the view nodes, and soon take a read for late."""
    made = calls.ViewCalls(client, 0, calls.Ways(None, None, "here"))
    made._hedging.delay_s = 0.001
    await made.open()
    try:
        made._nodes = in_order_of_choice(await nodes.view_nodes(client, 0), "here", lambda _: None)
        yield made
    finally:
        await made.close()


def hedged(client: waltz.Client) -> int:
    return client.metrics.counter("waltz-client", "hedged-reads").count


async def test_a_late_read_is_sent_to_a_second_node_and_the_first_answer_counts(client: waltz.Client) -> None:
    hanging: list[web.Request] = []
    end = asyncio.Event()
    good = 0

    async def hang(request: web.Request) -> web.StreamResponse:
        hanging.append(request)
        await end.wait()
        return web.Response()

    async def answer(_: web.Request) -> web.StreamResponse:
        nonlocal good
        good += 1
        return web.json_response(good)

    async with node_with(hang) as slow, node_with(answer) as quick:
        await say(client, "slow", slow, "here")
        await say(client, "quick", quick)
        async with view_calls(client) as made:
            assert await made.ask("POST", "/get", {}, {}, timeout_s=TIMEOUT_S) == 1
            assert hedged(client) == 1
            async with asyncio.timeout(TIMEOUT_S):
                while not hanging or hanging[0].transport is not None:  # until the other request is given up
                    await asyncio.sleep(0.005)
            made._hedging._saved = 5
            writing = asyncio.create_task(made.ask("POST", "/batch", {}, {}, timeout_s=TIMEOUT_S, writes=True))
            scanning = asyncio.create_task(made.ask("GET", "/sweep", {}, {}, timeout_s=TIMEOUT_S))
            async with asyncio.timeout(TIMEOUT_S):
                while len(hanging) < 3:
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.02)
            assert (good, hedged(client)) == (1, 1)  # neither writes nor what costs much
            end.set()
            await asyncio.gather(writing, scanning, return_exceptions=True)


async def test_a_hedged_read_is_refused_at_once_and_fails_only_with_both(client: waltz.Client) -> None:
    status = 503

    async def late(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return web.Response(status=status)

    async with node_with(late) as one, node_with(late) as two:
        await say(client, "one", one)
        await say(client, "two", two)
        async with view_calls(client) as made:
            with pytest.raises(ViewUnavailableError):
                await made.ask("POST", "/get", {}, {}, timeout_s=0.3)
        status = 403
        async with view_calls(client) as made:
            with pytest.raises(waltz.NotAuthorizedError):
                await made.ask("GET", "", {}, None, timeout_s=TIMEOUT_S)
    assert hedged(client) == 2


async def test_without_nodes_calls_end_at_their_deadline(client: waltz.Client) -> None:
    async with client.table(0, view="served", timeout_s=0.1) as table:
        with pytest.raises(ViewUnavailableError, match="there is none in ZooKeeper"):
            await table.get([b"k"])
        with pytest.raises(NotAppendedError, match="there is none"):
            await table.put(b"k", b"v")


async def test_an_answer_that_is_lost_leaves_the_outcome_unknown(client: waltz.Client) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with node_with(cut) as endpoint, client.table(0, view="served", timeout_s=0.3) as table:
        await say(client, "cut", endpoint)
        with pytest.raises(OutcomeUnknownError):
            await table.put(b"k", b"v")
        with pytest.raises(ViewUnavailableError):
            await table.get([b"k"])


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, b"", OutcomeUnknownError),
        (200, b"nonsense", OutcomeUnknownError),
        (500, b"", OutcomeUnknownError),
        (502, b"", OutcomeUnknownError),
        (504, b"", OutcomeUnknownError),
        (202, b"", OutcomeUnknownError),
        (503, b"", NotAppendedError),
        (429, b"", NotAppendedError),
        (404, b"", NotAppendedError),
    ],
)
async def test_foreign_answers_to_writes(
    client: waltz.Client, status: int, body: bytes, error: type[Exception]
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body)

    async with node_with(answer) as endpoint, client.table(0, view="served", timeout_s=0.3) as table:
        await say(client, "foreign", endpoint)
        with pytest.raises(error) as raised:
            await table.put(b"k", b"v")
        assert type(raised.value) is error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"applied": 0}',
        b'{"applied": 0, "rows": 5}',
        b'{"applied": 0, "rows": []}',
        b'{"applied": 0, "rows": [5]}',
        b'{"applied": "x", "rows": [null]}',
        b'{"end": 5}\n',
        b'{"key": 5}\n',
        b"[" * 100_000,
    ],
)
async def test_foreign_answers_to_reads(client: waltz.Client, body: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    async with node_with(answer) as endpoint, client.table(0, view="served", timeout_s=0.3) as table:
        await say(client, "foreign", endpoint)
        with pytest.raises(ViewUnavailableError):
            await table.get([b"k"])
        with pytest.raises(ViewUnavailableError):
            assert [row async for row in table.scan()] == []


async def test_arguments_have_a_place_with_one_view_only(client: waltz.Client) -> None:
    with pytest.raises(TypeError, match="no store"):
        client.table(0, view="served", store="memory")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="only with view"):
        client.table(0, zone="a")  # type: ignore[call-overload]
    with pytest.raises(waltz.PartitionNotFoundError):
        client.table(7, view="served")
