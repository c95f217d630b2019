"""Every public name has an example in its docstring, and every example runs; those of errors catch them."""

import ast
import asyncio
import dataclasses
import inspect
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import waltz
from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.client.application import QUICK, Callbacks, Context
from tests.unit.client.fake_server import FakeServer, Log, until
from tests.unit.reference_examples import (
    APPLY,
    GIVEN,
    HEADER,
    as_function,
    client_of,
    example_of,
    loaded,
    parameters_of,
    shown,
)
from tests.unit.view.node import view_node
from waltz.client.engine.environment import Environment
from waltz.client.mock import MockDriver
from waltz.client.mock.connection import MockConnection
from waltz.client.mock.partition import Uncommitted
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import WaltzError
from waltz.common.net.channel import Channel
from waltz.common.wire.client_server import Message
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.version5 import TransactionDataListRequest
from waltz.table import codecs

pytestmark = pytest.mark.timeout(60)

EXAMPLES = shown()
DATA = b'{"amount": 10, "trace": {}}'
LOCK = waltz.PartitionLocalLock("account", "alice")
COUNT = 3
"""Transactions that are in each partition before."""


class Unreachable(MockDriver):
    """A cluster whose servers cannot be connected to."""

    def environment(self, options: waltz.ClientOptions, **settings: object) -> Environment:
        async def refuse(*_arguments: object, **_settings: object) -> Channel:
            raise waltz.ConnectFailedError("nobody is there")

        return dataclasses.replace(super().environment(options, **settings), connector=refuse)


class Stage:
    """What one example is given, in the situation that it is for."""

    def __init__(self, name: str, directory: Path, monkeypatch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
        self.name = name
        self.directory = directory
        self.monkeypatch = monkeypatch
        self.stack = stack
        self.driver = MockDriver(4)
        self.given: dict[str, Any] = {}

    async def prepare(self, needed: list[str]) -> None:
        """Whatever is needed, in a log that somebody else has begun."""
        for partition in self.driver.partitions:
            for _ in range(COUNT - 1):
                partition.add(DATA)
        other = await self.stack.enter_async_context(waltz.connect(MockDriver(self.driver.partitions)))
        for partition_id in range(4):
            await other.append(partition_id, DATA, append_locks=[LOCK])
        if self.name in SITUATIONS:
            result = SITUATIONS[self.name](self)
            if result is not None:
                await result
        with closing(sqlite3.connect(self.directory / "mails.sqlite")) as database:
            database.execute("CREATE TABLE mails (text TEXT)")
        self.given = {
            "other": other,
            "cluster": self.driver,
            "directory": str(self.directory),
            "lock": LOCK,
            "callbacks": Callbacks(),
            "context": Context(),
            "transaction": self.driver.partitions[0].transactions[0],
            "tracer": TracerProvider().get_tracer("test"),
            **self.given,
        }
        if "table" in needed or self.name.startswith("waltz.table."):
            await waltz.table.configure(other, 0, {"format": "table"})
        if "table" in needed and "table" not in self.given:
            self.given["table"] = await self.stack.enter_async_context(other.table(0))
            await self.given["table"].put(b"alice", b"100")
        if "client" in needed:
            self.given["client"] = await self.client()

    async def client(self) -> object:
        kind = client_of(self.name, EXAMPLES[self.name])
        if kind == "waltz.blocking.Client":
            client = waltz.blocking.connect(self.driver, options=QUICK)
            await asyncio.to_thread(client.open)
            self.stack.push_async_callback(asyncio.to_thread, client.close)
            return client
        if kind == "waltz.WaltzClient":
            return await self.stack.enter_async_context(waltz.open_client(Callbacks(), self.driver, options=QUICK))
        return await self.stack.enter_async_context(waltz.connect(self.driver, options=QUICK))


def suspended(stage: Stage) -> None:
    stage.driver.suspend_feed()


def slow_storage(stage: Stage) -> None:
    stage.driver.partitions[0].hold_storage()


def below_the_quorum(stage: Stage) -> None:
    stage.driver.partitions[0].consistency = "leader"


def storage_that_gets_lost(stage: Stage) -> None:
    """It is the only one that has the next append."""
    below_the_quorum(stage)
    (partition, *_) = stage.driver.partitions
    partition.hold_commits()
    hold = partition.hold

    def held(append: Uncommitted) -> int | None:
        asyncio.get_running_loop().call_later(0.05, partition.lose_uncommitted)
        return hold(append)

    stage.monkeypatch.setattr(partition, "hold", held)


def unreachable(stage: Stage) -> None:
    stage.driver = Unreachable(stage.driver.partitions)


def without_a_right(stage: Stage) -> None:
    """The next append is refused."""

    def not_authorized(req_id: bytes, *_: object) -> NotAuthorized:
        return NotAuthorized(req_id, "principal 'svc-a' may not append to partition 0")

    stage.monkeypatch.setattr("waltz.client.mock.connection.AppendFailed", not_authorized)
    stage.driver.silent_faults = False
    stage.driver.force_next_append_fail()


def trimmed_log(stage: Stage) -> None:
    """The first transactions are trimmed."""
    handle = MockConnection._handle

    def judged(connection: MockConnection, message: Message) -> None:
        if isinstance(message, TransactionDataListRequest) and message.transaction_id < 1:
            connection._send(Trimmed(message.req_id, 1))
        else:
            handle(connection, message)

    stage.monkeypatch.setattr(MockConnection, "_handle", judged)


async def in_sessions(stage: Stage) -> None:
    driver = MockDriver(stage.driver.partitions)
    stage.given["other"] = await stage.stack.enter_async_context(waltz.connect(driver, session_write=True))


def before_sessions(stage: Stage) -> None:
    stage.driver = MockDriver(stage.driver.partitions, versions=(0, 1, 2, 3, 4))


def damaged_record(stage: Stage) -> None:
    records = stage.driver.partitions[0]._records
    records[1] = records[1]._replace(data=b"damaged")


async def server(stage: Stage) -> None:
    old = stage.name.endswith("ProtocolError")
    fake = await FakeServer.open({0: Log(), 1: Log()}, versions=(0, 1, 2) if old else (0, 1, 2, 3, 4))
    stage.stack.push_async_callback(fake.close)
    stage.given["port"] = fake.endpoint.port
    if stage.name.endswith("ConnectionClosedError"):
        fake.refuse_all()


async def transaction_that_is_gone(stage: Stage) -> None:
    """A server that has lost what it had announced."""
    kept: list[waltz.Transaction] = []

    class Keeping(Callbacks):
        def apply_transaction(self, transaction: waltz.Transaction) -> None:
            kept.append(transaction)

    await stage.stack.enter_async_context(waltz.open_client(Keeping(), stage.driver, options=QUICK))
    wanted = stage.driver.partitions[0].transactions[-1].req_id
    await until(lambda: any(transaction.req_id == wanted for transaction in kept))
    stage.given["committed"] = next(transaction for transaction in kept if transaction.req_id == wanted)
    stage.driver.partitions[0]._records.pop()


def committed(stage: Stage) -> None:
    stage.given["committed"] = waltz.Transaction(waltz.ReqId.of(1, 0, 0, 1), 0, 0, b"10", None)


def zookeeper_without_a_cluster(stage: Stage) -> None:
    stage.given["zookeeper"] = MemoryZooKeeper(MemoryZooKeeperServer(), 1.0)
    stage.given["config"] = waltz.ClientConfig(
        zookeeper_connect_string="zoo-1:2181", cluster_root="/waltz", tls=TlsConfig(plaintext=True)
    )


def protected_tree(stage: Stage) -> None:
    """ZooKeeper refuses a process without a user."""

    async def refuse(*_: object, **__: object) -> None:
        raise waltz.NotPermittedError("get /protected: no permission")

    stage.monkeypatch.setattr("waltz.client.engine.environment.connect_configured", refuse)


def database_that_is_committed_too_early(stage: Stage) -> None:
    """By ``apply``, which fails afterwards."""
    database = waltz.DbApiDatabase(lambda: sqlite3.connect(stage.directory / "marks.sqlite"), sqlite3)

    def apply(transaction: waltz.Transaction, data: bytes, connection: sqlite3.Connection) -> None:
        connection.cursor().connection.commit()
        raise sqlite3.OperationalError

    with closing(database.connect()) as connection:
        database.create_table(connection)
        connection.commit()
    stage.given.update(database=database, apply=apply)


async def damaged_store(stage: Stage) -> None:
    client = await stage.stack.enter_async_context(waltz.connect(MockDriver(stage.driver.partitions)))
    await waltz.table.configure(client, 0, {"format": "table"})
    directory = stage.directory / "view"
    table = await stage.stack.enter_async_context(client.table(0, store="sqlite", directory=directory))
    await table.put(b"key", b"value")
    await table.refresh()
    path = next(directory.rglob("*.sqlite"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE ROWS SET value = x'00'")
    stage.given["table"] = table


async def directory_in_use(stage: Stage) -> None:
    client = await stage.stack.enter_async_context(waltz.connect(MockDriver(stage.driver.partitions)))
    await waltz.table.configure(client, 0, {"format": "table"})
    await stage.stack.enter_async_context(client.table(0, store="sqlite", directory=stage.directory))


def no_codecs(stage: Stage) -> None:
    stage.monkeypatch.setitem(sys.modules, "cramjam", None)
    codecs._functions.cache_clear()
    stage.stack.callback(codecs._functions.cache_clear)


ERRORS = "waltz.client.errors."


def no_view_nodes(stage: Stage) -> None:
    stage.driver.serves_tables = False


async def a_view_node(stage: Stage) -> None:
    client = await stage.stack.enter_async_context(waltz.connect(MockDriver(stage.driver.partitions)))
    await waltz.table.configure(client, 0, {"format": "table"})
    node = await stage.stack.enter_async_context(view_node(stage.driver.partitions, stage.directory / "view"))
    await node.served()


SITUATIONS: dict[str, Callable[[Stage], Awaitable[None] | None]] = {
    f"{ERRORS}ClientTimeoutError": suspended,
    f"{ERRORS}OutcomeUnknownError": suspended,
    f"{ERRORS}NotAppendedError": unreachable,
    f"{ERRORS}NotGuaranteedError": slow_storage,
    f"{ERRORS}AckRetracted": storage_that_gets_lost,
    "waltz.client.plain.acknowledgement.Acknowledgement": below_the_quorum,
    "waltz.blocking.Acknowledgement": below_the_quorum,
    f"{ERRORS}NotAuthorizedError": without_a_right,
    f"{ERRORS}TrimmedError": trimmed_log,
    f"{ERRORS}DataChecksumError": damaged_record,
    f"{ERRORS}RpcError": transaction_that_is_gone,
    f"{ERRORS}ServerError": transaction_that_is_gone,
    f"{ERRORS}SessionFencedError": in_sessions,
    f"{ERRORS}SessionNotSupportedError": before_sessions,
    f"{ERRORS}ConfirmedMarkNotSupportedError": before_sessions,
    f"{ERRORS}TimesNotSupportedError": before_sessions,
    "waltz.common.errors.ProtocolError": server,
    "waltz.common.errors.DeadlineExceededError": unreachable,
    "waltz.common.errors.ConnectionClosedError": server,
    "waltz.common.zk.client.NotPermittedError": protected_tree,
    "waltz.common.zk.store_admin.StoreAdminError": zookeeper_without_a_cluster,
    "waltz.client.databases.batches.StoredMarkError": database_that_is_committed_too_early,
    "waltz.client.engine.rpc.RpcClient": server,
    "waltz.client.transaction.Transaction": committed,
    "waltz.common.serializers.Deserializer": committed,
    "waltz.table.errors.CodecUnavailableError": no_codecs,
    "waltz.table.errors.StoreDamagedError": damaged_store,
    "waltz.table.errors.StoreError": directory_in_use,
    "waltz.table.errors.ViewUnavailableError": no_view_nodes,
    "waltz.table.served.table.ServedTable": a_view_node,
}
"""What the examples need that do not run on a cluster where all is well."""


class Noting(ast.NodeTransformer):
    """Have each handler of exceptions note what it has caught."""

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        self.generic_visit(node)
        node.name = node.name or "caught_error"
        node.body.insert(0, ast.parse(f"caught.append({node.name})").body[0])
        return node


@asynccontextmanager
async def staged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: list[str]
) -> AsyncIterator[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        stage = Stage(name, tmp_path, monkeypatch, stack)
        await stage.prepare(needed)
        yield stage.given


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_public_name_has_an_example(name: str) -> None:
    source = example_of(loaded(name))
    assert source is not None, "its docstring has no `Examples:` with one block of Python"
    assert name.rpartition(".")[2] in source or "client." in source, "it does not show what it is for"


@pytest.mark.parametrize("name", EXAMPLES)
async def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = example_of(loaded(name))
    assert source is not None
    needed = parameters_of(source)
    tree = Noting().visit(ast.parse(as_function(name, EXAMPLES[name], "example")))
    if any(getattr(node, "name", None) == APPLY for node in tree.body[0].body):
        tree.body[0].body += ast.parse(f"await {APPLY}(committed)").body
    caught: list[Exception] = []
    async with staged(name, tmp_path, monkeypatch, needed) as given:
        namespace: dict[str, Any] = {"caught": caught, "committed": given.get("committed")}
        exec(HEADER, namespace)
        exec(compile(ast.fix_missing_locations(tree), name, "exec"), namespace)
        arguments = {each: given[each] for each in needed}
        example: Callable[..., Any] = namespace["example"]
        async with asyncio.timeout(30):
            if inspect.iscoroutinefunction(example):
                await example(**arguments)
            else:
                await asyncio.to_thread(example, **arguments)
    value = loaded(name)
    if inspect.isclass(value) and issubclass(value, WaltzError):
        assert any(isinstance(error, value) or isinstance(error.__cause__, value) for error in caught), caught
    else:
        assert not caught


def test_what_is_given_is_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "parameters.md").read_text()
    rows = page.partition("## In the examples")[2]
    used = {each for name in EXAMPLES for each in parameters_of(example_of(loaded(name)) or "")}
    assert used == set(GIVEN)
    assert all(f"`{each}`" in rows for each in GIVEN)
