"""The trim points of partitions in ZooKeeper: the first transaction of each that was not trimmed.

The trim point is in the node of the partition's properties. It only grows, by compare-and-set. A change of it is no
change of the properties for tables: what was made from the log before stays true.
"""

import json
from typing import Any

from waltz.common.errors import WaltzError
from waltz.common.trim_point import TRIM_POINT, trim_point_of
from waltz.common.zk.client import BadVersionError, NodeExistsError, Nodes, NoNodeError
from waltz.common.zk.paths import ClusterPaths

_FIRST_CHANGE = 1


async def read_trim_point(nodes: Nodes, root: str, partition_id: int) -> int:
    """The first available transaction of a partition; 0 if nothing was trimmed. Raises ``WaltzError``."""
    return trim_point_of((await _read(nodes, root, partition_id))[0])


async def raise_trim_point(nodes: Nodes, root: str, partition_id: int, transaction_id: int) -> int:
    """Raise the trim point of a partition. Returns the trim point after that, which may have been higher before.

    Raises ``WaltzError``: after a ``ConnectionLossError`` the trim point may be raised, and the call can be repeated.
    """
    path = ClusterPaths.of(root).partition_properties(partition_id)
    while True:
        fields, version = await _read(nodes, root, partition_id)
        before = trim_point_of(fields)
        if transaction_id <= before:
            return before
        data = json.dumps({"change": _FIRST_CHANGE, **fields, TRIM_POINT: transaction_id}, sort_keys=True).encode()
        try:
            if version is None:
                await nodes.create(path, data, make_path=True)
            else:
                await nodes.set(path, data, version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            continue
        return transaction_id


async def _read(nodes: Nodes, root: str, partition_id: int) -> tuple[dict[str, Any], int | None]:
    """The properties of a partition, and the version of the node; ``None`` without a node."""
    path = ClusterPaths.of(root).partition_properties(partition_id)
    try:
        data, stat = await nodes.get(path)
    except NoNodeError:
        return {}, None
    try:
        fields = json.loads(data or b"")
        trim_point_of(fields)
    except (ValueError, AttributeError, RecursionError):
        raise WaltzError(f"{path} does not hold properties of a partition") from None
    return fields, stat.version
