"""The cases that unit tests run on the ZooKeeper in memory, on a real one."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Self

import pytest
from kazoo.protocol.serialization import Close, Connect, int_struct

from tests.unit.client.proxy import Proxy
from tests.unit.common.cluster.manager_cases import Cluster, ManagerCases
from tests.unit.common.zk.conformance import Ensemble, Flag, ZooKeeperConformance
from tests.unit.common.zk.mutex_cases import MutexCases
from waltz.common.ids import Endpoint
from waltz.common.zk.client import ConnectionLossError, State, ZooKeeper, ZooKeeperUnreachableError
from waltz.common.zk.kazoo_client import KazooZooKeeper, connect
from waltz.common.zk.store_admin import create_cluster
from waltz.local import zookeeper as local_zookeeper
from waltz.local.zookeeper import LocalZooKeeper, LocalZooKeeperError

pytestmark = pytest.mark.integration

TIMEOUT_S = 60.0
"""For what must happen."""


async def expire(client: ZooKeeper, server: LocalZooKeeper) -> None:
    """End the session behind the client's back, as its expiry does, and wait until it has a new one."""
    assert isinstance(client, KazooZooKeeper)
    session_id, password = client._client.client_id
    renewed = asyncio.Event()

    def look(state: State) -> None:
        # The client may take its session back before the ensemble has ended it.
        if state is State.CONNECTED and client.session_id != session_id:
            renewed.set()

    remove = client.add_listener(look)

    def close_session() -> bool:
        """Ask for the end of the session; returns whether it had ended before."""
        # At once on one connection: the client takes its session back, and may be quicker than the second request.
        connect = Connect(0, 0, 10_000, session_id, password, False).serialize()
        close = int_struct.pack(1) + int_struct.pack(Close.type)
        endpoint = Endpoint.parse(server.connect_string)
        answer = b""
        with socket.create_connection(endpoint, timeout=TIMEOUT_S) as impostor:
            impostor.sendall(b"".join(int_struct.pack(len(request)) + request for request in (connect, close)))
            while received := impostor.recv(4096):
                answer += received  # the server ends the connection with the session
        return answer[8:12] == bytes(4)  # its time-out, after the length and the version of the protocol

    async with asyncio.timeout(TIMEOUT_S):
        while not await asyncio.to_thread(close_session):
            pass
        await renewed.wait()
    remove()


class RealEnsemble(Ensemble):
    """Its clients do not outlive a test that fails: while they reconnect, their threads draw from :mod:`random`, which
    property tests do not bear."""

    def __init__(self, server: LocalZooKeeper) -> None:
        self.server = server
        self._clients: list[ZooKeeper] = []

    async def connect(self, operation_timeout_s: float | None = None) -> ZooKeeper:
        client = await connect(
            self.server.connect_string,
            session_timeout_s=10,
            connect_timeout_s=TIMEOUT_S,
            operation_timeout_s=operation_timeout_s,
        )
        self._clients.append(client)
        return client

    async def expire(self, client: ZooKeeper) -> None:
        await expire(client, self.server)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()


@pytest.fixture
async def ensemble(zookeeper: LocalZooKeeper) -> AsyncIterator[Ensemble]:
    async with RealEnsemble(zookeeper) as ensemble:
        yield ensemble


class TestConformance(ZooKeeperConformance):
    """The interface."""


class TestMutex(MutexCases):
    """The mutex."""


class TestManager(ManagerCases):
    """The cluster manager."""


async def test_unreachable_is_one_line_naming_the_connect_string(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        ZooKeeperUnreachableError,
        match=r"^no ZooKeeper server answers at 127\.0\.0\.1:1 within 5 s \(Connection refused\); check",
    ):
        await connect("127.0.0.1:1", session_timeout_s=5, connect_timeout_s=5)
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == [
        "no connection to ZooKeeper: Connection refused; trying again"
    ]
    with pytest.raises(ZooKeeperUnreachableError, match="127.0.0.1:port"):
        await connect("127.0.0.1:port", session_timeout_s=5, connect_timeout_s=0.3)


async def test_a_server_that_is_stopped_is_waited_for_no_longer_than_asked() -> None:
    """A server stopped by a signal still accepts connections, so that a connection attempt hangs."""
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(ZooKeeperUnreachableError, match="within 1 s"):
                await connect(f"127.0.0.1:{stopped.getsockname()[1]}", session_timeout_s=3600, connect_timeout_s=1)


async def test_a_write_tells_the_time_of_the_ensemble(tmp_path: Path) -> None:
    async with LocalZooKeeper(tmp_path / "data") as server, RealEnsemble(server) as ensemble:
        zk = await ensemble.connect(operation_timeout_s=TIMEOUT_S)
        before_ms = time.time_ns() // 1_000_000
        await zk.create("/clock", b"")
        stat = await zk.set("/clock", b"")
        assert before_ms <= stat.mtime_ms <= time.time_ns() // 1_000_000


async def test_restart_of_the_server_is_survived(tmp_path: Path) -> None:
    async with LocalZooKeeper(tmp_path / "data") as server, RealEnsemble(server) as ensemble:
        # A server that is starting may leave a first attempt to connect unanswered for a third of its time-out.
        zk = await ensemble.connect(operation_timeout_s=TIMEOUT_S)
        states: list[State] = []
        zk.add_listener(states.append)
        session_id = zk.session_id
        await zk.create("/null", None)
        await zk.create("/empty", b"")
        await zk.create("/mine", b"x", ephemeral=True)
        flag = Flag()
        await zk.get("/mine", flag)
        await asyncio.to_thread(server.restart)
        assert (await zk.get("/null"))[0] is None  # a read waits for the connection
        assert (await zk.get("/empty"))[0] == b""
        stat = await zk.exists("/mine")
        assert stat is not None
        assert stat.owner == zk.session_id == session_id
        assert states == [State.SUSPENDED, State.CONNECTED]
        await flag.fired()


class SilentOnce(Proxy):
    """Leaves a connection unanswered, as a server may that is just starting."""

    silent = False

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.silent:
            self.silent = False
            await reader.read(-1)
        else:
            await super()._relay(reader, writer)


async def test_a_session_survives_that_its_only_server_leaves_a_connection_unanswered(
    zookeeper: LocalZooKeeper,
) -> None:
    proxy = await SilentOnce(Endpoint.parse(zookeeper.connect_string)).open()
    zk = await connect(
        str(proxy.endpoint), session_timeout_s=10, connect_timeout_s=TIMEOUT_S, operation_timeout_s=TIMEOUT_S
    )
    try:
        states: list[State] = []
        zk.add_listener(states.append)
        session_id = zk.session_id
        proxy.silent = True
        for pipe in tuple(proxy.pipes):
            pipe.cut()
        await zk.get("/")
        assert not proxy.silent
        assert zk.session_id == session_id
        assert states == [State.SUSPENDED, State.CONNECTED]
    finally:
        await zk.close()
        await proxy.close()


async def test_cluster_comes_back_after_a_restart(tmp_path: Path) -> None:
    async with LocalZooKeeper(tmp_path / "data") as server, RealEnsemble(server) as ensemble:
        zk = await ensemble.connect()
        await create_cluster(zk, "/waltz", "demo", 10)
        cluster = Cluster(ensemble, zk, "/waltz")
        one, two = await cluster.process(), await cluster.process()
        first = await one.add_server("h1")
        await first.until_owns(10)
        client = await two.add_client()
        await asyncio.to_thread(server.restart)
        second = await two.add_server("h2")
        await client.until_sees([first, second], 10)
        assert (len(first.partitions), len(second.partitions)) == (5, 5)
        assert [s.server_id for s in await cluster.servers()] == [1, 2]
        await cluster.stop(one)
        await cluster.stop(two)


async def test_silent_server_ends_calls_by_their_deadline(tmp_path: Path) -> None:
    async with LocalZooKeeper(tmp_path / "data") as server, RealEnsemble(server) as ensemble:
        zk = await ensemble.connect(operation_timeout_s=0.3)
        java = java_of(tmp_path / "data")
        assert java is not None
        os.kill(java, signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionLossError, match=r"set /a: no answer within 0\.3 s"):
                await zk.set("/a", b"1")
        finally:
            os.kill(java, signal.SIGCONT)


def java_of(directory: Path) -> int | None:
    """Process id of the ``java`` whose server has its data in ``directory``."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue  # gone meanwhile
        if str(directory / "zoo.cfg") in command:
            return int(entry.name)
    return None


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


OWNER = """
import os, sys, time
from pathlib import Path
from waltz.local.zookeeper import LocalZooKeeper

server = LocalZooKeeper(Path(sys.argv[1]))
server.start()
print("started", flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("mode", ["plain", "fork"])
def test_no_process_outlives_a_killed_owner(tmp_path: Path, mode: str) -> None:
    heir = None
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path), mode], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"started\n"
        if mode == "fork":
            heir = int(owner.stdout.readline())  # has inherited the pipe that the reaper listens at
        assert java_of(tmp_path) is not None
        owner.kill()
        owner.wait()
        until(lambda: java_of(tmp_path) is None)
        if heir is not None:
            os.kill(heir, signal.SIGKILL)


def test_stop_leaves_nothing_and_keeps_a_given_directory(tmp_path: Path) -> None:
    server = LocalZooKeeper(tmp_path)
    server.start()
    with pytest.raises(LocalZooKeeperError, match="running already"):
        server.start()
    assert server.log_path == tmp_path / "zookeeper.log"
    server.stop()
    server.stop()
    assert java_of(tmp_path) is None
    assert server.log_path.exists()


def test_temporary_directory_is_removed() -> None:
    with LocalZooKeeper() as server:
        directory = server.log_path.parent
        assert directory.is_dir()
    assert not directory.exists()
    with pytest.raises(LocalZooKeeperError, match="has not been started"):
        _ = server.log_path


def test_it_listens_on_the_loopback_interface_only(zookeeper: LocalZooKeeper) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.2", zookeeper.port))  # would fail if all interfaces were taken


def test_given_port_that_is_taken(tmp_path: Path, zookeeper: LocalZooKeeper) -> None:
    # By another ZooKeeper, whose answers must not be taken for one's own.
    server = LocalZooKeeper(tmp_path, port=zookeeper.port)
    with pytest.raises(LocalZooKeeperError, match=rf"ended on port {zookeeper.port}: .*BindException"):
        server.start()
    assert java_of(tmp_path) is None
    server.stop()


def test_free_port_that_is_taken_meanwhile(
    tmp_path: Path, zookeeper: LocalZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_free = local_zookeeper._free_port
    ports = [zookeeper.port, zookeeper.port]
    monkeypatch.setattr(local_zookeeper, "_free_port", lambda: ports.pop() if ports else really_free())
    with LocalZooKeeper(tmp_path) as server:
        assert server.port != zookeeper.port
    assert ports == []
