"""What a view node says of itself, through changes of the tree by others."""

import asyncio
from pathlib import Path

import pytest

import waltz
from tests.unit.view.node import TIMEOUT_S, view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table.served.nodes import view_nodes
from waltz.table.served.registration import ViewNode
from waltz.view import registration

pytestmark = pytest.mark.timeout(60)


async def test_the_applied_transaction_is_told_and_a_lost_node_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "TELL_S", 0.01)
    cluster = MockServerPartition.create(1)
    async with waltz.connect(MockDriver(cluster)) as client:
        await waltz.table.configure(client, 0, {"format": "table"})
        nodes, root = client.directory
        async with view_node(cluster, tmp_path, zone="a") as node, client.table(0) as table:
            await node.served()
            last = -1
            for _ in range(2):
                last = await table.put(b"k", b"v")
                wanted = [ViewNode(node.endpoint, last, "a")]
                async with asyncio.timeout(TIMEOUT_S):
                    while await view_nodes(client, 0) != wanted:
                        await asyncio.sleep(0.005)
                await nodes.delete(f"{root}/ext/view/0/{node.endpoint.removeprefix('http://')}")
        assert await view_nodes(client, 0) == []


async def test_what_others_have_left_is_passed_over() -> None:
    async with waltz.connect(MockDriver(MockServerPartition.create(1))) as client:
        nodes, root = client.directory
        await nodes.create(f"{root}/ext/view/0/x:1", b"nonsense", make_path=True)
        good = ViewNode("http://y:2", 5)
        await nodes.create(f"{root}/ext/view/0/y:2", good.encode())
        assert await view_nodes(client, 0) == [good]
