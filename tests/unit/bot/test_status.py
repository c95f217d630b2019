"""What the resources say."""

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.bot.places import opened
from tests.unit.common.net.certificates import Authority, write_pem
from tests.unit.common.net.test_http import exchange, get
from waltz.bot.prover import Prover
from waltz.bot.random_operations import RandomOperations, RandomOptions
from waltz.bot.status import Port, open_status
from waltz.cli import bot as bot_command
from waltz.cli.server_metrics import fetch_metrics
from waltz.common.access import Right
from waltz.common.acl.document import Document, Mode, Rule
from waltz.common.acl.store import read_applied, write_rules
from waltz.common.config.schemas import CliConfig, TlsConfig, from_mapping
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.tls import client_context, server_context
from waltz.common.zk.store_admin import create_cluster

ANY_PORT = Port(Endpoint("127.0.0.1", 0))


async def test_the_resources() -> None:
    async with opened() as (place, journal, troubles, _):
        prover = Prover("random", place.tables, journal, troubles)
        bot = RandomOperations(prover, RandomOptions(), None)
        asked: list[bool] = []
        server = await open_status(ANY_PORT, bot, lambda: asked.append(True))

        async def show(path: str) -> tuple[int, Any]:
            status, _, body = await get(server.port, path)
            return status, json.loads(body)

        await prover.write(0, {"a": "1", "b": "2"})
        assert await show("/valid-keys") == (200, {"count": 2, "keys": {"a": ["1"], "b": ["2"]}})
        assert await show("/invalid-keys") == (200, {"count": 0, "keys": {}})
        healthy = {"healthy": True, "deviations": 0, "retrying": None, "operations": 0, "of unknown outcome": 0}
        assert await show("/health") == (200, {**healthy, "scans": 0})

        journal.deviate("a", "it was planted")
        troubles.present = "no quorum"
        assert await show("/valid-keys") == (200, {"count": 1, "keys": {"b": ["2"]}})
        status, body = await show("/invalid-keys")
        assert (status, body["count"], body["keys"]["a"]["what"]) == (200, 1, "it was planted")
        status, body = await show("/health")
        assert (status, body["healthy"], body["deviations"], body["retrying"]) == (500, False, 1, "no quorum")
        assert (await show("/metrics"))[1]["gauges"]["waltz-bot.deviations"] == {"value": 1}

        assert (await get(server.port, "/reset"))[0] == 405
        assert asked == []
        response = await exchange(server.port, b"POST /reset HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 200 ")
        assert asked == [True]
        await server.close()


async def test_readers_over_tls_need_a_certificate(tmp_path: Path) -> None:
    authority = Authority("authority")
    trust = write_pem(tmp_path / "trust.pem", None, [authority.certificate])
    own, reader = (
        TlsConfig(key_store_location=write_pem(tmp_path / name, authority.issue(name), []), trust_store_location=trust)
        for name in ("127.0.0.1", "reader")
    )
    async with opened() as (place, journal, troubles, _):
        bot = RandomOperations(Prover("random", place.tables, journal, troubles), RandomOptions(), None)
        server = await open_status(ANY_PORT._replace(tls=server_context(own)), bot, lambda: None)
        address = Endpoint("127.0.0.1", server.port)
        assert "waltz-bot.deviations" in await fetch_metrics(address, 60, client_context(reader))
        with pytest.raises((OSError, WaltzError)):
            await fetch_metrics(address, 60, client_context(TlsConfig(trust_store_location=trust)))
        with pytest.raises((OSError, WaltzError)):
            await fetch_metrics(address, 60, None)
        await server.close()


@pytest.mark.parametrize("right", [Right.DESCRIBE, Right.ADMIN])
async def test_access_rules_decide_who_reads_and_who_resets(right: Right, monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, "/cluster", "test", 4)
    rule = Rule(True, "anonymous", (right,), "*")
    await write_rules(zookeeper, "/cluster", Document(Mode.ENFORCE, rules=(rule,)), None, 4)
    closed: list[object] = []

    async def connect(*_: object, **__: object) -> MemoryZooKeeper:
        return zookeeper

    async def close() -> None:
        closed.append(zookeeper)

    monkeypatch.setattr(bot_command, "connect_configured", connect)
    monkeypatch.setattr(zookeeper, "close", close)
    config = from_mapping(
        {
            "zookeeper.connectString": "zk",
            "cluster.root": "/cluster",
            "acl.enabled": True,
            "ssl.trustStore.location": "/trust",
            "http.open": "/buildinfo",
        },
        CliConfig,
    )
    asked: list[bool] = []
    async with AsyncExitStack() as stack, opened() as (place, journal, troubles, _):
        bot = RandomOperations(Prover("random", place.tables, journal, troubles), RandomOptions(), None)
        port = await bot_command._port(ANY_PORT.address, config, "random", stack)
        server = await open_status(port, bot, lambda: asked.append(True))
        shown = 200 if right is Right.DESCRIBE else 403
        for path in ("/valid-keys", "/invalid-keys", "/health", "/metrics", "/acl/refused"):
            assert (await get(server.port, path))[0] == shown
        assert (await get(server.port, "/buildinfo"))[0] == (await get(server.port, "/ping"))[0] == 200
        response = await exchange(server.port, b"POST /reset HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 200 " if right is Right.ADMIN else b"HTTP/1.1 403 ")
        assert asked == [True] * (right is Right.ADMIN)
        assert await read_applied(zookeeper, "/cluster") == {}
        await server.close()
        assert closed == []
    assert closed == [zookeeper]
