"""The client of the admin port on lines that go dead without a word (rule L3)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.smoke.proxy import Proxy
from tests.unit.relay import HOST, relay
from tests.unit.storage.node_support import KEY, PARTITION_COUNT, TIMEOUT_S, RunningNode, running_node
from waltz.common.errors import ConnectFailedError, DeadlineExceededError
from waltz.common.ids import Endpoint
from waltz.storage.node import admin_port
from waltz.storage.remote import admin_client
from waltz.storage.remote.admin_client import StorageAdminClient

LIMIT_S = 2.0
SIGN_INTERVAL_S = 0.05
SIGN_SIZE_BYTES = 7
ENOUGH_SIGNS = int(1.1 * LIMIT_S / SIGN_INTERVAL_S)
"""So many come in longer than the limit."""


async def connect(port: int) -> StorageAdminClient:
    return await StorageAdminClient.connect(
        Endpoint(HOST, port), cluster_key=KEY, partition_count=PARTITION_COUNT, tls=None, timeout_s=LIMIT_S
    )


class Far(NamedTuple):
    """A node, the line to it, and the client at its other end."""

    node: RunningNode
    line: Proxy
    client: StorageAdminClient


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[Far]:
    async with running_node(tmp_path) as node, relay(node.node.admin_port) as line:
        client = await connect(line.port)
        yield Far(node, line, client)
        await client.close()


class LongWork:
    """Takes the place of a survey and of an assignment at the node, and takes until it is told to end."""

    def __init__(self, far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended = asyncio.Event()
        self._far = far
        monkeypatch.setattr(admin_port, "SIGN_OF_LIFE_INTERVAL_S", SIGN_INTERVAL_S)
        monkeypatch.setattr(far.node.node.manager, "survey", self._survey)
        for name in ("assign", "unassign", "set_available"):
            monkeypatch.setattr(far.node.node.manager, name, self._work)

    async def _survey(self, partition_id: int) -> tuple[tuple[tuple[int, int], ...], int, bool]:
        await self.ended.wait()
        return (), partition_id, True

    async def _work(self, *_: object, **__: object) -> None:
        await self.ended.wait()

    async def has_taken_longer_than_the_limit(self) -> None:
        (connection,) = self._far.line.connections
        enough_bytes = connection.passed_bytes + ENOUGH_SIGNS * SIGN_SIZE_BYTES
        async with asyncio.timeout(TIMEOUT_S):
            while connection.passed_bytes < enough_bytes:
                await asyncio.sleep(0.01)


async def test_every_request_ends_when_the_line_has_gone_dead(far: Far) -> None:
    client = far.client
    far.line.blackhole()
    outcomes = await asyncio.gather(
        client.set_available([0], False),
        client.set_assigned([2], True),
        client.records(0, 0, 10),
        client.last_session_info(0),
        client.metrics(),
        client.assigned_partition_status(),
        client.repair_survey(0),
        client.repair_records(0, []),
        client.repair_commit(0, 0),
        return_exceptions=True,
    )
    for outcome in outcomes:
        assert isinstance(outcome, DeadlineExceededError)
        assert str(outcome).startswith(f"storage admin {client.endpoint} did not answer ")
    again = await connect(far.line.port)
    assert await again.assigned_partition_status() == {0: True, 1: True}
    await again.close()


async def test_a_line_that_is_dead_from_the_beginning(far: Far) -> None:
    far.line.cut()
    with pytest.raises(ConnectFailedError, match=rf"cannot connect to {HOST}:{far.line.port}: not ready within 2 s"):
        await connect(far.line.port)


async def test_long_work_is_waited_for_while_the_node_gives_signs_of_life(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = LongWork(far, monkeypatch)
    survey = asyncio.create_task(far.client.repair_survey(1))
    await work.has_taken_longer_than_the_limit()
    work.ended.set()
    assert await survey == ((), 1, True)
    assert await far.client.assigned_partition_status() == {0: True, 1: True}


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.set_assigned([2], True),
        lambda client: client.set_assigned([0], False),
        lambda client: client.set_available([0], False),
    ],
)
async def test_partitions_that_take_long_to_open_or_close_are_waited_for(
    far: Far, monkeypatch: pytest.MonkeyPatch, ask: Callable[[StorageAdminClient], Coroutine[None, None, None]]
) -> None:
    work = LongWork(far, monkeypatch)
    asked = asyncio.create_task(ask(far.client))
    await work.has_taken_longer_than_the_limit()
    assert not asked.done()
    work.ended.set()
    await asked


async def test_long_work_on_a_line_that_goes_dead_is_given_up(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    work = LongWork(far, monkeypatch)
    survey = asyncio.create_task(far.client.repair_survey(1))
    await work.has_taken_longer_than_the_limit()
    far.line.blackhole()
    with pytest.raises(DeadlineExceededError, match="did not answer RepairSurveyRequest within 2 s"):
        await survey
    work.ended.set()


async def test_work_that_never_ends_is_given_up(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    work = LongWork(far, monkeypatch)
    monkeypatch.setattr(admin_client, "LONG_WORK_TIMEOUT_S", 0.5)
    with pytest.raises(DeadlineExceededError, match=r"has not done RepairSurveyRequest within 0\.5 s"):
        await far.client.repair_survey(1)
    work.ended.set()
