"""The HTTP endpoints of an archiver ask the access rules who may read them."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.common.net.certificates import Authority, write_pem
from tests.unit.common.net.test_http import get
from waltz.archive.process.daemon import serving
from waltz.cli.server_metrics import fetch_metrics
from waltz.common.access import Right
from waltz.common.acl.document import Document, Mode, Rule
from waltz.common.acl.store import read_applied, read_stored, write_rules
from waltz.common.config.schemas import ArchiveConfig, TlsConfig, from_mapping
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.http import HttpServer
from waltz.common.net.tls import client_context
from waltz.common.zk.znodes import StoreParams

pytestmark = pytest.mark.timeout(120)

ROOT = "/cluster"
STORE = StoreParams(uuid.UUID(int=1), 4)
BASE: dict[str, object] = {
    "zookeeper.connectString": "zk",
    "cluster.root": ROOT,
    "archive.url": "file:///archive",
    "archive.jetty.port": 0,
    "archive.bindAddress": "127.0.0.1",
}
RULES: dict[str, object] = {"archive.acl.enabled": True, "archive.ssl.trustStore.location": "/trust"}


def health() -> tuple[bool, Json]:
    return True, {"fine": True}


@pytest.fixture
async def zookeeper() -> AsyncIterator[MemoryZooKeeper]:
    client = await MemoryZooKeeperServer().connect()
    await client.create(ROOT, None)
    yield client
    await client.close()


async def put(zookeeper: MemoryZooKeeper, *rules: Rule) -> None:
    document = Document(Mode.ENFORCE, rules=rules)
    await write_rules(zookeeper, ROOT, document, await read_stored(zookeeper, ROOT), STORE.partition_count)


async def until(port: int, path: str, status: int) -> None:
    async with asyncio.timeout(60):
        while (await get(port, path))[0] != status:
            await asyncio.sleep(0)


def port_of(server: HttpServer | None) -> int:
    assert server is not None
    return server.port


async def test_without_access_rules_everybody_reads_everything(zookeeper: MemoryZooKeeper) -> None:
    config, registry = from_mapping(BASE, ArchiveConfig), Registry()
    async with serving(config, zookeeper, STORE, registry, health) as server:
        for path in ("/ping", "/health", "/metrics", "/buildinfo"):
            assert (await get(port_of(server), path))[0] == 200
        assert (await get(port_of(server), "/acl/refused"))[0] == 404
    assert not [name for name in registry.readings if "acl" in name]


async def test_without_a_port_there_is_nothing(zookeeper: MemoryZooKeeper) -> None:
    config = from_mapping({key: value for key, value in BASE.items() if "jetty" not in key}, ArchiveConfig)
    async with serving(config, zookeeper, STORE, Registry(), health) as server:
        assert server is None


async def test_access_rules_decide_and_their_changes_are_followed(zookeeper: MemoryZooKeeper) -> None:
    config = from_mapping({**BASE, **RULES, "archive.http.open": "/health"}, ArchiveConfig)
    anybody = Rule(True, "anonymous", (Right.DESCRIBE,), "*")
    registry = Registry()
    async with serving(config, zookeeper, STORE, registry, health) as server:
        port = port_of(server)
        assert (await get(port, "/metrics"))[0] == 403, "there are no rules yet"
        await put(zookeeper, anybody)
        await until(port, "/metrics", 200)
        assert (await get(port, "/acl/refused"))[0] == 200
        await put(zookeeper, anybody, Rule(False, "anonymous", (Right.DESCRIBE,), "3"))
        await until(port, "/metrics", 403)
        assert (await get(port, "/buildinfo"))[0] == 200, "it names no partition"
        assert (await get(port, "/health"))[0] == (await get(port, "/ping"))[0] == 200
        assert await read_applied(zookeeper, ROOT) == {}, "it writes nothing"
        assert sum(count for _, count in registry.readings["waltz_acl_refused_total"]()) >= 2


async def test_readers_are_known_by_their_certificates(zookeeper: MemoryZooKeeper, tmp_path: Path) -> None:
    authority = Authority("authority")
    trust = write_pem(tmp_path / "trust.pem", None, [authority.certificate])
    stores = {name: write_pem(tmp_path / name, authority.issue(name), []) for name in ("127.0.0.1", "svc", "other")}
    config = from_mapping(
        {
            **BASE,
            "archive.acl.enabled": True,
            "archive.http.tls": True,
            "archive.ssl.trustStore.location": trust,
            "archive.ssl.keyStore.location": stores["127.0.0.1"],
        },
        ArchiveConfig,
    )
    await put(zookeeper, Rule(True, "CN=svc", (Right.DESCRIBE,), "*"))
    async with serving(config, zookeeper, STORE, Registry(), health) as server:
        address = Endpoint("127.0.0.1", port_of(server))
        for name in ("svc", "other", None):
            location = None if name is None else stores[name]
            context = client_context(TlsConfig(key_store_location=location, trust_store_location=trust))
            if name == "svc":
                await fetch_metrics(address, 60, context)
            else:
                with pytest.raises(WaltzError, match="may not describe"):
                    await fetch_metrics(address, 60, context)
