"""A real ZooKeeper with a TLS port that demands certificates."""

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.unit.client.proxy import Proxy
from tests.unit.common.net.certificates import Authority, write_pem, write_pkcs12
from waltz.common.config.schemas import ClientConfig, TlsConfig
from waltz.common.ids import Endpoint
from waltz.common.zk.client import NotPermittedError, State, ZooKeeperUnreachableError
from waltz.common.zk.kazoo_client import KazooZooKeeper, connect_configured
from waltz.common.zk.protection import ALL, AclEntry, Protection, Role, identity_of
from waltz.common.zk.store_admin import create_cluster, read_store_params
from waltz.local.zookeeper import LocalZooKeeper, zookeeper_jars
from waltz.operations.protecting import protect

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = "/waltz"
STORE_PASSWORD = "store-password"
PASSWORD = SecretStr("ops-password-of-the-test")
IDENTITY = identity_of("ops", PASSWORD.get_secret_value())


class SecureZooKeeper(LocalZooKeeper):
    """Also listens with TLS, by netty's jars, which come with PySpark."""

    def __init__(self, key_store: str, trust_store: str) -> None:
        super().__init__()
        self._stores = (key_store, trust_store)
        self.secure_port = 0

    def _launch(self, command: list[str]) -> None:
        key_store, trust_store = self._stores
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.secure_port = probe.getsockname()[1]
        java, *options, main, configuration = command
        position = options.index("-cp") + 1
        netty = sorted(zookeeper_jars()[0].parent.glob("netty-*.jar"))
        options[position] = os.pathsep.join([options[position], *map(str, netty)])
        with Path(configuration).open("a") as file:
            file.write(
                f"secureClientPort={self.secure_port}\n"
                "secureClientPortAddress=127.0.0.1\n"
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
                f"ssl.keyStore.location={key_store}\n"
                f"ssl.keyStore.password={STORE_PASSWORD}\n"
                f"ssl.trustStore.location={trust_store}\n"
                f"ssl.trustStore.password={STORE_PASSWORD}\n"
                "ssl.clientAuth=need\n"
            )
        super()._launch([java, *options, main, configuration])


class WithoutUsers(LocalZooKeeper):
    """Takes no passwords, until it is told to."""

    takes_users = False

    def _launch(self, command: list[str]) -> None:
        java, *others = command
        provider = f"-Dzookeeper.DigestAuthenticationProvider.enabled={str(self.takes_users).lower()}"
        super()._launch([java, provider, *others])


class Stores:
    """Stores of the ensemble and of a process, of one authority."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = Authority("authority")
        self.trust = write_pem(directory / "trust.pem", None, [self.authority.certificate])
        self.key = self.renew("client")
        node = self.authority.issue("localhost")
        self.node_key = write_pkcs12(directory / "node.p12", node, [self.authority.certificate], STORE_PASSWORD)
        self.node_trust = str(directory / "node-trust.pem")
        write_pem(directory / "node-trust.pem", None, [self.authority.certificate])

    def renew(self, name: str) -> str:
        """Another certificate for the process, in place of the one before."""
        path = write_pem(self._directory / "new.pem", self.authority.issue(name), [])
        return str(Path(path).replace(self._directory / "key.pem"))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def server(stores: Stores) -> Iterator[SecureZooKeeper]:
    running = SecureZooKeeper(stores.node_key, stores.node_trust)
    with running:
        yield running


def config(port: int, tls: TlsConfig, host: str = "localhost") -> ClientConfig:
    return ClientConfig(
        zookeeper_connect_string=f"{host}:{port}",
        cluster_root=ROOT,
        zookeeper_session_timeout_ms=10_000,
        zookeeper_user="ops",
        zookeeper_password=PASSWORD,
        zookeeper_ssl_enabled=True,
        tls=tls,
    )


def tls_of(stores: Stores) -> TlsConfig:
    return TlsConfig(key_store_location=stores.key, trust_store_location=stores.trust)


@pytest.fixture
async def zookeeper(server: SecureZooKeeper, stores: Stores) -> AsyncIterator[KazooZooKeeper]:
    client = await connect_configured(config(server.secure_port, tls_of(stores)), connect_timeout_s=60)
    yield client
    await client.close()


async def test_a_protected_tree_by_tls(zookeeper: KazooZooKeeper) -> None:
    key = await create_cluster(zookeeper, ROOT, "name", 3)
    await protect(zookeeper, ROOT, Protection({Role.ADMIN: (IDENTITY,)}))
    assert (await read_store_params(zookeeper, ROOT)).key == key


async def test_many_answers_at_once(zookeeper: KazooZooKeeper) -> None:
    """Small ones share records, large ones need many."""
    fired = asyncio.Event()
    await zookeeper.create("/many/0", b"x" * 500_000, make_path=True)
    await zookeeper.exists("/many/100", fired.set)
    await asyncio.gather(*(zookeeper.create(f"/many/{number}", b"%d" % number) for number in range(1, 300)))
    async with asyncio.timeout(60):
        await fired.wait()
    found = await asyncio.gather(*(zookeeper.get(f"/many/{number}") for number in range(300)))
    assert [data for data, _ in found] == [b"x" * 500_000, *(b"%d" % number for number in range(1, 300))]


@pytest.mark.parametrize("kind", ["without a certificate", "of another authority", "another host", "no TLS"])
async def test_who_is_refused(server: SecureZooKeeper, stores: Stores, kind: str, tmp_path: Path) -> None:
    tls, port, host = tls_of(stores), server.secure_port, "localhost"
    if kind == "without a certificate":
        tls, reason = TlsConfig(trust_store_location=stores.trust), "BAD_CERTIFICATE|CERTIFICATE_REQUIRED|broken|reset"
    elif kind == "of another authority":
        other = write_pem(tmp_path / "trust.pem", None, [Authority("another").certificate])
        tls, reason = tls.model_copy(update={"trust_store_location": other}), "CERTIFICATE_VERIFY_FAILED"
    elif kind == "another host":
        host, reason = "127.0.0.1", "IP address mismatch|CERTIFICATE_VERIFY_FAILED"
    else:
        port, reason = server.port, "."
    with pytest.raises(ZooKeeperUnreachableError, match=reason):
        await connect_configured(config(port, tls, host), connect_timeout_s=5)


async def test_a_renewed_certificate_counts_at_the_next_connection(server: SecureZooKeeper, stores: Stores) -> None:
    proxy = await Proxy(Endpoint("127.0.0.1", server.secure_port)).open()
    client = await connect_configured(config(proxy.endpoint.port, tls_of(stores)), connect_timeout_s=60)
    try:
        session, files = client.session_id, client._client.handler._context.files
        await client.create_with("/own", b"", frozenset({AclEntry("digest", IDENTITY, ALL)}))
        own = await client.get("/own")
        before, again = files.present, asyncio.Event()
        client.add_listener(lambda state: again.set() if state is State.CONNECTED else None)
        stores.renew("renewed")
        for pipe in list(proxy.pipes):
            pipe.cut()
        async with asyncio.timeout(60):
            await again.wait()
        assert files.present is not before
        assert client.session_id == session
        assert await client.get("/own") == own  # it has said again who it is
    finally:
        await client.close()
        await proxy.close()


@pytest.mark.deep
async def test_a_server_that_takes_no_users(caplog: pytest.LogCaptureFixture) -> None:
    """Who starts hears why it cannot; who is running hears it, too, and goes on when the server takes users again."""
    caplog.set_level(logging.INFO)
    why = "the server takes no passwords .zookeeper.DigestAuthenticationProvider.enabled=false."
    server = WithoutUsers()
    with server:
        plain = config(server.port, TlsConfig()).model_copy(update={"zookeeper_ssl_enabled": False})
        for timeout_s in (None, 60.0):
            with pytest.raises(NotPermittedError, match=f"ZooKeeper refuses user ops: {why}"):
                await connect_configured(plain, connect_timeout_s=timeout_s)
        nobody = plain.model_copy(update={"zookeeper_user": None, "zookeeper_password": None})
        await (await connect_configured(nobody, connect_timeout_s=60)).close()

        server.takes_users = True
        await asyncio.to_thread(server.restart)
        client = await connect_configured(plain, connect_timeout_s=60)
        states: list[State] = []
        client.add_listener(states.append)
        try:
            await client.create_with("/own", b"", frozenset({AclEntry("digest", IDENTITY, ALL)}))
            server.takes_users = False
            caplog.clear()
            await asyncio.to_thread(server.restart)
            async with asyncio.timeout(60):
                while not re.search(f"no connection to ZooKeeper: {why}", caplog.text):
                    await asyncio.sleep(0.05)
            assert State.CONNECTED not in states
            server.takes_users = True
            await asyncio.to_thread(server.restart)
            async with asyncio.timeout(60):
                while client.state is not State.CONNECTED:
                    await asyncio.sleep(0.05)
            assert await client.get("/own")
            assert states[-2:] == [State.LOST, State.CONNECTED]
        finally:
            await client.close()
        assert "did not" not in caplog.text
        assert PASSWORD.get_secret_value() not in caplog.text
