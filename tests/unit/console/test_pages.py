"""The console's paths, over a connection."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.common.net.test_http import exchange, get
from tests.unit.console import fakes
from tests.unit.rules import Only
from waltz import console
from waltz.common.access import ALLOW_ALL, Access, Right
from waltz.common.metrics.registry import Registry
from waltz.common.net.http import HttpServer
from waltz.console.pages import HEADERS, PATH, STATIC, make_pages
from waltz.console.surveyor import Surveyor
from waltz.operations.survey.cluster_state import ClusterState

FILES = Path(console.__file__).parent / "static"


@asynccontextmanager
async def serving(state: ClusterState, access: Access = ALLOW_ALL) -> AsyncIterator[int]:
    async def look(_: ClusterState | None) -> ClusterState:
        return state._replace(at_s=asyncio.get_running_loop().time())

    surveyor = Surveyor(look, lambda each: fakes.facts_of(state, each))
    pages = make_pages(fakes.here(state), surveyor)
    server = await HttpServer.open("127.0.0.1", 0, Registry(), more=pages, access=access)
    yield server.port
    await server.close()
    await surveyor.close()


async def test_files_are_served_as_what_they_are_and_with_a_strict_policy() -> None:
    async with serving(fakes.cluster(4)) as port:
        for path, (name, kind) in STATIC.items():
            status, headers, body = await get(port, path)
            assert (status, headers["Content-Type"]) == (200, kind)
            assert body == (FILES / name).read_text()
            assert headers.items() >= dict(HEADERS).items()
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        status, _, _ = await get(port, f"{PATH}/")
        assert status == 200


async def test_every_file_is_served_and_asks_only_this_server() -> None:
    assert {path.name for path in FILES.iterdir()} == {name for name, _ in STATIC.values()}
    for path in FILES.iterdir():
        text = path.read_text().replace('"http://www.w3.org/2000/svg"', "").replace("${location.protocol}//", "")
        assert not re.search(r"\w:?//\w", text)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|style=|<script>", text)
    links = re.findall(r'(?:src|href)="([^"]*)"', (FILES / "console.html").read_text())
    assert set(links) <= set(STATIC)


async def test_only_get_is_answered() -> None:
    async with serving(fakes.cluster(4)) as port:
        for path in (PATH, f"{PATH}/cluster.json"):
            answer = await exchange(port, f"POST {path} HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 405 ")


async def test_a_thousand_partitions_and_what_comes_when_nothing_is_new() -> None:
    async with serving(fakes.in_trouble(fakes.cluster(1000))) as port:
        status, headers, body = await get(port, f"{PATH}/cluster.json")
        assert status == 200
        assert headers.items() >= dict(HEADERS).items()
        found = json.loads(body)
        assert (found["number"], found["age_s"], found["surveying"]) == (0, None, True)
        assert "cluster" not in found
        async with asyncio.timeout(60):
            while "cluster" not in found:
                found = json.loads((await get(port, f"{PATH}/cluster.json?after=0"))[2])
        assert len(found["cluster"]["partitions"]) == 1000
        assert found["here"]["id"] == fakes.HERE
        again = json.loads((await get(port, f"{PATH}/cluster.json?after={found['number']}"))[2])
        assert "cluster" not in again
        assert again["age_s"] is not None
        reasons = json.loads((await get(port, f"{PATH}/partition.json?partition=17"))[2])["reasons"]
        assert [each["severity"] for each in reasons] == ["critical", "critical"]


async def test_the_history_of_the_server_and_of_a_partition() -> None:
    async with serving(fakes.cluster(8)) as port:
        total = json.loads((await get(port, f"{PATH}/history.json"))[2])
        assert total["step_s"] == 10
        assert len(total["series"]["commits"]) == 360
        own = json.loads((await get(port, f"{PATH}/partition.json?partition=4"))[2])
        assert own["owned"] is True
        assert {"commits", "p50_ms", "p99_ms", f"lag:{fakes.storage_name(0)}"} <= own["series"].keys()
        other = json.loads((await get(port, f"{PATH}/partition.json?partition=5"))[2])
        assert other == {"owned": False, "step_s": 10.0, "series": None, "reasons": []}


async def test_readers_see_the_partitions_that_they_may_describe() -> None:
    state = fakes.in_trouble(fakes.cluster(50))
    async with serving(state, Only(Right.DESCRIBE, partition_ids=[None, 3, 17])) as port:
        assert json.loads((await get(port, f"{PATH}/history.json"))[2])["series"] == {}, "before the first survey, too"
        found: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while "cluster" not in found:
                found = json.loads((await get(port, f"{PATH}/cluster.json"))[2])
        shown = found["cluster"]
        assert [row[0] for row in shown["partitions"]] == [3, 17]
        assert (found["hidden"], len(shown["servers"]), len(shown["storages"])) == (48, 4, 5)
        assert {problem["partitions"] for problem in shown["problems"]} <= {"", "3", "17", "3,17"}
        assert json.loads((await get(port, f"{PATH}/history.json"))[2])["series"] == {}
        assert json.loads((await get(port, f"{PATH}/partition.json?partition=17"))[2])["reasons"]
        status, _, body = await get(port, f"{PATH}/partition.json?partition=40")
        assert (status, "may not describe partition 40" in body) == (403, True)


@pytest.mark.parametrize(
    "query", ["", "?partition=", "?partition=x", "?partition=-1", "?partition=1&partition=2", "?partition=12345678901"]
)
async def test_a_wrong_question_is_told_so(query: str) -> None:
    async with serving(fakes.cluster(8)) as port:
        status, _, body = await get(port, f"{PATH}/partition.json{query}")
        assert (status, body) == (400, "the query needs the number partition, as in ?partition=7\n")


async def test_hostile_names_arrive_as_text_in_json() -> None:
    hostile = '<img src=x onerror="alert(1)">'
    state = fakes.cluster(8)
    server = state.servers[0]._replace(endpoint=hostile)
    async with serving(state._replace(name=hostile, servers=(server,))) as port:
        found: dict[str, object] = {}
        async with asyncio.timeout(60):
            while "cluster" not in found:
                _, headers, body = await get(port, f"{PATH}/cluster.json")
                found = json.loads(body)
        assert headers["Content-Type"] == "application/json"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert json.loads(body)["cluster"]["name"] == hostile
