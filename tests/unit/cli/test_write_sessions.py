"""Write sessions as operators see and raise them, over connections to servers with logs of the test's own."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.client.fake_server import FakeServer, Log
from tests.unit.common.cluster.fakes import make_metadata
from tests.unit.server.fakes import FakeLog
from tests.unit.server.serving import GENERATION, BatchingLog, serving
from waltz.cli import write_sessions
from waltz.cli.main import parser
from waltz.cli.server_metrics import SessionMetrics
from waltz.cli.session import Session
from waltz.cli.write_sessions import describe
from waltz.common.cluster.owners import Owner
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.listener import close_server
from waltz.common.wire.client_server import Message
from waltz.common.wire.write_sessions import LastTransactionIdResponse, LastTransactionStatus
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import create_cluster
from waltz.common.zk.znodes import PartitionAssignment, PartitionGeneration, ServerDescriptor
from waltz.operations import write_sessions as asking
from waltz.operations.write_sessions import SessionAnswer, ask_owners, explain_refusal

ROOT = "/waltz"
HERE = Endpoint("host", 1)
OWNER = Owner(1, HERE, GENERATION)


class FencingLog(BatchingLog):
    """Begins a store session as soon as a fence wants one."""

    def renew(self) -> None:
        super().renew()
        asyncio.get_running_loop().call_soon(lambda: self.begin_session(unbroken=True))


@asynccontextmanager
async def cluster(owned: Mapping[Endpoint, tuple[int, ...]], count: int) -> AsyncIterator[Session]:
    """What ZooKeeper says of a cluster with these servers, numbered from 1."""
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, ROOT, "fake", count)
    paths = ClusterPaths.of(ROOT)
    servers = {}
    for server_id, (endpoint, partitions) in enumerate(owned.items(), 1):
        descriptor = ServerDescriptor(server_id, endpoint)
        await zookeeper.create(paths.server_descriptor("s_"), descriptor.encode(), ephemeral=True, sequential=True)
        servers[server_id] = tuple(PartitionGeneration(each, GENERATION) for each in partitions)
    assignment = PartitionAssignment(1, count, servers)
    await zookeeper.set(paths.server_descriptors, assignment.encode())
    await zookeeper.create(paths.partition(0), make_metadata(0, {}, session_id=8).encode())
    try:
        yield Session(zookeeper, ROOT, None)
    finally:
        await zookeeper.close()


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["session", *arguments, "-c", "unused.yml"])


async def show(session: Session, *arguments: str) -> None:
    await write_sessions._show(options("show", *arguments), session)


async def fence(session: Session, *arguments: str) -> None:
    await write_sessions._fence(options("fence", *arguments), session)


async def test_every_partition_is_shown_whatever_its_owner_is(capsys: pytest.CaptureFixture[str]) -> None:
    original = await FakeServer.open({1: Log(1)})
    async with serving({0: FakeLog}) as (ours, _):
        nobody = Endpoint("127.0.0.1", 1)
        async with cluster({ours: (0,), original.endpoint: (1,), nobody: (2,)}, 4) as session:
            with pytest.raises(WaltzError, match="the write sessions of 2 of 4 partitions are not known"):
                await show(session)
            lines = capsys.readouterr().out.splitlines()
            assert (
                lines[0] == f"partition: 0, owner: 1 ({ours}), store session: 8, write session: 2, last transaction: -1"
            )
            assert lines[1] == (
                f"partition: 1, owner: 2 ({original.endpoint}), store session: none, "
                "write session: none: the owner speaks version 4, which has no write sessions"
            )
            assert lines[2].startswith(f"partition: 2, owner: 3 ({nobody}), store session: none, write session: not ")
            assert str(nobody) in lines[2].partition("not known: ")[2]
            assert lines[3:] == [
                "partition: 3, owner: none, store session: none, write session: not known: no server owns it"
            ]
            assert original.received == []
            with pytest.raises(WaltzError, match="2 of 4 partitions"):
                await show(session, "--json")
            zero, one, two, three = json.loads(capsys.readouterr().out)
            assert zero == {
                "partition": 0,
                "owner": {"server": 1, "endpoint": str(ours)},
                "store_session": 8,
                "write_session": 2,
                "version": 5,
                "last_transaction": -1,
                "error": None,
            }
            assert (one["write_session"], one["version"], one["last_transaction"], one["error"]) == (
                None,
                4,
                None,
                None,
            )
            assert (two["store_session"], two["write_session"], two["version"]) == (None, None, None)
            assert str(nobody) in two["error"]
            assert (three["owner"], three["error"]) == (None, "no server owns it")
            await show(session, "-p", "1")
            assert len(capsys.readouterr().out.splitlines()) == 1
            with pytest.raises(WaltzError, match="there is no partition 4; the cluster has 4"):
                await show(session, "-p", "3-5")
    await original.close()


async def test_a_partition_that_is_not_open_at_its_owner(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving({0: FakeLog}) as (ours, _), cluster({ours: (0, 1)}, 2) as session:
        with pytest.raises(WaltzError, match="the write sessions of 1 of 2 partitions are not known"):
            await show(session)
        assert f"write session: not known: the partition is not open at {ours}" in capsys.readouterr().out
        with pytest.raises(WaltzError, match="of partition 1 was not raised: the partition is not open at .*ask again"):
            await fence(session, "-p", "1", "--force")


async def test_metrics_that_cannot_be_read_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving({0: FakeLog}) as (ours, _), cluster({ours: (0,)}, 1) as session:
        with pytest.raises(WaltzError, match="the metrics of 1 servers cannot be read"):
            await show(session, "--http", "127.0.0.1:1")
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith("write session: 2, last transaction: -1")
        assert lines[1].startswith("the metrics at 127.0.0.1:1 cannot be read: ")


async def test_a_fence(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving({0: FencingLog}) as (ours, logs), cluster({ours: (0,)}, 1) as session:
        await fence(session, "-p", "0", "--force")
        assert capsys.readouterr().out.splitlines() == [
            "partition: 0, write session: 3, last transaction: -1",
            "appends of older write sessions are refused from now on; none can follow transaction -1",
        ]
        with pytest.raises(WaltzError, match="was not raised: the present one is 3, not 2; somebody else may have"):
            await fence(session, "-p", "0", "--if-session", "2")
        assert logs[0].renewals == 1
        await fence(session, "-p", "0", "--if-session", "3")
        assert "write session: 4" in capsys.readouterr().out
        await show(session)
        assert "write session: 4" in capsys.readouterr().out


async def test_a_server_of_the_original_is_sent_nothing() -> None:
    original = await FakeServer.open({0: Log(0)})
    async with cluster({original.endpoint: (0,)}, 1) as session:
        with pytest.raises(WaltzError, match="was not raised: its owner .* speaks version 4, .*; upgrade it"):
            await fence(session, "-p", "0", "--force")
    assert original.received == []
    await original.close()


async def test_an_outcome_that_is_not_known_is_not_called_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await FakeServer.open({0: Log(0)}, versions=(5,))
    server.refuse_all()
    async with cluster({server.endpoint: (0,)}, 1) as session:
        with pytest.raises(WaltzError, match=r"^whether the write session of partition 0 was raised is not known: "):
            await fence(session, "-p", "0", "--force")
        server.filter = lambda connection, message: True
        monkeypatch.setattr(asking, "ANSWER_TIMEOUT_S", 0.01)
        silence = "is not known: .* did not answer within 0.01 s; look at it with waltz session show, then ask again"
        with pytest.raises(WaltzError, match=silence):
            await fence(session, "-p", "0", "--force")
        with pytest.raises(WaltzError, match="the write sessions of 1 of 1 partitions are not known"):
            await show(session)
    await server.close()


async def test_nobody_to_be_asked() -> None:
    async with cluster({Endpoint("127.0.0.1", 1): (1,)}, 2) as session:
        for partition_id, text in ((0, "no server owns it; is a server running"), (1, "was not raised: .*127.0.0.1:1")):
            with pytest.raises(WaltzError, match=text):
                await fence(session, "-p", str(partition_id), "--force")
        with pytest.raises(WaltzError, match="there is no partition 2; the cluster has 2"):
            await fence(session, "-p", "2", "--force")


async def test_a_strange_answer() -> None:
    server = await FakeServer.open({0: Log(0)}, versions=(5,))

    def confuse(connection: Any, message: Message) -> bool:
        connection.send(message)
        return True

    server.filter = confuse
    async with cluster({server.endpoint: (0,)}, 1) as session:
        with pytest.raises(WaltzError, match="is not known: LastTransactionIdRequest came in answer"):
            await fence(session, "-p", "0", "--force")
    await server.close()


@pytest.mark.parametrize("arguments", [[], ["--if-session", "3", "--force"], ["--if-session", "-2"]])
def test_a_fence_needs_a_safeguard(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        options("fence", "-p", "0", *arguments)
    assert caught.value.code == 2
    assert "--if-session" in capsys.readouterr().err


@pytest.mark.parametrize("status", LastTransactionStatus)
def test_every_status_has_its_text(status: LastTransactionStatus) -> None:
    text = explain_refusal(LastTransactionIdResponse(bytes(16), status, 7, 9), HERE, 8)
    assert (text is None) == (status is LastTransactionStatus.OK)


def test_what_metrics_add_to_a_line() -> None:
    told = SessionAnswer(5, 9, 100)
    start = "partition: 3, owner: 1 (host:1), store session: 8, write session: 9, last transaction: 100"
    assert describe(3, OWNER, 8, told, None) == start
    free = SessionMetrics(None, 1000, 0, 0, 0)
    assert describe(3, OWNER, 8, told, free) == f"{start}, exclusive holder: none, fences: 0, refused appends: 0"
    held = SessionMetrics(7, 1000, 2, 30, 4)
    assert describe(3, OWNER, 8, told, held) == f"{start}, exclusive holder: client 7, fences: 2, refused appends: 34"


async def test_an_owner_that_is_late_costs_no_other_partition() -> None:
    async with serving({0: FakeLog}) as (ours, _):
        accepted: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _reader, writer: accepted.append(writer), "127.0.0.1", 0)
        late = Endpoint("127.0.0.1", silent.sockets[0].getsockname()[1])
        owners = {0: Owner(1, ours, GENERATION), 1: Owner(2, late, GENERATION)}
        told = await ask_owners(owners, None, timeout_s=1)
        await close_server(silent)
        for writer in accepted:
            writer.close()
            await writer.wait_closed()
    assert isinstance(told[0], SessionAnswer)
    assert told[0].number == 2
    assert told[1] == f"{late} did not answer within 1 s"


def test_an_owner_that_is_gone() -> None:
    assert describe(3, Owner(1, None, 2), None, "server 1 is gone", None) == (
        "partition: 3, owner: 1 (gone), store session: none, write session: not known: server 1 is gone"
    )
