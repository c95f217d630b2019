import asyncio
import gc

import pytest

from tests.unit.common.cluster.conftest import ROOT
from tests.unit.common.cluster.fakes import GENERATION, FakeCluster, FakeOwner
from tests.unit.relay import relay
from waltz.common.cluster import owners
from waltz.common.cluster.owners import Owner, OwnerConnection, read_owners
from waltz.common.errors import ConnectFailedError, ConnectionClosedError, ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.net import channel as channel_module
from waltz.common.wire.client_server import HighWaterMarkRequest, HighWaterMarkResponse
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.wire.version5 import TransactionDataListRequest

TIMEOUT_S = 30.0


async def connection_to(owner: FakeOwner) -> OwnerConnection:
    return await OwnerConnection.open(owner.endpoint, tls=None, timeout_s=TIMEOUT_S)


async def test_every_partition_has_its_owner(cluster: FakeCluster) -> None:
    owner = Owner(1, cluster.owner.endpoint, GENERATION)
    assert await read_owners(cluster.zookeeper, ROOT) == {0: owner, 1: owner, 2: owner}


async def test_an_owner_that_is_gone_has_no_endpoint(cluster: FakeCluster) -> None:
    await cluster.assign_to(9)
    assert (await read_owners(cluster.zookeeper, ROOT))[0] == Owner(9, None, GENERATION)


async def test_requests_overlap(cluster: FakeCluster) -> None:
    """What waits for one answer does not keep the answers to later requests."""
    cluster.owner.silent = {0}
    connection = await connection_to(cluster.owner)
    silent = connection.send(0, GENERATION, HighWaterMarkRequest)
    answers = [connection.send(each, GENERATION, HighWaterMarkRequest) for each in (2, 1)]
    messages = [(await answer).decode() for answer in answers]
    marks = [message.transaction_id for message in messages if isinstance(message, HighWaterMarkResponse)]
    assert marks == [0, -1]
    assert not silent.done()
    assert [(req_id.partition_id, req_id.generation) for req_id in cluster.owner.requests] == [
        (0, GENERATION),
        (2, GENERATION),
        (1, GENERATION),
    ]
    assert len(set(cluster.owner.requests)) == 3
    silent.cancel()
    await connection.close()


async def test_an_answer_that_was_given_up_is_dropped(cluster: FakeCluster) -> None:
    connection = await connection_to(cluster.owner)
    connection.send(0, GENERATION, HighWaterMarkRequest).cancel()
    assert (await connection.send(2, GENERATION, HighWaterMarkRequest)).decode().req_id == cluster.owner.requests[-1]
    assert not connection._unanswered
    await connection.close()


async def test_the_end_of_the_connection_is_told_to_all_who_wait(cluster: FakeCluster) -> None:
    cluster.owner.silent = {0, 1}
    connection = await connection_to(cluster.owner)
    answers = [connection.send(each, GENERATION, HighWaterMarkRequest) for each in (0, 1)]
    while len(cluster.owner.requests) < 2:
        await asyncio.sleep(0)
    endpoint = cluster.owner.endpoint
    await cluster.owner.stop()
    for answer in answers:
        with pytest.raises(ConnectionClosedError, match=f"server {endpoint} closed the connection"):
            await answer
    with pytest.raises(ConnectionClosedError, match=f"the connection to server {endpoint} is closed"):
        connection.send(0, GENERATION, HighWaterMarkRequest)
    await connection.close()


async def test_answers_that_nobody_waits_for_any_more_are_no_noise(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.owner.silent = {0}
    connection = await connection_to(cluster.owner)
    answers = [connection.send(0, GENERATION, HighWaterMarkRequest) for _ in range(3)]
    await connection.close()
    assert all(answer.done() for answer in answers)
    del answers
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_nothing_is_sent_that_the_server_does_not_know() -> None:
    owner = FakeOwner({0: -1})
    await owner.start(family=CLIENT_SERVER._replace(versions=(4,)))
    connection = await connection_to(owner)
    with pytest.raises(ProtocolError):
        connection.send(0, GENERATION, lambda req_id: TransactionDataListRequest(req_id, 0, 1, 1))
    assert not connection._unanswered
    await connection.close()
    await owner.stop()


async def test_nobody_listens(cluster: FakeCluster) -> None:
    await cluster.owner.stop()
    with pytest.raises(ConnectFailedError):
        await connection_to(cluster.owner)


MORE_THAN_KERNELS_HOLD = bytes(32 << 20)


async def test_a_server_that_does_not_answer_is_not_waited_for_at_the_end(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (channel_module, owners):
        monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", 100 * TIMEOUT_S)
    async with relay(cluster.owner.endpoint.port) as line:
        connection = await OwnerConnection.open(Endpoint("127.0.0.1", line.port), tls=None, timeout_s=TIMEOUT_S)
        line.blackhole()
        connection.send(0, GENERATION, HighWaterMarkRequest).cancel()
        connection.channel.send(MORE_THAN_KERNELS_HOLD)
        await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
            await connection.close()
