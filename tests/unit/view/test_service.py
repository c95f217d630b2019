"""The interface of a view node over real sockets: what it answers, and what it refuses."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import waltz
from tests.unit.view.node import TIMEOUT_S, Node, session, view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.access import EVERYTHING, Proof, Right, Rights
from waltz.common.acl.document import Document, Mode, Quota, Rule
from waltz.common.acl.enforcement import Applied, RuleAccess
from waltz.common.acl.rules import compile_rules
from waltz.common.pieces import at_once
from waltz.table import Row
from waltz.table.served import answers
from waltz.table.taking import Taken
from waltz.view import reading, service
from waltz.view.limits import Limits
from waltz.view.routes import ROUTES

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> list[MockServerPartition]:
    return MockServerPartition.create(2)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def client(cluster: list[MockServerPartition], stack: AsyncExitStack) -> waltz.Client:
    opened = await stack.enter_async_context(waltz.connect(MockDriver(cluster)))
    await waltz.table.configure(opened, 0, {"format": "table"})
    return opened


@pytest.fixture
async def node(cluster: list[MockServerPartition], client: waltz.Client, stack: AsyncExitStack, tmp_path: Path) -> Node:
    started = await stack.enter_async_context(view_node(cluster, tmp_path, limits=Limits(4, 2, 1 << 20)))
    await started.served()
    return started


@pytest.fixture
async def http(node: Node, stack: AsyncExitStack) -> aiohttp.ClientSession:
    return await stack.enter_async_context(session(node))


async def problem(response: aiohttp.ClientResponse, status: int, kind: str) -> str:
    """The text of an expected problem."""
    assert response.content_type == "application/problem+json", await response.text()
    body = await response.json(content_type=None)
    assert (response.status, body["status"], body["type"]) == (status, status, f"urn:waltz:{kind}"), body
    assert response.headers.get("Retry-After") == ("1" if status == 503 else None)
    return str(body["detail"])


async def test_a_row_with_plain_requests(http: aiohttp.ClientSession) -> None:
    async with http.put("/v1/tables/0/rows/a%20b%2F%FF?prefix=p", data=b"a value") as response:
        assert response.status == 200
        assert await response.json() == {"transaction": 0}
    async with http.get("/v1/tables/0/rows/a%20b%2F%FF?prefix=p&at_least=0") as response:
        row = await response.json()
        assert base64.b64decode(row["key"]["base64"]) == b"a b/\xff"
        assert (row["value"], row["version"], response.headers["ETag"]) == ("a value", "0.0", '"0.0"')
        assert response.headers["Waltz-Applied"] == "0"
    async with http.get("/v1/tables/0/rows/a%20b%2F%FF/value?prefix=p&offset=1&size=3") as response:
        assert await response.read() == b" va"
    async with http.delete("/v1/tables/0/rows/a%20b%2F%FF?prefix=p") as response:
        assert await response.json() == {"transaction": 1}
    async with http.get("/v1/tables/0/rows/a%20b%2F%FF?prefix=p&at_least=1") as response:
        await problem(response, 404, "no-row")
    async with http.get("/v1/tables/0/rows/a%20b%2F%FF?prefix=p&raw=true") as response:
        assert (await response.json())["tombstone"] is True


async def test_conditions_in_headers(http: aiohttp.ClientSession) -> None:
    async with http.put("/v1/tables/0/rows/k", data=b"1", headers={"If-None-Match": "*"}) as response:
        assert response.status == 200
    async with http.put("/v1/tables/0/rows/k", data=b"2", headers={"If-None-Match": "*"}) as response:
        assert "has the version 0.0" in await problem(response, 412, "version-conflict")
    async with http.put("/v1/tables/0/rows/k", data=b"2", headers={"If-Match": '"0.0"'}) as response:
        assert response.status == 200
    async with http.delete("/v1/tables/0/rows/k", headers={"If-Match": '"0.0"'}) as response:
        await problem(response, 412, "version-conflict")
    for headers in ({"If-Match": "x"}, {"If-None-Match": "x"}, {"If-Match": '"0.0"', "If-None-Match": "*"}):
        async with http.put("/v1/tables/0/rows/k", data=b"3", headers=headers) as response:
            await problem(response, 400, "bad-request")


async def test_a_batch_is_written_if_all_conditions_hold(http: aiohttp.ClientSession) -> None:
    await http.put("/v1/tables/0/rows/a", data=b"1")
    rows = [{"key": "a", "value": "2"}, {"key": "b", "value": None}, {"key": "c", "tombstone": True}]
    conditions = [{"key": "a", "version": "0.0"}, {"key": "b", "version": None}]
    async with http.post("/v1/tables/0/batch", json={"rows": rows, "if": conditions}) as response:
        assert await response.json() == {"transaction": 1}
    async with http.post("/v1/tables/0/batch", json={"rows": rows, "if": conditions}) as response:
        await problem(response, 412, "version-conflict")
    async with http.post("/v1/tables/0/get?fresh=true", json={"keys": ["a", "b", "c"]}) as response:
        answer = await response.json()
    assert answer["applied"] == 1
    assert [row and row["value"] for row in answer["rows"]] == ["2", None, None]


async def lines(response: aiohttp.ClientResponse) -> list[dict[str, Any]]:
    return [json.loads(line) async for line in response.content]


async def test_pages_of_a_scan(http: aiohttp.ClientSession, client: waltz.Client) -> None:
    async with client.table(0) as table:
        last = await table.batch([Row(b"", b"%03d" % number, b"v") for number in range(700)])
    found: list[object] = []
    query: dict[str, str] = {"limit": "300", "keys_only": "true", "at_least": str(last)}
    for reason in ("limit", "limit", "done"):
        async with http.get("/v1/tables/0/rows", params=query) as response:
            assert response.content_type == "application/x-ndjson"
            *rows, end = await lines(response)
        found += [row["key"] for row in rows]
        told = end["end"]
        assert (told["applied"], told["reason"], told["count"]) == (last, reason, len(rows))
        query["token"] = str(told["next"])
    assert found == [f"{number:03}" for number in range(700)]
    assert told["next"] is None


async def test_a_take_tells_each_transaction_and_where_it_ends(http: aiohttp.ClientSession) -> None:
    for number in range(4):
        await http.put(f"/v1/tables/0/rows/{number}?prefix={'%FF' if number % 2 else 'q'}", data=b"v")
    async with http.get("/v1/tables/0/take", params={"after": "0", "limit": "2"}) as response:
        assert response.content_type == "application/x-ndjson"
        *told, end = await lines(response)
    assert [(line["transaction"], len(line["rows"])) for line in told] == [(1, 1), (2, 1)]
    assert end == {"end": {"cursor": 2, "at_end": False, "count": 2}}
    async with http.get("/v1/tables/0/take?prefix=%FF") as response:
        *told, end = await lines(response)
    assert [line["transaction"] for line in told] == [1, 3]
    assert end["end"] == {"cursor": 3, "at_end": True, "count": 2}
    async with http.get("/v1/tables/0/take", params={"after": "3"}) as response:
        assert await lines(response) == [{"end": {"cursor": 3, "at_end": True, "count": 0}}]


async def test_a_long_take_ends_with_a_cursor(http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "TAKE_S", 0.0)
    cursor, found = -1, []
    rows = [{"key": f"{number}", "value": "v"} for number in range(10)]
    for _ in range(30):
        await http.post("/v1/tables/0/batch", json={"rows": rows})
    while cursor < 29:
        async with http.get("/v1/tables/0/take", params={"after": str(cursor)}) as response:
            *told, end = await lines(response)
        found += [line["transaction"] for line in told]
        cursor = end["end"]["cursor"]
        assert cursor == found[-1]
    assert found == list(range(30))


async def test_a_take_ends_in_time_while_the_log_cannot_be_read(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def parts(*_: object) -> AsyncIterator[Taken]:
        if not begun.is_set():
            yield Taken([], 4, at_end=False)
        await asyncio.Event().wait()

    monkeypatch.setattr(answers, "taken_parts", parts)
    monkeypatch.setattr(answers, "TAKE_S", 0.05)
    async with http.get("/v1/tables/0/take") as response:
        assert await lines(response) == [{"end": {"cursor": 4, "at_end": False, "count": 0}}]
    begun.set()
    async with http.get("/v1/tables/0/take?timeout_ms=50") as response:
        await problem(response, 503, "late")


async def test_truncation_and_sweeps(http: aiohttp.ClientSession, client: waltz.Client) -> None:
    await http.put("/v1/tables/0/rows/k", data=b"v")
    async with http.post("/v1/tables/0/truncate") as response:
        assert await response.json() == {"transaction": 1}
    async with http.get("/v1/tables/0/rows/k?at_least=1") as response:
        await problem(response, 404, "no-row")
    async with http.get("/v1/tables/0/sweep") as response:
        assert await response.json() == {"aged": 0, "due": False}
    body: dict[str, bool]
    for body in ({}, {"if_due": True}):
        async with http.post("/v1/tables/0/sweep", json=body) as response:
            assert await response.json() == {"transaction": None}
    for path, body in (("truncate", {"all": True}), ("sweep", {"if": True})):
        async with http.post(f"/v1/tables/0/{path}", json=body) as response:
            await problem(response, 400, "bad-request")


async def test_levels_are_parameters(http: aiohttp.ClientSession) -> None:
    async with http.put("/v1/tables/0/rows/k?consistency=leader_all", data=b"v") as response:
        assert await response.json() == {"transaction": 0}
    async with http.put("/v1/tables/0/rows/k?consistency=quorum", data=b"v") as response:
        assert "leader_quorum" in await problem(response, 409, "consistency")
    async with http.get("/v1/tables/0/rows/k?consistency=leader_quorum") as response:
        assert response.status == 200
    async with http.get("/v1/tables/0/rows/k?consistency=leader_all") as response:
        assert "nothing was read" in await problem(response, 409, "consistency")
    for method, query in (
        *(("GET", "consistency=often"), ("GET", "consistency=any&fresh=true"), ("PUT", "consistency=leader")),
        ("PUT", "consistency=often"),
    ):
        async with http.request(method, f"/v1/tables/0/rows/k?{query}") as response:
            await problem(response, 400, "bad-request")
    conditional = {"If-None-Match": "*"}
    async with http.put("/v1/tables/0/rows/new?consistency=leader_all", headers=conditional) as response:
        assert "of the partition" in await problem(response, 400, "bad-request")


async def test_stale_answers_say_so(http: aiohttp.ClientSession) -> None:
    async with http.put("/v1/tables/0/rows/k", data=b"v") as response:
        assert response.status == 200
    demand = {"at_least": "7", "stale_ok_ms": "20"}
    async with http.get("/v1/tables/0/rows/k", params={"at_least": "0"}) as response:
        assert (response.headers["Waltz-Stale"], response.headers["Waltz-Age-Ms"]) == ("false", "unknown")
    async with http.get("/v1/tables/0", params={"fresh": "true", "stale_ok_ms": "20000"}) as response:
        assert response.headers["Waltz-Stale"] == "false"
        assert int(response.headers["Waltz-Age-Ms"]) >= 0
    for path in ("", "/rows/k", "/rows/k/value", "/rows", "/sweep"):
        async with http.get(f"/v1/tables/0{path}", params=demand) as response:
            assert response.status == 200
            assert (response.headers["Waltz-Applied"], response.headers["Waltz-Stale"]) == ("0", "true"), path
    async with http.post("/v1/tables/0/get", params=demand, json={"keys": ["k"]}) as response:
        message = await response.json()
        assert (message["applied"], message["stale"]) == (0, True)
        assert message["age_ms"] >= 0
    async with http.get("/v1/tables/0/rows", params={"limit": "1"}) as response:
        (_, end) = await lines(response)
    token = end["end"]["next"]
    async with http.get("/v1/tables/0/rows", params={"limit": "1", "token": token, **demand}) as response:
        assert response.status == 200


async def test_rows_of_several_prefixes_are_of_one_state(http: aiohttp.ClientSession) -> None:
    await http.put("/v1/tables/0/rows/k?prefix=p", data=b"1")
    rows = [{"prefix": "p", "key": "k"}, {"key": "k"}]
    async with http.post("/v1/tables/0/get?at_least=0", json={"rows": rows}) as response:
        found = (await response.json())["rows"]
    assert [row and row["value"] for row in found] == ["1", None]


async def test_a_condition_that_fails_says_in_which_state(http: aiohttp.ClientSession) -> None:
    await http.put("/v1/tables/0/rows/k", data=b"1")
    conditions = {"rows": [{"key": "k", "value": "2"}], "if": [{"key": "k", "version": None}]}
    async with http.post("/v1/tables/0/batch", json=conditions) as response:
        assert (response.status, (await response.json(content_type=None))["applied"]) == (412, 0)


async def test_requests_without_a_body_take_no_memory(http: aiohttp.ClientSession, node: Node) -> None:
    with node.limits.body(1 << 17), contextlib.ExitStack() as all_memory:
        for _ in range(7):
            all_memory.enter_context(node.limits.body(1 << 17))
        async with http.get("/v1/tables/0") as response:
            assert response.status == 200
        async with http.put("/v1/tables/0/rows/k", data=b"v") as response:
            await problem(response, 503, "overloaded")


async def test_a_reader_of_a_scan_that_takes_nothing_is_cut(
    node: Node, client: waltz.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SEND_TIMEOUT_S", 0.1)
    async with client.table(0) as table:
        for number in range(40):
            last = await table.put(b"%d" % number, bytes(500_000))
    host, port = node.endpoint.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=4096)
    writer.write(b"GET /v1/tables/0/rows?at_least=%d HTTP/1.1\r\nHost: x\r\n\r\n" % last)
    await reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(TIMEOUT_S):
        while node.limits.scans.used:
            await asyncio.sleep(0.01)
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := await reader.read(1 << 20):
            data += part
    writer.close()
    assert b'"end"' not in data
    assert b"HTTP/1.1" not in data


async def test_a_page_of_another_log_is_refused(http: aiohttp.ClientSession) -> None:
    token = base64.urlsafe_b64encode(json.dumps(["other", 0, 0, ""]).encode()).decode()
    async with http.post("/v1/tables/0/scan", json={"token": token}) as response:
        await problem(response, 409, "other-log")


async def test_a_read_that_demands_too_much_is_late(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/tables/0?at_least=5&timeout_ms=50") as response:
        assert "transaction 5" in await problem(response, 503, "late")


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/", 404, "no-path"),
        ("GET", "/v1/tables/x", 404, "no-path"),
        ("GET", "/v1/tables/1", 404, "not-served"),
        ("GET", "/v1/tables/999999999", 404, "not-served"),
        ("GET", "/v1/tables/0000000000000000000000", 404, "no-path"),
        ("PATCH", "/v1/tables/0", 405, "method"),
        ("DELETE", "/v1/tables/0/get", 405, "method"),
        ("GET", "/v1/tables/0?timeout_ms=0", 400, "bad-request"),
        ("GET", "/v1/tables/0?timeout_ms=5&timeout_ms=5", 400, "bad-request"),
        ("GET", "/v1/tables/0?at_least=-2", 400, "bad-request"),
        ("GET", "/v1/tables/0/rows?limit=0", 400, "bad-request"),
        ("GET", "/v1/tables/0/rows?token=x", 400, "bad-request"),
        ("GET", "/v1/tables/0/take?limit=0", 400, "bad-request"),
        ("GET", "/v1/tables/0/take?after=5", 409, "ahead-of-log"),
        ("GET", "/v1/tables/0?prefix=p", 400, "bad-request"),
        ("PUT", "/v1/tables/0/rows/k?fresh=true", 400, "bad-request"),
        ("GET", "/v1/tables/0/watch?after=x", 400, "bad-request"),
        ("GET", "/v1/tables/0/watch?progress_s=0", 400, "bad-request"),
        ("GET", "/v1/tables/0/watch?log=other", 409, "other-log"),
        ("GET", "/v1/tables/0/watch?after=5", 409, "ahead-of-log"),
        ("POST", "/v1/tables/0/get", 400, "bad-request"),
        ("POST", "/v1/tables/0/batch", 400, "bad-request"),
    ],
)
async def test_refusals(http: aiohttp.ClientSession, method: str, path: str, status: int, kind: str) -> None:
    async with http.request(method, path, data=b"{}" if method == "POST" else None) as response:
        await problem(response, status, kind)


async def test_bodies_are_limited(http: aiohttp.ClientSession, node: Node) -> None:
    async with http.put("/v1/tables/0/rows/k", data=bytes((1 << 17) + 1)) as response:
        assert "131072 bytes" in await problem(response, 413, "too-large")

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(10_000)

    async with http.put("/v1/tables/0/rows/k", data=chunks()) as response:
        assert response.status == 413
    async with http.get("/v1/tables/0/rows/k") as response:
        await problem(response, 404, "no-row")
    with node.limits.body(1 << 17), node.limits.body(None):
        pass


async def test_too_many_requests_are_refused_for_the_moment(
    http: aiohttp.ClientSession, cluster: list[MockServerPartition]
) -> None:
    waiting = [asyncio.create_task(http.get("/v1/tables/0?at_least=0")) for _ in range(4)]
    while True:  # until the waiting ones have taken all the room
        async with http.get("/v1/tables/0") as response:
            if response.status == 503:
                await problem(response, 503, "overloaded")
                break
    async with http.get("/v1/tables") as response:
        assert (await response.json())["tables"][0]["partition"] == 0
    cluster[0].add(b"what they wait for")
    for response in await asyncio.gather(*waiting):
        async with response:
            assert response.status == 200


class SomeRights:
    """Everything but some rights."""

    lenient = reduced = False
    throttle = None

    def __init__(self) -> None:
        self.refused: Collection[Right] = ()

    def refusal(
        self, right: Right, partition_id: int | None, peer: str = "", count: int = 1, *, noted: bool = False
    ) -> str | None:
        return f"may not {right}" if right in self.refused else None

    def refusal_everywhere(self, right: Right, peer: str = "") -> str | None:
        return self.refusal(right, None)

    def refusal_anywhere(self, right: Right, peer: str = "") -> str | None:
        return self.refusal(right, None)

    def filtered(self, right: Right, partition_ids: Iterable[int], operation: str, peer: str = "") -> list[int]:
        return [] if right in self.refused else list(partition_ids)

    def permits(self, right: Right, partition_id: int | None) -> bool:
        return right not in self.refused

    acted = EVERYTHING.acted

    def rights_of(self, principal: str, proof: Proof = Proof.CERTIFICATE) -> Rights:
        return self

    def owns(self, partition_ids: Collection[int]) -> None: ...


async def test_a_caller_has_a_quota_of_its_own(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    """The first write exceeds the burst by far, so that nothing is written for 49.5 seconds after it."""
    rules = (Rule(True, "*", (Right.READ, Right.APPEND), "*"),)
    quotas = (Quota("anonymous", "0", None, 100),)
    access = RuleAccess(2, lambda subject: subject, [])
    at_once(access.apply(Applied(1, at_once(compile_rules(Document(Mode.ENFORCE, rules=rules, quotas=quotas), {}, 2)))))
    async with view_node(cluster, tmp_path, access=access) as node, session(node) as http:
        await node.served()
        for number in range(2):
            async with http.put(f"/v1/tables/0/rows/{number}", data=b"v" * 5000) as response:
                assert response.status == (200 if number == 0 else 429)
        for method, path in (("PUT", "/rows/k"), ("DELETE", "/rows/k"), ("POST", "/truncate")):
            async with http.request(
                method, f"/v1/tables/0{path}", data=b"{}" if method == "POST" else None
            ) as response:
                body = await response.json(content_type=None)
                assert (response.status, body["type"]) == (429, "urn:waltz:over-quota")
                assert 45 <= int(response.headers["Retry-After"]) <= 50
                assert "principal 'anonymous' appends more than it may" in body["detail"]
        async with http.get("/v1/tables/0/rows/0/value") as response:
            assert (response.status, await response.read()) == (200, b"v" * 5000)
        async with http.get("/v1/tables/0/rows/1") as response:
            assert response.status == 404


async def test_each_request_needs_its_right(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    rights = SomeRights()
    async with view_node(cluster, tmp_path, access=rights) as node, session(node) as http:
        await node.served()
        watch = await http.get("/v1/tables/0/watch", params={"progress_s": "1"})
        assert json.loads(await watch.content.readline()) == {"progress": {"transaction": -1}}
        async with http.get("/v1/tables") as response:
            assert [each["partition"] for each in (await response.json())["tables"]] == [0]
        rights.refused = (Right.APPEND,)
        for route in ROUTES:
            path = route.template.format(partition=0, key="k")
            if route.right is Right.APPEND:
                async with http.request(route.method, path) as response:
                    assert await problem(response, 403, "forbidden") == "may not append to"
        async with http.get("/v1/tables/0") as response:
            assert response.status == 200
        rights.refused = (Right.READ,)
        async with http.get("/v1/tables") as response:
            assert (await response.json())["tables"] == []
        for route in ROUTES:
            path = route.template.format(partition=0, key="k")
            if route.right is Right.READ:
                async with http.request(route.method, path) as response:
                    assert await problem(response, 403, "forbidden") == "may not read data of"
        async with http.get("/v1/tables") as response:
            assert (await response.json())["tables"] == []
        async with asyncio.timeout(TIMEOUT_S):  # what was permitted once ends, too
            ends = [json.loads(line) async for line in watch.content if b"end" in line]
        assert ends[0]["end"]["reason"] == "forbidden"
        headers = [("Authorization", "Bearer a"), ("Authorization", "Bearer b")]
        async with http.get("/v1/tables", headers=headers) as response:
            await problem(response, 400, "unauthorized")


async def raw(node: Node, data: bytes) -> bytes:
    """All that is answered to these bytes."""
    host, port = node.endpoint.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await reader.read()
    except ConnectionResetError:  # what was sent has not been read
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01 a TLS hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
        b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/tables/0/get HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/tables/0/get HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /v1/tables/0 HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * (1 << 20) + b"\r\n\r\n",
        b"GET /v1/tables/0/rows/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
)
async def test_no_http_is_refused_and_the_node_goes_on(node: Node, http: aiohttp.ClientSession, data: bytes) -> None:
    answer = await raw(node, data)
    assert answer[:12] in (b"", b"HTTP/1.0 400", b"HTTP/1.1 400", b"HTTP/1.0 404", b"HTTP/1.1 404"), answer[:200]
    async with http.get("/v1/tables/0") as response:
        assert response.status == 200


async def test_a_silent_connection_is_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_REQUEST_S", 0.05)
    assert await raw(node, b"GET /v1/tables HTTP/1.1\r\nHost") == b""


async def test_no_timer_is_left_behind(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path
) -> None:
    async with view_node(cluster, tmp_path) as node:
        await node.served()
        host, port = node.endpoint.removeprefix("http://").split(":")
        _, silent = await asyncio.open_connection(host, int(port))
        timers = node.listening._silent
        async with asyncio.timeout(TIMEOUT_S):
            while not timers:
                await asyncio.sleep(0.005)
        (of_the_silent,) = timers.values()
        async with session(node) as http, http.get("/v1/tables") as response:
            assert response.status == 200
        assert list(timers.values()) == [of_the_silent]
    assert not timers
    assert of_the_silent.cancelled()
    silent.close()


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.AUDIT, Mode.ENFORCE])
async def test_callers_without_proof_pass_unless_rules_are_enforced(
    cluster: list[MockServerPartition], client: waltz.Client, tmp_path: Path, mode: Mode
) -> None:
    access = RuleAccess(1, lambda subject: subject, [])
    at_once(access.apply(Applied(1, at_once(compile_rules(Document(mode), {}, 1)))))
    async with view_node(cluster, tmp_path, access=access) as node, session(node) as http:
        await node.served()
        passes = mode is not Mode.ENFORCE
        async with http.get("/v1/tables") as response:
            assert [each["partition"] for each in (await response.json())["tables"]] == ([0] if passes else [])
        for method, path in (("PUT", "/v1/tables/0/rows/k"), ("GET", "/v1/tables/0"), ("GET", "/v1/tables/0/watch")):
            async with http.request(method, path) as response:
                assert response.status == (200 if passes else 403), path
                if path.endswith("watch") and passes:
                    assert "progress" in json.loads(await response.content.readline())
