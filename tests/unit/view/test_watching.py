"""Watches: everything after a transaction, once and in order, in both forms; slow readers are cut."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

import waltz
from tests.unit.view.node import TIMEOUT_S, Node, session, view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table import Row, Table
from waltz.view import watching

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
def cluster() -> list[MockServerPartition]:
    return MockServerPartition.create(1)


@pytest.fixture
async def table(cluster: list[MockServerPartition], stack: AsyncExitStack) -> Table:
    client = await stack.enter_async_context(waltz.connect(MockDriver(cluster)))
    await waltz.table.configure(client, 0, {"format": "table"})
    return await stack.enter_async_context(client.table(0))


@pytest.fixture
async def node(cluster: list[MockServerPartition], table: Table, stack: AsyncExitStack, tmp_path: Path) -> Node:
    started = await stack.enter_async_context(view_node(cluster, tmp_path))
    await started.served()
    return started


@pytest.fixture
async def http(node: Node, stack: AsyncExitStack) -> aiohttp.ClientSession:
    return await stack.enter_async_context(session(node))


async def seen(response: aiohttp.ClientResponse, until: int) -> list[int]:
    """The transactions of the rows of a watch, up to one."""
    found: list[int] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not found or found[-1] < until:
            line = json.loads(await response.content.readline())
            if "rows" in line or "truncate" in line:
                found.append(line["transaction"])
    return found


async def test_a_watch_tells_what_is_there_and_what_comes(http: aiohttp.ClientSession, table: Table) -> None:
    for number in range(5):
        await table.put(b"k", b"%d" % number, prefix=b"p" if number % 2 else b"q")
    async with http.get("/v1/tables/0/watch?after=0&prefix=p") as response:
        assert response.content_type == "application/x-ndjson"
        assert await seen(response, 3) == [1, 3]
        await table.put(b"k", b"new", prefix=b"q")
        last = await table.put(b"k", b"new", prefix=b"p")
        assert await seen(response, last) == [last]
        assert await seen(response, await table.truncate()) == [last + 1]


async def test_a_watch_without_a_place_begins_at_the_view(http: aiohttp.ClientSession, table: Table) -> None:
    last = await table.put(b"k", b"old")
    async with http.get(f"/v1/tables/0?at_least={last}"):
        pass
    async with http.get("/v1/tables/0/watch") as response:
        assert json.loads(await response.content.readline()) == {"progress": {"transaction": last}}
        assert await seen(response, await table.put(b"k", b"new")) == [last + 1]


async def test_a_watch_without_rows_says_how_far_it_is(http: aiohttp.ClientSession, table: Table) -> None:
    async with http.get("/v1/tables/0/watch?prefix=none&progress_s=1") as response:
        last = await table.put(b"k", b"v")
        async with asyncio.timeout(TIMEOUT_S):
            while json.loads(await response.content.readline()) != {"progress": {"transaction": last}}:
                pass


async def test_a_browser_resumes_by_the_last_event(http: aiohttp.ClientSession, table: Table) -> None:
    await table.batch([Row(b"", b"a", b"1"), Row(b"", b"b", b"line\nbreak")])
    await table.put(b"a", b"2")
    headers = {"Accept": "text/event-stream"}
    async with http.get("/v1/tables/0/watch?after=-1", headers=headers) as response:
        assert response.content_type == "text/event-stream"
        events: list[dict[str, str]] = [{}]
        async with asyncio.timeout(TIMEOUT_S):
            while len(events) < 4:
                line = (await response.content.readline()).decode().rstrip("\n")
                if not line:
                    events.append({})
                    continue
                name, _, value = line.partition(": ")
                events[-1][name] = value
    assert [(event["id"], event["event"]) for event in events[:3]] == [("-1", "progress"), ("0", "rows"), ("1", "rows")]
    assert [row["value"] for row in json.loads(events[1]["data"])["rows"]] == ["1", "line\nbreak"]
    async with http.get("/v1/tables/0/watch?after=-1", headers=headers | {"Last-Event-ID": "0"}) as response:
        assert await response.content.readline() == b"id: 0\n"
        async with asyncio.timeout(TIMEOUT_S):
            while await response.content.readline() != b"id: 1\n":
                pass


async def test_a_slow_reader_is_cut_and_goes_on_without_a_gap(
    node: Node, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SEND_TIMEOUT_S", 0.2)
    values = [bytes([97 + number % 26]) * 500_000 for number in range(60)]
    for value in values:
        await table.put(b"k", value)
    host, port = node.endpoint.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=4096)
    writer.write(b"GET /v1/tables/0/watch?after=-1 HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(TIMEOUT_S):
        while not node.metrics._ended["slow"]:
            await asyncio.sleep(0.02)
    writer.close()
    assert node.metrics.watches == 0
    after, found = -1, []
    async with asyncio.timeout(TIMEOUT_S):
        async with session(node) as http:
            while after < len(values) - 1:
                async with http.get(f"/v1/tables/0/watch?after={after}", read_bufsize=1 << 24) as response:
                    async for line in response.content:
                        event = json.loads(line)
                        if "rows" in event:
                            after = event["transaction"]
                            found.append(len(event["rows"][0]["value"]))
                        if "end" in event or after == len(values) - 1:
                            break
    assert found == [500_000] * len(values)


async def test_a_node_that_ends_says_so(cluster: list[MockServerPartition], table: Table, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(view_node(cluster, tmp_path / "second"))
        await node.served()
        async with session(node) as http, http.get("/v1/tables/0/watch") as response:
            await response.content.readline()
            ending = asyncio.create_task(stack.aclose())
            async with asyncio.timeout(TIMEOUT_S):
                rest = [json.loads(line) async for line in response.content]
            await ending
    assert rest[-1]["end"]["reason"] == "closed"
