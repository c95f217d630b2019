"""The view nodes of a partition, as they say in ZooKeeper that they are there."""

import contextlib

from waltz.client.plain.client import Client
from waltz.common.zk.client import NoNodeError
from waltz.common.zk.paths import ClusterPaths
from waltz.table.served.registration import ViewNode, decode_view_node


async def view_nodes(client: Client, partition_id: int) -> list[ViewNode]:
    """The present view nodes of a partition. Raises ``ZooKeeperError``."""
    nodes, root = client.directory
    paths = ClusterPaths.of(root)
    try:
        names = await nodes.children(paths.view_nodes(partition_id))
    except NoNodeError:
        return []
    found: list[ViewNode] = []
    for name in names:
        with contextlib.suppress(NoNodeError):
            data, _ = await nodes.get(paths.view_node(partition_id, name))
            node = decode_view_node(data)
            if node is not None:
                found.append(node)
    return found
