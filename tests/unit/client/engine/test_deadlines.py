"""Nothing waits for ever, and one failure does not end what others rely on."""

import asyncio
import dataclasses

import pytest

from tests.unit.client.application import QUICK, Callbacks, Context, World
from tests.unit.client.fake_server import until
from waltz.client.errors import ClientTimeoutError
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import FlushRequest

pytestmark = pytest.mark.timeout(60)

HASTY = dataclasses.replace(QUICK, flush_timeout_s=0.05)


async def test_flushing_has_a_deadline(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server, options=HASTY)
    held = server.hold(AppendRequest, FlushRequest)
    context = Context()
    await client.submit(context)
    with pytest.raises(ClientTimeoutError, match="not all transactions were decided within 0.05 s"):
        await client.flush_transactions()
    with pytest.raises(ClientTimeoutError, match=r"within 0\.01 s"):
        await client.flush_transactions(timeout_s=0.01)
    server.filter = lambda connection, message: False
    for connection, message in held:
        server.handle(connection, message)
    await client.flush_transactions()
    await until(lambda: context.done)


async def test_leaving_a_partition_has_a_deadline_and_can_be_repeated(world: World) -> None:
    server = await world.server()
    client = await world.client(Callbacks(), server, options=HASTY, autoMount=False)
    await client.set_partitions({0})
    held = server.hold(AppendRequest, FlushRequest)
    context = Context()
    await client.submit(context)
    with pytest.raises(ClientTimeoutError, match="1 transactions of partition 0 were not decided"):
        await client.set_partitions(set())
    assert client.partitions == frozenset(), "it takes nothing any more"
    server.filter = lambda connection, message: False
    for connection, message in held:
        server.handle(connection, message)
    await client.set_partitions(set())
    assert context.done
    await client.set_partitions({0})
    other = Context()
    await client.submit(other)
    await until(lambda: other.done)


async def test_nudging_survives_a_failure(
    wide_world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = await wide_world.server()
    client = await wide_world.client(Callbacks(), server, longWaitThreshold=20)
    appends = client._engine.partitions[0].appends

    def fail() -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(appends, "nudge", fail)
    server.hold(AppendRequest, count=1)
    context = Context(partition_id=1)
    await client.submit(context)
    await until(lambda: context.done)
    await asyncio.sleep(0)
    assert "partition 0 could not be nudged" in caplog.text
