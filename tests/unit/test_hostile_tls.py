"""What TLS promises to clients, and that passwords are seen nowhere."""

import dataclasses
import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import waltz
from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.client.application import QUICK
from tests.unit.client.fake_server import FakeServer, Log
from tests.unit.client.test_cluster import Managed
from tests.unit.common.net.certificates import Authority, write_pem, write_pkcs12
from tests.unit.common.net.peers import Recorder, bare_client
from tests.unit.server.process.test_node import PARTITIONS, no_storage
from tests.unit.server.process.test_node import ROOT as SERVER_ROOT
from tests.unit.server.process.test_node import config as server_config
from tests.unit.storage.node_support import KEY, PARTITION_COUNT, TIMEOUT_S, records, running_node
from waltz.common.cluster.manager import ClusterManager
from waltz.common.config.schemas import CliConfig, ClientConfig, ServerConfig, StorageConfig, TlsConfig, load
from waltz.common.errors import ConfigError, ConnectFailedError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import connect
from waltz.common.net.tls import client_context, server_context
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.zk.store_admin import add_storage_node, create_cluster
from waltz.server.process.node import WaltzServer
from waltz.storage.remote.client import StorageClient

PASSWORD = "correct-horse-battery"
WRONG = "wrong-horse-battery"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("Test authority")


@pytest.mark.parametrize(("name", "checked"), [("127.0.0.1", True), ("other.example", True), ("other.example", False)])
async def test_connect_checks_host_names_unless_a_file_of_the_original_is_used(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, checked: bool
) -> None:
    keys: dict[str, object] = {
        "zookeeper.connectString": "memory",
        "zookeeper.sessionTimeout": 10_000,
        "cluster.root": "/waltz",
        "client.ssl.trustStore.location": write_pem(tmp_path / "trust.pem", None, [authority.certificate]),
    }
    path = tmp_path / "client.yml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    store = write_pem(tmp_path / "key.pem", authority.issue(name), [])
    server = await FakeServer.open({0: Log()}, tls=server_context(TlsConfig(key_store_location=store)))
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, "/waltz", "bank", 1)
    cluster = await ClusterManager.open(zookeeper, "/waltz")
    await cluster.manage_server(Managed(server.endpoint, set()))
    options = dataclasses.replace(QUICK, rpc_timeout_s=60 if name == "127.0.0.1" or not checked else 0.5)
    try:
        async with waltz.connect(keys if checked else path, zookeeper=zookeeper, options=options) as client:
            if name == "127.0.0.1" or not checked:
                assert await client.high_water_mark(0) == -1
            else:
                with pytest.raises(WaltzError):
                    await client.high_water_mark(0)
                assert "not trusted" in caplog.text
    finally:
        await cluster.close()
        await zookeeper.close()
        await server.close()


class Leaks:
    """Collects whatever a user or an operator may see."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self._seen: list[str] = []
        self._formatter = logging.Formatter()

    def see(self, *things: object) -> None:
        for thing in things:
            self._seen += (str(thing), repr(thing))
            if isinstance(thing, BaseException):
                self._seen += traceback.format_exception(thing)

    def error_of(self, function: Callable[[], object]) -> None:
        with pytest.raises(WaltzError) as caught:
            function()
        self.see(caught.value)

    def check(self) -> None:
        self._seen += map(self._formatter.format, self._caplog.records)
        assert self._caplog.records
        for secret in (PASSWORD, WRONG):
            assert not [text for text in self._seen if secret in text]


@pytest.fixture
def leaks(caplog: pytest.LogCaptureFixture) -> Leaks:
    caplog.set_level(logging.DEBUG)
    return Leaks(caplog)


def config_text(prefix: str, more: str = "") -> str:
    return (
        "zookeeper: {connectString: zk, sessionTimeout: 1000}\ncluster.root: /waltz\n"
        "server.port: 1\nstorage: {port: 1, admin.port: 2, directory: /d}\n"
        f"{prefix}ssl.keyStore: {{location: /absent, password: {PASSWORD}}}\n"
        f"{prefix}ssl.trustStore: {{location: /absent, password: {PASSWORD}}}\n{more}"
    )


@pytest.mark.parametrize(
    ("prefix", "model"),
    [("server.", ServerConfig), ("storage.", StorageConfig), ("client.", ClientConfig), ("", CliConfig)],
)
def test_configuration_files(
    tmp_path: Path, leaks: Leaks, prefix: str, model: type[ServerConfig | StorageConfig | ClientConfig | CliConfig]
) -> None:
    path = tmp_path / "waltz.yml"
    path.write_text(config_text(prefix, "sevrer.port: 1\n"))
    config = load(path, model)
    leaks.see(config, config.tls, config.model_dump(), config.model_dump_json())
    leaks.error_of(lambda: server_context(config.tls))
    leaks.error_of(lambda: client_context(config.tls))
    for mistake in (
        "cluster.root: twice\n",
        f"{prefix}ssl.keyStore.password: twice\n",
        f'other: "{PASSWORD}\n',
        f"other: {PASSWORD}: {PASSWORD}\n",
        f"  other: {PASSWORD}\n",
        f"other: !!int {PASSWORD}\n",
        f"other: *{PASSWORD[:3]}\n",
    ):
        path.write_text(config_text(prefix, mistake))
        leaks.error_of(lambda: load(path, model))
    for wrong in (f"[{PASSWORD}]", f"{{a: {PASSWORD}}}", "12345"):
        path.write_text(config_text(prefix).replace(f"password: {PASSWORD}", f"password: {wrong}", 1))
        try:
            leaks.see(load(path, model))  # a group where a text should be is an unknown key
        except ConfigError as error:
            leaks.see(error)
    leaks.check()


def tls_config(tmp_path: Path, authority: Authority, password: str = PASSWORD) -> TlsConfig:
    identity, certificates = authority.issue("127.0.0.1"), [authority.certificate]
    return TlsConfig.model_validate(
        {
            "key_store_location": write_pkcs12(tmp_path / "key.p12", identity, certificates, PASSWORD),
            "key_store_password": password,
            "trust_store_location": write_pkcs12(tmp_path / "trust.p12", None, certificates, PASSWORD),
            "trust_store_password": password,
        }
    )


async def test_a_storage_node_and_its_peers(tmp_path: Path, authority: Authority, leaks: Leaks) -> None:
    tls = tls_config(tmp_path, authority)
    directory = tmp_path / "storage"
    directory.mkdir()
    with pytest.raises(ConfigError) as caught:
        async with running_node(directory, tls=tls_config(tmp_path, authority, WRONG)):
            pass
    leaks.see(caught.value)
    async with running_node(directory, tls=tls) as node:
        leaks.see(node.config)

        async def open_client(config: TlsConfig) -> StorageClient:
            return await StorageClient.connect(
                node.endpoint,
                cluster_key=KEY,
                partition_count=PARTITION_COUNT,
                tls=client_context(config),
                timeout_s=TIMEOUT_S,
            )

        client = await open_client(tls)
        await client.append(1, 0, records(0, 1), timeout_s=TIMEOUT_S)
        await client.close()
        with pytest.raises(ConnectFailedError) as failed:
            await open_client(TlsConfig())
        leaks.see(failed.value)
        async with bare_client(node.endpoint.port) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
    leaks.check()


async def test_a_server_and_its_clients(tmp_path: Path, authority: Authority, leaks: Leaks) -> None:
    tree = MemoryZooKeeperServer()
    zookeeper = await tree.connect()
    await create_cluster(zookeeper, SERVER_ROOT, "test", PARTITIONS)
    await add_storage_node(zookeeper, SERVER_ROOT, "s1:6000", 1, 6100)
    tls = tls_config(tmp_path, authority)
    wrong = WaltzServer(server_config(tls=tls_config(tmp_path, authority, WRONG)), zookeeper, make_connector=no_storage)
    with pytest.raises(ConfigError) as caught:
        await wrong.start()
    leaks.see(caught.value)
    server = WaltzServer(server_config(tls=tls), zookeeper, make_connector=no_storage)
    await server.start()
    endpoint = Endpoint("127.0.0.1", server.endpoint.port)
    channel = await connect(endpoint, CLIENT_SERVER, "client", Recorder(), tls=client_context(tls), timeout_s=TIMEOUT_S)
    with pytest.raises(ConnectFailedError) as failed:
        await connect(endpoint, CLIENT_SERVER, "client", Recorder(), tls=None, timeout_s=0.5)
    leaks.see(failed.value, server, channel)
    channel.abort()
    await channel.wait_closed()
    await server.close()
    await zookeeper.close()
    leaks.check()
