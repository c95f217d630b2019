"""Named cursors as positions, in a ZooKeeper that loses answers."""

import json

import pytest

import waltz
from tests.unit.table.face.test_cursors import LosingNodes
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.zk.client import ConnectionLossError

pytestmark = pytest.mark.timeout(60)


async def test_they_are_the_nodes_of_earlier_versions() -> None:
    async with waltz.connect(MockDriver(3)) as client:
        nodes, _ = client.directory
        path = "/mock/ext/cursor/mails/1"
        await nodes.create(path, b'{"holder": "somebody", "transactionId": 7}', make_path=True)
        positions = waltz.ZooKeeperPositions(client, "mails")
        assert await positions.load("key", [0, 1]) == {1: 7}
        assert (positions.request_id(0), positions.request_id(1)) == (b"", b"")
        await positions.save("key", {0: waltz.Move(None, -1), 1: waltz.Move(7, 9, b"0123456789abcdef")})
        assert await positions.load("key", [0, 1]) == {0: -1, 1: 9}
        assert positions.request_id(1) == b"0123456789abcdef"
        stored = json.loads((await nodes.get(path))[0] or b"")
        assert (stored["transactionId"], type(stored["holder"])) == (9, str), "what earlier versions read"


async def test_of_two_that_move_a_position_one_is_told() -> None:
    async with waltz.connect(MockDriver(3)) as client:
        one, other = waltz.ZooKeeperPositions(client, "mails"), waltz.ZooKeeperPositions(client, "mails")
        for positions in (one, other):
            await positions.load("key", [0, 1])
        await one.save("key", {0: waltz.Move(None, 4)})
        with pytest.raises(waltz.PositionConflictError, match="nodes of group 'mails' of partition 0 were moved"):
            await other.save("key", {0: waltz.Move(None, 5), 1: waltz.Move(None, 6)})
        assert await one.load("key", [0, 1]) == {0: 4, 1: 6}


async def test_a_consumer_over_a_zookeeper_that_loses_answers() -> None:
    nodes = LosingNodes()
    driver = MockDriver([MockServerPartition(0, nodes)])
    for _ in range(20):
        driver.partitions[0].add(b"x")
    async with waltz.connect(driver) as client:
        async with client.consume(waltz.ZooKeeperPositions(client, "mails")) as consumer:
            await anext(consumer)
            nodes.losing = True
            with pytest.raises(ConnectionLossError):
                await consumer.commit()
            nodes.losing = False
            await anext(consumer)
            await consumer.commit()
        async with client.consume(waltz.ZooKeeperPositions(client, "mails")) as consumer:
            assert consumer.positions == {0: 1}


async def test_a_node_that_holds_something_else() -> None:
    async with waltz.connect(MockDriver(1)) as client:
        nodes, _ = client.directory
        await nodes.create("/mock/ext/cursor/mails/0", b"what?")
        with pytest.raises(waltz.PositionsError, match=r"mails/0 does not hold a position; remove the node, and begin"):
            await waltz.ZooKeeperPositions(client, "mails").load("key", [0])
        with pytest.raises(ValueError, match="the name of a group"):
            waltz.ZooKeeperPositions(client, "a/b")
