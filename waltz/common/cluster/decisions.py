"""A cluster manager's decisions on the content of ``serverDescriptors``: pure functions, no I/O.

There is no leader election. The coordinator is the process of the live server with the smallest id; it writes the
assignment. An assignment is valid when its stored child version is that of the node.
"""

import enum
from collections.abc import Collection, Iterable
from typing import NamedTuple

from waltz.common.zk.znodes import PartitionAssignment, ServerDescriptor


class ServerNode(NamedTuple):
    """A child of ``serverDescriptors``, as read."""

    name: str
    owner: int
    """Session id of the process that created it."""
    descriptor: ServerDescriptor | None
    """``None`` when it cannot be decoded."""


class ClusterSnapshot(NamedTuple):
    """The node ``serverDescriptors`` and everything below it. The node itself is read before its children.

    The order matters. A child version that is older than the children only leads to one more computation. A child
    version that is newer than the children would make an assignment valid that lacks a server.
    """

    version: int
    cversion: int
    assignment: PartitionAssignment
    servers: dict[int, ServerDescriptor]


class ClusterAction(enum.Enum):
    """The reaction to a snapshot."""

    NOTHING = "nothing"
    """The snapshot was applied already."""
    APPLY = "apply"
    """The snapshot is consistent: servers and clients are informed."""
    WRITE = "write"
    """The assignment is out of date and this process has to renew it."""
    WAIT = "wait"
    """The assignment is out of date and another process has to renew it."""
    CLEAR = "clear"
    """No server is left. The stored assignment stays, so that generations survive."""


def decide(applied_version: int, snapshot: ClusterSnapshot, own_server_ids: Collection[int]) -> ClusterAction:
    """Decide about a snapshot. The first matching rule counts.

    ``applied_version`` is the data version of the last applied snapshot, -1 before the first. ``own_server_ids`` are
    the servers that this process manages.
    """
    if snapshot.assignment.cversion == snapshot.cversion:
        return ClusterAction.NOTHING if applied_version == snapshot.version else ClusterAction.APPLY
    if not snapshot.servers:
        return ClusterAction.CLEAR
    return ClusterAction.WRITE if min(snapshot.servers) in own_server_ids else ClusterAction.WAIT


def membership(nodes: Iterable[ServerNode]) -> dict[int, ServerDescriptor]:
    """The live servers by id. Among several nodes with the same id the newest counts; undecodable nodes do not
    count."""
    oldest_first = sorted(nodes, key=lambda node: node.name)
    return {node.descriptor.server_id: node.descriptor for node in oldest_first if node.descriptor is not None}


class ServerRegistration(NamedTuple):
    """The changes that leave exactly one node, with the right data, for a server."""

    name: str | None
    """The server's node, ``None`` if one has to be created."""
    stale: bool
    """Whether that node has to be written again."""
    surplus: list[str]
    """Nodes to be deleted: remains of creations with a lost answer."""


def registration(wanted: ServerDescriptor, nodes: Iterable[ServerNode], session_id: int | None) -> ServerRegistration:
    """Find the node of a server of this process among the nodes of its session."""
    own = sorted(
        (node.name, node.descriptor)
        for node in nodes
        if node.descriptor is not None and node.descriptor.server_id == wanted.server_id and node.owner == session_id
    )
    if not own:
        return ServerRegistration(None, False, [])
    name, descriptor = own[-1]  # the newest node, which counts for all processes: see membership
    return ServerRegistration(name, descriptor != wanted, [name for name, _ in own[:-1]])
