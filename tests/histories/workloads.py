"""What the client processes of a campaign do, each workload in partitions of its own."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import aiohttp

import waltz
from tests.histories.events import AppendCall, FenceCall, TransactCall, ViewReadCall
from tests.histories.recorder import Recorder
from waltz.asynchronous import Client
from waltz.bot.clock import Clock
from waltz.bot.history import ReadCall, SwapCall, WriteCall
from waltz.client.errors import PositionsError, SessionFencedError
from waltz.common.records import Record
from waltz.table.envelope import Row
from waltz.table.errors import VersionConflict, ViewUnavailableError
from waltz.table.face.table import Table
from waltz.table.face.transaction import TableTransaction
from waltz.table.rows import TableRow, Version

PATIENCE_S = 10.0
IMPATIENCE_S = 0.3
IMPATIENT_SHARE = 0.05
"""Share of the operations whose caller soon gives up, so that outcomes are unknown."""

KEYS = 24
"""Several operations on one key are under way at a time; all of them at once would take the checker long."""
GENERATION_S = 10
"""After so long other keys are in use: each key has few operations of unknown outcome."""
LONGEST_LIST = 16

FRESH_SHARE, LEAST_SHARE = 0.5, 0.3
"""Of the reads from view nodes; what is neither is of any state."""
OK, NOT_NOW = 200, (408, 429, 503)
"""Statuses of HTTP: an answer, and refusals for the moment."""

MEAN_BETWEEN_SESSIONS_S = 1.5
MOST_APPENDS_IN_SESSION = 12
PAUSE_S = 0.01

TABLE = "effects"
"""Of the consumers' database."""


def patience_s(draw: random.Random) -> float:
    """How long a caller waits for an operation."""
    return draw.uniform(0, IMPATIENCE_S) if draw.random() < IMPATIENT_SHARE else PATIENCE_S


class Registers:
    """Get, put, delete and compare-and-set on few rows."""

    def __init__(self, table: Table, partition_id: int, recorder: Recorder, draw: random.Random) -> None:
        self._table = table
        self._partition_id = partition_id
        self._recorder = recorder
        self._draw = draw
        self._clock = Clock()
        self._seen: dict[str, tuple[str | None, Version | None]] = {}
        self.written = -1
        """The last transaction of an own write."""

    async def step(self) -> None:
        """One operation."""
        key = register_key(self._draw)
        kind = self._draw.choice((self._read, self._read, self._write, self._swap))
        await kind(key)

    async def _read(self, key: str) -> None:
        op = self._recorder.next_op()
        with self._recorder.operation(op, self._partition_id, ReadCall(f="read", keys=[key]), reads=True) as outcome:
            async with asyncio.timeout(patience_s(self._draw)):
                (row,) = await self._table.get([key.encode()], fresh=True)
            outcome.fields["rows"] = {} if row is None else {key: _found(row)}
        self._seen[key] = (None, None) if row is None else (_value(row), row.version)

    async def _write(self, key: str) -> None:
        op = self._recorder.next_op()
        keys = [key] if self._draw.random() < 0.8 else [key, f"{key.split('.')[0]}.{self._draw.randrange(KEYS)}"]
        timestamp_ms = self._clock.now_ms()
        rows: dict[str, str | None] = {
            each: None if self._draw.random() < 0.1 else f"{op}.{number}"
            for number, each in enumerate(dict.fromkeys(keys))
        }
        batch = [
            Row(b"", each.encode(), None if value is None else value.encode(), timestamp_ms, value is None)
            for each, value in rows.items()
        ]
        call = WriteCall(f="write", rows=rows, timestamp_ms=timestamp_ms)
        with self._recorder.operation(op, self._partition_id, call) as outcome:
            async with asyncio.timeout(patience_s(self._draw)):
                transaction_id = await self._table.batch(batch, any_timestamp=True)
            outcome.fields["transaction"] = transaction_id
        self.written = max(self.written, transaction_id)

    async def _swap(self, key: str) -> None:
        """Of a row as it was seen last, which may be long ago."""
        if key not in self._seen or self._draw.random() < 0.5:
            await self._read(key)
        expected, version = self._seen[key]
        op = self._recorder.next_op()
        call = SwapCall(f="swap", key=key, expected=expected, value=f"{op}.0")
        bounds = self._clock.watch()
        with self._recorder.operation(op, self._partition_id, call) as outcome:
            try:
                async with asyncio.timeout(patience_s(self._draw)):
                    value = call.value.encode()
                    outcome.fields["transaction"] = await self._table.put_if(key.encode(), value, version)
            except VersionConflict:
                outcome.fields["conflict"] = True
            finally:
                outcome.fields["stamp_ms"] = bounds()


def register_key(draw: random.Random) -> str:
    """One of the keys that are in use now."""
    return f"{int(time.monotonic()) // GENERATION_S}.{draw.randrange(KEYS)}"


def _value(row: TableRow) -> str:
    return (row.value or b"").decode()


def _found(row: TableRow) -> tuple[str, int, int]:
    return _value(row), row.timestamp_ms, row.version.transaction_id


class ViewReads:
    """Reads of the registers from view nodes over HTTP: of any state, of at least the own last write, and fresh."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        views: Sequence[str],
        partition_id: int,
        registers: Registers,
        recorder: Recorder,
        draw: random.Random,
    ) -> None:
        """``views`` are ``HOST:PORT``."""
        self._http = http
        self._views = views
        self._partition_id = partition_id
        self._registers = registers
        self._recorder = recorder
        self._draw = draw

    async def step(self) -> None:
        """One read."""
        draw, op = self._draw, self._recorder.next_op()
        view = draw.choice(self._views)
        keys = list(dict.fromkeys(register_key(draw) for _ in range(draw.randint(1, 3))))
        least = self._registers.written if draw.random() < LEAST_SHARE else -1
        call = ViewReadCall(view=view, keys=keys, least=least, fresh=draw.random() < FRESH_SHARE)
        query = {"timeout_ms": str(int(1000 * PATIENCE_S))}
        if call.fresh:
            query["fresh"] = "true"
        if least >= 0:
            query["at_least"] = str(least)
        with self._recorder.operation(op, self._partition_id, call, reads=True) as outcome:
            try:
                async with asyncio.timeout(patience_s(draw)):
                    outcome.fields.update(await self._answer(view, keys, query))
            except aiohttp.ClientError as error:
                raise ViewUnavailableError(f"{view}: {error!r}") from error

    async def _answer(self, view: str, keys: Sequence[str], query: dict[str, str]) -> dict[str, object]:
        url = f"http://{view}/v1/tables/{self._partition_id}/get"
        async with self._http.post(url, params=query, json={"prefix": "", "keys": keys}) as response:
            message = await response.json(content_type=None)
            if response.status in NOT_NOW:
                raise ViewUnavailableError(f"{view}: {message['detail']}")
            if response.status != OK:
                raise RuntimeError(f"{view} has answered with status {response.status}: {message}")
        rows = {
            row["key"]: (row["value"], row["timestamp_ms"], int(row["version"].split(".")[0]))
            for row in message["rows"]
            if row is not None
        }
        return {"applied": message["applied"], "rows": rows}


class Lists:
    """Transactions that read lists and append to lists."""

    def __init__(self, table: Table, partition_id: int, recorder: Recorder, draw: random.Random) -> None:
        self._table = table
        self._partition_id = partition_id
        self._recorder = recorder
        self._draw = draw
        self._generations: defaultdict[int, int] = defaultdict(int)

    async def step(self) -> None:
        """One transaction."""
        draw, op = self._draw, self._recorder.next_op()
        slots = [draw.randrange(KEYS) for _ in range(draw.randint(1, 4))]
        steps: list[tuple[str, str | None]] = [
            (f"{slot}.{self._generations[slot]}", f"{op}.{number}" if draw.random() < 0.5 else None)
            for number, slot in enumerate(slots)
        ]
        seen: list[list[str] | None] = []
        attempts = 0

        def work(transaction: TableTransaction) -> None:
            nonlocal attempts
            attempts += 1
            seen.clear()
            for key, element in steps:
                elements = decoded(transaction.get(key.encode()))
                seen.append(elements if element is None else None)
                if element is not None:
                    transaction.put(key.encode(), encoded([*elements, element]))
                if len(elements) >= LONGEST_LIST:
                    slot, generation = map(int, key.split("."))
                    self._generations[slot] = max(self._generations[slot], generation + 1)

        with self._recorder.operation(op, self._partition_id, TransactCall(steps=steps)) as outcome:
            try:
                async with asyncio.timeout(patience_s(draw)):
                    transaction_id = await self._table.transaction(work)
                outcome.fields["seen"] = seen
            finally:
                outcome.fields["attempts"] = max(1, attempts)
            outcome.fields["transaction"] = transaction_id


def encoded(elements: Sequence[str]) -> bytes:
    """A list as the value of a row."""
    return json.dumps(elements).encode()


def decoded(row: TableRow | None) -> list[str]:
    """The list that is the value of a row."""
    if row is None or row.value is None:
        return []
    elements = json.loads(row.value)
    assert isinstance(elements, list)
    return [str(element) for element in elements]


class Fencing:
    """Exclusive write sessions: read the register up to the fence, write it some times, leave."""

    def __init__(self, client: Client, partition_id: int, recorder: Recorder, draw: random.Random) -> None:
        self._client = client
        self._partition_id = partition_id
        self._recorder = recorder
        self._draw = draw
        self._applied = -1
        self._last: int | None = None

    async def step(self) -> None:
        """One session."""
        await asyncio.sleep(self._draw.expovariate(1 / MEAN_BETWEEN_SESSIONS_S))
        async with contextlib.AsyncExitStack() as stack:
            with self._recorder.operation(self._recorder.next_op(), self._partition_id, FenceCall()) as outcome:
                async with asyncio.timeout(PATIENCE_S):
                    session = await stack.enter_async_context(self._client.exclusive(self._partition_id))
                    await self._replay(session.transaction_id)
                outcome.fields.update(session=session.number, transaction=session.transaction_id, last=self._last)
            with contextlib.suppress(SessionFencedError):
                for _ in range(self._draw.randint(1, MOST_APPENDS_IN_SESSION)):
                    await self._append(session.number)
                    await asyncio.sleep(self._draw.random() * PAUSE_S)

    async def _replay(self, until: int) -> None:
        """Read the register up to the fence."""
        if until > self._applied:
            async for record in self._client.feed(self._partition_id, after=self._applied, until=until):
                self._applied, self._last = record.transaction_id, register_value(record.data)[0]

    async def _append(self, session: int) -> None:
        op = self._recorder.next_op()
        with self._recorder.operation(op, self._partition_id, AppendCall(session=session)) as outcome:
            outcome.fields["transaction"] = await self._client.append(
                self._partition_id, b"%d %d" % (op, session), timeout_s=patience_s(self._draw)
            )


def register_value(data: bytes) -> tuple[int, int]:
    """The operation and the session of a write of the register."""
    op, session = map(int, data.split())
    return op, session


class Ledger:
    """Appends for the consumers."""

    def __init__(self, client: Client, partition_ids: Sequence[int], recorder: Recorder, draw: random.Random) -> None:
        self._client = client
        self._partition_ids = partition_ids
        self._recorder = recorder
        self._draw = draw

    async def step(self) -> None:
        """One append."""
        op, partition_id = self._recorder.next_op(), self._draw.choice(self._partition_ids)
        with self._recorder.operation(op, partition_id, AppendCall()) as outcome:
            outcome.fields["transaction"] = await self._client.append(
                partition_id, b"%d" % op, timeout_s=patience_s(self._draw)
            )


class Consumption:
    """Shares the ledger's partitions with other processes, and writes an effect for each transaction."""

    def __init__(self, client: Client, partition_ids: Sequence[int], database: Path, name: str) -> None:
        self._client = client
        self._partition_ids = partition_ids
        self.database = database
        self._name = name
        self.struck = False
        """Whether the process is to end within the next effect."""

    async def step(self) -> None:
        """Consume until an error: of the database while another process holds it, or because a position was moved."""
        with contextlib.suppress(PositionsError, sqlite3.OperationalError):
            positions = waltz.SqlitePositions(self.database, "ledger")
            async with self._client.consume(positions, self._partition_ids, share="ledger") as consumer:
                while True:
                    batch = await consumer.next_batch(1.0)
                    rows = [
                        (record.partition_id, record.transaction_id, int(record.data), self._name) for record in batch
                    ]
                    if rows:
                        await asyncio.to_thread(self.apply, positions, batch, rows)

    def apply(
        self,
        positions: waltz.SqlitePositions,
        batch: Sequence[Record],
        rows: Sequence[tuple[int, int, int, str]],
    ) -> None:
        """Commit the effects of a batch together with the position behind it."""
        with contextlib.closing(sqlite3.connect(self.database, timeout=PATIENCE_S)) as database, database:
            database.execute("BEGIN IMMEDIATE")
            self.write(database, rows)
            self.strike()
            positions.advance(database, batch)

    def write(self, database: sqlite3.Connection, rows: Sequence[tuple[int, int, int, str]]) -> None:
        """Write effects, within a transaction of the database."""
        database.executemany(f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?)", rows)

    def strike(self) -> None:
        """End the process here if it was told to."""
        if self.struck:
            os.kill(os.getpid(), signal.SIGKILL)


def create_database(path: Path) -> None:
    """The consumers' database, without effects."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"CREATE TABLE {TABLE} (partition INTEGER, id INTEGER, op INTEGER, consumer TEXT)")


def effects(path: Path) -> list[tuple[int, int, int, str]]:
    """Partition, transaction, operation and consumer of each effect, in the order of the commits."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT partition, id, op, consumer FROM {TABLE} ORDER BY rowid").fetchall()


def count_effects(path: Path) -> int:
    """The number of effects."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        (count,) = database.execute(f"SELECT COUNT(*) FROM {TABLE}").fetchone()
    return int(count)
