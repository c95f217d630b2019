"""The features that a cluster uses although nodes of the original, or of older versions, cannot live with them."""

import json
from typing import Final, NamedTuple

from waltz.common.errors import WaltzError
from waltz.common.zk.client import BadVersionError, NodeExistsError, Nodes, NoNodeError
from waltz.common.zk.paths import ClusterPaths

TRIM: Final = "trim"
"""The oldest transactions of partitions may be taken away."""

KNOWN: Final = (TRIM,)
"""All features."""


class Features(NamedTuple):
    """The features of a cluster."""

    names: frozenset[str]
    node_version: int | None
    """Version of the node, for compare-and-set; ``None`` without a node."""


async def read_features(nodes: Nodes, root: str) -> Features:
    """The features of a cluster. Raises ``WaltzError`` when the node holds something else."""
    path = ClusterPaths.of(root).features
    try:
        data, stat = await nodes.get(path)
    except NoNodeError:
        return Features(frozenset(), None)
    try:
        names = json.loads(data or b"")["features"]
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise WaltzError(f"{path} does not hold the features of a cluster") from None
    return Features(frozenset(names), stat.version)


async def write_features(nodes: Nodes, root: str, names: frozenset[str], before: Features) -> None:
    """Write the features, if nobody has changed them since they were read. Raises ``WaltzError``."""
    path = ClusterPaths.of(root).features
    data = json.dumps({"features": sorted(names)}).encode()
    try:
        if before.node_version is None:
            await nodes.create(path, data, make_path=True)
        else:
            await nodes.set(path, data, before.node_version)
    except (NodeExistsError, BadVersionError, NoNodeError):
        raise WaltzError(f"{path} was changed meanwhile; repeat the command") from None
