"""A thousand disturbances of the network under load: everything exactly once, and in order."""

import asyncio

import pytest

import waltz
from tests.unit.client.application import assignment, config, open_client
from tests.unit.client.fake_server import Connection, FakeServer, Log, until
from tests.unit.client.load import Load, LoadCallbacks
from tests.unit.client.proxy import Proxies
from waltz.common.ids import ReqId
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import FeedRequest, Message, MountRequest

pytestmark = pytest.mark.timeout(120)

PARTITIONS = 2


class Registrations:
    """Which connection of a client counts: the one mounted last, by its number. A filter of the fake server."""

    def __init__(self) -> None:
        self._connections: dict[tuple[int, int], Connection] = {}
        self._seq_nums: dict[Connection, int] = {}

    def __call__(self, connection: Connection, message: Message) -> bool:
        req_id = ReqId(message.req_id)
        key = (req_id.client_id, req_id.partition_id)
        registered = self._connections.get(key)
        if isinstance(message, MountRequest):
            if registered is None or registered.lost or message.seq_num > self._seq_nums[registered]:
                self._connections[key] = connection
                self._seq_nums[connection] = message.seq_num
                return False
            return registered is not connection
        return isinstance(message, AppendRequest | FeedRequest) and registered is not connection


@pytest.mark.parametrize(
    ("versions", "disturbances"),
    [((0, 1, 2, 3, 4, 5), 1_000), ((0, 1, 2, 3, 4), 200)],
    ids=["version 5", "version 4"],
)
async def test_everything_is_applied_once_and_in_order(versions: tuple[int, ...], disturbances: int) -> None:
    logs = {partition_id: Log(partition_id) for partition_id in range(PARTITIONS)}
    server = await FakeServer.open(logs, versions=versions)
    server.filter = Registrations()
    proxies = Proxies(seed=1)
    callbacks = LoadCallbacks(dict.fromkeys(logs, -1))
    endpoints = {server.endpoint: assignment(logs)}
    client = await open_client(callbacks, endpoints, PARTITIONS, config(), connector=proxies.connector())
    load = Load(client, "load", workers=12)
    running = asyncio.create_task(load.run())
    await proxies.disturb(disturbances, pause_s=0.0015)
    await until(lambda: load.committed_count > 200)
    load.stopping = True
    await running
    await client.flush_transactions()
    assert not client.has_pending_transactions()
    records = {
        partition_id: [
            waltz.Record(transaction_id, stored.req_id, stored.header, stored.data, 0)
            for transaction_id, stored in enumerate(log.transactions)
        ]
        for partition_id, log in logs.items()
    }
    load.check(callbacks, records)
    await client.close()
    await proxies.close()
    await server.close()
