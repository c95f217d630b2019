"""What the resources say."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bot.places import opened
from tests.unit.common.net.certificates import Authority, write_pem
from tests.unit.common.net.test_http import exchange, get
from waltz.bot.prover import Prover
from waltz.bot.random_operations import RandomOperations, RandomOptions
from waltz.bot.status import open_status
from waltz.cli.server_metrics import fetch_metrics
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.tls import client_context, server_context


async def test_the_resources() -> None:
    async with opened() as (place, journal, troubles, _):
        prover = Prover("random", place.tables, journal, troubles)
        bot = RandomOperations(prover, RandomOptions(), None)
        asked: list[bool] = []
        server = await open_status("127.0.0.1", 0, bot, lambda: asked.append(True))

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
        server = await open_status("127.0.0.1", 0, bot, lambda: None, server_context(own))
        address = Endpoint("127.0.0.1", server.port)
        assert "waltz-bot.deviations" in await fetch_metrics(address, 60, client_context(reader))
        with pytest.raises((OSError, WaltzError)):
            await fetch_metrics(address, 60, client_context(TlsConfig(trust_store_location=trust)))
        with pytest.raises((OSError, WaltzError)):
            await fetch_metrics(address, 60, None)
        await server.close()
