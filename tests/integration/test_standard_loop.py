"""Clients where there is no uvloop, against real servers over TLS."""

import sys

import pytest

import waltz
from waltz.common.loops import run
from waltz.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


def test_clients_work_on_the_loop_of_asyncio(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    config_path = cluster.layout.client_config_path

    async def appended() -> list[int]:
        async with waltz.connect(config_path) as client:
            return await client.append_many(0, [b"%d" % number for number in range(500)])

    ids = run(appended())
    with waltz.blocking.connect(config_path) as client:
        last = client.append(0, b"last", header=1)
        texts = [each.data for each in client.feed(0, after=ids[0] - 1, until=last)]
    assert len(texts) == last - ids[0] + 1
    assert texts[-1] == b"last"
