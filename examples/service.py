"""A web service over the log: things in stock, which nobody can take twice.

    pip install starlette uvicorn
    WALTZ_CONFIG=client.yml STOCK_DATABASE=stock.sqlite uvicorn --factory examples.service:from_environment

    curl -X POST localhost:8000/items/apple/add -d '{"count": 5}'
    curl -X POST localhost:8000/items/apple/take -d '{"count": 3}'
    curl localhost:8000/items/apple

What is committed in the log is applied to a database, exactly once; any number of instances may run, with databases of
their own or with one for all. A request decides on what the database holds, and appends under the lock of its item: if
anybody else changed the item meanwhile, it decides again. When it is answered, the database has what it did.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import waltz
from waltz.client.mock import MockDriver

TIMEOUT_S = 10.0


class Amount(BaseModel):
    """The body of a request."""

    count: int = Field(gt=0)


class Change(BaseModel):
    """What is in the log."""

    item: str
    count: int


class Stock(waltz.DatabaseCallbacks[sqlite3.Connection]):
    """The database: how many there are of each item."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changes = waltz.ModelSerializer(Change)
        super().__init__(waltz.DbApiDatabase(self._connect, sqlite3))

    def create(self) -> None:
        """Make the tables, unless they are there."""
        self.create_table()
        with closing(self._connect()) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER NOT NULL)")
            connection.commit()

    def apply(self, transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
        """Of each change in the log, once."""
        change = self._changes.deserialize(data)
        connection.execute(
            "INSERT INTO stock VALUES (?, ?) ON CONFLICT (item) DO UPDATE SET count = count + excluded.count",
            (change.item, change.count),
        )

    def count(self, item: str) -> int:
        """How many there are."""
        with closing(self._connect()) as connection:
            row = connection.execute("SELECT count FROM stock WHERE item = ?", (item,)).fetchone()
        return 0 if row is None else int(row[0])

    def change(self, item: str, count: int) -> waltz.Append | None:
        """What to append so that there are ``count`` more; ``None`` if there would be less than nothing."""
        if self.count(item) + count < 0:
            return None
        data = self._changes.serialize(Change(item=item, count=count))
        return waltz.Append(data, write_locks=[waltz.PartitionLocalLock("item", item)])

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)


async def change(request: Request) -> JSONResponse:
    """``POST /items/{item}/add`` and ``/take``: append under the lock of the item."""
    client: waltz.WaltzClient = request.app.state.client
    stock: Stock = request.app.state.stock
    item = request.path_params["item"]
    try:
        amount = Amount.model_validate_json(await request.body())
    except ValidationError as error:
        return JSONResponse({"error": json.loads(error.json(include_url=False))}, status_code=422)
    count = -amount.count if request.url.path.endswith("/take") else amount.count

    async def decide(_: waltz.Basis) -> waltz.Append | None:
        return await asyncio.to_thread(stock.change, item, count)

    try:
        transaction_id = await client.transact(client.partition_for(item), decide, timeout_s=TIMEOUT_S)
    except waltz.NotAppendedError as error:
        return JSONResponse({"error": str(error)}, status_code=503)
    except waltz.OutcomeUnknownError as error:
        return JSONResponse({"error": f"{error}; look before you try again"}, status_code=504)
    left = await asyncio.to_thread(stock.count, item)
    if transaction_id is None:
        return JSONResponse({"error": f"there are only {left}"}, status_code=409)
    return JSONResponse({"transaction": transaction_id, "count": left})


async def show(request: Request) -> JSONResponse:
    """``GET /items/{item}``: read the database."""
    stock: Stock = request.app.state.stock
    item = request.path_params["item"]
    return JSONResponse({"item": item, "count": await asyncio.to_thread(stock.count, item)})


def create_app(cluster: str | Path | MockDriver, database: Path) -> Starlette:
    """The service, on a cluster or on the mock driver."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        stock = Stock(database)
        try:
            stock.create()
            async with await waltz.open_client(stock, cluster) as client:
                app.state.stock, app.state.client = stock, client
                yield
        finally:
            stock.close()

    routes = [
        Route("/items/{item}", show),
        Route("/items/{item}/add", change, methods=["POST"]),
        Route("/items/{item}/take", change, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def from_environment() -> Starlette:
    """For ``uvicorn --factory``."""
    return create_app(os.environ["WALTZ_CONFIG"], Path(os.environ["STOCK_DATABASE"]))
