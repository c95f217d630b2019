"""The web service, asked as by its users."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from examples.service import create_app
from waltz.client.mock import MockDriver


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stock.sqlite"


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """Within the service's lifespan, as a server runs it."""
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://test") as web:
        yield web


async def test_what_is_there_can_be_taken(path: Path) -> None:
    async with served(create_app(MockDriver(4), path)) as web:
        assert (await web.get("/items/apple")).json() == {"item": "apple", "count": 0}
        assert (await web.post("/items/apple/add", json={"count": 5})).json() == {"transaction": 0, "count": 5}
        assert (await web.post("/items/apple/take", json={"count": 3})).json() == {"transaction": 1, "count": 2}
        refused = await web.post("/items/apple/take", json={"count": 3})
        assert (refused.status_code, refused.json()) == (409, {"error": "there are only 2"})
        wrong = await web.post("/items/apple/take", json={"count": -3})
        assert wrong.status_code == 422
        assert (await web.get("/items/apple")).json()["count"] == 2


async def test_nothing_is_taken_twice_by_several_instances(path: Path, tmp_path: Path) -> None:
    """Two with one database, and one with its own."""
    log = MockDriver(2)
    paths = [path, path, tmp_path / "other.sqlite"]
    apps = [create_app(MockDriver(log.partitions), each) for each in paths]
    async with served(apps[0]) as one, served(apps[1]) as two, served(apps[2]) as three:
        instances = (one, two, three)
        assert (await one.post("/items/pear/add", json={"count": 10})).status_code == 200
        takes = [instances[number % 3].post("/items/pear/take", json={"count": 1}) for number in range(24)]
        statuses = [response.status_code for response in await asyncio.gather(*takes)]
    assert sorted(statuses) == [200] * 10 + [409] * 14


async def test_a_new_database_is_filled_from_the_log(path: Path, tmp_path: Path) -> None:
    log = MockDriver(2)
    async with served(create_app(log, path)) as web:
        for number in range(40):
            await web.post(f"/items/item-{number % 4}/add", json={"count": number})
    async with served(create_app(MockDriver(log.partitions), tmp_path / "another.sqlite")) as web:
        await web.post("/items/item-3/take", json={"count": 1})
        assert (await web.get("/items/item-3")).json()["count"] == sum(range(3, 40, 4)) - 1
